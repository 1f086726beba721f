//! The list of a full zone's records, at the zone's end.
//!
//! A summary is a sequence of pages of up to 64 KiB, each with a checksum of
//! its own. It is written and read page by page in bounded memory, and damage
//! costs one page. After a page's frame, whose count is the number of its
//! entries:
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 4 | zone |
//! | 28 | 4 | generation |
//! | 32 | 4 | page number, from zero |
//! | 36 | 4 | number of entries in the whole summary |
//! | 40 | 36 × count | entries |
//!
//! and an entry:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | key hash |
//! | 8 | 8 | sequence |
//! | 16 | 4 | block in the zone: of the payload if small, of the descriptor if large |
//! | 20 | 4 | value length |
//! | 24 | 4 | checksum: the small one, or the large descriptor's |
//! | 28 | 4 | expiry, seconds since 1970; 0 for none |
//! | 32 | 2 | kind: 1 small, 2 large |
//! | 34 | 2 | key length |

use std::ops::Range;

use super::error::LayoutError;
use super::frame::{Frame, open, seal};
use super::ids::{CacheId, Sequence, ValueKind, ZoneLife};
use super::structure::Structure;
use super::wire::{
    first_mut, narrow, prefix_mut, put_u16, put_u32, put_u64, round_up_len, u16_at, u32_at, u64_at,
};
use super::zone_header::{expect_life, put_life};
use crate::hash::KeyHash;

/// Length of a page's header.
pub const SUMMARY_HEADER_BYTES: usize = 40;

/// Length of an entry.
pub const SUMMARY_ENTRY_BYTES: usize = 36;

/// Length of a full page, except on devices with longer blocks.
pub const SUMMARY_PAGE_BYTES: usize = 64 << 10;

/// One record of a full zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryEntry {
    /// The key's hash.
    pub hash: KeyHash,
    /// The record's position in the order of writes.
    pub sequence: Sequence,
    /// The block in the zone that the payload (small) or the descriptor (large)
    /// starts at.
    pub block: u32,
    /// Length of the value.
    pub value_bytes: u32,
    /// The small checksum, or the large descriptor's.
    pub checksum: u32,
    /// Seconds since 1970 when it expires; 0 for never.
    pub expiry_unix_s: u32,
    /// The placement of the value on flash.
    pub kind: ValueKind,
    /// Length of the key.
    pub key_bytes: u16,
}

impl SummaryEntry {
    fn put(&self, bytes: &mut [u8; SUMMARY_ENTRY_BYTES]) {
        put_u64(bytes, 0, self.hash.0);
        put_u64(bytes, 8, self.sequence.0);
        put_u32(bytes, 16, self.block);
        put_u32(bytes, 20, self.value_bytes);
        put_u32(bytes, 24, self.checksum);
        put_u32(bytes, 28, self.expiry_unix_s);
        put_u16(bytes, 32, self.kind.code());
        put_u16(bytes, 34, self.key_bytes);
    }

    /// `None` for a kind that this format does not have.
    fn read(bytes: &[u8; SUMMARY_ENTRY_BYTES]) -> Option<Self> {
        Some(SummaryEntry {
            hash: KeyHash(u64_at(bytes, 0)),
            sequence: Sequence(u64_at(bytes, 8)),
            block: u32_at(bytes, 16),
            value_bytes: u32_at(bytes, 20),
            checksum: u32_at(bytes, 24),
            expiry_unix_s: u32_at(bytes, 28),
            kind: ValueKind::from_code(u16_at(bytes, 32))?,
            key_bytes: u16_at(bytes, 34),
        })
    }
}

/// The division of a summary into pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryShape {
    entries: usize,
    block_size: u32,
}

impl SummaryShape {
    /// The shape of a summary of `entries` entries.
    pub fn new(entries: usize, block_size: u32) -> Self {
        SummaryShape {
            entries,
            block_size: block_size.max(1),
        }
    }

    /// Number of pages; an empty summary still has one.
    pub fn pages(&self) -> usize {
        self.entries.div_ceil(self.page_entries_max()).max(1)
    }

    /// The entries that page number `page` holds.
    pub fn page_entries(&self, page: usize) -> Range<usize> {
        let start = page
            .saturating_mul(self.page_entries_max())
            .min(self.entries);
        let end = start
            .saturating_add(self.page_entries_max())
            .min(self.entries);
        start..end
    }

    /// Start of page number `page`, from the summary's start.
    pub fn page_offset(&self, page: usize) -> usize {
        page.saturating_mul(self.page_bytes_max())
    }

    /// Length of page number `page`, padding included.
    pub fn page_bytes(&self, page: usize) -> usize {
        let entries = self.page_entries(page).len();
        round_up_len(
            SUMMARY_HEADER_BYTES + entries * SUMMARY_ENTRY_BYTES,
            self.block_size,
        )
    }

    /// Length of the whole summary.
    pub fn total_bytes(&self) -> usize {
        let last = self.pages() - 1;
        self.page_offset(last).saturating_add(self.page_bytes(last))
    }

    fn page_bytes_max(&self) -> usize {
        round_up_len(SUMMARY_PAGE_BYTES, self.block_size)
    }

    fn page_entries_max(&self) -> usize {
        (self.page_bytes_max() - SUMMARY_HEADER_BYTES) / SUMMARY_ENTRY_BYTES
    }
}

/// Length of a whole summary of `entries` entries, padding included.
pub fn summary_bytes(entries: usize, block_size: u32) -> usize {
    SummaryShape::new(entries, block_size).total_bytes()
}

/// Writes a whole summary and returns its length.
///
/// # Errors
/// [`LayoutError::TooShort`] if `out` is shorter than [`summary_bytes`].
pub fn encode_summary(
    id: CacheId,
    life: ZoneLife,
    block_size: u32,
    entries: &[SummaryEntry],
    out: &mut [u8],
) -> Result<usize, LayoutError> {
    let shape = SummaryShape::new(entries.len(), block_size);
    let out = prefix_mut(out, shape.total_bytes())?;
    for page in 0..shape.pages() {
        let page_out = &mut out[shape.page_offset(page)..];
        encode_summary_page(id, life, shape, page, entries, page_out)?;
    }
    Ok(out.len())
}

/// Writes page number `page` of the summary of all `entries`. Returns its
/// length.
///
/// # Errors
/// [`LayoutError::TooShort`] if `out` is shorter than the page;
/// [`LayoutError::Malformed`] if there is no such page or `shape` does not
/// match `entries`.
pub fn encode_summary_page(
    id: CacheId,
    life: ZoneLife,
    shape: SummaryShape,
    page: usize,
    entries: &[SummaryEntry],
    out: &mut [u8],
) -> Result<usize, LayoutError> {
    if shape.entries != entries.len() || page >= shape.pages() {
        return Err(LayoutError::Malformed("no such page of this summary"));
    }
    let entries = &entries[shape.page_entries(page)];
    let out = prefix_mut(out, shape.page_bytes(page))?;
    let used = SUMMARY_HEADER_BYTES + entries.len() * SUMMARY_ENTRY_BYTES;
    let (covered, padding) = out.split_at_mut(used);
    padding.fill(0);
    let header = first_mut::<SUMMARY_HEADER_BYTES>(covered)?;
    put_life(header, 24, life);
    put_u32(header, 32, narrow(page)?);
    put_u32(header, 36, narrow(shape.entries)?);
    let (slots, _) = covered[SUMMARY_HEADER_BYTES..].as_chunks_mut();
    for (slot, entry) in slots.iter_mut().zip(entries) {
        entry.put(slot);
    }
    let frame = Frame {
        structure: Structure::Summary,
        kind: 0,
        count: narrow(entries.len())?,
    };
    seal(id, frame, covered)?;
    Ok(out.len())
}

/// A checked page of a summary.
#[derive(Clone, Copy, Debug)]
pub struct SummaryPage<'a> {
    page: u32,
    entries: &'a [[u8; SUMMARY_ENTRY_BYTES]],
}

impl<'a> SummaryPage<'a> {
    /// Reads page number `page` of a summary from the start of `bytes`. The
    /// journal has the summary's number of entries, and so its `shape`.
    ///
    /// # Errors
    /// [`LayoutError::Stale`] if it is of another zone or life;
    /// [`LayoutError::Malformed`] if it is another page or of a summary of
    /// another length; otherwise as every decoder.
    pub fn decode(
        id: CacheId,
        life: ZoneLife,
        shape: SummaryShape,
        page: usize,
        bytes: &'a [u8],
    ) -> Result<Self, LayoutError> {
        let opened = open(id, Structure::Summary, bytes)?;
        let (header, rest) = opened
            .covered
            .split_first_chunk::<SUMMARY_HEADER_BYTES>()
            .ok_or(LayoutError::Malformed("the page's header ends early"))?;
        expect_life(header, 24, life)?;
        let number = u32_at(header, 32);
        if number as usize != page || u32_at(header, 36) as usize != shape.entries {
            return Err(LayoutError::Malformed("another page or another summary"));
        }
        let (entries, rest) = rest.as_chunks::<SUMMARY_ENTRY_BYTES>();
        if !rest.is_empty()
            || entries.len() != opened.count as usize
            || entries.len() != shape.page_entries(page).len()
        {
            return Err(LayoutError::Malformed("the page's entries are miscounted"));
        }
        if entries
            .iter()
            .any(|e| ValueKind::from_code(u16_at(e, 32)).is_none())
        {
            return Err(LayoutError::Malformed("an entry of unknown kind"));
        }
        Ok(SummaryPage {
            page: number,
            entries,
        })
    }

    /// The page's number.
    pub fn number(&self) -> u32 {
        self.page
    }

    /// The entries, in the order of their positions in the summary.
    pub fn entries(&self) -> SummaryEntries<'a> {
        SummaryEntries {
            entries: self.entries.iter(),
        }
    }
}

/// See [`SummaryPage::entries`].
#[derive(Clone, Debug)]
pub struct SummaryEntries<'a> {
    entries: std::slice::Iter<'a, [u8; SUMMARY_ENTRY_BYTES]>,
}

impl Iterator for SummaryEntries<'_> {
    type Item = SummaryEntry;

    fn next(&mut self) -> Option<SummaryEntry> {
        // Every kind was checked when the page was decoded.
        self.entries.next().and_then(SummaryEntry::read)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for SummaryEntries<'_> {}
