//! Rejects the first sighting of a key and admits the second, as CacheLib's
//! `RejectFirstAP` over its `ApproxSplitSet`, a ring of Bloom filters.
//!
//! Keys go into the newest of `SPLITS + 1` filters. When it holds `keys /
//! SPLITS` keys, or is `window_seconds / SPLITS` old, the oldest filter is
//! emptied and becomes the newest. CacheLib's ring turns by count alone and has
//! no spare filter. Turning by count and time gives these guarantees:
//!
//! * **A key is remembered** while two shares add up to less than one: the
//!   share of `window_seconds` that has passed since its last sighting, and the
//!   share of `keys` that were added since. If `keys` is ample, it is
//!   remembered for the window.
//! * **A key is forgotten** at the latest after `window_seconds` and a quarter.
//! * **A new key is mistaken for a known one** with a probability below 0.3 %
//!   even when all filters are full. With 16 bits and 8 probes per key it is
//!   0.06 % for each of five filters (Bloom, "Space/time trade-offs in hash
//!   coding with allowable errors", 1970).
//!
//! A sighting of a remembered key adds it to the newest filter again, so that
//! keys in use stay admissible.
//!
//! Turning the ring empties one filter at once: half a byte per key of `keys`,
//! or 0.5 MiB at the default.

use serde::{Deserialize, Serialize};

use crate::Tick;
use crate::hash::{KeyHash, fast_range, mix};
use crate::policy::error::{PolicyConfigError, check_range};

/// Filters for which a key is certain to be remembered.
const SPLITS: u64 = 4;
const BITS_PER_KEY: u64 = 16;
const PROBES: u32 = 8;
const SECOND_NS: u64 = 1_000_000_000;

/// `{ kind = "reject-first", keys = 1048576, window_seconds = 86400 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RejectFirstConfig {
    /// Keys to remember: as many as are seen in the window, 1,024 to 2^30.
    /// Costs 2.5 bytes of RAM each. Default 1,048,576.
    pub keys: u64,
    /// How long a key is remembered, in seconds: 1 to 31,536,000 (a year).
    /// Default 86,400 (a day).
    pub window_seconds: u64,
}

impl Default for RejectFirstConfig {
    fn default() -> Self {
        RejectFirstConfig {
            keys: 1 << 20,
            window_seconds: 86_400,
        }
    }
}

impl RejectFirstConfig {
    pub(super) fn check(&self) -> Result<(), PolicyConfigError> {
        check_range("keys", self.keys, 1 << 10, 1 << 30)?;
        check_range("window_seconds", self.window_seconds, 1, 31_536_000)
    }

    fn keys_per_filter(&self) -> u64 {
        self.keys.div_ceil(SPLITS)
    }

    fn words_per_filter(&self) -> u64 {
        self.keys_per_filter()
            .saturating_mul(BITS_PER_KEY)
            .div_ceil(64)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.words_per_filter().saturating_mul((SPLITS + 1) * 8)
    }
}

/// Admits keys that were seen before. 2.5 bytes for each key remembered.
#[derive(Clone, Debug)]
pub struct RejectFirst {
    seed: u64,
    /// The filters, one after another.
    words: Vec<u64>,
    words_per_filter: usize,
    newest: usize,
    /// Keys in the newest filter.
    keys: u64,
    keys_per_filter: u64,
    /// When the ring last turned; `None` before the first call.
    turned_at: Option<Tick>,
    turn_ns: u64,
}

impl RejectFirst {
    pub(super) fn new(config: &RejectFirstConfig, seed: u64) -> Self {
        let words_per_filter = config.words_per_filter() as usize;
        RejectFirst {
            seed,
            words: vec![0; words_per_filter * (SPLITS as usize + 1)],
            words_per_filter,
            newest: 0,
            keys: 0,
            keys_per_filter: config.keys_per_filter(),
            turned_at: None,
            turn_ns: (config.window_seconds * SECOND_NS).div_ceil(SPLITS),
        }
    }

    pub(super) fn admit(&mut self, hash: KeyHash, now: Tick) -> bool {
        self.advance(now);
        self.see(hash, now)
    }

    pub(super) fn note(&mut self, hash: KeyHash, now: Tick) {
        self.advance(now);
        self.see(hash, now);
    }

    /// Remembers `hash`; returns whether it was remembered already.
    fn see(&mut self, hash: KeyHash, now: Tick) -> bool {
        let probes = Probes::new(hash, self.seed, self.words_per_filter);
        if self.holds(self.newest, &probes) {
            return true;
        }
        let mut older = (0..=SPLITS as usize).filter(|filter| *filter != self.newest);
        let known = older.any(|filter| self.holds(filter, &probes));
        if self.keys >= self.keys_per_filter {
            self.turn();
            // The next filter gets its full time, and a clock that went back
            // does not shorten it.
            self.turned_at = self.turned_at.max(Some(now));
        }
        self.insert(&probes);
        known
    }

    fn holds(&self, filter: usize, probes: &Probes) -> bool {
        let words = &self.words[filter * self.words_per_filter..][..self.words_per_filter];
        (0..PROBES).all(|at| {
            let (word, bit) = probes.at(at);
            words[word] & bit != 0
        })
    }

    fn insert(&mut self, probes: &Probes) {
        let from = self.newest * self.words_per_filter;
        for at in 0..PROBES {
            let (word, bit) = probes.at(at);
            self.words[from + word] |= bit;
        }
        self.keys += 1;
    }

    /// Turns the ring as often as the time that has passed requires.
    fn advance(&mut self, now: Tick) {
        let turned_at = *self.turned_at.get_or_insert(now);
        let turns = now.0.saturating_sub(turned_at.0) / self.turn_ns;
        for _ in 0..turns.min(SPLITS + 1) {
            self.turn();
        }
        // At most `now`, so it cannot overflow.
        self.turned_at = Some(Tick(turned_at.0 + turns * self.turn_ns));
    }

    fn turn(&mut self) {
        self.newest = (self.newest + 1) % (SPLITS as usize + 1);
        let from = self.newest * self.words_per_filter;
        self.words[from..][..self.words_per_filter].fill(0);
        self.keys = 0;
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.words.len() * size_of::<u64>()) as u64
    }
}

/// The bits of one key, the same in every filter.
struct Probes {
    first: u64,
    step: u64,
    bits: usize,
}

impl Probes {
    fn new(hash: KeyHash, seed: u64, words: usize) -> Self {
        let first = mix(hash.0 ^ seed);
        Probes {
            first,
            // Never zero, or all probes would be one.
            step: mix(first ^ hash.0) | 1,
            bits: words * 64,
        }
    }

    /// Double hashing (Kirsch and Mitzenmacher, "Less hashing, same
    /// performance: building a better Bloom filter", 2006).
    fn at(&self, probe: u32) -> (usize, u64) {
        let draw = self
            .first
            .wrapping_add(self.step.wrapping_mul(u64::from(probe)));
        let bit = fast_range(draw, self.bits);
        (bit / 64, 1 << (bit % 64))
    }
}
