//! What the faces count: relaxed atomics, rendered when scraped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use floe_core::Tick;
use floe_device::Clock;
use http::{Method, StatusCode};

/// A count that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What happened to the connections of one face.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounters {
    /// Accepted.
    pub(crate) opened: Counter,
    /// Ended, for whatever reason.
    pub(crate) closed: Counter,
    /// Ended by an error of the client, the network or an answer.
    pub(crate) broken: Counter,
    /// Ended because the client took nothing for too long.
    pub(crate) stalled: Counter,
    /// Ended by the deadline of a shutdown.
    pub(crate) aborted: Counter,
    /// Times that accepting waited because all connections were in use.
    pub(crate) waits: Counter,
    /// Closed while idle, to make room for a new one.
    pub(crate) evicted: Counter,
    /// Connections that could not be accepted.
    pub(crate) accept_errors: Counter,
}

/// Upper bounds of the latency buckets in seconds; one more holds what is slower.
pub(crate) const LATENCY_BOUNDS_SECONDS: [f64; 18] = [
    0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    10.0, 30.0, 60.0,
];

/// How long things took.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; LATENCY_BOUNDS_SECONDS.len() + 1],
    sum_ns: AtomicU64,
}

/// A copy of a [`Histogram`] at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct HistogramSnapshot {
    /// Upper bound and number of each bucket, not cumulated.
    pub(crate) buckets: Vec<(f64, u64)>,
    pub(crate) sum_seconds: f64,
}

impl HistogramSnapshot {
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, n)| n).sum()
    }
}

impl Histogram {
    pub(crate) fn record(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = LATENCY_BOUNDS_SECONDS.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Relaxed);
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(ns, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> HistogramSnapshot {
        let bounds = LATENCY_BOUNDS_SECONDS.into_iter().chain([f64::INFINITY]);
        HistogramSnapshot {
            buckets: bounds
                .zip(&self.buckets)
                .map(|(bound, n)| (bound, n.load(Relaxed)))
                .collect(),
            sum_seconds: self.sum_ns.load(Relaxed) as f64 / 1e9,
        }
    }
}

/// Kinds of requests that are counted apart.
pub(crate) const METHODS: [&str; 6] = ["get", "head", "put", "post", "delete", "other"];

/// Classes of answers that are counted apart.
pub(crate) const STATUS_CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// What happened to the requests of one face.
#[derive(Debug, Default)]
pub(crate) struct RequestCounters {
    /// By method, then by class of the answer.
    pub(crate) answered: [[Counter; STATUS_CLASSES.len()]; METHODS.len()],
    /// From the request's head to the answer's head, by method.
    pub(crate) first_byte: [Histogram; METHODS.len()],
    /// From the request's head to the answer's last byte, by method.
    pub(crate) whole: [Histogram; METHODS.len()],
    /// Requests begun and not ended.
    pub(crate) begun: Counter,
    /// Requests ended, whole or broken off.
    pub(crate) ended: Counter,
    /// Bytes of answers' bodies.
    pub(crate) sent_bytes: Counter,
}

/// Everything one face counts.
#[derive(Debug, Default)]
pub(crate) struct FaceStatistics {
    pub(crate) connections: Arc<ConnectionCounters>,
    pub(crate) requests: Arc<RequestCounters>,
}

/// Measures one request; ends when it is dropped.
pub(crate) struct RequestMeter {
    counters: Arc<RequestCounters>,
    clock: Clock,
    method: usize,
    began: Tick,
}

impl RequestMeter {
    pub(crate) fn begin(counters: Arc<RequestCounters>, clock: Clock, method: &Method) -> Self {
        let method = METHODS
            .iter()
            .position(|name| method.as_str().eq_ignore_ascii_case(name))
            .unwrap_or(METHODS.len() - 1);
        counters.begun.add(1);
        RequestMeter {
            began: clock.now(),
            counters,
            clock,
            method,
        }
    }

    pub(crate) fn answered(&self, status: StatusCode) {
        let class = match status.as_u16() {
            0..300 => 0,
            300..400 => 1,
            400..500 => 2,
            _ => 3,
        };
        self.counters.answered[self.method][class].add(1);
        let elapsed = self.clock.now().since(self.began);
        self.counters.first_byte[self.method].record(elapsed);
    }

    pub(crate) fn sent(&self, bytes: u64) {
        self.counters.sent_bytes.add(bytes);
    }
}

impl Drop for RequestMeter {
    fn drop(&mut self) {
        let elapsed = self.clock.now().since(self.began);
        self.counters.whole[self.method].record(elapsed);
        self.counters.ended.add(1);
    }
}
