//! From what filters say to the pages that are read, newest first.

use std::cmp::Reverse;

use super::filters::{Mask, newest_first};
use super::hashes::{Homes, Rows};
use super::{Nemo, NemoPlan};
use crate::hash::KeyHash;
use crate::tiny::engine::{Engine, Search, Step};
use crate::tiny::object::PageAddress;

/// What filters say of one set in the set-groups of an index group: which of
/// them may hold the object.
#[derive(Clone, Copy, Debug)]
pub(in crate::tiny) struct Told {
    /// Sequence of the set-group in the first column.
    first: u64,
    home: u32,
    mask: Mask,
}

impl Told {
    /// Adds what `mask` says to `told`, if it says anything.
    pub(super) fn note(told: &mut Vec<Told>, first: u64, home: u32, mask: Mask) {
        if mask.iter().fold(0, |any, word| any | word) != 0 {
            told.push(Told { first, home, mask });
        }
    }

    fn names(&self, column: u32) -> bool {
        self.mask[(column / u64::BITS) as usize] >> (column % u64::BITS) & 1 == 1
    }
}

/// Most pages that a search reads: far more than filters name by mistake.
///
/// They name more where an object was overwritten again and again, and all its
/// copies are still on flash. The newest of these are enough: it is among the
/// first. Whatever is left unread is older, so that leaving it out can only
/// make a search find nothing.
pub(super) fn candidates_max(plan: &NemoPlan) -> usize {
    let config = &plan.config;
    let filters = f64::from(plan.extents()) * f64::from(config.candidates);
    16 + (4.0 * config.filter_false_positives * filters).ceil() as usize
}

impl Nemo {
    /// Adds what the filters in memory say of `home`.
    pub(super) fn ask_memory(&self, home: u32, rows: &Rows, told: &mut Vec<Told>) {
        self.index.probe(home, rows, |first, mask| {
            Told::note(told, first, home, mask);
        });
    }

    /// Calls `found` with every set-group and set in which `hash` may be, as
    /// far as the filters in memory say, until it says that this is enough.
    /// Some of the set-groups may be gone.
    pub(super) fn any_in_memory(
        &self,
        hash: KeyHash,
        homes: Homes,
        mut found: impl FnMut(u64, u32) -> bool,
    ) -> bool {
        let rows = Rows::of(hash);
        let mut enough = false;
        for home in homes.iter() {
            self.index.probe(home, &rows, |first, mask| {
                enough = enough
                    || newest_first(mask).any(|column| found(first + u64::from(column), home));
            });
        }
        enough
    }

    /// Whether a copy may be on flash, or be there again after a crash. Where
    /// filters are not in memory, it may.
    pub(super) fn may_be_on_flash(&self, hash: KeyHash, homes: Homes) -> bool {
        if self.forgot_leaving || !self.knows(homes) {
            return true;
        }
        let there = self.pool.settled()..self.pool.next();
        self.any_in_memory(hash, homes, |sequence, _| there.contains(&sequence))
    }

    /// The places on flash, newer than the set-group `oldest`, where `hash`
    /// may be, as far as the filters in memory say.
    pub(super) fn newer_than(&self, oldest: u64, hash: KeyHash, homes: Homes) -> Vec<PageAddress> {
        let mut newer = Vec::new();
        self.any_in_memory(hash, homes, |sequence, home| {
            if sequence > oldest {
                newer.extend(self.candidate(sequence, home));
            }
            false
        });
        newer
    }

    /// A search has found that no copy is anywhere. That holds until one comes
    /// to memory, unless one came and was written since the search began, or
    /// could be back after a crash.
    pub(super) fn note_absence(&mut self, search: &Search) {
        let nothing_came =
            search.asked_all_at == Some(self.pool.next()) && self.in_memory(search.hash).is_none();
        let nothing_comes_back = !self.forgot_leaving && self.pool.settled() == self.pool.oldest();
        if nothing_came && nothing_comes_back && !search.is_cut {
            self.absences.add(search.hash);
        }
    }

    /// Takes the newest of the places that filters name, pins them, and says
    /// how to go on.
    pub(super) fn settle(&mut self, search: &mut Search) -> Step {
        search.is_cut = self.take_newest(search);
        for at in 0..search.candidates.len() {
            let page = search.candidates[at].1;
            self.pin(search, page);
            search.pages.push(page);
        }
        if search.pages.is_empty() {
            return Step::Absent;
        }
        self.statistics.searches += 1;
        Step::Pages
    }

    /// Says whether there may be more.
    fn take_newest(&self, search: &mut Search) -> bool {
        let Search {
            told, candidates, ..
        } = search;
        told.sort_unstable_by_key(|told| Reverse(told.first));
        for group in told.chunk_by(|a, b| a.first == b.first) {
            for column in newest_first(either(group)) {
                if candidates.len() >= self.candidates_max {
                    return true;
                }
                let sequence = group[0].first + u64::from(column);
                for told in group.iter().filter(|told| told.names(column)) {
                    if let Some(page) = self.candidate(sequence, told.home) {
                        candidates.push((sequence, page));
                    }
                }
            }
        }
        false
    }
}

/// Hashes of which lately no copy was anywhere: those that a client looked for
/// in vain and is about to write. Without it most of these writes would have
/// to be taken for overwrites, as the filters that tell are not in memory.
///
/// A table of fixed size; one that comes takes the place of another.
#[derive(Debug)]
pub(super) struct Absences {
    /// Zero for none.
    slots: Box<[u64]>,
}

/// Enough for what is fetched in 40 ms at 100,000 misses a second.
const ABSENCES: usize = 4096;

impl Absences {
    pub(super) fn new() -> Self {
        Absences {
            slots: vec![0; ABSENCES].into_boxed_slice(),
        }
    }

    fn slot(&mut self, hash: KeyHash) -> &mut u64 {
        &mut self.slots[hash.0 as usize % ABSENCES]
    }

    pub(super) fn add(&mut self, hash: KeyHash) {
        *self.slot(hash) = hash.0;
    }

    /// Whether it is known to be absent, which is about to change.
    pub(super) fn take(&mut self, hash: KeyHash) -> bool {
        let slot = self.slot(hash);
        let was_absent = *slot == hash.0 && hash.0 != 0;
        if was_absent {
            *slot = 0;
        }
        was_absent
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.slots) as u64
    }
}

/// The columns that any of them names.
fn either(told: &[Told]) -> Mask {
    told.iter().fold(Mask::default(), |mut all, told| {
        all.iter_mut()
            .zip(told.mask)
            .for_each(|(all, word)| *all |= word);
        all
    })
}
