//! Metrics: the samples of one moment, and the counters that frontends share.

mod count;
mod histogram;
mod samples;
mod statistics;
mod thread_latency;
mod tiny;
mod volume;

pub(crate) use count::Count;
pub(crate) use histogram::{Histogram, HistogramSnapshot};
pub(crate) use samples::Samples;
pub(crate) use statistics::{
    ConnectionCounters, ConnectionCounts, FrontendStatistics, RequestMeter,
};
pub(crate) use thread_latency::ThreadLatency;
pub(crate) use tiny::collect_tiny;
pub(crate) use volume::collect_volumes;

/// A source of metrics.
pub(crate) trait Collect: Send + Sync {
    /// Adds its samples.
    fn collect(&self, samples: &mut Samples);
}
