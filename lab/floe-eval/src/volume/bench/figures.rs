//! The figures of a run.

use std::time::Duration;

use floe::volume::{Volume, VolumeCache, VolumeCacheStats};
use floe_core::volume::{Accesses, Io};
use floe_device::{CounterSnapshot, SharedBlockDevice};

use super::clients::Tally;
use crate::metrics::{LatencySummary, ProcessSample, per_second};
use crate::results::{Figure, latency_figures};

/// The counts of a cache and its devices at one moment, or between two.
pub(super) struct Counts {
    stats: VolumeCacheStats,
    cache: CounterSnapshot,
    backing: Vec<CounterSnapshot>,
}

impl Counts {
    pub(super) fn of(
        cache: &VolumeCache,
        device: &SharedBlockDevice,
        volumes: &[(Volume, SharedBlockDevice)],
    ) -> Self {
        Counts {
            stats: cache.stats(),
            cache: device.counters().snapshot(),
            backing: volumes
                .iter()
                .map(|(_, backing)| backing.counters().snapshot())
                .collect(),
        }
    }

    /// The counts since `before`, with the state of the blocks at the end.
    pub(super) fn since(mut self, before: &Counts) -> Self {
        let (counts, earlier) = (&mut self.stats.counts, &before.stats.counts);
        let accesses = |now: &mut Accesses, then: Accesses| {
            now.requests -= then.requests;
            now.hits -= then.hits;
            now.bytes -= then.bytes;
            now.hit_bytes -= then.hit_bytes;
        };
        accesses(&mut counts.reads, earlier.reads);
        accesses(&mut counts.writes, earlier.writes);
        let io = |now: &mut Io, then: Io| {
            now.operations -= then.operations;
            now.bytes -= then.bytes;
        };
        io(&mut counts.traffic.fills, earlier.traffic.fills);
        io(&mut counts.traffic.write_backs, earlier.traffic.write_backs);
        self.cache = self.cache.since(&before.cache);
        for (now, then) in self.backing.iter_mut().zip(&before.backing) {
            *now = now.since(then);
        }
        self
    }
}

/// The figures of a run of `elapsed`.
pub(super) fn figures(
    tally: &Tally,
    elapsed: Duration,
    counts: &Counts,
    process: Option<ProcessSample>,
) -> Vec<Figure> {
    let mut figures = Vec::new();
    let requests = tally.reads.len() + tally.writes.len();
    let mut all = tally.reads.clone();
    // Both have the same digits and resize by themselves.
    let _ = all.add(&tally.writes);
    latency_figures("latency", &LatencySummary::of(&all), &mut figures);
    for (name, latencies) in [
        ("volume_read_latency", &tally.reads),
        ("volume_write_latency", &tally.writes),
    ] {
        latency_figures(name, &LatencySummary::of(latencies), &mut figures);
    }
    let (of, occupancy) = (&counts.stats.counts, &counts.stats.occupancy);
    let mut both = of.reads;
    both += of.writes;
    let share = |bytes: u64| bytes as f64 / occupancy.capacity_bytes.max(1) as f64;
    let backing = |count: fn(&CounterSnapshot) -> u64| {
        let counts = counts.backing.iter().map(count);
        counts.sum::<u64>() as f64
    };
    let (backing_read, backing_written) = (backing(|c| c.read_bytes), backing(|c| c.write_bytes));
    let (read, written) = (
        counts.cache.read_bytes as f64,
        counts.cache.write_bytes as f64,
    );
    let rate = |amount: f64| per_second(amount, elapsed);
    let mut add = |metric: &str, unit: &str, value: f64| {
        figures.push(Figure::new(metric, unit, value));
    };
    add("requests", "count", requests as f64);
    add("elapsed", "s", elapsed.as_secs_f64());
    add("request_rate", "1/s", rate(requests as f64));
    add("volume_throughput", "B/s", rate(tally.bytes as f64));
    add("read_hit_ratio", "ratio", of.reads.hit_ratio());
    add("write_hit_ratio", "ratio", of.writes.hit_ratio());
    add("hit_ratio", "ratio", both.hit_ratio());
    add("cache_read", "B", read);
    add("cache_written", "B", written);
    add("backing_read", "B", backing_read);
    add("backing_written", "B", backing_written);
    add("cache_io", "B", read + written);
    add("backing_io", "B", backing_read + backing_written);
    add("fills", "B", of.traffic.fills.bytes as f64);
    add("write_backs", "B", of.traffic.write_backs.bytes as f64);
    add("capacity", "B", occupancy.capacity_bytes as f64);
    add("occupancy", "ratio", share(occupancy.bytes));
    add("dirty_share", "ratio", share(occupancy.dirty_bytes));
    if let Some(process) = process {
        let us = process.cpu_time.as_secs_f64() * 1e6;
        add("cpu", "%", process.cpu_percent);
        add("cpu_per_request", "us", us / requests.max(1) as f64);
    }
    figures
}
