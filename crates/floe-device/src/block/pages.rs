//! Sparse bytes in pages, which clones share until one of them writes a page.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use floe_core::hash::ByKeyHash;

/// Bytes of a page: the largest block of a block device.
const PAGE_BYTES: u64 = 4096;
/// Pages of a region, which one look-up finds.
const REGION_PAGES: u64 = 64;
/// Bytes of a region.
pub(crate) const REGION_BYTES: u64 = PAGE_BYTES * REGION_PAGES;

type Page = [u8; PAGE_BYTES as usize];
type Region = [Option<Arc<Page>>; REGION_PAGES as usize];

static ZEROS: LazyLock<Arc<Page>> = LazyLock::new(|| Arc::new([0; PAGE_BYTES as usize]));

/// Bytes by offset. Pages that were never written read as those of the base, or
/// as zeros without one.
#[derive(Clone, Default)]
pub(crate) struct Pages {
    own: Regions,
    base: Option<Arc<Pages>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct RegionNumber(u64);

impl Hash for RegionNumber {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Fibonacci hashing: the upper half of the product depends on all of the number.
        state.write_u64(self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

/// A part of a page as it was at one moment.
pub(crate) struct Part {
    page: Arc<Page>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.page[self.range.clone()]
    }
}

impl Part {
    /// Puts the bytes of `data`, which begins at `start`, over those of this part, which
    /// begins at `at`.
    pub(crate) fn replace(&mut self, at: u64, start: u64, data: &[u8]) {
        let from = at.max(start);
        let end = (at + self.range.len() as u64).min(start + data.len() as u64);
        if from < end {
            let page = Arc::make_mut(&mut self.page);
            let within = self.range.start + (from - at) as usize;
            let data = &data[(from - start) as usize..(end - start) as usize];
            page[within..within + data.len()].copy_from_slice(data);
        }
    }
}

impl Pages {
    /// Pages that read as `base` until they are written.
    pub(crate) fn over(base: Arc<Pages>) -> Self {
        Pages {
            own: Regions::default(),
            base: Some(base),
        }
    }

    /// Fills `buf` from `at`.
    pub(crate) fn read(&self, at: u64, buf: &mut [u8]) {
        let mut rest = buf;
        for (number, range) in parts(at..at + rest.len() as u64) {
            let (part, after) = rest.split_at_mut(range.len());
            match self.page(number) {
                Some(page) => part.copy_from_slice(&page[range]),
                None => part.fill(0),
            }
            rest = after;
        }
    }

    /// Writes `data` at `at`.
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) {
        let mut rest = data;
        for (number, range) in parts(at..at + data.len() as u64) {
            let (part, after) = rest.split_at(range.len());
            self.page_mut(number)[range].copy_from_slice(part);
            rest = after;
        }
    }

    /// Makes `range` read as zeros, and frees the pages that lie in it.
    pub(crate) fn zero(&mut self, range: Range<u64>) {
        for (number, range) in self.present(range) {
            if range.len() < PAGE_BYTES as usize {
                self.page_mut(number)[range].fill(0);
                continue;
            }
            let is_in_base = self
                .base
                .as_ref()
                .is_some_and(|base| base.page(number).is_some());
            *slot(&mut self.own, number) = is_in_base.then(|| Arc::clone(&ZEROS));
        }
    }

    /// The content of `range` page by page, with offsets. Only pages that exist count
    /// if `is_sparse`.
    pub(crate) fn snapshot(&self, range: Range<u64>, is_sparse: bool) -> Vec<(u64, Part)> {
        let numbers = match is_sparse {
            true => self.present(range),
            false => parts(range).collect(),
        };
        let part = |(number, range): (u64, Range<usize>)| {
            let page = Arc::clone(self.page(number).unwrap_or(&ZEROS));
            (
                number * PAGE_BYTES + range.start as u64,
                Part { page, range },
            )
        };
        numbers.into_iter().map(part).collect()
    }

    /// The parts of `range` in pages that exist.
    fn present(&self, range: Range<u64>) -> Vec<(u64, Range<usize>)> {
        let mut found = Vec::new();
        for region in regions(range) {
            if self.has_region(region.start / REGION_BYTES) {
                found.extend(parts(region).filter(|(number, _)| self.page(*number).is_some()));
            }
        }
        found
    }

    fn has_region(&self, number: u64) -> bool {
        self.own.contains_key(&RegionNumber(number))
            || self
                .base
                .as_ref()
                .is_some_and(|base| base.has_region(number))
    }

    fn page(&self, number: u64) -> Option<&Arc<Page>> {
        let region = self.own.get(&RegionNumber(number / REGION_PAGES));
        region
            .and_then(|region| region[(number % REGION_PAGES) as usize].as_ref())
            .or_else(|| self.base.as_ref()?.page(number))
    }

    fn page_mut(&mut self, number: u64) -> &mut Page {
        let Pages { own, base } = self;
        let page = slot(own, number).get_or_insert_with(|| {
            let below = base.as_ref().and_then(|base| base.page(number));
            Arc::clone(below.unwrap_or(&ZEROS))
        });
        Arc::make_mut(page)
    }
}

type Regions = HashMap<RegionNumber, Box<Region>, ByKeyHash>;

fn slot(regions: &mut Regions, number: u64) -> &mut Option<Arc<Page>> {
    let region = regions.entry(RegionNumber(number / REGION_PAGES));
    let region = region.or_insert_with(|| Box::new([const { None }; REGION_PAGES as usize]));
    &mut region[(number % REGION_PAGES) as usize]
}

/// The parts of `range` in each region.
pub(crate) fn regions(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    pieces(range, REGION_BYTES)
}

/// The parts of `range` in each page: the page's number, and bytes in it.
fn parts(range: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    pieces(range, PAGE_BYTES).map(|piece| {
        let number = piece.start / PAGE_BYTES;
        let begin = (piece.start % PAGE_BYTES) as usize;
        (number, begin..begin + (piece.end - piece.start) as usize)
    })
}

/// `range`, cut at multiples of `unit`.
pub(crate) fn pieces(range: Range<u64>, unit: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = ((at / unit + 1) * unit).min(range.end);
        (at < end).then(|| std::mem::replace(&mut at, end)..end)
    })
}
