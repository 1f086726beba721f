//! What the frontends count: relaxed atomics, rendered when scraped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use floe_core::Tick;
use floe_device::Clock;
use http::{Method, StatusCode};

use super::{Histogram, HistogramSnapshot, Samples};

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

/// What happened to the connections of one frontend.
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

impl ConnectionCounters {
    /// Adds the samples of the frontend `name`.
    fn collect(&self, samples: &mut Samples, name: &str) {
        let frontend = [("face", name)];
        let (opened, closed) = (self.opened.get(), self.closed.get());
        samples.counter(
            "floe_connections",
            "Connections accepted",
            &frontend,
            opened,
        );
        samples.gauge(
            "floe_connections_open",
            "Connections open",
            &frontend,
            opened.saturating_sub(closed) as f64,
        );
        samples.counter(
            "floe_connection_waits",
            "Times that accepting waited because all connections were in use",
            &frontend,
            self.waits.get(),
        );
        samples.counter(
            "floe_connections_evicted",
            "Idle connections closed to make room for new ones, the longest idle first",
            &frontend,
            self.evicted.get(),
        );
        samples.counter(
            "floe_accept_errors",
            "Connections that could not be accepted",
            &frontend,
            self.accept_errors.get(),
        );
        for (reason, value) in [
            ("broken", self.broken.get()),
            ("stalled", self.stalled.get()),
            ("aborted", self.aborted.get()),
        ] {
            let labels = [("face", name), ("reason", reason)];
            samples.counter(
                "floe_connections_failed",
                "Connections that ended before their time",
                &labels,
                value,
            );
        }
    }
}

/// Kinds of requests that are counted apart.
const METHODS: [&str; 6] = ["get", "head", "put", "post", "delete", "other"];

/// Classes of answers that are counted apart.
const STATUS_CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// How reads of objects were served, in the words of `x-floe-cache`.
const READ_RESULTS: [&str; 3] = ["hit", "miss", "joined"];

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

/// What happened to the requests of one frontend.
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
    fn latencies(&self, method: usize) -> (HistogramSnapshot, HistogramSnapshot) {
        let mut first_byte = self.others[method].first_byte.snapshot();
        let mut whole = self.others[method].whole.snapshot();
        for read in self.reads.iter().filter(|_| method == GET) {
            first_byte.add(&read.first_byte.snapshot());
            whole.add(&read.whole.snapshot());
        }
        (first_byte, whole)
    }

    /// Adds the samples of the frontend `name`.
    fn collect(&self, samples: &mut Samples, name: &str) {
        let frontend = [("face", name)];
        let (begun, ended) = (self.begun.get(), self.ended.get());
        samples.gauge(
            "floe_requests_in_flight",
            "Requests under way",
            &frontend,
            begun.saturating_sub(ended) as f64,
        );
        samples.counter(
            "floe_sent_bytes",
            "Bytes of answers' bodies",
            &frontend,
            self.sent_bytes.get(),
        );
        for (method, method_name) in METHODS.iter().enumerate() {
            for (class, class_name) in STATUS_CLASSES.iter().enumerate() {
                let labels = [
                    ("face", name),
                    ("method", *method_name),
                    ("status", *class_name),
                ];
                samples.counter(
                    "floe_requests",
                    "Requests answered",
                    &labels,
                    self.answered[method][class].get(),
                );
            }
            let labels = [("face", name), ("method", *method_name)];
            let (first_byte, whole) = self.latencies(method);
            samples.histogram(
                "floe_request_first_byte_seconds",
                "Time until an answer begins",
                &labels,
                first_byte,
            );
            samples.histogram(
                "floe_request_seconds",
                "Time until an answer ends",
                &labels,
                whole,
            );
        }
        for (result, read) in READ_RESULTS.iter().zip(&self.reads) {
            let labels = [("face", name), ("result", *result)];
            samples.histogram(
                "floe_read_first_byte_seconds",
                "Time until the answer to a read of an object begins, by where the bytes come from",
                &labels,
                read.first_byte.snapshot(),
            );
            samples.histogram(
                "floe_read_seconds",
                "Time until the answer to a read of an object ends, by where the bytes come from",
                &labels,
                read.whole.snapshot(),
            );
        }
    }
}

/// Everything one frontend counts.
#[derive(Debug, Default)]
pub(crate) struct FrontendStatistics {
    pub(crate) connections: Arc<ConnectionCounters>,
    pub(crate) requests: Arc<RequestCounters>,
}

impl FrontendStatistics {
    /// Adds the samples of the frontend `name`.
    pub(crate) fn collect(&self, samples: &mut Samples, name: &str) {
        self.connections.collect(samples, name);
        self.requests.collect(samples, name);
    }
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
