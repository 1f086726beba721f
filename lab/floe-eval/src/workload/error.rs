//! Workloads that cannot be drawn.

/// The reason why a workload makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("workload: {0}")]
pub struct WorkloadError(String);

impl WorkloadError {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        WorkloadError(why.into())
    }
}
