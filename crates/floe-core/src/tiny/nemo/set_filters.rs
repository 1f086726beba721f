//! The filters of one set, for benchmarks and fuzzing.

use std::sync::Arc;

use super::FilterKind;
use super::filters::{Probe, Shape, Word, WordSink, columns_with, filter_bits, probe_page};
use super::fingerprints;
use super::open::OpenGroup;
use super::page_filter::PageFilterShape;
use crate::hash::KeyHash;
use crate::tiny::object::{PAGE_BYTES, PAGE_ROOM_BYTES};

/// The filters of one set in many set-groups, encoded as the pages of index
/// groups.
#[derive(Clone, Debug)]
pub struct SetFilters {
    shape: Shape,
    pages: Vec<Arc<[u8]>>,
}

impl SetFilters {
    /// Filters of a kind for sets of about `objects` objects. `set_groups` has
    /// the objects of the set in each set-group.
    pub fn new<Set>(
        kind: FilterKind,
        set_groups: impl Iterator<Item = Set>,
        objects: f64,
        false_positives: f64,
    ) -> Self
    where
        Set: Iterator<Item = KeyHash>,
    {
        let shape = match kind {
            FilterKind::Bloom => {
                let bits = filter_bits(objects, false_positives);
                Shape::new(columns_with(bits), objects, PageFilterShape::NONE)
            }
            FilterKind::Fingerprints => {
                let columns = fingerprints::columns_with(objects, false_positives, 0.0);
                Shape::of_fingerprints(columns, objects, PageFilterShape::NONE)
            }
        };
        let mut set_groups = set_groups.peekable();
        let mut pages = Vec::new();
        while set_groups.peek().is_some() {
            let mut open = OpenGroup::new(shape, 1);
            while !open.is_full() {
                let set = set_groups.next();
                open.push(std::iter::once(set.into_iter().flatten()));
            }
            open.make(1);
            pages.push(open.page(0));
        }
        SetFilters { shape, pages }
    }

    /// The filters in a page whose group's head has these `columns`, `rows`, `probes` and
    /// `page_filter`; `None` if no page can have them.
    pub fn of_page(
        columns: u32,
        rows: u32,
        probes: u32,
        page_filter: PageFilterShape,
        page: &[u8],
    ) -> Option<Self> {
        let shape = Shape::of_index_group(columns, rows, probes, page_filter);
        (shape.is_valid() && page.len() == PAGE_BYTES).then(|| SetFilters {
            shape,
            pages: vec![page.into()],
        })
    }

    /// Bits of a page per filter.
    pub fn bits_per_filter(&self) -> f64 {
        (PAGE_ROOM_BYTES * 8) as f64 / f64::from(self.shape.columns)
    }

    /// Number of set-groups that may hold `hash`.
    pub fn candidates(&self, hash: KeyHash) -> usize {
        let probe = Probe::of(hash, self.shape);
        let mut candidates = 0;
        for page in &self.pages {
            probe_page(
                &probe,
                page,
                &mut WordSink(|word: Word| candidates += word.bits.count_ones()),
            );
        }
        candidates as usize
    }
}

#[cfg(test)]
mod tests {
    use super::super::fingerprints::INDEX_GROUP_MAX;
    use super::*;

    #[test]
    fn bits_beyond_the_columns_match_nothing() {
        let full = [0xff; PAGE_BYTES];
        for columns in 1..=INDEX_GROUP_MAX {
            let shape = Shape::new(columns, 16.0, PageFilterShape::NONE);
            let filters = of_page(columns, shape, &full);
            let filters = filters.expect("a page holds them");
            for key in 0..100 {
                let named = filters.candidates(KeyHash(key << 50));
                assert_eq!(named, columns as usize, "of {columns} columns");
            }
        }
        let shape = Shape::new(INDEX_GROUP_MAX, 16.0, PageFilterShape::NONE);
        assert!(of_page(INDEX_GROUP_MAX + 1, shape, &full).is_none());
    }

    fn of_page(columns: u32, shape: Shape, page: &[u8]) -> Option<SetFilters> {
        SetFilters::of_page(columns, shape.rows, shape.probes, shape.page_filter, page)
    }
}
