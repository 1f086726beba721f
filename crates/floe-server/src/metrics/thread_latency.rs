//! Latencies that one thread records, without an atomic addition.

use std::time::Duration;

use super::{Count, HistogramSnapshot};

/// Upper bounds of the buckets, in microseconds; the last bucket is unbounded.
const BOUNDS_US: [u32; 18] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000,
    500_000, 1_000_000,
];

/// A distribution of latencies that one thread adds to and any thread may read.
#[derive(Debug, Default)]
pub(crate) struct ThreadLatency {
    buckets: [Count; BOUNDS_US.len() + 1],
    sum_ns: Count,
}

impl ThreadLatency {
    /// Counts `operations` of this latency; only the owning thread may call it.
    pub(crate) fn add(&self, took: Duration, operations: u64) {
        let bucket = BOUNDS_US.partition_point(|us| Duration::from_micros(u64::from(*us)) < took);
        self.buckets[bucket].add(operations);
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.add(ns.wrapping_mul(operations));
    }

    /// The sum over threads.
    pub(crate) fn total<'a>(threads: impl Iterator<Item = &'a ThreadLatency>) -> HistogramSnapshot {
        let mut counts = [0; BOUNDS_US.len() + 1];
        let mut sum_ns = 0u64;
        for latency in threads {
            for (count, bucket) in counts.iter_mut().zip(&latency.buckets) {
                *count += bucket.get();
            }
            sum_ns = sum_ns.wrapping_add(latency.sum_ns.get());
        }
        HistogramSnapshot::of_micros(&BOUNDS_US, counts, sum_ns as f64 / 1e9)
    }
}
