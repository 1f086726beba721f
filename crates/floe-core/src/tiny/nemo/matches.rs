//! Filter matches, and the candidate pages that they lead to, newest first.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::filters::{MatchSink, Word};
use super::fingerprints::Bucket;

/// Filter matches for one set across 64 consecutive set-groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchMask {
    /// Sequence of the first of these set-groups.
    first: u64,
    /// One bit per set-group; set if it may hold the object.
    pub(super) bits: u64,
    home: u32,
}

impl MatchMask {
    /// The matches `word` for the set `home` in the index group that begins
    /// with the set-group `first`.
    pub(super) fn new(first: u64, home: u32, word: Word) -> Self {
        MatchMask {
            first: first + u64::from(word.column),
            bits: word.bits,
            home,
        }
    }

    /// Removes set-groups before `oldest`.
    pub(super) fn since(self, oldest: u64) -> Self {
        let gone = oldest.saturating_sub(self.first).min(64) as u32;
        let left = u64::MAX.checked_shl(gone).unwrap_or(0);
        MatchMask {
            bits: self.bits & left,
            ..self
        }
    }

    /// Removes set-groups from `end` on.
    fn before(self, end: u64) -> Self {
        let left = end.saturating_sub(self.first).min(64) as u32;
        let newer = u64::MAX.checked_shl(left).unwrap_or(0);
        MatchMask {
            bits: self.bits & !newer,
            ..self
        }
    }

    /// The matching set-groups, newest first.
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

/// Stripes of fingerprints that are probed together.
const PROBED_TOGETHER: usize = 16;

/// Collects filter matches.
///
/// Probes fingerprints in steps, each for many stripes: see [`Bucket`].
pub(super) struct MatchCollector<'a, F: FnMut(MatchMask)> {
    collect: F,
    /// First set-group of the index group, and the set, of the next matches.
    first: u64,
    home: u32,
    buckets: ArrayVec<(MatchMask, Bucket<'a>), PROBED_TOGETHER>,
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

    /// Sets the index group, by its first set-group, and the set of the next
    /// matches.
    pub(super) fn of(&mut self, first: u64, home: u32) {
        (self.first, self.home) = (first, home);
    }

    /// Probes the gathered buckets. Called at the end and whenever the list is
    /// full.
    #[inline]
    pub(super) fn finish(&mut self) {
        let (mut probed, mut matches) = ([0u8; PROBED_TOGETHER], [0; PROBED_TOGETHER]);
        let mut count = 0;
        for (at, (_, bucket)) in self.buckets.iter().enumerate() {
            let byte_matches = bucket.byte_matches();
            (probed[count], matches[count]) = (at as u8, byte_matches);
            count += usize::from(byte_matches != 0);
        }
        for (at, byte_matches) in probed.into_iter().zip(matches).take(count) {
            let (mask, bucket) = &self.buckets[usize::from(at)];
            (self.collect)(MatchMask {
                bits: bucket.set_groups(byte_matches),
                ..*mask
            });
        }
        self.buckets.clear();
    }
}

impl<'a, F: FnMut(MatchMask)> MatchSink<'a> for MatchCollector<'a, F> {
    fn word(&mut self, word: Word) {
        (self.collect)(MatchMask::new(self.first, self.home, word));
    }

    fn bucket(&mut self, column: u32, bucket: Bucket<'a>) {
        let mask = MatchMask::new(self.first, self.home, Word { column, bits: 0 });
        self.buckets.push((mask, bucket));
        if self.buckets.is_full() {
            self.finish();
        }
    }
}

/// The masks with at least one match.
#[derive(Clone, Debug, Default)]
pub(super) struct Matches {
    /// The first `count` masks count. The mask age them is scratch space.
    masks: Vec<MatchMask>,
    count: usize,
}

impl Matches {
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds a mask unless it is empty. The next mask overwrites an empty one
    /// instead of a branch on the bits, which would often be mispredicted.
    pub(super) fn add(&mut self, mask: MatchMask) {
        match self.masks.get_mut(self.count) {
            Some(scratch) => *scratch = mask,
            None => self.masks.push(mask),
        }
        self.count += usize::from(mask.bits != 0);
    }
}

/// A set on flash that may hold an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// The set-group's sequence.
    pub(super) sequence: u64,
    /// The set in it.
    pub(super) home: u32,
}

/// Candidates of a search, newest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    /// Sequence of the oldest set-group that may be among them.
    oldest: u64,
    /// Each candidate as one number, for fast sorting: its age, as the distance
    /// from the newest possible sequence, above its set.
    encoded: Vec<u64>,
}

impl Candidates {
    pub(super) fn clear(&mut self) {
        self.encoded.clear();
    }

    /// Takes the candidates of `matches` in these set-groups in place of those before.
    pub(super) fn fill(&mut self, matches: &Matches, set_groups: Range<u64>) {
        let oldest = set_groups.start;
        self.oldest = oldest;
        self.encoded.clear();
        for mask in &matches.masks[..matches.count] {
            let candidates = mask.since(oldest).before(set_groups.end).candidates();
            self.encoded.extend(candidates.map(|candidate| {
                let age = u64::from(u32::MAX) - (candidate.sequence - oldest);
                age << 32 | u64::from(candidate.home)
            }));
        }
        self.encoded.sort_unstable();
    }

    /// Keeps the `max` newest; returns whether there were more.
    pub(super) fn cut(&mut self, max: usize) -> bool {
        let is_cut = self.encoded.len() > max;
        self.encoded.truncate(max);
        is_cut
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Candidate> {
        self.encoded.iter().map(|encoded| self.candidate(*encoded))
    }

    pub(super) fn len(&self) -> usize {
        self.encoded.len()
    }

    /// The candidate number `rank`.
    pub(super) fn get(&self, rank: usize) -> Option<Candidate> {
        self.encoded
            .get(rank)
            .map(|encoded| self.candidate(*encoded))
    }

    fn candidate(&self, encoded: u64) -> Candidate {
        Candidate {
            sequence: self.oldest + (u64::from(u32::MAX) - (encoded >> 32)),
            home: encoded as u32,
        }
    }
}

/// Most pages that a search reads, well above the expected `false_positives`.
///
/// All filters of an often overwritten object match while its copies are on
/// flash. The newest copy is among the first candidates. Unread pages are
/// older, so leaving them out can only turn a hit into a miss.
pub(super) fn candidates_max(false_positives: f64) -> usize {
    /// Pages beyond the false positives, for copies of often overwritten
    /// objects.
    const COPIES: usize = 16;
    /// Bounds the memory of a search, whatever filters match.
    const BOUND: usize = 1024;
    (COPIES + (4.0 * false_positives).ceil() as usize).min(BOUND)
}
