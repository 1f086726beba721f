//! Latencies of gets by result, counted per thread.

use std::time::Duration;

use super::count::Count;
use crate::metrics::HistogramSnapshot;

/// The result of a get, as in `floe_memcached_keys_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GetResult {
    HitMemory,
    HitFlash,
    Miss,
}

/// Every result, with its label.
pub(crate) const GET_RESULTS: [(GetResult, &str); 3] = [
    (GetResult::HitMemory, "hit_memory"),
    (GetResult::HitFlash, "hit_flash"),
    (GetResult::Miss, "miss"),
];

/// Upper bounds of the buckets, in microseconds; the last bucket is unbounded.
const BOUNDS_US: [u32; 18] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000,
    500_000, 1_000_000,
];

/// Latencies of the gets of one thread.
#[derive(Debug, Default)]
pub(crate) struct GetLatencies([Latencies; GET_RESULTS.len()]);

#[derive(Debug, Default)]
struct Latencies {
    buckets: [Count; BOUNDS_US.len() + 1],
    sum_ns: Count,
}

impl GetLatencies {
    /// Counts `gets` of this latency; only the owning thread may call it.
    pub(super) fn add(&self, result: GetResult, took: Duration, gets: u64) {
        let latencies = &self.0[result as usize];
        let bucket = BOUNDS_US.partition_point(|us| Duration::from_micros(u64::from(*us)) < took);
        latencies.buckets[bucket].add(gets);
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        latencies.sum_ns.add(ns.wrapping_mul(gets));
    }
}

/// The sum over threads.
pub(super) fn total<'a>(
    threads: impl Iterator<Item = &'a GetLatencies>,
    result: GetResult,
) -> HistogramSnapshot {
    let mut counts = [0; BOUNDS_US.len() + 1];
    let mut sum_ns = 0u64;
    for thread in threads {
        let latencies = &thread.0[result as usize];
        for (count, bucket) in counts.iter_mut().zip(&latencies.buckets) {
            *count += bucket.get();
        }
        sum_ns = sum_ns.wrapping_add(latencies.sum_ns.get());
    }
    HistogramSnapshot::of_micros(&BOUNDS_US, counts, sum_ns as f64 / 1e9)
}
