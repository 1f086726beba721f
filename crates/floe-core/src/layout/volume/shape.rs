//! The entries of the table of blocks: how many, and where.

use std::ops::Range;

use crate::volume::SECTOR_BYTES;

/// Bytes of a page.
pub const TABLE_PAGE_BYTES: usize = 4096;

/// Bytes of a page before its entries.
pub const TABLE_HEADER_BYTES: usize = 40;

/// Bytes of an entry before its bits.
pub const TABLE_ENTRY_BYTES: usize = 16;

/// Bytes of the checksum of a unit.
pub(super) const SUM_BYTES: usize = 4;

/// The entries of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableShape {
    granule_bytes: u32,
    /// Bytes with a checksum of their own; 0 without checksums.
    unit_bytes: u32,
}

impl TableShape {
    /// The table of a cache whose smallest blocks have `granule_bytes`: a power of two
    /// from 4 KiB to 1 MiB.
    pub fn new(granule_bytes: u32) -> Self {
        debug_assert!(granule_bytes.is_power_of_two() && granule_bytes >= 4096);
        TableShape {
            granule_bytes,
            unit_bytes: 0,
        }
    }

    /// The table of a cache whose smallest blocks have `granule_bytes`, on a device of
    /// blocks of `block_size`, with checksums or without. `None` if an entry is larger than
    /// a page.
    pub fn of_cache(granule_bytes: u32, block_size: u32, checksums: bool) -> Option<Self> {
        let shape = TableShape::new(granule_bytes);
        match checksums {
            true => shape.with_sums(block_size),
            false => Some(shape),
        }
    }

    /// The same table with a checksum for each `unit_bytes`, a power of two from 512 to
    /// 4096. `None` if an entry is larger than a page then.
    pub fn with_sums(self, unit_bytes: u32) -> Option<Self> {
        debug_assert!(unit_bytes.is_power_of_two() && (512..=4096).contains(&unit_bytes));
        let shape = TableShape { unit_bytes, ..self };
        (shape.entries() > 0).then_some(shape)
    }

    /// Checksums of an entry.
    pub fn sums(self) -> u32 {
        self.granule_bytes.checked_div(self.unit_bytes).unwrap_or(0)
    }

    /// The units that have bytes of these sectors of a granule.
    pub(super) fn units_of(self, sectors: Range<u32>) -> Range<u32> {
        let sectors_in_unit = self.unit_bytes / SECTOR_BYTES as u32;
        let first = sectors.start.checked_div(sectors_in_unit).unwrap_or(0);
        let end = sectors.end.div_ceil(sectors_in_unit.max(1));
        first..end.min(self.sums())
    }

    /// Sectors of a granule.
    pub fn sectors(self) -> u32 {
        (u64::from(self.granule_bytes) / SECTOR_BYTES) as u32
    }

    /// Bytes of an entry.
    pub fn entry_bytes(self) -> usize {
        self.sums_at() + self.sums() as usize * SUM_BYTES
    }

    /// Entries of a page.
    pub fn entries(self) -> u32 {
        ((TABLE_PAGE_BYTES - TABLE_HEADER_BYTES) / self.entry_bytes()) as u32
    }

    /// The page of `granule`, and its entry there.
    pub fn locate(self, granule: u32) -> (u32, u32) {
        (granule / self.entries(), granule % self.entries())
    }

    /// Pages of a table for `granules`.
    pub fn pages(self, granules: u32) -> u32 {
        granules.div_ceil(self.entries())
    }

    /// Offset of the checksums within an entry.
    pub(super) fn sums_at(self) -> usize {
        TABLE_ENTRY_BYTES + 2 * self.bit_bytes()
    }

    pub(super) fn bit_bytes(self) -> usize {
        self.sectors() as usize / 8
    }
}
