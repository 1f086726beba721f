//! The head of an index group, in a page behind the group's other pages.
//! Recovery accepts an index group only if it finds its head. A page's body:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | sequence of the oldest set-group that lived when this was written |
//! | 8 | 4 | sets, each with one page of index |
//! | 12 | 4 | columns: set-groups of the index group |
//! | 16 | 4 | rows: bits of a filter; with fingerprints, their buckets |
//! | 20 | 1 | probes: bits that a key sets; with fingerprints, zero |
//! | 21 | 1 | bits that a key sets in a page filter; zero if there are none |
//! | 22 | 2 | lines of a page filter, 64 bytes each |

use super::page::{open_page, seal_page};
use super::page_id::{PageId, PageKind};
use crate::layout::error::LayoutError;
use crate::layout::ids::CacheId;
use crate::layout::wire::{first_mut, put_u32, put_u64, u32_at, u64_at};
use crate::tiny::nemo::{PageFilterShape, lays_out_filters};
use crate::tiny::{PAGE_BYTES, PAGE_HEADER_BYTES};

/// Bytes of the page's body.
pub const INDEX_HEAD_BYTES: usize = 24;

/// Describes an index group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexHead {
    /// Sequence of its first set-group; it is in the page's header.
    pub sequence: u64,
    /// Sequence of the oldest set-group that lived when this was written. Older
    /// ones are gone, even if they can still be read.
    pub oldest_live: u64,
    /// Sets, each with one page of index.
    pub sets: u32,
    /// Set-groups of the index group: filters of a page.
    pub columns: u32,
    /// Bits of a filter; with fingerprints, their buckets.
    pub rows: u32,
    /// Bits that a key sets in it; with fingerprints, zero.
    pub probes: u32,
    /// The filters at the end of the pages.
    pub page_filter: PageFilterShape,
}

impl IndexHead {
    /// True if the index group has fingerprints in place of filters.
    pub fn of_fingerprints(&self) -> bool {
        self.probes == 0
    }

    fn validate(&self) -> Result<(), LayoutError> {
        let is_valid = lays_out_filters(self.columns, self.rows, self.probes, self.page_filter);
        if self.sets == 0 || !is_valid {
            return Err(LayoutError::Malformed(
                "filters of a shape that no index page holds",
            ));
        }
        Ok(())
    }

    /// Writes the page.
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is shorter than a page;
    /// [`LayoutError::Malformed`] for filters of an invalid shape.
    pub fn encode(&self, cache: CacheId, out: &mut [u8]) -> Result<(), LayoutError> {
        const USED: usize = PAGE_HEADER_BYTES + INDEX_HEAD_BYTES;
        self.validate()?;
        let page = first_mut::<PAGE_BYTES>(out)?;
        page.fill(0);
        let mut body = [0; INDEX_HEAD_BYTES];
        put_u64(&mut body, 0, self.oldest_live);
        put_u32(&mut body, 8, self.sets);
        put_u32(&mut body, 12, self.columns);
        put_u32(&mut body, 16, self.rows);
        let PageFilterShape { lines, probes } = self.page_filter;
        put_u32(&mut body, 20, self.probes | probes << 8 | lines << 16);
        page[PAGE_HEADER_BYTES..USED].copy_from_slice(&body);
        let id = PageId {
            kind: PageKind::IndexHead,
            sequence: self.sequence,
            number: 0,
        };
        seal_page(cache, id, 0, USED, page)
    }

    /// Reads the head of any index group.
    ///
    /// # Errors
    /// [`LayoutError::Misplaced`] if it is another kind of page;
    /// [`LayoutError::Malformed`] if it contradicts itself; otherwise as
    /// [`read_page_id`](super::read_page_id).
    pub fn decode(cache: CacheId, bytes: &[u8]) -> Result<Self, LayoutError> {
        let opened = open_page(cache, bytes)?;
        let wanted = PageId {
            kind: PageKind::IndexHead,
            number: 0,
            ..opened.id
        };
        if opened.id != wanted {
            return Err(LayoutError::Misplaced {
                found: opened.id,
                wanted,
            });
        }
        let body: &[u8; INDEX_HEAD_BYTES] = opened
            .body
            .try_into()
            .map_err(|_| LayoutError::Malformed("an index group's head of another length"))?;
        let probes = u32_at(body, 20);
        let head = IndexHead {
            sequence: opened.id.sequence,
            oldest_live: u64_at(body, 0),
            sets: u32_at(body, 8),
            columns: u32_at(body, 12),
            rows: u32_at(body, 16),
            probes: probes & 0xff,
            page_filter: PageFilterShape {
                lines: probes >> 16,
                probes: probes >> 8 & 0xff,
            },
        };
        head.validate()?;
        Ok(head)
    }
}
