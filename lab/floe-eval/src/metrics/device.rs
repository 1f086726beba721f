//! The device's part of the series: differences between readings of its meter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use floe_device::metered::{Meter, Meters};
use floe_device::{Metered, Operation};

use super::{Distribution, Distributions, LatencySummary, Measures, per_second};

/// Reads the meter of a device.
#[derive(Debug)]
pub struct DeviceProbe {
    meters: Arc<Meters>,
    at_start: DeviceReading,
    last: DeviceReading,
}

/// The meter's counters, up to a time or between two.
#[derive(Clone, Debug, Default)]
pub struct DeviceReading {
    read: Counted,
    write: Counted,
}

#[derive(Clone, Debug, Default)]
struct Counted {
    /// Operations by the upper end of their latency's bucket.
    latencies: BTreeMap<Duration, u64>,
    latency_sum: Duration,
    bytes: u64,
}

impl DeviceProbe {
    /// Starts with the current counters of `device`.
    pub fn new(device: &Metered) -> Self {
        let meters = Arc::clone(device.meters());
        let now = DeviceReading::of(&meters);
        DeviceProbe {
            meters,
            at_start: now.clone(),
            last: now,
        }
    }

    /// The counters since the last call.
    pub fn take(&mut self) -> DeviceReading {
        let now = DeviceReading::of(&self.meters);
        let taken = now.since(&self.last);
        self.last = now;
        taken
    }

    /// The counters since the start, up to the last call of [`DeviceProbe::take`].
    pub fn whole(&self) -> DeviceReading {
        self.last.since(&self.at_start)
    }
}

impl DeviceReading {
    fn of(meters: &Meters) -> Self {
        let mut reading = DeviceReading::default();
        reading.read.count(meters.of(Operation::Read));
        reading.write.count(meters.of(Operation::Append));
        reading.write.count(meters.of(Operation::Write));
        reading
    }

    fn since(&self, earlier: &DeviceReading) -> DeviceReading {
        DeviceReading {
            read: self.read.since(&earlier.read),
            write: self.write.since(&earlier.write),
        }
    }

    /// Adds the counters of another stretch.
    pub fn add(&mut self, other: &DeviceReading) {
        self.read.add(&other.read);
        self.write.add(&other.write);
    }

    /// Bytes appended and written.
    pub fn written_bytes(&self) -> u64 {
        self.write.bytes
    }

    /// Fills the device's part of `distributions`.
    pub fn fill_distributions(&self, distributions: &mut Distributions) {
        distributions.disk_read = self.read.distribution();
        distributions.disk_write = self.write.distribution();
    }

    /// Fills the disk series of `measures`, whose length is that of the stretch.
    pub fn fill(&self, measures: &mut Measures) {
        let length = Duration::from_secs_f64(measures.length_s.max(0.0));
        measures.disk_read = self.read.summary();
        measures.disk_write = self.write.summary();
        measures.read_bytes_per_s = per_second(self.read.bytes as f64, length);
        measures.write_bytes_per_s = per_second(self.write.bytes as f64, length);
    }
}

impl Counted {
    fn add(&mut self, other: &Counted) {
        for (latency, count) in &other.latencies {
            *self.latencies.entry(*latency).or_default() += count;
        }
        self.latency_sum += other.latency_sum;
        self.bytes += other.bytes;
    }

    fn count(&mut self, meter: &Meter) {
        for (latency, count) in meter.latency.buckets() {
            *self.latencies.entry(latency).or_default() += count;
        }
        self.latency_sum += meter.latency.sum();
        self.bytes += meter.bytes.load(std::sync::atomic::Ordering::Relaxed);
    }

    fn since(&self, earlier: &Counted) -> Counted {
        let latencies = self.latencies.iter().filter_map(|(latency, count)| {
            let before = earlier.latencies.get(latency).copied().unwrap_or(0);
            (*count > before).then(|| (*latency, count - before))
        });
        Counted {
            latencies: latencies.collect(),
            latency_sum: self.latency_sum.saturating_sub(earlier.latency_sum),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }

    fn summary(&self) -> LatencySummary {
        let count: u64 = self.latencies.values().sum();
        if count == 0 {
            return LatencySummary::default();
        }
        LatencySummary {
            count,
            mean_ms: ms(self.latency_sum) / count as f64,
            p50_ms: self.quantile_ms(count, 0.5),
            p99_ms: self.quantile_ms(count, 0.99),
            p999_ms: self.quantile_ms(count, 0.999),
            p9999_ms: self.quantile_ms(count, 0.9999),
            max_ms: self.quantile_ms(count, 1.0),
        }
    }

    fn distribution(&self) -> Distribution {
        match self.latencies.values().sum() {
            0 => Distribution::default(),
            count => Distribution::of(|share| self.quantile_ms(count, share)),
        }
    }

    fn quantile_ms(&self, count: u64, quantile: f64) -> f64 {
        let rank = (quantile * count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let at_rank = self.latencies.iter().find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        at_rank.map_or(0.0, |(latency, _)| ms(*latency))
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
