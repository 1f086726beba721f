//! The first block of every zone for values: it names the zone's current life.
//!
//! After the frame:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 4 | zone |
//! | 28 | 4 | generation |
//! | 32 | 8 | the sequence that was next when the zone was opened |
//! | 40 | 4 | zone layout: 1 log, 2 slots |
//! | 44 | 4 | zero |

use super::error::LayoutError;
use super::frame::{Frame, open, seal};
use super::ids::{CacheId, Generation, Sequence, ZoneLife};
use super::structure::Structure;
use super::superblock::ZoneLayout;
use super::wire::{first, first_mut, prefix_mut, put_u32, put_u64, round_up_len, u32_at, u64_at};
use crate::geometry::ZoneId;

/// Encoded length without padding.
pub const ZONE_HEADER_BYTES: usize = 48;

/// The start of a zone's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneHeader {
    /// The zone and its current life.
    pub life: ZoneLife,
    /// The organisation of the zone.
    pub layout: ZoneLayout,
    /// The next sequence at the time when the zone was opened: every record in
    /// the zone has this sequence or a higher one.
    pub opened_sequence: Sequence,
}

impl ZoneHeader {
    /// Bytes that [`encode`](Self::encode) writes.
    pub fn encoded_bytes(block_size: u32) -> usize {
        round_up_len(ZONE_HEADER_BYTES, block_size)
    }

    /// Writes the header with its padding and returns the length.
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is shorter than
    /// [`encoded_bytes`](Self::encoded_bytes).
    pub fn encode(
        &self,
        id: CacheId,
        block_size: u32,
        out: &mut [u8],
    ) -> Result<usize, LayoutError> {
        let out = prefix_mut(out, Self::encoded_bytes(block_size))?;
        out.fill(0);
        let bytes = first_mut::<ZONE_HEADER_BYTES>(out)?;
        put_u32(bytes, 24, self.life.zone.0);
        put_u32(bytes, 28, self.life.generation.0);
        put_u64(bytes, 32, self.opened_sequence.0);
        put_u32(bytes, 40, u32::from(self.layout.code()));
        let frame = Frame {
            structure: Structure::ZoneHeader,
            kind: 0,
            count: 0,
        };
        seal(id, frame, bytes)?;
        Ok(out.len())
    }

    /// Reads the header from the first block of `zone`.
    ///
    /// # Errors
    /// [`LayoutError::Stale`] if it was written for another zone; otherwise as
    /// every decoder.
    pub fn decode(id: CacheId, zone: ZoneId, bytes: &[u8]) -> Result<Self, LayoutError> {
        let opened = open(id, Structure::ZoneHeader, bytes)?;
        let bytes = first::<ZONE_HEADER_BYTES>(opened.covered)
            .map_err(|_| LayoutError::Malformed("the zone header ends early"))?;
        let life = read_life(bytes, 24)?;
        if life.zone != zone {
            let wanted = ZoneLife::new(zone, life.generation);
            return Err(LayoutError::Stale {
                found: life,
                wanted,
            });
        }
        Ok(ZoneHeader {
            life,
            layout: ZoneLayout::from_code(u32_at(bytes, 40))?,
            opened_sequence: Sequence(u64_at(bytes, 32)),
        })
    }
}

/// A zone and a generation, in eight bytes at `at`.
pub(super) fn read_life<const N: usize>(
    bytes: &[u8; N],
    at: usize,
) -> Result<ZoneLife, LayoutError> {
    let generation = Generation(u32_at(bytes, at + 4));
    if generation < Generation::FIRST {
        return Err(LayoutError::Malformed("generation zero"));
    }
    Ok(ZoneLife::new(ZoneId(u32_at(bytes, at)), generation))
}

/// As [`read_life`], but fails unless it is `wanted`.
pub(super) fn expect_life<const N: usize>(
    bytes: &[u8; N],
    at: usize,
    wanted: ZoneLife,
) -> Result<(), LayoutError> {
    let found = read_life(bytes, at)?;
    if found == wanted {
        Ok(())
    } else {
        Err(LayoutError::Stale { found, wanted })
    }
}

/// Writes a zone and a generation to eight bytes at `at`.
pub(super) fn put_life<const N: usize>(bytes: &mut [u8; N], at: usize, life: ZoneLife) {
    put_u32(bytes, at, life.zone.0);
    put_u32(bytes, at + 4, life.generation.0);
}
