//! The result of a host's run, and its progress.

use floe_core::ssd::Statistics;
use floe_device::CounterSnapshot;
use serde::{Deserialize, Serialize};

use crate::run::RunResult;

/// The result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostResult {
    /// The series, like those of any other run. Write amplification is the
    /// device's: bytes programmed per byte written.
    pub run: RunResult,
    /// The device's counters over the run.
    pub device: Statistics,
    /// The host's commands, as the drive counted them if there is one.
    pub commands: CounterSnapshot,
    /// Duration of the run in virtual seconds.
    pub elapsed_s: f64,
    /// Longest wait of a client for a zone, in seconds.
    pub zone_wait_max_s: f64,
    /// Chunks that the host's own garbage collection has moved.
    pub moved_chunks: u64,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostProgress {
    /// Requests completed.
    pub done: u64,
    /// Requests of the whole run.
    pub requests: u64,
}
