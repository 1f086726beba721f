//! Distributions as latencies at fixed shares: enough for cumulative curves and
//! box plots, and small enough to keep for every run.

use serde::{Deserialize, Serialize};

use super::Series;

/// A distribution of latencies: in milliseconds, at the shares of
/// [`Distribution::shares`]; empty without latencies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Distribution {
    values_ms: Vec<f64>,
}

/// The distributions of a run's latencies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distributions {
    /// Whole requests.
    pub get: Distribution,
    /// Requests that the cache served.
    pub hit: Distribution,
    /// Requests that needed the origin.
    pub miss: Distribution,
    /// Device reads.
    pub disk_read: Distribution,
    /// Device writes and appends.
    pub disk_write: Distribution,
}

impl Distribution {
    /// The shares at which values are stored: percents, and closer at both
    /// ends.
    pub fn shares() -> impl Iterator<Item = f64> {
        let percents = (1..100).map(|percent| f64::from(percent) / 100.0);
        [0.0, 0.001, 0.005]
            .into_iter()
            .chain(percents)
            .chain([0.995, 0.999, 0.9999, 1.0])
    }

    /// The distribution with the value `at_ms(share)` at each share.
    pub fn of(at_ms: impl FnMut(f64) -> f64) -> Self {
        Distribution {
            values_ms: Distribution::shares().map(at_ms).collect(),
        }
    }

    /// The distribution of single values.
    pub fn of_values(values: &[f64]) -> Self {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        if sorted.is_empty() {
            return Distribution::default();
        }
        // Nearest rank, as in the histograms.
        Distribution::of(|share| {
            let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
            sorted[rank.min(sorted.len()) - 1]
        })
    }

    /// True if the distribution is empty.
    pub fn is_empty(&self) -> bool {
        self.values_ms.is_empty()
    }

    /// Shares with their values.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        Distribution::shares().zip(self.values_ms.iter().copied())
    }

    /// The value at one of the shares.
    pub fn at(&self, share: f64) -> Option<f64> {
        let mut points = self.points();
        let found = points.find(|(at, _)| (at - share).abs() < 1e-9);
        found.map(|(_, value)| value)
    }
}

impl Distributions {
    /// The distribution of a series, if it is one of latencies.
    pub fn of_series(&self, series: &Series) -> Option<&Distribution> {
        Some(match series.name {
            "get_latency" => &self.get,
            "hit_latency" => &self.hit,
            "miss_latency" => &self.miss,
            "read_latency" => &self.disk_read,
            "write_latency" => &self.disk_write,
            _ => return None,
        })
    }
}
