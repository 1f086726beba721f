//! From filter matches to the pages to read, newest first.

use std::ops::Range;

use super::directory::Nemo;
use super::extents::Extent;
use super::filters::Shape;
use super::hashes::{Homes, PageProbe, Rows};
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
    /// The sets to read now.
    pub(super) candidates: Candidates,
    /// For each index page to read now: its group's first set-group, and its set.
    pub(super) index_reads: Vec<(u64, u32)>,
    /// Index pages that may match the object and are not read yet, newest last.
    pub(super) unread: Vec<UnreadIndex>,
    /// Index groups whose pages are read at once the next time. It doubles, so that a search of
    /// many groups takes few rounds.
    pub(super) groups_at_once: usize,
    /// Matches in set-groups from this one on were named.
    pub(super) named_from: u64,
    /// Pages of objects that the search may still read.
    pub(super) pages_left: usize,
    /// There were more candidates than the search reads.
    pub(super) is_cut: bool,
    /// Sequence of the next set-group when the search began.
    pub(super) began_at: u64,
    /// The same, once the search has named every page that may hold the object.
    pub(super) complete_at: Option<u64>,
}

/// An index page that a search has not read.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnreadIndex {
    /// The group's first set-group, and the end of its set-groups.
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) home: u32,
    pub(super) page: PageAddress,
}

impl Scratch {
    pub(super) fn clear(&mut self) {
        self.pins.clear();
        self.matches.clear();
        self.candidates.clear();
        self.index_reads.clear();
        self.unread.clear();
        self.groups_at_once = 1;
        self.named_from = u64::MAX;
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

    /// True if a copy may be on flash, now or after a crash, as far as memory
    /// knows.
    pub(super) fn may_be_on_flash(&self, hash: KeyHash, homes: Homes) -> bool {
        let probe = PageProbe::of(hash);
        let mut unread = self.index.unread(homes, probe);
        if self.dropped_unsettled_filters || unread.next().is_some() {
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
        if none_inserted && none_recoverable {
            stripe.known_absent.add(hash);
        }
    }

    /// The next step of a search, from the newest set-groups to the oldest: the sets that match in
    /// set-groups newer than all unread index pages, or else index pages. Most keys that have
    /// older copies, too, are found before the index of those is read.
    pub(super) fn next_step(&mut self, search: &mut Search, scratch: &mut Scratch) -> Step {
        if scratch.is_cut {
            return Step::Absent;
        }
        let unread = scratch.unread.last().map_or(0, |unread| unread.end);
        // With a cache, all index pages are read first.
        if unread == 0 || !self.index.has_cache() {
            let set_groups = unread.max(self.pool.oldest())..scratch.named_from;
            scratch.named_from = unread;
            let candidates = &mut scratch.candidates;
            candidates.fill(&scratch.matches, set_groups);
            scratch.is_cut = candidates.cut(scratch.pages_left);
            scratch.pages_left -= candidates.len();
            if candidates.len() > 0 {
                self.name_pages(search, scratch);
                return Step::Pages;
            }
            if scratch.is_cut {
                return Step::Absent;
            }
        }
        if unread == 0 {
            // Every filter that may match was probed, and every page that it names was read.
            scratch.complete_at = Some(scratch.began_at);
            return Step::Absent;
        }
        self.name_index_pages(search, scratch);
        Step::Index
    }

    /// Names the candidates' pages, and pins them.
    fn name_pages(&mut self, search: &mut Search, scratch: &mut Scratch) {
        self.statistics.searches += u64::from(search.pages.is_empty());
        search.pages.clear();
        for candidate in scratch.candidates.iter() {
            if let Some(resident) = self.pool.get(candidate.sequence) {
                scratch.pins.push(resident.extent);
                self.extents.pin(resident.extent);
                let page = self.extents.page(resident.extent, candidate.home);
                search.pages.push(page);
            }
        }
        debug_assert_eq!(search.pages.len(), scratch.candidates.len());
    }

    /// Names the unread index pages of the newest groups.
    fn name_index_pages(&mut self, search: &mut Search, scratch: &mut Scratch) {
        let unread = &mut scratch.unread;
        // A set is cached with its pages of all groups.
        let mut named = if self.index.has_cache() {
            0
        } else {
            unread.len()
        };
        for _ in 0..scratch.groups_at_once {
            let newest = named.checked_sub(1).map_or(0, |last| unread[last].first);
            named = unread.partition_point(|unread| unread.first < newest);
        }
        scratch.groups_at_once *= 2;
        self.statistics.index_searches += u64::from(scratch.index_reads.is_empty());
        search.index_pages.clear();
        scratch.index_reads.clear();
        for unread in unread.drain(named..) {
            search.index_pages.push(unread.page);
            scratch.index_reads.push((unread.first, unread.home));
        }
        self.statistics.index_pages_searched += search.index_pages.len() as u64;
    }
}
