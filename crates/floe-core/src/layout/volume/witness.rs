//! The witness of a cache of volumes: a small device of its own, which remembers the
//! volumes that went on without the cache device.
//!
//! There are two copies, at bytes 0 and 4,096, which are written one after the other;
//! of two sound copies the one with the higher sequence is newer. After the frame,
//! whose count is the number of volumes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 16 | id of the cache |
//! | 40 | 4 | number of the witness, not zero |
//! | 44 | 4 | zero |
//! | 48 | 8 | sequence of the copy |
//! | 56 | 2 each | numbers of volumes whose blocks on the cache device are stale |
//!
//! Its checksum is taken with an id of zeros.

use super::{VOLUMES_MAX, check_counts};
use crate::layout::error::LayoutError;
use crate::layout::frame::{Frame, Opened, open, seal};
use crate::layout::ids::CacheId;
use crate::layout::structure::Structure;
use crate::layout::wire::{first, first_mut, narrow, prefix_mut, put_u32, put_u64, u32_at, u64_at};
use crate::volume::VolumeId;

/// Bytes of a copy.
pub const WITNESS_BYTES: usize = 4096;

/// Bytes before the volumes.
pub const WITNESS_HEADER_BYTES: usize = 56;

const TOO_MANY: LayoutError = LayoutError::Malformed("there are too many volumes");
const NO_ID: CacheId = CacheId([0; 16]);

/// The content of a witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeWitness {
    /// The cache that it is the witness of.
    pub cache_id: CacheId,
    /// Tells it from the witnesses of other times; not zero.
    pub number: u32,
    /// Of two copies the higher is newer.
    pub sequence: u64,
    /// The volumes whose blocks on the cache device are stale.
    pub stale: Vec<VolumeId>,
}

impl VolumeWitness {
    /// Writes the witness over `out`, which has [`WITNESS_BYTES`].
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is; [`LayoutError::Malformed`] if there are too
    /// many volumes.
    pub fn encode(&self, out: &mut [u8]) -> Result<(), LayoutError> {
        let out = prefix_mut(out, WITNESS_BYTES)?;
        let count = narrow(self.stale.len())?;
        if self.stale.len() > VOLUMES_MAX {
            return Err(TOO_MANY);
        }
        out.fill(0);
        let head = first_mut::<WITNESS_HEADER_BYTES>(out)?;
        head[24..40].copy_from_slice(&self.cache_id.0);
        put_u32(head, 40, self.number);
        put_u64(head, 48, self.sequence);
        let (numbers, _) = out[WITNESS_HEADER_BYTES..].as_chunks_mut::<2>();
        for (volume, number) in self.stale.iter().zip(numbers) {
            *number = volume.0.to_le_bytes();
        }
        let frame = Frame {
            count,
            kind: 0,
            structure: Structure::VolumeWitness,
        };
        seal(NO_ID, frame, out).map(drop)
    }

    /// Reads a copy.
    ///
    /// # Errors
    /// Those of every structure; [`LayoutError::Blank`] if nothing was written there.
    pub fn decode(bytes: &[u8]) -> Result<Self, LayoutError> {
        let Opened { covered, count, .. } = open(NO_ID, Structure::VolumeWitness, bytes)?;
        let head = first::<WITNESS_HEADER_BYTES>(covered)?;
        let numbers = covered[WITNESS_HEADER_BYTES..].as_chunks::<2>().0;
        let count = count as usize;
        if count > numbers.len().min(VOLUMES_MAX) {
            return Err(TOO_MANY);
        }
        let volume = |bytes: &[u8; 2]| VolumeId(u16::from_le_bytes(*bytes));
        let mut witness = VolumeWitness {
            stale: numbers[..count].iter().map(volume).collect(),
            sequence: u64_at(head, 48),
            number: u32_at(head, 40),
            cache_id: NO_ID,
        };
        witness.cache_id.0.copy_from_slice(&head[24..40]);
        check_counts([witness.sequence])?;
        match witness.number {
            0 => Err(LayoutError::Malformed("a witness has no number")),
            _ => Ok(witness),
        }
    }
}
