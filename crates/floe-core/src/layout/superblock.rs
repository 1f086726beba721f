//! The superblock: a cache's identity, and the plan by which its flash was laid
//! out.
//!
//! It is the first block of each of the two metadata zones. After the frame:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 16 | cache id |
//! | 40 | 8 | seed of the key hash |
//! | 48 | 8 | time of formatting, seconds since 1970 |
//! | 56 | 8 | epoch: of two metadata zones the higher is newer |
//! | 64 | 4 | block size |
//! | 68 | 4 | zone count |
//! | 72 | 8 | zone size |
//! | 80 | 8 | zone capacity |
//! | 88 | 8 | chunk size |
//! | 96 | 4 | piece size: payload bytes of one piece of a large value |
//! | 100 | 4 | zone layout: 1 log, 2 slots |
//!
//! Its checksum is taken with an id of zeros, because a reader learns the id
//! from it.

use super::error::LayoutError;
use super::frame::{FRAME_BYTES, Frame, Opened, open, seal};
use super::ids::{CacheId, LARGE_MAX_BYTES, UNIT_BYTES};
use super::structure::Structure;
use super::wire::{
    first, first_mut, id_at, prefix_mut, put_u32, put_u64, round_up_len, u32_at, u64_at,
};
use crate::hash::HashSeed;

/// Encoded length without padding.
pub const SUPERBLOCK_BYTES: usize = 104;

/// The id its own checksum is taken with.
pub(super) const NO_ID: CacheId = CacheId([0; 16]);

/// The organisation of the zones for values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ZoneLayout {
    /// Batches one after another, freed by zone.
    Log,
    /// Slots of one chunk each, rewritten in place.
    Slots,
}

impl ZoneLayout {
    pub(super) fn code(self) -> u16 {
        match self {
            ZoneLayout::Log => 1,
            ZoneLayout::Slots => 2,
        }
    }

    pub(super) fn from_code(code: u32) -> Result<Self, LayoutError> {
        match code {
            1 => Ok(ZoneLayout::Log),
            2 => Ok(ZoneLayout::Slots),
            _ => Err(LayoutError::Malformed("unknown zone layout")),
        }
    }
}

crate::names! {
    ZoneLayout {
        Log => "log",
        Slots => "slots",
    }
}

/// The settings by which a cache's flash was laid out. They cannot change
/// without formatting it anew. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatPlan {
    /// The device's unit of reading and writing; a power of two from 512.
    pub block_size: u32,
    /// Number of zones, the two metadata zones included.
    pub zone_count: u32,
    /// Distance between the starts of two zones.
    pub zone_size: u64,
    /// Writable bytes of a zone.
    pub zone_capacity: u64,
    /// The unit into which objects are cut, and with slots the longest value;
    /// at most [`LARGE_MAX_BYTES`].
    pub chunk_bytes: u64,
    /// Payload bytes of every piece of a large value but the last, which may be
    /// shorter. Whole blocks, and above [`UNIT_BYTES`] a multiple of it.
    pub piece_bytes: u32,
    /// The organisation of the zones for values.
    pub layout: ZoneLayout,
}

impl FormatPlan {
    /// Checks that the numbers are consistent.
    ///
    /// # Errors
    /// [`LayoutError::Malformed`] names the first number that is not.
    pub fn validate(&self) -> Result<(), LayoutError> {
        let wrong = |why| Err(LayoutError::Malformed(why));
        validate_zones(
            self.block_size,
            self.zone_count,
            self.zone_size,
            self.zone_capacity,
        )?;
        if self.chunk_bytes == 0 || self.chunk_bytes > LARGE_MAX_BYTES {
            return wrong("the chunk size is not within 1 byte to 1 GiB");
        }
        if !is_piece_size(self.piece_bytes, self.block_size) {
            return wrong("the piece size is not whole blocks and units");
        }
        Ok(())
    }
}

/// Checks the shape of a device with two metadata zones and at least one more
/// zone.
pub(super) fn validate_zones(
    block_size: u32,
    zone_count: u32,
    zone_size: u64,
    zone_capacity: u64,
) -> Result<(), LayoutError> {
    let block = u64::from(block_size);
    let wrong = |why| Err(LayoutError::Malformed(why));
    if block_size < 512 || !block_size.is_power_of_two() {
        return wrong("the block size is not a power of two from 512");
    }
    if zone_count < 3 {
        return wrong("two metadata zones leave no zone for values");
    }
    if zone_capacity == 0 || zone_capacity > zone_size {
        return wrong("the zone capacity is not within 1 to the zone size");
    }
    if !zone_capacity.is_multiple_of(block) || !zone_size.is_multiple_of(block) {
        return wrong("the zones are not whole blocks");
    }
    if zone_capacity / block > u64::from(u32::MAX) {
        return wrong("a zone has more blocks than 32 bits can number");
    }
    if zone_size.checked_mul(u64::from(zone_count)).is_none() {
        return wrong("the zones together exceed 64 bits");
    }
    Ok(())
}

/// The fields that superblocks of `BYTES` have in common, at the same offsets.
pub(super) struct Head<const BYTES: usize> {
    pub(super) id: CacheId,
    pub(super) hash_seed: HashSeed,
    pub(super) formatted_unix_s: u64,
    pub(super) epoch: u64,
    pub(super) block_size: u32,
    pub(super) zone_count: u32,
    pub(super) zone_size: u64,
    pub(super) zone_capacity: u64,
}

impl<const BYTES: usize> Head<BYTES> {
    /// Writes the superblock with its padding and returns the length; `rest`
    /// writes the fields of its own.
    pub(super) fn encode(
        &self,
        structure: Structure,
        out: &mut [u8],
        rest: impl FnOnce(&mut [u8; BYTES]),
    ) -> Result<usize, LayoutError> {
        let out = prefix_mut(out, round_up_len(BYTES, self.block_size))?;
        out.fill(0);
        let bytes = first_mut::<BYTES>(out)?;
        bytes[24..40].copy_from_slice(&self.id.0);
        put_u64(bytes, 40, self.hash_seed.0);
        put_u64(bytes, 48, self.formatted_unix_s);
        put_u64(bytes, 56, self.epoch);
        put_u32(bytes, 64, self.block_size);
        put_u32(bytes, 68, self.zone_count);
        put_u64(bytes, 72, self.zone_size);
        put_u64(bytes, 80, self.zone_capacity);
        rest(bytes);
        let frame = Frame {
            structure,
            kind: 0,
            count: 0,
        };
        seal(NO_ID, frame, bytes)?;
        Ok(out.len())
    }

    /// Reads the common fields; returns all bytes too.
    pub(super) fn decode(
        structure: Structure,
        bytes: &[u8],
    ) -> Result<(Self, &[u8; BYTES]), LayoutError> {
        let opened = open_superblock(structure, bytes)?;
        let bytes = first::<BYTES>(opened.covered)
            .map_err(|_| LayoutError::Malformed("the superblock ends early"))?;
        let head = Head {
            id: CacheId(id_at(bytes, 24)),
            hash_seed: HashSeed(u64_at(bytes, 40)),
            formatted_unix_s: u64_at(bytes, 48),
            epoch: u64_at(bytes, 56),
            block_size: u32_at(bytes, 64),
            zone_count: u32_at(bytes, 68),
            zone_size: u64_at(bytes, 72),
            zone_capacity: u64_at(bytes, 80),
        };
        Ok((head, bytes))
    }
}

/// Opens a superblock, which is sealed with an id of zeros because a reader
/// learns the id from it, in the first block of a metadata zone.
pub(super) fn open_superblock(
    structure: Structure,
    bytes: &[u8],
) -> Result<Opened<'_>, LayoutError> {
    open(NO_ID, structure, bytes).map_err(|error| match error {
        // The buffer has a whole block, so the length field is wrong.
        LayoutError::TooShort { needed, available } if needed > FRAME_BYTES && available >= 512 => {
            LayoutError::BadChecksum
        }
        error => error,
    })
}

/// True if `piece_bytes` is a valid piece size.
pub(super) fn is_piece_size(piece_bytes: u32, block_size: u32) -> bool {
    piece_bytes > 0
        && piece_bytes.is_multiple_of(block_size.max(1))
        && (piece_bytes <= UNIT_BYTES || piece_bytes.is_multiple_of(UNIT_BYTES))
}

/// A setting that differs between the flash and the plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {field} on flash is {on_flash}, but {wanted} is wanted")]
pub struct PlanMismatch {
    /// The setting's name, such as `chunk size`.
    pub field: &'static str,
    /// Its value on flash, with its unit.
    pub on_flash: String,
    /// The planned value, with its unit.
    pub wanted: String,
}

/// A cache's identity and plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The cache's identity.
    pub id: CacheId,
    /// The seed of its key hash.
    pub hash_seed: HashSeed,
    /// Time of formatting, in seconds since 1970.
    pub created_unix_s: u64,
    /// The life of the metadata that starts here. A new epoch is higher than
    /// any that was ever read from either metadata zone.
    pub epoch: u64,
    /// The layout of the flash.
    pub plan: FormatPlan,
}

impl Superblock {
    /// Bytes that [`encode`](Self::encode) writes.
    pub fn encoded_bytes(block_size: u32) -> usize {
        round_up_len(SUPERBLOCK_BYTES, block_size)
    }

    /// Writes the superblock with its padding and returns the length.
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is shorter than
    /// [`encoded_bytes`](Self::encoded_bytes); [`LayoutError::Malformed`] if
    /// the plan is invalid.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, LayoutError> {
        let plan = &self.plan;
        plan.validate()?;
        let head = Head::<SUPERBLOCK_BYTES> {
            id: self.id,
            hash_seed: self.hash_seed,
            formatted_unix_s: self.created_unix_s,
            epoch: self.epoch,
            block_size: plan.block_size,
            zone_count: plan.zone_count,
            zone_size: plan.zone_size,
            zone_capacity: plan.zone_capacity,
        };
        head.encode(Structure::Superblock, out, |bytes| {
            put_u64(bytes, 88, plan.chunk_bytes);
            put_u32(bytes, 96, plan.piece_bytes);
            put_u32(bytes, 100, u32::from(plan.layout.code()));
        })
    }

    /// Reads a superblock from the first block of a metadata zone.
    ///
    /// # Errors
    /// * [`LayoutError::Blank`] if nothing was written there;
    /// * [`LayoutError::Foreign`] if it was written by other software, which
    ///   must not be overwritten without consent;
    /// * [`LayoutError::UnsupportedVersion`] for a newer format;
    /// * [`LayoutError::BadChecksum`] or [`LayoutError::Malformed`] for a
    ///   damaged superblock.
    pub fn decode(bytes: &[u8]) -> Result<Self, LayoutError> {
        let (head, bytes) = Head::<SUPERBLOCK_BYTES>::decode(Structure::Superblock, bytes)?;
        let plan = FormatPlan {
            block_size: head.block_size,
            zone_count: head.zone_count,
            zone_size: head.zone_size,
            zone_capacity: head.zone_capacity,
            chunk_bytes: u64_at(bytes, 88),
            piece_bytes: u32_at(bytes, 96),
            layout: ZoneLayout::from_code(u32_at(bytes, 100))?,
        };
        plan.validate()?;
        Ok(Superblock {
            id: head.id,
            hash_seed: head.hash_seed,
            created_unix_s: head.formatted_unix_s,
            epoch: head.epoch,
            plan,
        })
    }

    /// The first setting in which the flash differs from the plan `wanted`;
    /// `None` if that plan can open it.
    pub fn mismatch(&self, wanted: &FormatPlan) -> Option<PlanMismatch> {
        let found = &self.plan;
        let bytes = |field, on_flash: u64, wanted: u64| {
            (on_flash != wanted).then(|| PlanMismatch {
                field,
                on_flash: format!("{on_flash} bytes"),
                wanted: format!("{wanted} bytes"),
            })
        };
        let block_size = bytes(
            "block size",
            found.block_size.into(),
            wanted.block_size.into(),
        );
        let differs = block_size
            .or_else(|| bytes("zone size", found.zone_size, wanted.zone_size))
            .or_else(|| bytes("zone capacity", found.zone_capacity, wanted.zone_capacity))
            .or_else(|| bytes("chunk size", found.chunk_bytes, wanted.chunk_bytes))
            .or_else(|| {
                bytes(
                    "piece size",
                    found.piece_bytes.into(),
                    wanted.piece_bytes.into(),
                )
            });
        if differs.is_some() {
            return differs;
        }
        if found.zone_count != wanted.zone_count {
            return Some(PlanMismatch {
                field: "number of zones",
                on_flash: found.zone_count.to_string(),
                wanted: wanted.zone_count.to_string(),
            });
        }
        (found.layout != wanted.layout).then(|| PlanMismatch {
            field: "zone layout",
            on_flash: found.layout.to_string(),
            wanted: wanted.layout.to_string(),
        })
    }
}
