//! From what filters say to the pages that are read, newest first.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::Nemo;
use super::extents::Extent;
use super::filters::{Answers, Shape, Word};
use super::fingerprints::Bucket;
use super::hashes::{Homes, Rows};
use crate::hash::KeyHash;
use crate::tiny::engine::{Engine, Search, Step};
use crate::tiny::object::PageAddress;

/// Filter matches for one set across 64 consecutive set-groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchMask {
    /// Sequence of the first of these set-groups.
    first: u64,
    /// Set-groups that may hold the object, one bit each.
    bits: u64,
    home: u32,
}

impl MatchMask {
    /// A word of the filters of `home`, of the index group that begins with
    /// the set-group `first`.
    pub(super) fn new(first: u64, home: u32, word: Word) -> Self {
        MatchMask {
            first: first + u64::from(word.column),
            bits: word.bits,
            home,
        }
    }

    /// Leaves out set-groups before `oldest`.
    fn since(self, oldest: u64) -> Self {
        let gone = oldest.saturating_sub(self.first).min(64) as u32;
        let left = u64::MAX.checked_shl(gone).unwrap_or(0);
        MatchMask {
            bits: self.bits & left,
            ..self
        }
    }

    /// The places that the mask names, newest first.
    fn candidates(self) -> impl Iterator<Item = Candidate> {
        let mut bits = self.bits;
        std::iter::from_fn(move || {
            let newest = bits.checked_ilog2()?;
            bits ^= 1 << newest;
            Some(Candidate {
                sequence: self.first + u64::from(newest),
                home: self.home,
            })
        })
    }
}

/// Stripes of fingerprints that are asked together.
const ASKED_TOGETHER: usize = 16;

/// Collects the matches of filters.
///
/// Fingerprints are probed in steps, each for many stripes: see [`Bucket`].
pub(super) struct MatchCollector<'a, F: FnMut(MatchMask)> {
    collect: F,
    /// The index group's first set-group, and the set, of the next matches.
    first: u64,
    home: u32,
    buckets: ArrayVec<(MatchMask, Bucket<'a>), ASKED_TOGETHER>,
}

impl<F: FnMut(MatchMask)> MatchCollector<'_, F> {
    /// Calls `collect` with each mask.
    #[inline(always)]
    pub(super) fn new(collect: F) -> Self {
        MatchCollector {
            collect,
            first: 0,
            home: 0,
            buckets: ArrayVec::new(),
        }
    }

    /// The next matches are those of the filters of `home` in the index group
    /// that begins with the set-group `first`.
    pub(super) fn of(&mut self, first: u64, home: u32) {
        (self.first, self.home) = (first, home);
    }

    /// Probes the buckets that were collected: all have come, or their room is full.
    #[inline]
    pub(super) fn finish(&mut self) {
        let (mut asked, mut likes) = ([0u8; ASKED_TOGETHER], [0; ASKED_TOGETHER]);
        let mut count = 0;
        for (at, (_, bucket)) in self.buckets.iter().enumerate() {
            let like = bucket.like();
            (asked[count], likes[count]) = (at as u8, like);
            count += usize::from(like != 0);
        }
        for (at, like) in asked.into_iter().zip(likes).take(count) {
            let (mask, bucket) = &self.buckets[usize::from(at)];
            (self.collect)(MatchMask {
                bits: bucket.set_groups(like),
                ..*mask
            });
        }
        self.buckets.clear();
    }
}

impl<'a, F: FnMut(MatchMask)> Answers<'a> for MatchCollector<'a, F> {
    fn word(&mut self, word: Word) {
        (self.collect)(MatchMask::new(self.first, self.home, word));
    }

    fn ask(&mut self, column: u32, bucket: Bucket<'a>) {
        let mask = MatchMask::new(self.first, self.home, Word { column, bits: 0 });
        self.buckets.push((mask, bucket));
        if self.buckets.is_full() {
            self.finish();
        }
    }
}

/// The masks that name any set-group.
#[derive(Clone, Debug, Default)]
pub(super) struct Matches {
    /// The first `count` are matches, the rest is room for others.
    masks: Vec<MatchMask>,
    count: usize,
}

impl Matches {
    fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds a mask that names any set-group. The next mask overwrites an empty
    /// one, so that no branch depends on the bits: with some words of filters
    /// empty and some not, the processor would often mispredict it.
    pub(super) fn add(&mut self, mask: MatchMask) {
        match self.masks.get_mut(self.count) {
            Some(place) => *place = mask,
            None => self.masks.push(mask),
        }
        self.count += usize::from(mask.bits != 0);
    }
}

/// Where filters say that an object may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Of the set-group.
    pub(super) sequence: u64,
    /// The set.
    pub(super) home: u32,
}

/// All places of a search, newest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    /// Sequence of the oldest set-group that there was.
    oldest: u64,
    /// Each in one number, which is quicker to order than two: how far the
    /// set-group is from the newest that there could be, and the set.
    places: Vec<u64>,
}

impl Candidates {
    fn clear(&mut self) {
        self.places.clear();
    }

    /// Takes the places that `matches` name, of no set-group before `oldest`.
    fn fill(&mut self, matches: &Matches, oldest: u64) {
        self.oldest = oldest;
        for mask in &matches.masks[..matches.count] {
            let places = mask.since(oldest).candidates();
            self.places.extend(places.map(|place| {
                let behind = u64::from(u32::MAX) - (place.sequence - oldest);
                behind << 32 | u64::from(place.home)
            }));
        }
        self.places.sort_unstable();
    }

    /// Keeps the first; says whether there were more.
    fn cut(&mut self, max: usize) -> bool {
        let is_cut = self.places.len() > max;
        self.places.truncate(max);
        is_cut
    }

    fn iter(&self) -> impl Iterator<Item = Candidate> {
        self.places.iter().map(|place| self.candidate(*place))
    }

    /// The place of the page number `rank`.
    pub(super) fn get(&self, rank: usize) -> Option<Candidate> {
        self.places.get(rank).map(|place| self.candidate(*place))
    }

    fn candidate(&self, place: u64) -> Candidate {
        Candidate {
            sequence: self.oldest + (u64::from(u32::MAX) - (place >> 32)),
            home: place as u32,
        }
    }
}

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

/// Most pages that a search reads: far more than filters name by mistake, of
/// which `false_positives` are expected.
///
/// They name more where an object was overwritten again and again, and all its
/// copies are still on flash. The newest of these are enough: it is among the
/// first. Whatever is left unread is older, so that leaving it out can only
/// make a search find nothing.
pub(super) fn candidates_max(false_positives: f64) -> usize {
    /// Two waves: copies of what is overwritten often.
    const COPIES: usize = 16;
    /// So many pages hold a search's memory in bounds, whatever filters say.
    const BOUND: usize = 1024;
    (COPIES + (4.0 * false_positives).ceil() as usize).min(BOUND)
}

impl Nemo {
    /// Allows searches as many pages as the filters that there are need.
    pub(super) fn allow_for_false_positives(&mut self) {
        let sets = f64::from(self.plan.sets);
        // On average over sets, some of which hold more than others, they are
        // wrong as often as was asked for, if they were made for that.
        let asked = self.plan.config.filter_false_positives;
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
    pub(super) fn note_absence(&mut self, hash: KeyHash, scratch: &Scratch) {
        let nothing_came =
            scratch.asked_all_at == Some(self.pool.next()) && self.in_memory(hash).is_none();
        let nothing_comes_back = !self.forgot_leaving && self.pool.settled() == self.pool.oldest();
        if nothing_came && nothing_comes_back && !scratch.is_cut {
            self.absences.add(hash);
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
        debug_assert_eq!(search.pages.len(), scratch.candidates.places.len());
        if search.pages.is_empty() {
            return Step::Absent;
        }
        self.statistics.searches += 1;
        Step::Pages
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

    /// Whether it is known to be absent.
    pub(super) fn has(&self, hash: KeyHash) -> bool {
        hash.0 != 0 && self.slots[hash.0 as usize % ABSENCES] == hash.0
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
