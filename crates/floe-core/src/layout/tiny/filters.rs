//! The filters of one set-group, in pages behind its sets.
//!
//! Recovery needs them for set-groups that no index group covers yet: with them
//! it need not read the sets. The body is split over the pages:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | sequence of the set-group |
//! | 8 | 8 | sequence of the oldest set-group that lived when this was written |
//! | 16 | 8 | objects in the set-group |
//! | 24 | 4 | sets |
//! | 28 | 4 | columns: filters of an index page |
//! | 32 | 4 | rows: bits of a filter |
//! | 36 | 4 | probes: bits that a key sets |
//! | 40 | 8 | length of the filters; zero if they were left out |
//!
//! The filters follow, set after set and without gaps. Bit *i* of the whole is
//! bit *i* mod 8 of byte *i* / 8. Bits behind the last are zero.

use super::page::{open_expected, seal_page};
use super::page_id::{PageId, PageKind};
use crate::layout::error::LayoutError;
use crate::layout::ids::CacheId;
use crate::layout::wire::{put_u32, put_u64, u32_at, u64_at};
use crate::tiny::{PAGE_BYTES, PAGE_HEADER_BYTES, PAGE_ROOM_BYTES};

/// Bytes of the head, at the start of the first page's body.
pub const TRAILER_HEAD_BYTES: usize = 48;

/// Describes a set-group's filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrailerHead {
    /// Sequence of the set-group.
    pub sequence: u64,
    /// Sequence of the oldest set-group that lived when this was written. Older
    /// ones are gone, even if they can still be read.
    pub oldest_live: u64,
    /// Objects in the set-group.
    pub objects: u64,
    /// Sets of the set-group, each with one filter.
    pub sets: u32,
    /// Filters that an index page of this shape holds.
    pub columns: u32,
    /// Bits of a filter.
    pub rows: u32,
    /// Bits that a key sets in it.
    pub probes: u32,
    /// The filters follow. If there was no room for them, recovery
    /// builds them from the sets.
    pub has_filters: bool,
}

impl TrailerHead {
    fn body_bytes(&self) -> u64 {
        match self.has_filters {
            true => trailer_body_bytes(self.sets, self.rows),
            false => 0,
        }
    }

    /// Pages of the head and the filters.
    pub fn pages(&self) -> u32 {
        match self.has_filters {
            true => trailer_pages(self.sets, self.rows),
            false => 1,
        }
    }

    fn put(&self, body_bytes: u64, bytes: &mut [u8; TRAILER_HEAD_BYTES]) {
        put_u64(bytes, 0, self.sequence);
        put_u64(bytes, 8, self.oldest_live);
        put_u64(bytes, 16, self.objects);
        put_u32(bytes, 24, self.sets);
        put_u32(bytes, 28, self.columns);
        put_u32(bytes, 32, self.rows);
        put_u32(bytes, 36, self.probes);
        put_u64(bytes, 40, body_bytes);
    }

    fn read(bytes: &[u8; TRAILER_HEAD_BYTES]) -> Result<Self, LayoutError> {
        let head = TrailerHead {
            sequence: u64_at(bytes, 0),
            oldest_live: u64_at(bytes, 8),
            objects: u64_at(bytes, 16),
            sets: u32_at(bytes, 24),
            columns: u32_at(bytes, 28),
            rows: u32_at(bytes, 32),
            probes: u32_at(bytes, 36),
            has_filters: u64_at(bytes, 40) > 0,
        };
        validate_shape(head.sets, head.columns, head.rows, head.probes)?;
        if u64_at(bytes, 40) != head.body_bytes() {
            return Err(LayoutError::Malformed("filters of another length"));
        }
        if head.oldest_live > head.sequence {
            return Err(LayoutError::Malformed("filters of a set-group to come"));
        }
        Ok(head)
    }
}

/// Checks the shape of filters.
fn validate_shape(sets: u32, columns: u32, rows: u32, probes: u32) -> Result<(), LayoutError> {
    if sets == 0 || columns == 0 || rows == 0 || probes == 0 {
        return Err(LayoutError::Malformed("filters of no shape"));
    }
    if u64::from(columns.div_ceil(8)) * u64::from(rows) > PAGE_ROOM_BYTES as u64 {
        return Err(LayoutError::Malformed(
            "filters of a shape that no index page holds",
        ));
    }
    Ok(())
}

/// Bytes that the filters of `sets` sets take, of `rows` bits each.
pub fn trailer_body_bytes(sets: u32, rows: u32) -> u64 {
    (u64::from(sets) * u64::from(rows)).div_ceil(8)
}

/// Pages of the head and the filters.
pub fn trailer_pages(sets: u32, rows: u32) -> u32 {
    let bytes = TRAILER_HEAD_BYTES as u64 + trailer_body_bytes(sets, rows);
    u32::try_from(bytes.div_ceil(PAGE_ROOM_BYTES as u64)).unwrap_or(u32::MAX)
}

/// Encodes the pages of a set-group's filters. `bits` has
/// [`trailer_body_bytes`], or is empty if there is no room for the filters.
/// Decoders reject pages with any other length or with an invalid head.
pub fn encode_trailer(cache: CacheId, head: &TrailerHead, bits: &[u8]) -> Vec<Box<[u8]>> {
    let mut head_bytes = [0; TRAILER_HEAD_BYTES];
    head.put(bits.len() as u64, &mut head_bytes);
    let (in_first, in_others) = bits.split_at(bits.len().min(IN_FIRST_PAGE));
    let page = |number: usize, parts: [&[u8]; 2]| {
        let mut page = vec![0; PAGE_BYTES].into_boxed_slice();
        let mut used = PAGE_HEADER_BYTES;
        for part in parts {
            page[used..used + part.len()].copy_from_slice(part);
            used += part.len();
        }
        let id = page_id(head.sequence, number);
        // The page is whole, and its parts fit.
        let sealed = seal_page(cache, id, 0, used, &mut page);
        debug_assert_eq!(sealed, Ok(()));
        page
    };
    let others = (1..).zip(in_others.chunks(PAGE_ROOM_BYTES));
    std::iter::once(page(0, [&head_bytes, in_first]))
        .chain(others.map(|(number, part)| page(number, [part, &[]])))
        .collect()
}

/// Bytes of filters in the first page, behind the head.
const IN_FIRST_PAGE: usize = PAGE_ROOM_BYTES - TRAILER_HEAD_BYTES;

fn page_id(sequence: u64, number: usize) -> PageId {
    PageId {
        kind: PageKind::Filters,
        sequence,
        number: u32::try_from(number).unwrap_or(u32::MAX),
    }
}

/// Reads the description of a set-group's filters from their first page.
///
/// # Errors
/// [`LayoutError::Misplaced`] if it is another page, such as that of an earlier
/// set-group; [`LayoutError::Malformed`] if it contradicts itself; otherwise as
/// [`read_page_id`](super::read_page_id).
pub fn decode_trailer_head(
    cache: CacheId,
    sequence: u64,
    first_page: &[u8],
) -> Result<TrailerHead, LayoutError> {
    Ok(open_first(cache, sequence, first_page)?.0)
}

/// The head, and the first page's part of the filters.
fn open_first(
    cache: CacheId,
    sequence: u64,
    first_page: &[u8],
) -> Result<(TrailerHead, &[u8]), LayoutError> {
    let opened = open_expected(cache, page_id(sequence, 0), first_page)?;
    let (head, bits) = opened
        .body
        .split_first_chunk()
        .ok_or(LayoutError::Malformed("the filters' head ends early"))?;
    let head = TrailerHead::read(head)?;
    if head.sequence != sequence {
        return Err(LayoutError::Malformed("filters of two set-groups"));
    }
    Ok((head, bits))
}

/// Reads a set-group's filters; later pages are ignored.
///
/// # Errors
/// As [`decode_trailer_head`], for any of the pages, and
/// [`LayoutError::TooShort`] if there are too few.
pub fn decode_trailer(
    cache: CacheId,
    sequence: u64,
    pages: &[&[u8]],
) -> Result<(TrailerHead, Vec<u8>), LayoutError> {
    let (first, others) = pages.split_first().ok_or(LayoutError::TooShort {
        needed: PAGE_BYTES,
        available: 0,
    })?;
    let (head, bits) = open_first(cache, sequence, first)?;
    let needed = head.pages() as usize;
    let others = others.get(..needed - 1).ok_or(LayoutError::TooShort {
        needed: needed.saturating_mul(PAGE_BYTES),
        available: pages.len().saturating_mul(PAGE_BYTES),
    })?;
    // Bounded by the pages in the buffer, because the head comes from flash.
    let body_bytes = usize::try_from(head.body_bytes())
        .unwrap_or(usize::MAX)
        .min(pages.len().saturating_mul(PAGE_ROOM_BYTES));
    let mut all = Vec::with_capacity(body_bytes);
    let mut take = |part: &[u8], room: usize| {
        if part.len() != room.min(body_bytes - all.len()) {
            return Err(LayoutError::Malformed("a page of filters ends early"));
        }
        all.extend_from_slice(part);
        Ok(())
    };
    take(bits, IN_FIRST_PAGE)?;
    for (number, page) in (1..).zip(others) {
        let opened = open_expected(cache, page_id(sequence, number), page)?;
        take(opened.body, PAGE_ROOM_BYTES)?;
    }
    let used = u64::from(head.sets) * u64::from(head.rows);
    let spare = (all.len() as u64 * 8).saturating_sub(used);
    if all
        .last()
        .is_some_and(|last| last.leading_zeros() < spare as u32)
    {
        return Err(LayoutError::Malformed(
            "filters of more sets than there are",
        ));
    }
    Ok((head, all))
}
