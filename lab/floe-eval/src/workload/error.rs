//! Workloads that cannot be drawn.

/// The reason why a workload is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("workload: {0}")]
pub struct WorkloadError(String);

impl WorkloadError {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        WorkloadError(why.into())
    }
}
