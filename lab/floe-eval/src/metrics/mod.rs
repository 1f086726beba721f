//! Measurements of a run: the papers' nine series (get, hit, miss, disk read and
//! disk write latency; get, read and write throughput; hit ratio), and the process's
//! CPU and memory.
//!
//! Latencies of requests go into HDR histograms with three significant digits.
//! Those of the device come from its meter, whose buckets are an eighth wide.

mod counted;
mod device;
mod export;
mod media;
mod process;
mod quantiles;
mod recorder;
#[cfg(test)]
mod tests;
mod watch;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use counted::counted_figures;
pub use device::{DeviceProbe, DeviceReading};
pub use export::{write_metrics_csv, write_metrics_jsonl};
pub use media::{DeviceCounts, ZONE_ERRORS, media_figures};
pub use process::{ProcessProbe, ProcessSample};
pub use quantiles::{Distribution, Distributions};
pub use recorder::{LiveCounts, Recorder, Served};
pub(crate) use recorder::{Tally, histogram};
pub use watch::DriveWatch;

/// Summary of a set of latencies, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Number of latencies.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 99 % were at most this.
    pub p99_ms: f64,
    /// 99.9 % were at most this.
    pub p999_ms: f64,
    /// 99.99 % were at most this.
    pub p9999_ms: f64,
    /// Maximum.
    pub max_ms: f64,
}

impl LatencySummary {
    /// The mean and the percentiles up to the greatest, as tables show them.
    pub fn columns_ms(&self) -> [f64; 6] {
        [
            self.mean_ms,
            self.p50_ms,
            self.p99_ms,
            self.p999_ms,
            self.p9999_ms,
            self.max_ms,
        ]
    }
}

/// The nine series over a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measures {
    /// The start of the stretch, in seconds of the run.
    pub start_s: f64,
    /// Length of the stretch in seconds.
    pub length_s: f64,
    /// Whole requests, hits and misses.
    pub get: LatencySummary,
    /// Requests that the cache served.
    pub hit: LatencySummary,
    /// Requests that needed the origin.
    pub miss: LatencySummary,
    /// Writes, including those after misses.
    #[serde(default)]
    pub put: LatencySummary,
    /// Device reads.
    pub disk_read: LatencySummary,
    /// Device writes and appends.
    pub disk_write: LatencySummary,
    /// Bytes per second returned to clients.
    pub get_bytes_per_s: f64,
    /// Bytes per second read from the device.
    pub read_bytes_per_s: f64,
    /// Bytes per second written to the device.
    pub write_bytes_per_s: f64,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Share of requests that hit; zero without requests.
    pub hit_ratio: f64,
    /// The server does not report hits and misses.
    #[serde(default)]
    pub hits_untold: bool,
    /// Share of the requested bytes that hit.
    pub byte_hit_ratio: f64,
    /// CPU time over time, in percent of one processor; none in virtual time.
    pub cpu_percent: Option<f64>,
    /// Resident memory at the end of the stretch, in bytes.
    pub rss_bytes: Option<u64>,
}

/// The nine series, for reports and exports: a name, a unit and a value.
pub const SERIES: [Series; 9] = [
    Series::latency("get_latency", "Get latency", |m| &m.get),
    Series::latency("hit_latency", "Hit latency", |m| &m.hit),
    Series::latency("miss_latency", "Miss latency", |m| &m.miss),
    Series::latency("read_latency", "Disk read latency", |m| &m.disk_read),
    Series::latency("write_latency", "Disk write latency", |m| &m.disk_write),
    Series::rate("get_throughput", "Get throughput", |m| m.get_bytes_per_s),
    Series::rate("read_throughput", "Disk read throughput", |m| {
        m.read_bytes_per_s
    }),
    Series::rate("write_throughput", "Disk write throughput", |m| {
        m.write_bytes_per_s
    }),
    Series {
        name: "hit_ratio",
        title: "Hit ratio",
        kind: SeriesKind::Ratio(|m| m.hit_ratio),
    },
];

/// One of the nine series.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// Its name in exports.
    pub name: &'static str,
    /// Its title in reports.
    pub title: &'static str,
    /// Its quantity.
    pub kind: SeriesKind,
}

/// The quantity of a series.
#[derive(Clone, Copy, Debug)]
pub enum SeriesKind {
    /// Latencies.
    Latency(fn(&Measures) -> &LatencySummary),
    /// Bytes per second.
    Rate(fn(&Measures) -> f64),
    /// A share from 0 to 1.
    Ratio(fn(&Measures) -> f64),
}

impl Series {
    const fn latency(
        name: &'static str,
        title: &'static str,
        of: fn(&Measures) -> &LatencySummary,
    ) -> Self {
        Series {
            name,
            title,
            kind: SeriesKind::Latency(of),
        }
    }

    const fn rate(name: &'static str, title: &'static str, of: fn(&Measures) -> f64) -> Self {
        Series {
            name,
            title,
            kind: SeriesKind::Rate(of),
        }
    }

    /// The unit of exported values.
    pub fn unit(&self) -> &'static str {
        match self.kind {
            SeriesKind::Latency(_) => "ms",
            SeriesKind::Rate(_) => "B/s",
            SeriesKind::Ratio(_) => "ratio",
        }
    }

    /// The mean (of latencies) or the value over a stretch; `None` without
    /// latencies.
    pub fn value(&self, measures: &Measures) -> Option<f64> {
        match self.kind {
            SeriesKind::Latency(of) => {
                let summary = of(measures);
                (summary.count > 0).then_some(summary.mean_ms)
            }
            SeriesKind::Rate(of) => Some(of(measures)),
            SeriesKind::Ratio(of) => {
                let is_known = measures.requests_per_s > 0.0 && !measures.hits_untold;
                is_known.then(|| of(measures))
            }
        }
    }
}

/// An amount per second; zero if the length is zero.
pub(crate) fn per_second(amount: f64, length: Duration) -> f64 {
    match length.as_secs_f64() {
        seconds if seconds > 0.0 => amount / seconds,
        _ => 0.0,
    }
}
