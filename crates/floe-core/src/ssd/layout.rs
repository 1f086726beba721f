//! The placement of a superblock's bytes on the dies.
//!
//! A superblock is a sequence of rows. A row is a program unit on each of
//! `stripe_dies` dies, and its consecutive pages alternate over these dies.
//!
//! Program units go from die to die over all rows of a superblock, and one in
//! `parity_every` holds parity. Every turn begins one die further, so that
//! parity does not always hit the same die.

use super::config::NandConfig;

#[derive(Clone, Debug)]
pub(super) struct Layout {
    dies: u32,
    stripe: u32,
    page: u64,
    row: u64,
    /// Program units with data between two with parity; zero for no parity.
    data_per_parity: u32,
}

/// A program unit of a row: its die, and the die of the parity that follows it,
/// if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) die: u32,
    pub(super) parity_die: Option<u32>,
}

/// Pages of one die that are read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    pub(super) die: u32,
    pub(super) pages: u32,
    pub(super) bytes: u32,
}

impl Layout {
    pub(super) fn new(nand: &NandConfig) -> Self {
        Layout {
            dies: nand.dies,
            stripe: nand.stripe_dies,
            page: nand.page.bytes(),
            row: nand.row_bytes(),
            data_per_parity: nand.parity_every.saturating_sub(1),
        }
    }

    pub(super) fn row_bytes(&self) -> u64 {
        self.row
    }

    /// How many program units a row has.
    pub(super) fn stripe(&self) -> u32 {
        self.stripe
    }

    /// The program units of a row.
    pub(super) fn units(&self, superblock: u32, row: u32) -> impl Iterator<Item = Unit> + use<> {
        let layout = self.clone();
        (0..self.stripe).map(move |member| {
            let (raw, is_last) = layout.raw(row, member);
            Unit {
                die: layout.die(superblock, raw),
                parity_die: is_last.then(|| layout.die(superblock, raw + 1)),
            }
        })
    }

    /// Calls `each` for the page reads that fetch `bytes` from `offset` of a
    /// superblock; the range lies in one row. Their lengths add up to `bytes`.
    pub(super) fn reads(
        &self,
        superblock: u32,
        offset: u64,
        bytes: u64,
        mut each: impl FnMut(Pages),
    ) {
        let row = (offset / self.row) as u32;
        let within = offset % self.row;
        let (first, last) = (within / self.page, (within + bytes - 1) / self.page);
        let stripe = u64::from(self.stripe);
        for member in 0..self.stripe {
            let ahead = (u64::from(member) + stripe - first % stripe) % stripe;
            if first + ahead > last {
                continue;
            }
            let pages = (last - first - ahead) / stripe + 1;
            let mut length = pages * self.page;
            // Only a part of the first and of the last page may be read.
            if ahead == 0 {
                length -= within - first * self.page;
            }
            if (last - first) % stripe == ahead {
                length -= (last + 1) * self.page - (within + bytes);
            }
            let (raw, _) = self.raw(row, member);
            each(Pages {
                die: self.die(superblock, raw),
                pages: pages as u32,
                bytes: length as u32,
            });
        }
    }

    /// The position of a row's member among all program units, parity included,
    /// and whether parity follows it.
    fn raw(&self, row: u32, member: u32) -> (u32, bool) {
        let data = row * self.stripe + member;
        match self.data_per_parity {
            0 => (data, false),
            group => (data + data / group, data % group == group - 1),
        }
    }

    fn die(&self, superblock: u32, raw: u32) -> u32 {
        (raw + raw / self.dies + superblock * 5) % self.dies
    }
}
