//! What an index group is: one page behind its last set's.
//!
//! A page of kind [`PageKind::Index`] whose number is the number of sets, so
//! that it is no set's. Its body:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 8 | sequence of the group's first set-group |
//! | 32 | 8 | sequence of the oldest set-group that lived when it was written |
//! | 40 | 4 | sets |
//! | 44 | 4 | set-groups that it speaks of |
//! | 48 | 4 | bits of a filter |
//! | 52 | 4 | bits of it that a key sets |

use super::page::{PageId, PageKind, open_index, read_page_id, seal_index};
use crate::layout::error::LayoutError;
use crate::layout::ids::CacheId;
use crate::layout::wire::{first, first_mut, put_u32, put_u64, u32_at, u64_at};
use crate::tiny::PAGE_BYTES;

/// What an index group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexHead {
    /// Sequence of the group's first set-group.
    pub sequence: u64,
    /// Sequence of the oldest set-group that lived when this was written.
    pub oldest_live: u64,
    /// Sets, each with a page in front of this one.
    pub sets: u32,
    /// Set-groups that it speaks of.
    pub columns: u32,
    /// Bits of a filter.
    pub rows: u32,
    /// Bits of it that a key sets.
    pub probes: u32,
}

impl IndexHead {
    /// Writes it into the first page of `out`.
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is no whole page.
    pub fn encode(&self, cache: CacheId, out: &mut [u8]) -> Result<(), LayoutError> {
        let page = first_mut::<PAGE_BYTES>(out)?;
        page.fill(0);
        put_u64(page, 24, self.sequence);
        put_u64(page, 32, self.oldest_live);
        put_u32(page, 40, self.sets);
        put_u32(page, 44, self.columns);
        put_u32(page, 48, self.rows);
        put_u32(page, 52, self.probes);
        let id = PageId {
            kind: PageKind::Index,
            sequence: self.sequence,
            number: self.sets,
        };
        seal_index(cache, id, page)
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`LayoutError::Malformed`] if the page is that of a set, or contradicts
    /// itself; otherwise as [`read_page_id`].
    pub fn decode(cache: CacheId, page: &[u8]) -> Result<Self, LayoutError> {
        let id = read_page_id(cache, page)?;
        open_index(cache, id, page)?;
        let page = first::<PAGE_BYTES>(page)?;
        let head = IndexHead {
            sequence: u64_at(page, 24),
            oldest_live: u64_at(page, 32),
            sets: u32_at(page, 40),
            columns: u32_at(page, 44),
            rows: u32_at(page, 48),
            probes: u32_at(page, 52),
        };
        if head.sequence != id.sequence || head.sets != id.number {
            return Err(LayoutError::Malformed("not the head of an index group"));
        }
        if head.columns == 0 || head.rows == 0 || head.probes == 0 {
            return Err(LayoutError::Malformed("an index group of no shape"));
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: IndexHead = IndexHead {
        sequence: 900,
        oldest_live: 700,
        sets: 1000,
        columns: 136,
        rows: 239,
        probes: 10,
    };
    const CACHE: CacheId = CacheId([7; 16]);

    #[test]
    fn it_comes_back_as_it_went_and_no_damage_goes_unseen() {
        let mut page = vec![0; PAGE_BYTES];
        HEAD.encode(CACHE, &mut page).expect("a whole page");
        assert_eq!(IndexHead::decode(CACHE, &page), Ok(HEAD));
        assert!(IndexHead::decode(CacheId([8; 16]), &page).is_err());
        for at in 0..64 {
            page[at] ^= 1;
            assert!(IndexHead::decode(CACHE, &page).is_err(), "byte {at}");
            page[at] ^= 1;
        }
    }

    #[test]
    fn a_page_of_filters_is_no_head() {
        let mut page = vec![0; PAGE_BYTES];
        let id = PageId {
            kind: PageKind::Index,
            sequence: 900,
            number: 3,
        };
        seal_index(CACHE, id, &mut page).expect("a whole page");
        assert!(IndexHead::decode(CACHE, &page).is_err());
    }
}
