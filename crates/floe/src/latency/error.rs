//! Errors of a latency model's settings.

use std::path::PathBuf;

/// An unusable setting of a latency model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LatencyError {
    /// The parameters of a rule are out of range, or contradict each other.
    #[error("the latency {value} {cure}")]
    Rule {
        /// The parameters.
        value: String,
        /// The error and its remedy.
        cure: &'static str,
    },
    /// A file of latencies is unusable.
    #[error("{} {cure}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error and its remedy.
        cure: String,
    },
}
