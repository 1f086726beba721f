//! Maps a key's hash to its sets and its filter bits.

use crate::hash::{KeyHash, fast_range};

/// The sets of a set-group that an object may lie in: one or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Homes {
    sets: [u32; 2],
    count: usize,
}

impl Homes {
    /// The sets of `hash` among `sets`, one or two of them.
    pub(super) fn of(hash: KeyHash, sets: u32, candidates: u32) -> Self {
        let home = |multiplier| fast_range(scramble(hash.0, multiplier), sets as usize) as u32;
        let first = home(0x9e37_79b9_7f4a_7c15);
        let second = home(0xd6e8_feb8_6659_fd93);
        Homes {
            sets: [first, second],
            count: 1 + usize::from(candidates == 2 && first != second),
        }
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u32> {
        self.sets.into_iter().take(self.count)
    }

    /// The key's other set, if it has two.
    pub(super) fn other_than(self, home: u32) -> Option<u32> {
        self.iter().find(|set| *set != home)
    }
}

/// The product carries low bits upwards; the fold mixes its high half back
/// down.
fn scramble(hash: u64, multiplier: u64) -> u64 {
    let product = u128::from(hash ^ multiplier.rotate_left(17)) * u128::from(multiplier);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Most bits that a key sets in a filter.
pub(super) const PROBES_MAX: usize = 20;

/// Points taken from one mixed word.
const POINTS_PER_WORD: usize = 4;

/// The positions of a key's bits in a filter, as fractions of its length.
/// Computed once per search, for filters of any length.
///
/// The points are independent. Double hashing is cheaper, but in filters this
/// short the patterns of two keys often coincide, which doubles the false
/// positives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub(super) points: [u16; PROBES_MAX],
    /// See [`short`].
    pub(super) short: u16,
    /// The key's bits in page filters.
    pub(super) page: PageProbe,
}

/// The 16 bits of a hash that a key's fingerprint is made of.
pub(super) fn short(hash: KeyHash) -> u16 {
    (scramble(hash.0, 0xe703_7ed1_a0b4_28db) >> 48) as u16
}

/// The place of a key's bits in page filters of any shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageProbe {
    pub(super) line_hash: u64,
    /// Nine bits for each position in the line.
    pub(super) positions: u64,
}

impl PageProbe {
    pub(super) fn of(hash: KeyHash) -> Self {
        let line_hash = scramble(hash.0, 0x8ebc_6af0_9c88_c6e3);
        PageProbe {
            line_hash,
            positions: scramble(line_hash, 0x589a_55f6_3dfb_8a4d),
        }
    }
}

impl Rows {
    pub(super) fn of(hash: KeyHash) -> Self {
        let mut points = [0; PROBES_MAX];
        let mut word = hash.0;
        for part in points.chunks_exact_mut(POINTS_PER_WORD) {
            word = scramble(word, 0xa076_1d64_78bd_642f);
            for (at, point) in part.iter_mut().enumerate() {
                *point = (word >> (16 * at)) as u16;
            }
        }
        Rows {
            points,
            short: short(hash),
            page: PageProbe::of(hash),
        }
    }
}
