//! The entries of the table of blocks: how many, and where.

use crate::volume::SECTOR_BYTES;

/// Bytes of a page.
pub const TABLE_PAGE_BYTES: usize = 4096;

/// Bytes of a page before its entries.
pub const TABLE_HEADER_BYTES: usize = 40;

/// Bytes of an entry before its bits.
pub const TABLE_ENTRY_BYTES: usize = 16;

/// The entries of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableShape {
    granule_bytes: u32,
}

impl TableShape {
    /// The table of a cache whose smallest blocks have `granule_bytes`: a power of two
    /// from 4 KiB to 1 MiB.
    pub fn new(granule_bytes: u32) -> Self {
        debug_assert!(granule_bytes.is_power_of_two() && granule_bytes >= 4096);
        TableShape { granule_bytes }
    }

    /// Sectors of a granule.
    pub fn sectors(self) -> u32 {
        (u64::from(self.granule_bytes) / SECTOR_BYTES) as u32
    }

    /// Bytes of an entry.
    pub fn entry_bytes(self) -> usize {
        TABLE_ENTRY_BYTES + 2 * self.bit_bytes()
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

    pub(super) fn bit_bytes(self) -> usize {
        self.sectors() as usize / 8
    }
}
