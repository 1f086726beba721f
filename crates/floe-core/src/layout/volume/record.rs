//! A record: the change of one place of the cache.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | granule: the place, in units of the smallest block |
//! | 4 | 1 | kind: 1 map, 2 unmap, 3 mark, 4 intent, 5 settled, 6 sums |
//! | 5 | 1 | of a map the class; of a mark the state: 0 missing, 1 clean, 2 dirty; of sums their number, 1 or 2 |
//! | 6 | 2 | of a map the volume; of a mark the first sector; of sums the first unit |
//! | 8 | 8 | of a map the granule of the volume; of a mark the sector after the last; of sums two numbers of 4 bytes |
//!
//! The granule of an intent, and of a settled one, is the number of its bit.

use super::shape::TableShape;
use crate::layout::error::LayoutError;
use crate::layout::wire::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::volume::VolumeId;
use crate::volume::mode::Sector;

/// Encoded length.
pub const RECORD_BYTES: usize = 16;

/// Most granules of a block, as a power of two.
pub(super) const CLASS_MAX: u8 = 8;

/// Sectors of the largest block.
const SECTORS_MAX: u64 = 2048;

/// No checksum: that of the unit is unknown.
pub const NO_SUM: u32 = 0;

/// The address and size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedBlock {
    /// The volume.
    pub volume: VolumeId,
    /// Base-2 logarithm of the block's granules.
    pub class: u8,
    /// The block's first granule within the volume.
    pub address: u64,
}

/// The change of one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRecord {
    /// The place holds this block, none of whose sectors is valid.
    Map {
        /// The place, in granules of the cache.
        granule: u32,
        /// The block.
        block: MappedBlock,
    },
    /// The place holds no block.
    Unmap {
        /// The place, in granules of the cache.
        granule: u32,
    },
    /// Sectors of the block at this place have this state.
    Mark {
        /// The place, in granules of the cache.
        granule: u32,
        /// The first sector, counted from the block's start.
        first: u16,
        /// The sector after the last.
        end: u16,
        /// Their state.
        state: Sector,
    },
    /// Units of this granule have these checksums; [`NO_SUM`] for an unknown one. A mark
    /// makes the checksums of its units unknown.
    Sums {
        /// The place, in granules of the cache.
        granule: u32,
        /// The first unit, counted from the granule's start.
        first: u16,
        /// The checksum of the first unit, and of the next one if the record has it.
        sums: (u32, Option<u32>),
    },
    /// Blocks of the addresses that this bit stands for may differ from their backing
    /// devices after an unclean stop.
    Intent {
        /// The bit.
        bit: u32,
    },
    /// Clean blocks of the addresses that this bit stands for are as their backing
    /// devices say, until the next intent.
    Settled {
        /// The bit.
        bit: u32,
    },
}

/// The change of one entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The entry begins a block, or none does; none of its sectors is valid.
    Head(Option<MappedBlock>),
    /// Sectors of the entry's granule have this state.
    Sectors {
        /// The first sector.
        first: u32,
        /// The sector after the last.
        end: u32,
        /// Their state.
        state: Sector,
    },
    /// A unit of the entry's granule has this checksum.
    Sum {
        /// The unit.
        unit: u32,
        /// Its checksum, or [`NO_SUM`].
        sum: u32,
    },
}

impl BlockRecord {
    pub(super) fn encode(&self, out: &mut [u8; RECORD_BYTES]) {
        let (granule, kind, small, medium, large) = match *self {
            BlockRecord::Map { granule, block } => {
                (granule, 1, block.class, block.volume.0, block.address)
            }
            BlockRecord::Unmap { granule } => (granule, 2, 0, 0, 0),
            BlockRecord::Mark {
                granule,
                first,
                end,
                state,
            } => (granule, 3, code(state), first, u64::from(end)),
            BlockRecord::Intent { bit } => (bit, 4, 0, 0, 0),
            BlockRecord::Settled { bit } => (bit, 5, 0, 0, 0),
            BlockRecord::Sums {
                granule,
                first,
                sums: (one, other),
            } => {
                let both = u64::from(other.unwrap_or(0)) << 32 | u64::from(one);
                (granule, 6, 1 + u8::from(other.is_some()), first, both)
            }
        };
        put_u32(out, 0, granule);
        out[4] = kind;
        out[5] = small;
        put_u16(out, 6, medium);
        put_u64(out, 8, large);
    }

    pub(super) fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Self, LayoutError> {
        let granule = u32_at(bytes, 0);
        let (small, medium, large) = (bytes[5], u16_at(bytes, 6), u64_at(bytes, 8));
        match bytes[4] {
            1 if small <= CLASS_MAX => Ok(BlockRecord::Map {
                granule,
                block: MappedBlock {
                    volume: VolumeId(medium),
                    class: small,
                    address: large,
                },
            }),
            2 => Ok(BlockRecord::Unmap { granule }),
            3 if u64::from(medium) < large && large <= SECTORS_MAX => Ok(BlockRecord::Mark {
                granule,
                first: medium,
                end: large as u16,
                state: state(small)?,
            }),
            4 => Ok(BlockRecord::Intent { bit: granule }),
            5 => Ok(BlockRecord::Settled { bit: granule }),
            6 if matches!(small, 1 | 2) && u64::from(medium) < SECTORS_MAX => {
                Ok(BlockRecord::Sums {
                    granule,
                    first: medium,
                    sums: (large as u32, (small == 2).then_some((large >> 32) as u32)),
                })
            }
            _ => Err(LayoutError::Malformed("no record of a block")),
        }
    }

    /// Hands the changes of entries of the table to `each`, with the granule of each.
    pub fn edits(&self, shape: TableShape, mut each: impl FnMut(u32, Edit)) {
        match *self {
            BlockRecord::Map { granule, block } => {
                each(granule, Edit::Head(Some(block)));
                let others = 1..1_u32 << block.class.min(CLASS_MAX);
                others.for_each(|at| each(granule.saturating_add(at), Edit::Head(None)));
            }
            BlockRecord::Unmap { granule } => each(granule, Edit::Head(None)),
            BlockRecord::Mark {
                granule,
                first,
                end,
                state,
            } => {
                let sectors = shape.sectors();
                let (first, end) = (u32::from(first), u32::from(end));
                for at in first / sectors..end.div_ceil(sectors) {
                    let from = at * sectors;
                    let edit = Edit::Sectors {
                        first: first.saturating_sub(from),
                        end: (end - from).min(sectors),
                        state,
                    };
                    each(granule.saturating_add(at), edit);
                }
            }
            BlockRecord::Sums {
                granule,
                first,
                sums: (one, other),
            } => {
                for (unit, sum) in (u32::from(first)..).zip([one].into_iter().chain(other)) {
                    each(granule, Edit::Sum { unit, sum });
                }
            }
            BlockRecord::Intent { .. } | BlockRecord::Settled { .. } => {}
        }
    }
}

fn code(state: Sector) -> u8 {
    match state {
        Sector::Missing => 0,
        Sector::Clean => 1,
        Sector::Dirty => 2,
    }
}

fn state(code: u8) -> Result<Sector, LayoutError> {
    match code {
        0 => Ok(Sector::Missing),
        1 => Ok(Sector::Clean),
        2 => Ok(Sector::Dirty),
        _ => Err(LayoutError::Malformed("unknown state of sectors")),
    }
}
