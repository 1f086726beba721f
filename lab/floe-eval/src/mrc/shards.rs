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

/// A sample of a fixed share of the keys, with the correction of SHARDS-adj:
/// accesses that the sample has too few or too many of are counted as hits of
/// the smallest cache.
#[derive(Debug)]
pub struct FixedRate {
    threshold: u64,
    accesses: u64,
    stack: Stack,
    distances: Histogram,
}

impl FixedRate {
    /// Samples `rate` (above 0, at most 1) of the keys, to the next 2^-24.
    pub fn new(rate: f64) -> Self {
        let threshold = (rate * MODULUS as f64).round() as u64;
        FixedRate {
            threshold: threshold.clamp(1, MODULUS),
            accesses: 0,
            stack: Stack::default(),
            distances: Histogram::default(),
        }
    }

    fn rate(&self) -> f64 {
        self.threshold as f64 / MODULUS as f64
    }
}

impl StackDistances for FixedRate {
    fn access(&mut self, key: u64) {
        self.accesses += 1;
        if hash(key) >= self.threshold {
            return;
        }
        let rate = self.rate();
        match self.stack.access(key) {
            Some(distance) => self.distances.add(scaled(distance, rate), 1.0 / rate),
            None => self.distances.add_first(1.0 / rate),
        }
    }

    fn curve(&self) -> Curve {
        adjusted(
            &self.distances,
            self.accesses,
            self.stack.len(),
            self.rate(),
        )
    }
}

/// A sample of a fixed number of keys, whose threshold falls as distinct keys
/// appear: memory is bounded.
#[derive(Debug)]
pub struct FixedSize {
    keys_max: usize,
    threshold: u64,
    accesses: u64,
    stack: Stack,
    /// The sampled keys by hash, largest first.
    sampled: BinaryHeap<(u64, u64)>,
    distances: Histogram,
}

impl FixedSize {
    /// Samples at most `keys_max` keys, at least one.
    pub fn new(keys_max: usize) -> Self {
        FixedSize {
            keys_max: keys_max.max(1),
            threshold: MODULUS,
            accesses: 0,
            stack: Stack::default(),
            sampled: BinaryHeap::new(),
            distances: Histogram::default(),
        }
    }

    fn rate(&self) -> f64 {
        self.threshold as f64 / MODULUS as f64
    }

    /// The keys in the sample.
    pub fn sampled(&self) -> usize {
        self.sampled.len()
    }

    /// Lowers the threshold to the largest sampled hash, and drops its keys.
    fn lower(&mut self) {
        let Some(&(largest, _)) = self.sampled.peek() else {
            return;
        };
        self.threshold = largest;
        while let Some(&(hash, key)) = self.sampled.peek()
            && hash == largest
        {
            self.sampled.pop();
            self.stack.remove(key);
        }
    }
}

impl StackDistances for FixedSize {
    fn access(&mut self, key: u64) {
        self.accesses += 1;
        let hash = hash(key);
        if hash >= self.threshold {
            return;
        }
        let rate = self.rate();
        match self.stack.access(key) {
            Some(distance) => self.distances.add(scaled(distance, rate), 1.0 / rate),
            None => {
                self.distances.add_first(1.0 / rate);
                self.sampled.push((hash, key));
                // All keys may share the smallest hash: a threshold of 0 samples none.
                if self.sampled.len() > self.keys_max {
                    self.lower();
                }
            }
        }
    }

    fn curve(&self) -> Curve {
        adjusted(
            &self.distances,
            self.accesses,
            self.stack.len(),
            self.rate(),
        )
    }
}

fn adjusted(distances: &Histogram, accesses: u64, sampled: usize, rate: f64) -> Curve {
    let unique = scaled(sampled as u64, rate);
    distances.curve_of(accesses, unique, accesses as f64 - distances.total())
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
