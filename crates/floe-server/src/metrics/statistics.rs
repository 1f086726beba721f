//! Counters of the frontends: relaxed atomics, rendered when scraped.

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

/// Counters of the connections of one frontend.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounters {
    /// Accepted connections.
    pub(crate) opened: Counter,
    /// Ended connections, for any reason.
    pub(crate) closed: Counter,
    /// Connections ended by an error of the client, the network or a response.
    pub(crate) broken: Counter,
    /// Connections ended because the client received nothing for too long.
    pub(crate) stalled: Counter,
    /// Connections ended by the deadline of a shutdown.
    pub(crate) aborted: Counter,
    /// Waits before accepting, because all connections were in use.
    pub(crate) waits: Counter,
    /// Connections closed while idle, to make room for a new one.
    pub(crate) evicted: Counter,
    /// Connections that could not be accepted.
    pub(crate) accept_errors: Counter,
}

impl ConnectionCounters {
    fn collect(&self, samples: &mut Samples, name: &str) {
        let (opened, closed) = (self.opened.get(), self.closed.get());
        ConnectionCounts {
            opened,
            open: opened.saturating_sub(closed),
            rejected: 0,
            accept_waits: self.waits.get(),
            evicted: self.evicted.get(),
            accept_errors: self.accept_errors.get(),
            failed: &[
                ("aborted", self.aborted.get()),
                ("broken", self.broken.get()),
                ("stalled", self.stalled.get()),
            ],
        }
        .collect(samples, name);
    }
}

/// Counts of the connections of one frontend at one moment.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounts<'a> {
    pub(crate) opened: u64,
    pub(crate) open: u64,
    pub(crate) rejected: u64,
    pub(crate) accept_waits: u64,
    pub(crate) evicted: u64,
    pub(crate) accept_errors: u64,
    /// Connections that ended early, by reason.
    pub(crate) failed: &'a [(&'static str, u64)],
}

impl ConnectionCounts<'_> {
    /// Adds the samples of the frontend `name`.
    pub(crate) fn collect(&self, samples: &mut Samples, name: &str) {
        let frontend = [("frontend", name)];
        for (metric, help, value) in [
            ("floe_connections", "Connections accepted", self.opened),
            (
                "floe_connections_rejected",
                "Connections closed at once because too many were open",
                self.rejected,
            ),
            (
                "floe_connections_evicted",
                "Idle connections closed to make room for new ones, the longest idle first",
                self.evicted,
            ),
            (
                "floe_accept_waits",
                "Times that accepting waited because all connections were in use",
                self.accept_waits,
            ),
            (
                "floe_accept_errors",
                "Connections that could not be accepted",
                self.accept_errors,
            ),
        ] {
            samples.counter(metric, help, &frontend, value);
        }
        samples.gauge(
            "floe_connections_open",
            "Connections open",
            &frontend,
            self.open as f64,
        );
        for (reason, value) in self.failed {
            let labels = [("frontend", name), ("reason", *reason)];
            samples.counter(
                "floe_connections_failed",
                "Connections that ended by an error, a limit or a shutdown",
                &labels,
                *value,
            );
        }
    }
}

/// Methods with their own counters.
const METHODS: [&str; 6] = ["get", "head", "put", "post", "delete", "other"];

/// Classes of status codes with their own counters.
const STATUS_CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// Results of reads of objects, as in `x-floe-cache`.
const READ_RESULTS: [&str; 3] = ["hit", "miss", "joined"];

/// The index of GET in [`METHODS`].
const GET: usize = 0;

/// Durations until responses began and ended.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    /// From the request's head to the response's head.
    pub(crate) first_byte: Histogram,
    /// From the request's head to the response's last byte.
    pub(crate) whole: Histogram,
}

/// Counters of the requests of one frontend.
#[derive(Debug, Default)]
pub(crate) struct RequestCounters {
    /// By method and class of the status code.
    pub(crate) answered: [[Counter; STATUS_CLASSES.len()]; METHODS.len()],
    /// By method, except for reads of objects.
    others: [Latencies; METHODS.len()],
    /// GETs of objects, by [`READ_RESULTS`].
    pub(crate) reads: [Latencies; READ_RESULTS.len()],
    /// Requests begun.
    pub(crate) begun: Counter,
    /// Requests ended, completely or not.
    pub(crate) ended: Counter,
    /// Bytes of response bodies.
    pub(crate) sent_bytes: Counter,
}

impl RequestCounters {
    /// Latencies of all requests of a method: until the response began and ended.
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
        let frontend = [("frontend", name)];
        let (begun, ended) = (self.begun.get(), self.ended.get());
        samples.gauge(
            "floe_requests_in_flight",
            "Requests in flight",
            &frontend,
            begun.saturating_sub(ended) as f64,
        );
        samples.counter(
            "floe_sent_bytes",
            "Bytes of response bodies sent",
            &frontend,
            self.sent_bytes.get(),
        );
        for (method, method_name) in METHODS.iter().enumerate() {
            for (class, class_name) in STATUS_CLASSES.iter().enumerate() {
                let labels = [
                    ("frontend", name),
                    ("method", *method_name),
                    ("status", *class_name),
                ];
                samples.counter(
                    "floe_requests",
                    "Responses",
                    &labels,
                    self.answered[method][class].get(),
                );
            }
            let labels = [("frontend", name), ("method", *method_name)];
            let (first_byte, whole) = self.latencies(method);
            samples.histogram(
                "floe_request_first_byte_seconds",
                "Time until a response begins",
                &labels,
                first_byte,
            );
            samples.histogram(
                "floe_request_duration_seconds",
                "Time until a response ends",
                &labels,
                whole,
            );
        }
        for (result, read) in READ_RESULTS.iter().zip(&self.reads) {
            let labels = [("frontend", name), ("result", *result)];
            samples.histogram(
                "floe_read_first_byte_seconds",
                "Time until the response to a read of an object begins, by cache result",
                &labels,
                read.first_byte.snapshot(),
            );
            samples.histogram(
                "floe_read_duration_seconds",
                "Time until the response to a read of an object ends, by cache result",
                &labels,
                read.whole.snapshot(),
            );
        }
    }
}

/// All counters of one frontend.
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

/// Measures one request until it is dropped.
pub(crate) struct RequestMeter {
    counters: Arc<RequestCounters>,
    clock: Clock,
    method: usize,
    /// The result of a GET that read an object.
    result: Option<usize>,
    began: Tick,
    is_cancelled: bool,
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
            is_cancelled: false,
            counters,
            clock,
            method,
            result: None,
        }
    }

    /// Ends it without a record: another meter measures the request.
    pub(crate) fn cancel(mut self) {
        self.is_cancelled = true;
    }

    fn latencies(&self) -> &Latencies {
        match self.result {
            Some(result) => &self.counters.reads[result],
            None => &self.counters.others[self.method],
        }
    }

    /// Records the beginning of the response. A read of an object has a
    /// `result`, one of [`READ_RESULTS`] in any case.
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
        if !self.is_cancelled {
            let elapsed = self.clock.now().since(self.began);
            self.latencies().whole.record(elapsed);
        }
        self.counters.ended.add(1);
    }
}
