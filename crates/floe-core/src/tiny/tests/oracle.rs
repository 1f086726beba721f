//! An oracle for every engine: random operations against a map.
//!
//! A cache may forget, it may never lie. Each put of a key has a length that no
//! earlier one had, so that a stale result is recognised by its length.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::hash::{HashSeed, KeyHash};
use crate::tiny::model::Model;
use crate::tiny::{Engine, Expiry, Flash};

/// A run of the oracle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Oracle {
    pub(crate) seed: u64,
    pub(crate) operations: u32,
    pub(crate) keys: u64,
    /// Shortest and longest object in bytes.
    pub(crate) bytes: (u32, u32),
}

impl Default for Oracle {
    fn default() -> Self {
        Oracle {
            seed: 1,
            operations: 10_000,
            keys: 2_000,
            bytes: (20, 600),
        }
    }
}

/// The results of the lookups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) hits: u64,
    pub(crate) forgotten: u64,
    pub(crate) absent: u64,
}

struct Truth {
    bytes: u32,
    expires: Expiry,
}

impl Oracle {
    /// Runs `engine` on a model of `flash` against a map.
    ///
    /// # Panics
    /// If a lookup returns anything but the newest object or a miss.
    pub(crate) fn run<E: Engine>(self, engine: E, flash: Flash) -> Seen {
        let mut model = Model::new(engine, flash);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut truth: BTreeMap<u64, Truth> = BTreeMap::new();
        let mut next_bytes: BTreeMap<u64, u32> = BTreeMap::new();
        let mut seen = Seen::default();
        let mut now = 1;
        for operation in 0..self.operations {
            now += u32::from(random.random_ratio(1, 50));
            // The square prefers small numbers, so some keys are hot.
            let draw: f64 = random.random();
            let key = (draw * draw * self.keys as f64) as u64;
            let hash = KeyHash::of(HashSeed(self.seed), &key.to_le_bytes());
            match random.random_range(0..100) {
                0..50 => {
                    let found = model.get(hash, now);
                    let expected = truth
                        .get(&key)
                        .filter(|truth| !truth.expires.is_over(now))
                        .map(|truth| truth.bytes);
                    match (found, expected) {
                        (None, None) => seen.absent += 1,
                        (None, Some(_)) => seen.forgotten += 1,
                        (Some(_), _) => {
                            assert_eq!(found, expected, "key {key}, operation {operation}");
                            seen.hits += 1;
                        }
                    }
                }
                50..90 => {
                    let (least, most) = self.bytes;
                    // Steps of a prime visit all lengths before one repeats.
                    let span = most - least + 1;
                    let step = next_bytes.entry(key).or_insert(key as u32 % span);
                    *step = (*step + 101) % span;
                    let bytes = &(least + *step);
                    let expires = if random.random_ratio(1, 4) {
                        Expiry(now + random.random_range(1..100))
                    } else {
                        Expiry::NEVER
                    };
                    model.put(hash, *bytes, expires, now);
                    truth.insert(
                        key,
                        Truth {
                            bytes: *bytes,
                            expires,
                        },
                    );
                }
                _ => {
                    model.delete(hash, now);
                    truth.remove(&key);
                }
            }
        }
        seen
    }
}
