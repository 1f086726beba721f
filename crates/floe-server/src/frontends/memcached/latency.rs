//! Latencies of gets by result, counted per thread.

use std::time::Duration;

use crate::metrics::ThreadLatency;

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

/// Latencies of the gets of one thread.
#[derive(Debug, Default)]
pub(crate) struct GetLatencies([ThreadLatency; GET_RESULTS.len()]);

impl GetLatencies {
    /// Counts `gets` of this latency; only the owning thread may call it.
    pub(super) fn add(&self, result: GetResult, took: Duration, gets: u64) {
        self.of(result).add(took, gets);
    }

    /// The latencies of gets with this result.
    pub(super) fn of(&self, result: GetResult) -> &ThreadLatency {
        &self.0[result as usize]
    }
}
