//! The nine series of a run in virtual time.

use std::time::Duration;

use floe_core::Tick;
use hdrhistogram::Histogram;

use crate::metrics::{Distribution, Distributions, LatencySummary, Measures, Served, Tally};

/// Measures a run, bin by bin and as a whole.
pub(super) struct Series {
    bin: Duration,
    bin_start: Tick,
    bins: Vec<Measures>,
    current: Counts,
    whole: Counts,
}

struct Counts {
    tally: Tally,
    read: Disk,
    write: Disk,
}

struct Disk {
    latencies: Histogram<u64>,
    bytes: u64,
}

impl Counts {
    fn new() -> Self {
        Counts {
            tally: Tally::default(),
            read: Disk::new(),
            write: Disk::new(),
        }
    }

    fn merge(&mut self, other: &Counts) {
        self.tally.merge(&other.tally);
        self.read.merge(&other.read);
        self.write.merge(&other.write);
    }

    fn distributions(&self) -> Distributions {
        Distributions {
            disk_read: Distribution::of_histogram(&self.read.latencies),
            disk_write: Distribution::of_histogram(&self.write.latencies),
            ..self.tally.distributions()
        }
    }

    fn measures(&self, start: Tick, end: Tick) -> Measures {
        let length = end.since(start);
        let mut measures = self.tally.measures(start.since(Tick::ZERO), length);
        measures.disk_read = LatencySummary::of(&self.read.latencies);
        measures.disk_write = LatencySummary::of(&self.write.latencies);
        measures.read_bytes_per_s = crate::metrics::per_second(self.read.bytes as f64, length);
        measures.write_bytes_per_s = crate::metrics::per_second(self.write.bytes as f64, length);
        measures
    }
}

impl Disk {
    fn new() -> Self {
        Disk {
            latencies: crate::metrics::histogram(),
            bytes: 0,
        }
    }

    fn record(&mut self, latency: Duration, bytes: u64) {
        // The histogram resizes to hold any value.
        let _ = self.latencies.record(latency.as_nanos() as u64);
        self.bytes += bytes;
    }

    fn merge(&mut self, other: &Disk) {
        // Both histograms have the same precision and resize automatically.
        let _ = self.latencies.add(&other.latencies);
        self.bytes += other.bytes;
    }
}

impl Series {
    pub(super) fn new(bin: Duration) -> Self {
        Series {
            bin,
            bin_start: Tick::ZERO,
            bins: Vec::new(),
            current: Counts::new(),
            whole: Counts::new(),
        }
    }

    /// Records a completed request.
    pub(super) fn get(&mut self, now: Tick, served: Served, latency: Duration, bytes: u64) {
        self.roll(now);
        self.current.tally.record(served, latency, bytes);
    }

    /// Records a read of a chunk from the device.
    pub(super) fn read(&mut self, now: Tick, latency: Duration, bytes: u64) {
        self.roll(now);
        self.current.read.record(latency, bytes);
    }

    /// Records a write of a chunk to the device.
    pub(super) fn write(&mut self, now: Tick, latency: Duration, bytes: u64) {
        self.roll(now);
        self.current.write.record(latency, bytes);
    }

    /// Ends the run: its totals and its bins. A rest shorter than half a bin
    /// only counts in the totals.
    pub(super) fn end(mut self, now: Tick) -> (Measures, Distributions, Vec<Measures>) {
        self.roll(now);
        let rest = now.since(self.bin_start);
        if rest >= self.bin / 2 || self.bins.is_empty() {
            self.bins.push(self.current.measures(self.bin_start, now));
        }
        self.whole.merge(&self.current);
        let whole = self.whole.measures(Tick::ZERO, now);
        (whole, self.whole.distributions(), self.bins)
    }

    fn roll(&mut self, now: Tick) {
        while now.since(self.bin_start) >= self.bin {
            let end = self.bin_start + self.bin;
            self.bins.push(self.current.measures(self.bin_start, end));
            self.whole.merge(&self.current);
            self.current = Counts::new();
            self.bin_start = end;
        }
    }
}
