//! SHARDS (Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC Construction with
//! SHARDS, FAST '15): stack distances of the keys whose hash is below a
//! threshold. A sample of rate R has distances R times as long, and an access
//! stands for 1/R.

use std::collections::BinaryHeap;

use super::exact::Stack;
use super::histogram::Histogram;
use super::{Curve, StackDistances};

/// The hashes that thresholds divide: `0..MODULUS`.
const MODULUS: u64 = 1 << 24;

/// The keys whose hash is below a threshold.
#[derive(Debug)]
struct Sampled {
    threshold: u64,
    accesses: u64,
    stack: Stack,
    distances: Histogram,
}

impl Sampled {
    fn below(threshold: u64) -> Self {
        Sampled {
            threshold,
            accesses: 0,
            stack: Stack::default(),
            distances: Histogram::default(),
        }
    }

    /// Notes an access; returns the hash of a key that enters the sample.
    fn access(&mut self, key: u64) -> Option<u64> {
        self.accesses += 1;
        let hash = hash(key);
        if hash >= self.threshold {
            return None;
        }
        let rate = self.rate();
        if let Some(distance) = self.stack.access(key) {
            self.distances.add(scaled(distance, rate), 1.0 / rate);
            return None;
        }
        self.distances.add_first(1.0 / rate);
        Some(hash)
    }

    fn rate(&self) -> f64 {
        self.threshold as f64 / MODULUS as f64
    }

    /// The curve with the correction of SHARDS-adj: accesses that the sample has
    /// too few or too many of are counted as hits of the smallest cache.
    fn curve(&self) -> Curve {
        let unique = scaled(self.stack.len() as u64, self.rate());
        let missing = self.accesses as f64 - self.distances.total();
        self.distances.curve_of(self.accesses, unique, missing)
    }
}

/// A sample of a fixed share of the keys, with the correction of SHARDS-adj.
#[derive(Debug)]
pub struct FixedRate(Sampled);

impl FixedRate {
    /// Samples `rate` (above 0, at most 1) of the keys, to the next 2^-24.
    pub fn new(rate: f64) -> Self {
        let threshold = (rate * MODULUS as f64).round() as u64;
        FixedRate(Sampled::below(threshold.clamp(1, MODULUS)))
    }
}

impl StackDistances for FixedRate {
    fn access(&mut self, key: u64) {
        self.0.access(key);
    }

    fn curve(&self) -> Curve {
        self.0.curve()
    }
}

/// A sample of a fixed number of keys, whose threshold falls as distinct keys
/// appear: memory is bounded.
#[derive(Debug)]
pub struct FixedSize {
    keys_max: usize,
    sample: Sampled,
    /// The sampled keys by hash, largest first.
    by_hash: BinaryHeap<(u64, u64)>,
}

impl FixedSize {
    /// Samples at most `keys_max` keys, at least one.
    pub fn new(keys_max: usize) -> Self {
        FixedSize {
            keys_max: keys_max.max(1),
            sample: Sampled::below(MODULUS),
            by_hash: BinaryHeap::new(),
        }
    }

    /// The keys in the sample.
    pub fn sampled(&self) -> usize {
        self.by_hash.len()
    }

    /// True if every key is in the sample, so that the curve is exact.
    pub fn is_exact(&self) -> bool {
        self.sample.threshold == MODULUS
    }

    /// Lowers the threshold to the largest sampled hash, and drops its keys.
    fn lower(&mut self) {
        let Some(&(largest, _)) = self.by_hash.peek() else {
            return;
        };
        self.sample.threshold = largest;
        while let Some(&(hash, key)) = self.by_hash.peek()
            && hash == largest
        {
            self.by_hash.pop();
            self.sample.stack.remove(key);
        }
    }
}

impl StackDistances for FixedSize {
    fn access(&mut self, key: u64) {
        let Some(hash) = self.sample.access(key) else {
            return;
        };
        self.by_hash.push((hash, key));
        // All keys may share the smallest hash: a threshold of 0 samples none.
        if self.by_hash.len() > self.keys_max {
            self.lower();
        }
    }

    fn curve(&self) -> Curve {
        self.sample.curve()
    }
}

fn scaled(count: u64, rate: f64) -> u64 {
    match rate > 0.0 {
        true => (count as f64 / rate).round() as u64,
        false => 0,
    }
}

/// Keys that are numbers in order must not be sampled in order.
fn hash(key: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&key.to_le_bytes()) % MODULUS
}
