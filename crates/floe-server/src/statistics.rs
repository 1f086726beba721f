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
    /// Adds another one of the same buckets.
    pub(crate) fn add(&mut self, other: &HistogramSnapshot) {
        for ((_, count), (_, more)) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
        self.sum_seconds += other.sum_seconds;
    }

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

/// How reads of objects were served, in the words of `x-floe-cache`.
pub(crate) const READ_RESULTS: [&str; 3] = ["hit", "miss", "joined"];

/// The place of GET in [`METHODS`].
const GET: usize = 0;

/// How long answers took until they began and until they ended.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    /// From the request's head to the answer's head.
    pub(crate) first_byte: Histogram,
    /// From the request's head to the answer's last byte.
    pub(crate) whole: Histogram,
}

/// What happened to the requests of one face.
#[derive(Debug, Default)]
pub(crate) struct RequestCounters {
    /// By method, then by class of the answer.
    pub(crate) answered: [[Counter; STATUS_CLASSES.len()]; METHODS.len()],
    /// By method, without the reads of objects.
    others: [Latencies; METHODS.len()],
    /// Of GETs that read an object, by [`READ_RESULTS`].
    pub(crate) reads: [Latencies; READ_RESULTS.len()],
    /// Requests begun and not ended.
    pub(crate) begun: Counter,
    /// Requests ended, whole or broken off.
    pub(crate) ended: Counter,
    /// Bytes of answers' bodies.
    pub(crate) sent_bytes: Counter,
}

impl RequestCounters {
    /// Of all requests with a method: until answers begin, and until they end.
    pub(crate) fn latencies(&self, method: usize) -> (HistogramSnapshot, HistogramSnapshot) {
        let mut first_byte = self.others[method].first_byte.snapshot();
        let mut whole = self.others[method].whole.snapshot();
        for read in self.reads.iter().filter(|_| method == GET) {
            first_byte.add(&read.first_byte.snapshot());
            whole.add(&read.whole.snapshot());
        }
        (first_byte, whole)
    }
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
    /// How a GET was served, if it read an object.
    result: Option<usize>,
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
            result: None,
        }
    }

    fn latencies(&self) -> &Latencies {
        match self.result {
            Some(result) => &self.counters.reads[result],
            None => &self.counters.others[self.method],
        }
    }

    /// Notes the beginning of the answer; `result` is one of [`READ_RESULTS`]
    /// where an object is read, whatever the case of its letters.
    pub(crate) fn answered(&mut self, status: StatusCode, result: Option<&str>) {
        let place = |result: &str| {
            let mut known = READ_RESULTS.iter();
            known.position(|name| name.eq_ignore_ascii_case(result))
        };
        self.result = result.filter(|_| self.method == GET).and_then(place);
        let class = match status.as_u16() {
            0..300 => 0,
            300..400 => 1,
            400..500 => 2,
            _ => 3,
        };
        self.counters.answered[self.method][class].add(1);
        let elapsed = self.clock.now().since(self.began);
        self.latencies().first_byte.record(elapsed);
    }

    pub(crate) fn sent(&self, bytes: u64) {
        self.counters.sent_bytes.add(bytes);
    }
}

impl Drop for RequestMeter {
    fn drop(&mut self) {
        let elapsed = self.clock.now().since(self.began);
        self.latencies().whole.record(elapsed);
        self.counters.ended.add(1);
    }
}
