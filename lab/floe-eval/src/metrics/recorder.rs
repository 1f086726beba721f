//! Counts and latencies of completed requests, in a few shards behind short
//! locks, which are emptied into time bins.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::{Distribution, Distributions, LatencySummary, Measures, per_second};
use crate::ratio::ratio;

const SHARDS: usize = 8;
/// Precision of latencies: one thousandth.
const SIGNIFICANT_DIGITS: u8 = 3;

/// How a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// By the cache alone.
    Hit,
    /// With the origin's help.
    Miss,
    /// The object does not exist: a miss that returns nothing.
    Absent,
    /// A read of which the server does not report whether it hit.
    Read,
    /// It was written.
    Write,
    /// It was neither read nor written, or it failed.
    Other,
}

/// Finished requests.
#[derive(Debug)]
pub struct Recorder {
    shards: [Mutex<Tally>; SHARDS],
    live: LiveCounters,
}

#[derive(Debug, Default)]
struct LiveCounters {
    requests: AtomicU64,
    hits: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
}

/// Totals for a progress display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveCounts {
    /// Requests of any kind.
    pub requests: u64,
    /// Reads that hit.
    pub hits: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes returned.
    pub bytes: u64,
}

/// Counts over a stretch of time.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    get: Histogram<u64>,
    hit: Histogram<u64>,
    miss: Histogram<u64>,
    put: Histogram<u64>,
    requests: u64,
    hit_bytes: u64,
    miss_bytes: u64,
    /// Bytes of misses that returned nothing.
    absent_bytes: u64,
    /// Bytes of reads of which it is unknown whether they hit.
    other_bytes: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            get: histogram(),
            hit: histogram(),
            miss: histogram(),
            put: histogram(),
            requests: 0,
            hit_bytes: 0,
            miss_bytes: 0,
            absent_bytes: 0,
            other_bytes: 0,
        }
    }
}

/// An empty histogram of latencies, in nanoseconds.
pub(crate) fn histogram() -> Histogram<u64> {
    // Rejects only more than five digits.
    Histogram::new(SIGNIFICANT_DIGITS).expect("three digits are allowed")
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder {
            shards: std::array::from_fn(|_| Mutex::default()),
            live: LiveCounters::default(),
        }
    }
}

impl Recorder {
    /// Counts one completed request of `client`.
    pub fn record(&self, client: usize, served: Served, latency: Duration, bytes: u64) {
        let mut tally = self.shards[client % SHARDS].lock();
        tally.record(served, latency, bytes);
        drop(tally);
        self.live.requests.fetch_add(1, Relaxed);
        if served != Served::Absent {
            self.live.bytes.fetch_add(bytes, Relaxed);
        }
        if matches!(served, Served::Hit | Served::Miss | Served::Absent) {
            self.live.reads.fetch_add(1, Relaxed);
        }
        if served == Served::Hit {
            self.live.hits.fetch_add(1, Relaxed);
        }
    }

    /// Counts the write after a miss of `client`, which is not a request of its
    /// own.
    pub(crate) fn record_fill(&self, client: usize, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        // The histogram resizes to hold any value.
        let _ = self.shards[client % SHARDS].lock().put.record(ns);
    }

    /// Totals so far.
    pub fn live(&self) -> LiveCounts {
        LiveCounts {
            requests: self.live.requests.load(Relaxed),
            hits: self.live.hits.load(Relaxed),
            reads: self.live.reads.load(Relaxed),
            bytes: self.live.bytes.load(Relaxed),
        }
    }

    /// Median and 99th percentile of the current stretch.
    pub fn live_latency(&self) -> (Duration, Duration) {
        let mut get = histogram();
        for shard in &self.shards {
            // Both have the same digits and resize by themselves.
            let _ = get.add(&shard.lock().get);
        }
        (
            Duration::from_nanos(get.value_at_quantile(0.5)),
            Duration::from_nanos(get.value_at_quantile(0.99)),
        )
    }

    /// Drops all counts, including totals.
    pub(crate) fn restart(&self) {
        drop(self.take());
        for total in [
            &self.live.requests,
            &self.live.hits,
            &self.live.reads,
            &self.live.bytes,
        ] {
            total.store(0, Relaxed);
        }
    }

    /// Removes and returns the counts since the last call.
    pub(crate) fn take(&self) -> Tally {
        let mut whole = Tally::default();
        for shard in &self.shards {
            whole.merge(&std::mem::take(&mut *shard.lock()));
        }
        whole
    }
}

impl Tally {
    pub(crate) fn record(&mut self, served: Served, latency: Duration, bytes: u64) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        // The histogram resizes to hold any value.
        let _ = match served {
            Served::Hit => self.get.record(ns).and_then(|()| self.hit.record(ns)),
            Served::Miss | Served::Absent => {
                self.get.record(ns).and_then(|()| self.miss.record(ns))
            }
            Served::Read => self.get.record(ns),
            Served::Write => self.put.record(ns),
            Served::Other => Ok(()),
        };
        self.requests += 1;
        match served {
            Served::Hit => self.hit_bytes += bytes,
            Served::Miss => self.miss_bytes += bytes,
            Served::Absent => self.absent_bytes += bytes,
            Served::Read => self.other_bytes += bytes,
            Served::Write | Served::Other => {}
        }
    }

    pub(crate) fn merge(&mut self, other: &Tally) {
        for (mine, theirs) in [
            (&mut self.get, &other.get),
            (&mut self.hit, &other.hit),
            (&mut self.miss, &other.miss),
            (&mut self.put, &other.put),
        ] {
            // Both have the same digits and resize by themselves.
            let _ = mine.add(theirs);
        }
        self.requests += other.requests;
        self.hit_bytes += other.hit_bytes;
        self.miss_bytes += other.miss_bytes;
        self.absent_bytes += other.absent_bytes;
        self.other_bytes += other.other_bytes;
    }

    /// The request series over a stretch; the others stay empty.
    pub(crate) fn measures(&self, start: Duration, length: Duration) -> Measures {
        let bytes = self.hit_bytes + self.miss_bytes + self.other_bytes;
        let told_bytes = self.hit_bytes + self.miss_bytes + self.absent_bytes;
        Measures {
            start_s: start.as_secs_f64(),
            length_s: length.as_secs_f64(),
            get: LatencySummary::of(&self.get),
            hit: LatencySummary::of(&self.hit),
            miss: LatencySummary::of(&self.miss),
            put: LatencySummary::of(&self.put),
            get_bytes_per_s: per_second(bytes as f64, length),
            requests_per_s: per_second(self.requests as f64, length),
            hit_ratio: ratio(self.hit.len(), self.hit.len() + self.miss.len()),
            hits_untold: !self.get.is_empty() && self.hit.len() + self.miss.len() == 0,
            byte_hit_ratio: ratio(self.hit_bytes, told_bytes),
            ..Measures::default()
        }
    }

    /// The distributions of requests' latencies; the device's stay empty.
    pub(crate) fn distributions(&self) -> Distributions {
        Distributions {
            get: Distribution::of_histogram(&self.get),
            hit: Distribution::of_histogram(&self.hit),
            miss: Distribution::of_histogram(&self.miss),
            ..Distributions::default()
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests
    }
}

impl Distribution {
    /// Sums up a histogram of nanoseconds.
    pub(crate) fn of_histogram(latencies: &Histogram<u64>) -> Self {
        if latencies.is_empty() {
            return Distribution::default();
        }
        let at = |share| match share {
            // The histogram's value at 0 would be the end of its first bucket.
            0.0 => latencies.min(),
            share => latencies.value_at_quantile(share).min(latencies.max()),
        };
        Distribution::of(|share| at(share) as f64 / 1e6)
    }
}

impl LatencySummary {
    /// Sums up a histogram of nanoseconds.
    pub(crate) fn of(latencies: &Histogram<u64>) -> Self {
        if latencies.is_empty() {
            return LatencySummary::default();
        }
        let ms = |ns: u64| ns as f64 / 1e6;
        let at = |quantile| ms(latencies.value_at_quantile(quantile).min(latencies.max()));
        LatencySummary {
            count: latencies.len(),
            mean_ms: latencies.mean() / 1e6,
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            p9999_ms: at(0.9999),
            max_ms: ms(latencies.max()),
        }
    }
}
