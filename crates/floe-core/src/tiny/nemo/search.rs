//! From filter matches to the pages to read, newest first.

use std::ops::Range;

use super::directory::Nemo;
use super::extents::Extent;
use super::filters::Shape;
use super::hashes::{Homes, Rows};
use super::matches::{Candidates, Matches, candidates_max};
use super::stripe::NemoStripe;
use crate::hash::KeyHash;
use crate::tiny::engine::{Search, Step, Stripe as _};
use crate::tiny::object::PageAddress;

/// Nemo's state of one search.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// Extents that the search pins.
    pub(super) pins: Vec<Extent>,
    pub(super) matches: Matches,
    /// The sets to read.
    pub(super) candidates: Candidates,
    /// For each index page to read: its group's first set-group, and its set.
    pub(super) index_reads: Vec<(u64, u32)>,
    /// There were more candidates than the search reads.
    pub(super) is_cut: bool,
    /// Sequence of the next set-group when the search began. `None` unless the
    /// search probed every filter that may match the object.
    pub(super) complete_at: Option<u64>,
}

impl Scratch {
    pub(super) fn clear(&mut self) {
        self.pins.clear();
        self.matches.clear();
        self.candidates.clear();
        self.index_reads.clear();
        self.is_cut = false;
        self.complete_at = None;
    }
}

impl Nemo {
    /// Sets the most pages that a search reads, from the false-positive rates of the filters.
    /// Those of evicted set-groups count until their index group goes.
    pub(super) fn update_candidates_max(&mut self) {
        let closed: f64 = self.index.groups().map(|group| group.wrong).sum();
        let candidates = f64::from(self.plan.config.candidates);
        self.candidates_max = candidates_max(candidates * (self.index.open_wrong + closed));
    }

    /// The expected false positives of a filter of a set-group of `objects` objects.
    pub(super) fn wrong(&self, shape: Shape, objects: u64) -> f64 {
        // Filters that are sized for uneven sets reach the configured rate only
        // as an average over these sets. The mean set's rate is lower.
        let configured = self.plan.config.filter_false_positive_rate;
        let objects = objects as f64 / f64::from(self.plan.sets);
        shape.false_positives(objects).max(configured)
    }

    /// Those of all set-groups with these sequences.
    pub(super) fn wrong_of(&self, shape: Shape, sequences: Range<u64>) -> f64 {
        let residents = sequences.filter_map(|sequence| self.pool.get(sequence));
        residents
            .map(|resident| self.wrong(shape, resident.objects))
            .sum()
    }

    /// True if a copy may be on flash, now or after a crash, or if the key's
    /// filters are not in memory.
    pub(super) fn may_be_on_flash(&self, hash: KeyHash, homes: Homes) -> bool {
        if self.dropped_unsettled_filters || !self.knows(homes) {
            return true;
        }
        let settled = self.pool.settled();
        let mut any = 0;
        self.index.probe(homes, &Rows::of(hash), |mask| {
            any |= mask.since(settled).bits;
        });
        any != 0
    }

    /// The pages in set-groups newer than `oldest` that may hold `hash`,
    /// according to the filters in memory.
    pub(super) fn newer_than(&self, oldest: u64, hash: KeyHash, homes: Homes) -> Vec<PageAddress> {
        let mut newer = Vec::new();
        self.index.probe(homes, &Rows::of(hash), |mask| {
            let places = mask.since(oldest + 1).candidates();
            newer.extend(places.filter_map(|place| self.page_of(place)));
        });
        newer
    }

    /// Remembers that a search found no copy of a key. Not if the search may
    /// have missed one: if a set-group was written since it began, the key is
    /// in memory now, a crash could bring a copy back, or candidates were left
    /// unread.
    pub(super) fn remember_absent(
        &self,
        stripe: &mut NemoStripe,
        hash: KeyHash,
        scratch: &Scratch,
    ) {
        let none_inserted =
            scratch.complete_at == Some(self.pool.next()) && stripe.in_memory(hash).is_none();
        let none_recoverable =
            !self.dropped_unsettled_filters && self.pool.settled() == self.pool.oldest();
        if none_inserted && none_recoverable && !scratch.is_cut {
            stripe.known_absent.add(hash);
        }
    }

    /// Turns the matches into the pages to read, and pins them. Returns the
    /// next step of the search.
    pub(super) fn plan_reads(&mut self, search: &mut Search, scratch: &mut Scratch) -> Step {
        let candidates = &mut scratch.candidates;
        candidates.fill(&scratch.matches, self.pool.oldest());
        scratch.is_cut = candidates.cut(self.candidates_max);
        for candidate in candidates.iter() {
            if let Some(resident) = self.pool.get(candidate.sequence) {
                scratch.pins.push(resident.extent);
                self.extents.pin(resident.extent);
                let page = self.extents.page(resident.extent, candidate.home);
                search.pages.push(page);
            }
        }
        debug_assert_eq!(search.pages.len(), scratch.candidates.len());
        if search.pages.is_empty() {
            return Step::Absent;
        }
        self.statistics.searches += 1;
        Step::Pages
    }
}
