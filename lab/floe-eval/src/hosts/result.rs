//! The result of a host's run, and how far a run is.

use floe_core::ssd::Statistics;
use serde::{Deserialize, Serialize};

use crate::run::RunResult;

/// The result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostResult {
    /// The series, as those of any other run. Its write amplification is that
    /// of the device: bytes programmed per byte written.
    pub run: RunResult,
    /// The device's counters over the run.
    pub device: Statistics,
    /// How long the run was, in seconds of its own time.
    pub elapsed_s: f64,
    /// Greatest wait of a client for a zone, in seconds.
    pub zone_wait_max_s: f64,
    /// Chunks that the host's own garbage collection has moved.
    pub moved_chunks: u64,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostProgress {
    /// Requests answered.
    pub done: u64,
    /// Of how many.
    pub requests: u64,
}
