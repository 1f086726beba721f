//! Metrics: the samples of one moment, and the counters that frontends share.

mod count;
mod histogram;
mod samples;
mod statistics;
mod thread_latency;
mod tiny;
mod volume;

use floe_device::array::{DriveStanding, DriveStatus};

pub(crate) use count::Count;
pub(crate) use histogram::{Histogram, HistogramSnapshot};
pub(crate) use samples::Samples;
pub(crate) use statistics::{
    ConnectionCounters, ConnectionCounts, Counter, FrontendStatistics, RequestCounters,
    RequestMeter,
};
pub(crate) use thread_latency::ThreadLatency;
pub(crate) use tiny::collect_tiny;
pub(crate) use volume::collect_volumes;

/// Adds the drives of an array, by standing.
pub(crate) fn drives(samples: &mut Samples, metric: &'static str, drives: &[DriveStatus]) {
    if drives.is_empty() {
        return;
    }
    for standing in DriveStanding::ALL {
        let count = drives.iter().filter(|drive| drive.standing == standing);
        let (help, labels) = ("Drives of the array", [("state", standing.name())]);
        samples.gauge(metric, help, &labels, count.count() as f64);
    }
}

/// A source of metrics.
pub(crate) trait Collect: Send + Sync {
    /// Adds its samples.
    fn collect(&self, samples: &mut Samples);
}
