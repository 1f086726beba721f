//! Admits keys that were seen often enough lately, by a count-min sketch with
//! ageing.
//!
//! The sketch (Cormode and Muthukrishnan, "An improved data stream summary: the
//! count-min sketch and its applications", 2005) has four counters of four bits
//! for each key. The least of them is the estimate, because collisions only
//! add. An increment raises only the counters that hold the least
//! ("conservative update", Estan and Varghese, "New directions in traffic
//! measurement and accounting", SIGCOMM 2002). Counters are halved so that the
//! past fades, as in TinyLFU (Einziger, Friedman and Manes, "TinyLFU: a highly
//! efficient cache admission policy", ACM TOS 2017).
//!
//! The differences to TinyLFU:
//!
//! * TinyLFU compares a new key with the victim that would leave for it. A
//!   flash cache that frees whole zones has no such victim, so an estimate is
//!   compared with a fixed `threshold`.
//! * A fixed threshold makes errors count. The sketch therefore has two
//!   counters in each row for every sighting of the window. In a stream of
//!   nothing but new keys, less than 1 in 100 appears to have been seen before.
//! * Halving is incremental, one block of counters at a time. Each block is
//!   halved exactly once in `window` sightings, and no call pays for all of
//!   them.
//!
//! All counters of a key are in one block of 64 bytes, a cache line: one memory
//! access per call, and all four are halved together. An exact counter that is
//! halved at the same times is therefore never above the estimate, up to the
//! greatest count, 15.

use serde::{Deserialize, Serialize};

use crate::hash::{KeyHash, fast_range, mix};
use crate::policy::error::{PolicyConfigError, check_range};

/// The greatest count that four bits hold.
const COUNT_MAX: u64 = 15;
const ROWS: usize = 4;
const WORDS_PER_BLOCK: usize = 8;
/// Counters of one row in a block; a block has 128.
const COUNTERS_PER_ROW: u64 = 32;
/// Four bytes for each sighting of the window.
const SIGHTINGS_PER_BLOCK: u64 = 16;
/// The bits that stay inside their counter when a word is shifted right.
const HALVED: u64 = 0x7777_7777_7777_7777;

/// `{ kind = "frequency", threshold = 2, window = 1048576 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrequencyConfig {
    /// Sightings of a key, this one included, from which on it is written:
    /// 1 (everything) to 15. Default 2.
    pub threshold: u32,
    /// Sightings of any keys after which old ones count half: 1,024 to 2^30.
    /// Costs 4 bytes of RAM each. Default 1,048,576.
    pub window: u64,
}

impl Default for FrequencyConfig {
    fn default() -> Self {
        FrequencyConfig {
            threshold: 2,
            window: 1 << 20,
        }
    }
}

impl FrequencyConfig {
    pub(super) fn check(&self) -> Result<(), PolicyConfigError> {
        check_range("threshold", self.threshold, 1, COUNT_MAX as u32)?;
        check_range("window", self.window, 1 << 10, 1 << 30)
    }

    fn blocks(&self) -> u64 {
        self.window.div_ceil(SIGHTINGS_PER_BLOCK)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.blocks()
            .saturating_mul((WORDS_PER_BLOCK * size_of::<u64>()) as u64)
    }
}

/// Admits keys whose estimated count reaches the threshold. 4 bytes for each
/// sighting of the window.
#[derive(Clone, Debug)]
pub struct Frequency {
    threshold: u64,
    seed: u64,
    blocks: Vec<[u64; WORDS_PER_BLOCK]>,
    /// The next block to halve.
    hand: usize,
    /// Sightings until it is halved.
    sightings_left: u64,
}

impl Frequency {
    pub(in crate::policy) fn new(config: &FrequencyConfig, seed: u64) -> Self {
        Frequency {
            threshold: u64::from(config.threshold),
            seed,
            blocks: vec![[0; WORDS_PER_BLOCK]; config.blocks() as usize],
            hand: 0,
            sightings_left: SIGHTINGS_PER_BLOCK,
        }
    }

    pub(in crate::policy) fn admit(&mut self, hash: KeyHash) -> bool {
        self.see(hash) >= self.threshold
    }

    pub(super) fn note(&mut self, hash: KeyHash) {
        self.see(hash);
    }

    /// How often `hash` was seen lately: never too low, up to 15. Changes
    /// nothing.
    pub fn estimate(&self, hash: KeyHash) -> u32 {
        let place = Place::new(hash, self.seed, self.blocks.len());
        place.least(&self.blocks[place.block]) as u32
    }

    /// Counts a sighting of `hash`; returns the estimate with it.
    fn see(&mut self, hash: KeyHash) -> u64 {
        self.age();
        let place = Place::new(hash, self.seed, self.blocks.len());
        let block = &mut self.blocks[place.block];
        let least = place.least(block);
        if least == COUNT_MAX {
            return least;
        }
        for (word, shift) in place.counters {
            if block[word] >> shift & COUNT_MAX == least {
                block[word] += 1 << shift;
            }
        }
        least + 1
    }

    /// Counts a sighting; halves a block when it is due.
    fn age(&mut self) {
        self.sightings_left -= 1;
        if self.sightings_left > 0 {
            return;
        }
        self.sightings_left = SIGHTINGS_PER_BLOCK;
        for word in &mut self.blocks[self.hand] {
            *word = *word >> 1 & HALVED;
        }
        self.hand = (self.hand + 1) % self.blocks.len();
    }

    pub(in crate::policy) fn memory_bytes(&self) -> u64 {
        (self.blocks.len() * WORDS_PER_BLOCK * size_of::<u64>()) as u64
    }
}

/// The position of a key's counters.
struct Place {
    block: usize,
    /// For each row, the word of the block and the counter's shift in it.
    counters: [(usize, u32); ROWS],
}

impl Place {
    fn new(hash: KeyHash, seed: u64, blocks: usize) -> Self {
        let spread = mix(hash.0 ^ seed);
        // From a second mix, so that keys of one block differ in all five bits.
        let mut choice = mix(spread);
        let counters = std::array::from_fn(|row| {
            let counter = (choice % COUNTERS_PER_ROW) as usize;
            choice /= COUNTERS_PER_ROW;
            let words_per_row = WORDS_PER_BLOCK / ROWS;
            (
                row * words_per_row + counter / 16,
                (counter % 16 * 4) as u32,
            )
        });
        Place {
            block: fast_range(spread, blocks),
            counters,
        }
    }

    fn least(&self, block: &[u64; WORDS_PER_BLOCK]) -> u64 {
        let counts = self
            .counters
            .map(|(word, shift)| block[word] >> shift & COUNT_MAX);
        counts.into_iter().fold(COUNT_MAX, u64::min)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    impl Frequency {
        fn block_of(&self, key: u64) -> usize {
            Place::new(KeyHash(key), self.seed, self.blocks.len()).block
        }
    }

    proptest! {
        #[test]
        fn estimates_err_only_upwards(
            seed: u64,
            keys in proptest::collection::vec(0u64..300, 0..6000),
        ) {
            let config = FrequencyConfig { threshold: 2, window: 1 << 10 };
            let mut sketch = Frequency::new(&config, seed);
            let mut exact: BTreeMap<u64, u64> = BTreeMap::new();
            for key in keys {
                let hand = sketch.hand;
                let estimate = sketch.see(KeyHash(key));
                if sketch.hand != hand {
                    for (other, count) in &mut exact {
                        if sketch.block_of(*other) == hand {
                            *count /= 2;
                        }
                    }
                }
                let count = exact.entry(key).or_default();
                *count = (*count + 1).min(COUNT_MAX);
                prop_assert!(estimate >= *count, "{key}: {estimate} < {count}");
                prop_assert_eq!(u64::from(sketch.estimate(KeyHash(key))), estimate);
            }
        }
    }

    #[test]
    fn every_block_is_halved_once_in_a_window() {
        let config = FrequencyConfig {
            threshold: 2,
            window: 1 << 12,
        };
        let mut sketch = Frequency::new(&config, 7);
        sketch.blocks.fill([u64::MAX; WORDS_PER_BLOCK]);
        for expected in [7, 3, 1, 0] {
            for _ in 0..config.window {
                sketch.age();
            }
            let counters = expected * 0x1111_1111_1111_1111;
            assert!(sketch.blocks.iter().flatten().all(|word| *word == counters));
        }
    }
}
