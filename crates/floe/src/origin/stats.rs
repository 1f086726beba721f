//! Counters of requests to an origin.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::error::OriginError;

/// Kinds of requests with separate counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginOperation {
    /// Reads of objects and ranges.
    Get,
    /// Reads of metadata.
    Head,
    /// Writes of whole objects.
    Put,
    /// Deletes.
    Delete,
    /// Listings of objects and buckets.
    List,
    /// Multipart uploads: create, part, complete, abort.
    Multipart,
}

floe_core::names! {
    OriginOperation {
        Get => "get",
        Head => "head",
        Put => "put",
        Delete => "delete",
        List => "list",
        Multipart => "multipart",
    }
}

/// Upper bounds of the latency buckets, in milliseconds; the last bucket is unbounded.
pub const LATENCY_BOUNDS_MS: [u64; 14] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000,
];

/// Counters of one kind of request. They count attempts: a call that succeeds
/// on its second attempt counts as one failure and one success.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationStats {
    /// Attempts that succeeded.
    pub succeeded: u64,
    /// Responses that nothing exists, that it was not modified, or that a condition failed.
    pub negative: u64,
    /// Requests that the origin rejected: access, bad key, bad request.
    pub rejected: u64,
    /// Attempts without a response or with a server error.
    pub failed: u64,
    /// Timeouts among the failed attempts.
    pub timed_out: u64,
    /// Retries.
    pub retried: u64,
    /// Attempts by the time to their response; see [`LATENCY_BOUNDS_MS`].
    pub latency_buckets: [u64; LATENCY_BOUNDS_MS.len() + 1],
    /// The sum of those times.
    pub latency_sum_ns: u64,
}

/// Counters of all requests to an origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginStats {
    /// By kind, in the order of [`OriginOperation::ALL`].
    pub operations: [OperationStats; 6],
    /// Bytes of bodies received.
    pub bytes_received: u64,
    /// Bytes of uploads sent.
    pub bytes_sent: u64,
    /// Bodies that broke off or stalled.
    pub broken_bodies: u64,
    /// Pending requests other than uploads, bodies included.
    pub in_flight: u64,
    /// Requests other than uploads in the queue.
    pub queued: u64,
    /// Pending uploads.
    pub uploads_in_flight: u64,
    /// Uploads in the queue.
    pub uploads_queued: u64,
    /// Requests and uploads rejected because the queue was full or the wait too long.
    pub overloaded: u64,
}

impl OriginStats {
    /// The requests of one kind.
    pub fn operation(&self, operation: OriginOperation) -> &OperationStats {
        &self.operations[operation as usize]
    }
}

#[derive(Default)]
pub(super) struct Counters {
    operations: [OperationCounters; 6],
    pub(super) bytes_received: AtomicU64,
    pub(super) bytes_sent: AtomicU64,
    pub(super) broken_bodies: AtomicU64,
    requests: QueueCounters,
    uploads: QueueCounters,
    pub(super) overloaded: AtomicU64,
}

/// The queue that a request waits in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Queue {
    Requests,
    Uploads,
}

#[derive(Default)]
pub(super) struct QueueCounters {
    pub(super) in_flight: AtomicU64,
    pub(super) queued: AtomicU64,
}

#[derive(Default)]
struct OperationCounters {
    succeeded: AtomicU64,
    negative: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    timed_out: AtomicU64,
    retried: AtomicU64,
    latency_buckets: [AtomicU64; LATENCY_BOUNDS_MS.len() + 1],
    latency_sum_ns: AtomicU64,
}

impl Counters {
    pub(super) fn attempt(
        &self,
        operation: OriginOperation,
        latency: Duration,
        error: Option<&OriginError>,
    ) {
        let counters = &self.operations[operation as usize];
        let outcome = match error {
            None => &counters.succeeded,
            Some(
                OriginError::NotFound(_)
                | OriginError::NoSuchBucket(_)
                | OriginError::NoSuchUpload(_)
                | OriginError::NotModified
                | OriginError::PreconditionFailed
                | OriginError::RangeNotSatisfiable { .. },
            ) => &counters.negative,
            Some(error) if error.is_outage() => {
                if matches!(error, OriginError::Timeout(_)) {
                    counters.timed_out.fetch_add(1, Relaxed);
                }
                &counters.failed
            }
            Some(_) => &counters.rejected,
        };
        outcome.fetch_add(1, Relaxed);
        let bucket = LATENCY_BOUNDS_MS
            .iter()
            .position(|&bound| latency <= Duration::from_millis(bound))
            .unwrap_or(LATENCY_BOUNDS_MS.len());
        counters.latency_buckets[bucket].fetch_add(1, Relaxed);
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        counters.latency_sum_ns.fetch_add(nanoseconds, Relaxed);
    }

    pub(super) fn queue(&self, queue: Queue) -> &QueueCounters {
        match queue {
            Queue::Requests => &self.requests,
            Queue::Uploads => &self.uploads,
        }
    }

    pub(super) fn retried(&self, operation: OriginOperation) {
        self.operations[operation as usize]
            .retried
            .fetch_add(1, Relaxed);
    }

    pub(super) fn snapshot(&self) -> OriginStats {
        OriginStats {
            operations: std::array::from_fn(|i| self.operations[i].snapshot()),
            bytes_received: self.bytes_received.load(Relaxed),
            bytes_sent: self.bytes_sent.load(Relaxed),
            broken_bodies: self.broken_bodies.load(Relaxed),
            in_flight: self.requests.in_flight.load(Relaxed),
            queued: self.requests.queued.load(Relaxed),
            uploads_in_flight: self.uploads.in_flight.load(Relaxed),
            uploads_queued: self.uploads.queued.load(Relaxed),
            overloaded: self.overloaded.load(Relaxed),
        }
    }
}

impl OperationCounters {
    fn snapshot(&self) -> OperationStats {
        OperationStats {
            succeeded: self.succeeded.load(Relaxed),
            negative: self.negative.load(Relaxed),
            rejected: self.rejected.load(Relaxed),
            failed: self.failed.load(Relaxed),
            timed_out: self.timed_out.load(Relaxed),
            retried: self.retried.load(Relaxed),
            latency_buckets: std::array::from_fn(|i| self.latency_buckets[i].load(Relaxed)),
            latency_sum_ns: self.latency_sum_ns.load(Relaxed),
        }
    }
}
