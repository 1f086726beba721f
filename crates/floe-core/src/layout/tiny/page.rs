//! The header of every page.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | CRC-32C of the cache id, then of bytes 4 to the used length |
//! | 4 | 2 | magic, one per kind |
//! | 6 | 2 | format version, [`TINY_FORMAT_VERSION`] |
//! | 8 | 8 | sequence of the set-group; of an index group's first |
//! | 16 | 4 | number: the set, or the page of the filters |
//! | 20 | 2 | used length: the bytes that the checksum covers, from offset 0 |
//! | 22 | 2 | count of objects; otherwise 0 |
//!
//! The bytes after the used length are padding, written as zeros and never
//! read.

use super::page_id::{PageId, PageKind};
use crate::layout::checksum::crc32c;
use crate::layout::error::LayoutError;
use crate::layout::ids::CacheId;
use crate::layout::structure::{Identified, TINY_FORMAT_VERSION, identify};
use crate::layout::wire::{first, first_mut, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::tiny::{PAGE_BYTES, PAGE_HEADER_BYTES};

/// Start of the checksummed part: after the checksum.
const CHECKED_FROM: usize = 4;

/// Writes the header of an index page. Its body, bytes [`PAGE_HEADER_BYTES`] to
/// [`PAGE_BYTES`], belongs to the engine.
///
/// # Errors
/// [`LayoutError::TooShort`] if `page` is shorter than a page;
/// [`LayoutError::Malformed`] if `id` is not an index page's.
pub fn seal_index(cache: CacheId, id: PageId, page: &mut [u8]) -> Result<(), LayoutError> {
    if id.kind != PageKind::Index {
        return Err(LayoutError::Malformed("not the id of an index page"));
    }
    seal_page(cache, id, 0, PAGE_BYTES, page)
}

/// Checks an index page.
///
/// # Errors
/// As every decoder; [`LayoutError::Misplaced`] if it is another page.
pub fn open_index(cache: CacheId, expected: PageId, bytes: &[u8]) -> Result<(), LayoutError> {
    let opened = open_expected(cache, expected, bytes)?;
    if expected.kind != PageKind::Index || opened.body.len() != PAGE_BYTES - PAGE_HEADER_BYTES {
        return Err(LayoutError::Malformed("an index page of another length"));
    }
    Ok(())
}

/// Checks the page at the start of `bytes`, and returns its id.
///
/// # Errors
/// * [`LayoutError::Blank`] if nothing was written there;
/// * [`LayoutError::Foreign`] or [`LayoutError::Unexpected`] if it is something
///   else;
/// * [`LayoutError::BadChecksum`] for a damaged page, or one of another cache;
/// * [`LayoutError::UnsupportedVersion`] for another format.
pub fn read_page_id(cache: CacheId, bytes: &[u8]) -> Result<PageId, LayoutError> {
    Ok(open_page(cache, bytes)?.id)
}

/// A page whose checksum held.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenedPage<'a> {
    pub(super) id: PageId,
    pub(super) count: u16,
    /// The bytes from the header to the used length.
    pub(super) body: &'a [u8],
}

/// Writes the header of a page. The body, up to `used`, must be final.
pub(super) fn seal_page(
    cache: CacheId,
    id: PageId,
    count: u16,
    used: usize,
    page: &mut [u8],
) -> Result<(), LayoutError> {
    let page = first_mut::<PAGE_BYTES>(page)?;
    if !(PAGE_HEADER_BYTES..=PAGE_BYTES).contains(&used) {
        return Err(LayoutError::Malformed("more than a page holds"));
    }
    page[4..6].copy_from_slice(&id.kind.magic());
    put_u16(page, 6, TINY_FORMAT_VERSION);
    put_u64(page, 8, id.sequence);
    put_u32(page, 16, id.number);
    // At most 4,096, as checked.
    put_u16(page, 20, used as u16);
    put_u16(page, 22, count);
    let checksum = crc32c([&cache.0, &page[CHECKED_FROM..used]]);
    put_u32(page, 0, checksum);
    Ok(())
}

/// Opens a page that must be `expected`.
pub(super) fn open_expected(
    cache: CacheId,
    expected: PageId,
    bytes: &[u8],
) -> Result<OpenedPage<'_>, LayoutError> {
    let opened = open_page(cache, bytes)?;
    if opened.id != expected {
        return Err(LayoutError::Misplaced {
            found: opened.id,
            wanted: expected,
        });
    }
    Ok(opened)
}

/// Opens any page.
pub(super) fn open_page(cache: CacheId, bytes: &[u8]) -> Result<OpenedPage<'_>, LayoutError> {
    let page = first::<PAGE_BYTES>(bytes)?;
    let magic = [page[4], page[5]];
    let Some(kind) = PageKind::ALL.into_iter().find(|k| k.magic() == magic) else {
        return Err(match identify(page) {
            Identified::Blank => LayoutError::Blank,
            Identified::Claims(structure) => LayoutError::Unexpected(structure),
            Identified::Foreign => LayoutError::Foreign,
        });
    };
    let used = usize::from(u16_at(page, 20));
    if !(PAGE_HEADER_BYTES..=PAGE_BYTES).contains(&used)
        || u32_at(page, 0) != crc32c([&cache.0, &page[CHECKED_FROM..used]])
    {
        return Err(LayoutError::BadChecksum);
    }
    // Checked after the checksum: a flipped bit in the version is damage, not a
    // newer format.
    let (found, supported) = (u16_at(page, 6), TINY_FORMAT_VERSION);
    if found != supported {
        return Err(LayoutError::UnsupportedVersion { found, supported });
    }
    Ok(OpenedPage {
        id: PageId {
            kind,
            sequence: u64_at(page, 8),
            number: u32_at(page, 16),
        },
        count: u16_at(page, 22),
        body: &page[PAGE_HEADER_BYTES..used],
    })
}
