//! Metrics: the samples of one moment, and the counters that frontends share.

mod histogram;
mod samples;
mod statistics;
mod tiny;

pub(crate) use histogram::{Histogram, HistogramSnapshot};
pub(crate) use samples::Samples;
pub(crate) use statistics::{
    ConnectionCounters, ConnectionCounts, FrontendStatistics, RequestMeter,
};
pub(crate) use tiny::collect_tiny;

/// A source of metrics.
pub(crate) trait Collect: Send + Sync {
    /// Adds its samples.
    fn collect(&self, samples: &mut Samples);
}
