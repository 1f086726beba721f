//! A page of the table of blocks: an entry for each granule of the cache.
//!
//! There are two copies of each page, which are written in turns; of two sound
//! copies the one with the higher sequence is newer. After the frame, whose count
//! is the number of entries:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 8 | sequence |
//! | 32 | 4 | number of the page |
//! | 36 | 4 | zero |
//! | 40 | 16 + *m* each | entries |
//!
//! An entry has the block that begins at its granule, a bit for each sector of the
//! granule that is valid, then one for each that is dirty. If the data has checksums,
//! 4 bytes for each unit follow, the device's block: its CRC-32C after its number among
//! all units, or zero if that is unknown. *m* is the length of both.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | volume |
//! | 2 | 1 | class |
//! | 3 | 1 | 1 if a block begins here, else 0 |
//! | 4 | 4 | zero |
//! | 8 | 8 | granule of the volume |

use super::record::{BlockRecord, CLASS_MAX, Edit, MappedBlock, NO_SUM};
use super::shape::{
    SUM_BYTES, TABLE_ENTRY_BYTES, TABLE_HEADER_BYTES, TABLE_PAGE_BYTES, TableShape,
};
use crate::layout::error::LayoutError;
use crate::layout::frame::{Frame, open, seal};
use crate::layout::ids::CacheId;
use crate::layout::structure::Structure;
use crate::layout::volume::check_counts;
use crate::layout::wire::{first, first_mut, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::volume::VolumeId;
use crate::volume::mode::Sector;

/// A page in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePage {
    shape: TableShape,
    /// The page's number.
    pub number: u32,
    /// Of two copies the higher is newer; 0 for a page that was never written.
    pub sequence: u64,
    entries: Vec<u8>,
}

impl TablePage {
    /// A page without blocks.
    pub fn empty(shape: TableShape, number: u32) -> Self {
        TablePage {
            shape,
            number,
            sequence: 0,
            entries: vec![0; shape.entries() as usize * shape.entry_bytes()],
        }
    }

    /// Writes the page over `out`, which has [`TABLE_PAGE_BYTES`].
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is.
    pub fn encode(&self, id: CacheId, out: &mut [u8]) -> Result<(), LayoutError> {
        let page = first_mut::<TABLE_PAGE_BYTES>(out)?;
        page.fill(0);
        put_u64(page, 24, self.sequence);
        put_u32(page, 32, self.number);
        page[TABLE_HEADER_BYTES..][..self.entries.len()].copy_from_slice(&self.entries);
        let frame = Frame {
            structure: Structure::BlockTable,
            kind: 0,
            count: self.shape.entries(),
        };
        seal(id, frame, page)?;
        Ok(())
    }

    /// Reads a copy of page `number`.
    ///
    /// # Errors
    /// The errors of every structure, and [`LayoutError::Malformed`] for another page.
    pub fn decode(
        id: CacheId,
        shape: TableShape,
        number: u32,
        bytes: &[u8],
    ) -> Result<Self, LayoutError> {
        let opened = open(id, Structure::BlockTable, bytes)?;
        let page = first::<TABLE_PAGE_BYTES>(opened.covered)?;
        if u32_at(page, 32) != number || opened.count != shape.entries() {
            return Err(LayoutError::Malformed("another page of the table"));
        }
        let sequence = u64_at(page, 24);
        check_counts([sequence])?;
        let len = shape.entries() as usize * shape.entry_bytes();
        let entries = &page[TABLE_HEADER_BYTES..][..len];
        let is_sound = |entry: &[u8]| matches!(entry, [_, _, 0..=CLASS_MAX, 0 | 1, ..]);
        if !entries.chunks_exact(shape.entry_bytes()).all(is_sound) {
            return Err(LayoutError::Malformed("an entry is no block"));
        }
        Ok(TablePage {
            shape,
            number,
            sequence,
            entries: entries.to_vec(),
        })
    }

    /// The block that begins at entry `at`, if one does.
    pub fn block(&self, at: u32) -> Option<MappedBlock> {
        let head = self.entry(at)?.first_chunk::<TABLE_ENTRY_BYTES>()?;
        (head[3] == 1).then(|| MappedBlock {
            volume: VolumeId(u16_at(head, 0)),
            class: head[2],
            address: u64_at(head, 8),
        })
    }

    /// The state of sector `sector` of entry `at`.
    pub fn sector(&self, at: u32, sector: u32) -> Sector {
        let bits = self
            .entry(at)
            .map_or(&[][..], |entry| &entry[TABLE_ENTRY_BYTES..]);
        let bit = |from: usize| {
            let byte = bits.get(from + sector as usize / 8).copied();
            byte.unwrap_or(0) >> (sector % 8) & 1 == 1
        };
        match (bit(0), bit(self.shape.bit_bytes())) {
            (false, _) => Sector::Missing,
            (true, is_dirty) => Sector::valid(is_dirty),
        }
    }

    /// The checksum of unit `unit` of entry `at`, or [`NO_SUM`].
    pub fn sum(&self, at: u32, unit: u32) -> u32 {
        let sum = self.entry(at).and_then(|entry| {
            let from = self.shape.sums_at() + unit as usize * SUM_BYTES;
            entry.get(from..)?.first_chunk::<SUM_BYTES>()
        });
        sum.map_or(NO_SUM, |sum| u32::from_le_bytes(*sum))
    }

    /// Applies the changes of `record` to the entries in this page.
    pub fn apply_record(&mut self, record: &BlockRecord) {
        let (shape, number) = (self.shape, self.number);
        record.edits(shape, |granule, edit| {
            let (page, entry) = shape.locate(granule);
            if page == number {
                self.apply(entry, edit);
            }
        });
    }

    /// Applies a change to entry `at`.
    pub fn apply(&mut self, at: u32, edit: Edit) {
        let shape = self.shape;
        let (len, bytes) = (shape.entry_bytes(), shape.bit_bytes());
        let Some(entry) = self
            .entries
            .get_mut(at as usize * len..(at as usize + 1) * len)
        else {
            return;
        };
        match edit {
            Edit::Head(block) => {
                entry.fill(0);
                if let (Some(block), Some(head)) =
                    (block, entry.first_chunk_mut::<TABLE_ENTRY_BYTES>())
                {
                    put_u16(head, 0, block.volume.0);
                    head[2] = block.class;
                    head[3] = 1;
                    put_u64(head, 8, block.address);
                }
            }
            Edit::Sectors { first, end, state } => {
                let (bits, sums) = entry[TABLE_ENTRY_BYTES..].split_at_mut(2 * bytes);
                let (valid, dirty) = bits.split_at_mut(bytes);
                set(valid, first, end, state != Sector::Missing);
                set(dirty, first, end, state == Sector::Dirty);
                let (sums, _) = sums.as_chunks_mut::<SUM_BYTES>();
                for unit in shape.units_of(first..end) {
                    sums[unit as usize] = NO_SUM.to_le_bytes();
                }
            }
            Edit::Sum { unit, sum } => {
                let (sums, _) = entry[shape.sums_at()..].as_chunks_mut::<SUM_BYTES>();
                if let Some(place) = sums.get_mut(unit as usize) {
                    *place = sum.to_le_bytes();
                }
            }
        }
    }

    fn entry(&self, at: u32) -> Option<&[u8]> {
        let len = self.shape.entry_bytes();
        self.entries.get(at as usize * len..(at as usize + 1) * len)
    }
}

/// Sets bits `first..end`.
fn set(bits: &mut [u8], first: u32, end: u32, to: bool) {
    for at in first..end.min(bits.len() as u32 * 8) {
        let (byte, bit) = (&mut bits[at as usize / 8], 1 << (at % 8));
        *byte = if to { *byte | bit } else { *byte & !bit };
    }
}
