//! Matches of filters, and the places that they name, newest first.

use arrayvec::ArrayVec;

use super::filters::{Answers, Word};
use super::fingerprints::Bucket;

/// Filter matches for one set across 64 consecutive set-groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchMask {
    /// Sequence of the first of these set-groups.
    first: u64,
    /// Set-groups that may hold the object, one bit each.
    pub(super) bits: u64,
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
    pub(super) fn since(self, oldest: u64) -> Self {
        let gone = oldest.saturating_sub(self.first).min(64) as u32;
        let left = u64::MAX.checked_shl(gone).unwrap_or(0);
        MatchMask {
            bits: self.bits & left,
            ..self
        }
    }

    /// The places that the mask names, newest first.
    pub(super) fn candidates(self) -> impl Iterator<Item = Candidate> {
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
    pub(super) fn clear(&mut self) {
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

/// A place where an object may be.
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
    pub(super) fn clear(&mut self) {
        self.places.clear();
    }

    /// Takes the places that `matches` name, of no set-group before `oldest`.
    pub(super) fn fill(&mut self, matches: &Matches, oldest: u64) {
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
    pub(super) fn cut(&mut self, max: usize) -> bool {
        let is_cut = self.places.len() > max;
        self.places.truncate(max);
        is_cut
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Candidate> {
        self.places.iter().map(|place| self.candidate(*place))
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
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
