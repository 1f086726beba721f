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

/// Reasons of requests, with separate counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginReason {
    /// A cached object is compared with the origin's.
    Validation,
    /// The cache lacks bytes or metadata.
    Fetch,
    /// The origin answers a client's own request.
    Forward,
    /// A client changes an object or a bucket.
    Write,
    /// A client lists objects, uploads or buckets, or looks for a bucket.
    List,
}

floe_core::names! {
    OriginReason {
        Validation => "validation",
        Fetch => "fetch",
        Forward => "forward",
        Write => "write",
        List => "list",
    }
}

impl OriginOperation {
    /// The reasons for which such a request is sent.
    pub fn reasons(self) -> &'static [OriginReason] {
        use OriginReason::*;
        match self {
            OriginOperation::Get => &[Fetch, Forward],
            OriginOperation::Head => &[Validation, Fetch, Forward, List],
            OriginOperation::Put | OriginOperation::Delete | OriginOperation::Multipart => {
                &[Write, Forward]
            }
            OriginOperation::List => &[List, Forward],
        }
    }
}

/// The counters of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purpose(pub(super) OriginOperation, pub(super) OriginReason);

impl From<OriginOperation> for Purpose {
    /// A request of the cache's own that validates nothing.
    fn from(operation: OriginOperation) -> Self {
        let reason = match operation {
            OriginOperation::Get | OriginOperation::Head => OriginReason::Fetch,
            OriginOperation::List => OriginReason::List,
            OriginOperation::Put | OriginOperation::Delete | OriginOperation::Multipart => {
                OriginReason::Write
            }
        };
        Purpose(operation, reason)
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

impl OperationStats {
    fn add(&mut self, other: &Self) {
        self.succeeded += other.succeeded;
        self.negative += other.negative;
        self.rejected += other.rejected;
        self.failed += other.failed;
        self.timed_out += other.timed_out;
        self.retried += other.retried;
        let buckets = self.latency_buckets.iter_mut();
        for (bucket, count) in buckets.zip(other.latency_buckets) {
            *bucket += count;
        }
        self.latency_sum_ns += other.latency_sum_ns;
    }
}

/// Counters of all requests to an origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginStats {
    /// By kind, in the order of [`OriginOperation::ALL`], and by reason, in the order of
    /// [`OriginReason::ALL`].
    pub operations: [[OperationStats; 5]; 6],
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
    pub fn operation(&self, operation: OriginOperation) -> OperationStats {
        let mut sum = OperationStats::default();
        let reasons = self.operations[operation as usize].iter();
        reasons.for_each(|stats| sum.add(stats));
        sum
    }

    /// The requests of one kind for one reason.
    pub fn requests(&self, operation: OriginOperation, reason: OriginReason) -> &OperationStats {
        &self.operations[operation as usize][reason as usize]
    }
}

#[derive(Default)]
pub(super) struct Counters {
    operations: [[OperationCounters; 5]; 6],
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
        Purpose(operation, reason): Purpose,
        latency: Duration,
        error: Option<&OriginError>,
    ) {
        let counters = &self.operations[operation as usize][reason as usize];
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

    pub(super) fn retried(&self, Purpose(operation, reason): Purpose) {
        self.operations[operation as usize][reason as usize]
            .retried
            .fetch_add(1, Relaxed);
    }

    pub(super) fn snapshot(&self) -> OriginStats {
        OriginStats {
            operations: std::array::from_fn(|operation| {
                std::array::from_fn(|reason| self.operations[operation][reason].snapshot())
            }),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counted_reason_is_one_of_its_operation() {
        for operation in OriginOperation::ALL {
            let Purpose(_, own) = operation.into();
            for reason in [own, OriginReason::Forward] {
                assert!(
                    operation.reasons().contains(&reason),
                    "{operation:?} {reason:?}"
                );
            }
        }
        let counters = Counters::default();
        let look = Purpose(OriginOperation::Head, OriginReason::Validation);
        counters.attempt(look, Duration::from_millis(3), None);
        counters.attempt(OriginOperation::Head.into(), Duration::from_millis(4), None);
        let stats = counters.snapshot();
        let sum = stats.operation(OriginOperation::Head);
        assert_eq!((sum.succeeded, sum.latency_sum_ns), (2, 7_000_000));
        let part = stats.requests(OriginOperation::Head, OriginReason::Validation);
        assert_eq!(part.succeeded, 1);
    }
}
