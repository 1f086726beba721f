//! Miss ratios of eviction policies on a trace. No bytes are stored and no time
//! passes, so the counts are exact and comparable with published ones.
//!
//! One pass over the trace feeds every policy at every size. A read of an
//! absent object inserts it; a write inserts it as well and counts as a request
//! of its own kind; a delete removes it. Times to live are not applied.

use floe_core::policy::object::{Access, ObjectPolicy, ObjectPolicyKind};

use crate::ratio::ratio;
use crate::trace::{Op, Request, Trace, TraceError};

/// The unit that a cache stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUnit {
    /// Whole objects. An object of unknown size counts one byte, so that a size
    /// in bytes is a number of objects.
    Object,
    /// Chunks of this many bytes: those in the requested range. An object of
    /// unknown size without a range is its first chunk.
    Chunk(u64),
}

/// Most chunks of a request; the rest is ignored. Protects against a trace that
/// requests 2^64 bytes.
const CHUNKS_PER_REQUEST_MAX: u64 = 1 << 20;

/// The counts of one policy at one size.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PolicyCounts {
    /// The policy.
    pub policy: ObjectPolicyKind,
    /// Capacity in bytes (objects, if sizes are unknown).
    pub cache_bytes: u64,
    /// Reads (of objects or chunks).
    pub gets: u64,
    /// Reads that missed.
    pub misses: u64,
    /// Bytes read.
    pub get_bytes: u64,
    /// Bytes read that missed.
    pub miss_bytes: u64,
    /// Misses of objects larger than the cache.
    pub rejected: u64,
}

impl PolicyCounts {
    /// Share of the reads that missed, or zero without reads.
    pub fn miss_ratio(&self) -> f64 {
        ratio(self.misses, self.gets)
    }

    /// Share of the bytes read that missed, or zero without reads.
    pub fn byte_miss_ratio(&self) -> f64 {
        ratio(self.miss_bytes, self.get_bytes)
    }
}

/// The result of a replay.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PolicyReplay {
    /// Requests of the trace (before cutting into chunks).
    pub requests: u64,
    /// Lines or records skipped as bad.
    pub skipped: u64,
    /// One entry per policy and size: all sizes of the first policy, then the
    /// next.
    pub counts: Vec<PolicyCounts>,
}

/// Replays `trace` on every policy of `policies` at every size of
/// `sizes_bytes`. Calls `progress` with the number of requests now and then.
///
/// # Errors
/// The trace's first error.
pub fn replay(
    trace: &mut Trace,
    policies: &[ObjectPolicyKind],
    sizes_bytes: &[u64],
    unit: CacheUnit,
    mut progress: impl FnMut(u64),
) -> Result<PolicyReplay, TraceError> {
    const PROGRESS_EVERY: u64 = 1 << 16;
    let mut caches: Vec<Simulated> = policies
        .iter()
        .flat_map(|&policy| sizes_bytes.iter().map(move |&size| (policy, size)))
        .map(|(policy, size)| Simulated::new(policy, size))
        .collect();
    let mut requests = 0;
    for request in trace.by_ref() {
        let request = request?;
        requests += 1;
        for_each_access(&request, unit, |key, bytes| {
            for cache in &mut caches {
                cache.step(request.op, key, bytes);
            }
        });
        if requests % PROGRESS_EVERY == 0 {
            progress(requests);
        }
    }
    Ok(PolicyReplay {
        requests,
        skipped: trace.skipped(),
        counts: caches.into_iter().map(|cache| cache.counts).collect(),
    })
}

/// Calls `access` with key and bytes of each unit that `request` touches.
pub fn for_each_access(request: &Request, unit: CacheUnit, mut access: impl FnMut(u64, u64)) {
    let key = request.key.to_u64();
    let chunk = match unit {
        CacheUnit::Object => return access(key, request.size.unwrap_or(1)),
        CacheUnit::Chunk(bytes) => bytes.max(1),
    };
    let whole = request.size.unwrap_or(1);
    let (offset, end) = match request.range {
        Some(range) => (
            range.offset,
            range.end().min(request.size.unwrap_or(u64::MAX)),
        ),
        None => (0, whole),
    };
    let first = offset / chunk;
    let last = end.saturating_sub(1).max(offset) / chunk;
    for number in (first..=last).take(CHUNKS_PER_REQUEST_MAX as usize) {
        let bytes = match request.size {
            Some(size) => size.saturating_sub(number * chunk).clamp(1, chunk),
            None => chunk,
        };
        access(chunk_key(key, number), bytes);
    }
}

/// Mixes an object's key with a chunk's number. Collisions are as likely as
/// those of any 64-bit hash.
fn chunk_key(key: u64, number: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&key.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

struct Simulated {
    policy: ObjectPolicy,
    counts: PolicyCounts,
}

impl Simulated {
    fn new(policy: ObjectPolicyKind, cache_bytes: u64) -> Self {
        Simulated {
            policy: ObjectPolicy::new(policy, cache_bytes),
            counts: PolicyCounts {
                policy,
                cache_bytes,
                gets: 0,
                misses: 0,
                get_bytes: 0,
                miss_bytes: 0,
                rejected: 0,
            },
        }
    }

    fn step(&mut self, op: Op, key: u64, bytes: u64) {
        if op == Op::Delete {
            self.policy.remove(key);
            return;
        }
        let access = self.policy.access(key, bytes);
        if op == Op::Put {
            return;
        }
        self.counts.gets += 1;
        self.counts.get_bytes += bytes;
        if access != Access::Hit {
            self.counts.misses += 1;
            self.counts.miss_bytes += bytes;
        }
        self.counts.rejected += u64::from(access == Access::Rejected);
    }
}
