//! Durations in buckets.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the latency buckets in seconds; the last bucket is unbounded.
const LATENCY_BOUNDS_SECONDS: [f64; 18] = [
    0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    10.0, 30.0, 60.0,
];

/// A distribution of durations.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; LATENCY_BOUNDS_SECONDS.len() + 1],
    sum_ns: AtomicU64,
}

/// A copy of a [`Histogram`] at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct HistogramSnapshot {
    /// Upper bound and count of each bucket, not cumulative.
    pub(crate) buckets: Vec<(f64, u64)>,
    pub(crate) sum_seconds: f64,
}

impl HistogramSnapshot {
    /// From upper bounds in microseconds, and the count below each and above all.
    pub(crate) fn of_micros(
        bounds_us: &[u32],
        counts: impl IntoIterator<Item = u64>,
        sum_seconds: f64,
    ) -> Self {
        let bounds = bounds_us.iter().map(|us| f64::from(*us) / 1e6);
        HistogramSnapshot {
            buckets: bounds.chain([f64::INFINITY]).zip(counts).collect(),
            sum_seconds,
        }
    }

    /// Adds another snapshot with the same buckets.
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
