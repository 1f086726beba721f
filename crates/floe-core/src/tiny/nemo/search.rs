//! From what filters say to the pages that are read, newest first.

use std::ops::Range;

use super::directory::Nemo;
use super::extents::Extent;
use super::filling::Filling;
use super::filters::Shape;
use super::hashes::{Homes, Rows};
use super::matches::{Candidates, Matches, candidates_max};
use crate::hash::KeyHash;
use crate::tiny::engine::{Search, Step, Stripe as _};
use crate::tiny::object::PageAddress;

/// Notes on a search.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// Extents that the search pins.
    pub(super) pins: Vec<Extent>,
    pub(super) matches: Matches,
    /// The places of the pages that are read.
    pub(super) candidates: Candidates,
    /// Of each index page that is read: its group's first set-group, and its set.
    pub(super) asked: Vec<(u64, u32)>,
    /// Filters named more places than are read.
    pub(super) is_cut: bool,
    /// The set-group that was the next to be written when the search began;
    /// `None` unless every filter that may name the object was asked.
    pub(super) asked_all_at: Option<u64>,
}

impl Scratch {
    pub(super) fn clear(&mut self) {
        self.pins.clear();
        self.matches.clear();
        self.candidates.clear();
        self.asked.clear();
        self.is_cut = false;
        self.asked_all_at = None;
    }
}

impl Nemo {
    /// Allows searches as many pages as the filters that there are need.
    pub(super) fn allow_for_false_positives(&mut self) {
        let sets = f64::from(self.plan.sets);
        // On average over sets, some of which hold more than others, they are
        // wrong as often as was asked for, if they were made for that.
        let asked = self.plan.config.filter_false_positive_rate;
        let wrong = |shape: Shape, sequences: Range<u64>| -> f64 {
            let residents = sequences.filter_map(|sequence| self.pool.get(sequence));
            let wrong = residents.map(|resident| {
                let objects = resident.objects as f64 / sets;
                shape.false_positives(objects).max(asked)
            });
            wrong.sum()
        };
        let open = wrong(
            self.index.open.shape,
            self.index.open_first..self.pool.next(),
        );
        let groups = self.index.groups();
        let closed: f64 = groups
            .map(|group| wrong(group.shape, group.first..group.end()))
            .sum();
        let candidates = f64::from(self.plan.config.candidates);
        self.candidates_max = candidates_max(candidates * (open + closed));
    }

    /// Whether a copy may be on flash, or be there again after a crash. Where
    /// filters are not in memory, it may.
    pub(super) fn may_be_on_flash(&self, hash: KeyHash, homes: Homes) -> bool {
        if self.forgot_leaving || !self.knows(homes) {
            return true;
        }
        let settled = self.pool.settled();
        let mut any = 0;
        self.index.probe(homes, &Rows::of(hash), |mask| {
            any |= mask.since(settled).bits;
        });
        any != 0
    }

    /// The places on flash, newer than the set-group `oldest`, where `hash`
    /// may be, as far as the filters in memory say.
    pub(super) fn newer_than(&self, oldest: u64, hash: KeyHash, homes: Homes) -> Vec<PageAddress> {
        let mut newer = Vec::new();
        self.index.probe(homes, &Rows::of(hash), |mask| {
            let places = mask.since(oldest + 1).candidates();
            newer.extend(places.filter_map(|place| self.page_of(place)));
        });
        newer
    }

    /// A search has found that no copy is anywhere. That holds until one comes
    /// to memory, unless one came and was written since the search began, or
    /// could be back after a crash.
    pub(super) fn note_absence(&self, filling: &mut Filling, hash: KeyHash, scratch: &Scratch) {
        let nothing_came =
            scratch.asked_all_at == Some(self.pool.next()) && filling.in_memory(hash).is_none();
        let nothing_comes_back = !self.forgot_leaving && self.pool.settled() == self.pool.oldest();
        if nothing_came && nothing_comes_back && !scratch.is_cut {
            filling.absences.add(hash);
        }
    }

    /// Takes the newest of the places that filters name, pins them, and says
    /// how to go on.
    pub(super) fn settle(&mut self, search: &mut Search, scratch: &mut Scratch) -> Step {
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
