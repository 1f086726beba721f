//! The papers' hosts, straight over the simulated SSD: a discrete-event driver
//! without threads, I/O or a runtime.
//!
//! ZNCache and OxCache differ from Floe's engine in how they hold zones, wait
//! and copy, and these differences explain most of their results. They are
//! settings here ([`HostBehaviour`]), each documented, so that a paper's
//! result can be told apart from its device's.
//!
//! | file | for |
//! |---|---|
//! | `chunks` | CLRU: which chunk is evicted |
//! | `config` | the settings, and the papers' values |
//! | `driver` | clients: from one request to the next |
//! | `moving` | eviction, and the host's own garbage collection |
//! | `plan` | what follows from them |
//! | `zones` | which zone a chunk goes to, which is evicted |
//! | `pool` | threads that serve clients in turn |
//! | `series` | measuring |

mod chunks;
mod config;
mod driver;
mod moving;
mod plan;
mod pool;
mod series;
#[cfg(test)]
mod tests;
mod zones;

use floe_core::ssd::Statistics;
use serde::{Deserialize, Serialize};

use crate::error::EvalError;
use crate::run::RunResult;

pub(crate) use config::overlaid;
pub use config::{
    DeviceChoice, EvictionPolicy, HostBehaviour, HostConfig, Left, Placement, Remote, StartState,
    Waiters,
};

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

/// Runs a host. The same configuration and seed give the same result. Calls
/// `progress` about a thousand times.
///
/// # Errors
/// When the configuration makes no sense, or the host stops for ever: then the
/// error says who waits for what.
pub fn run(
    config: &HostConfig,
    seed: u64,
    progress: &mut dyn FnMut(HostProgress),
) -> Result<HostResult, EvalError> {
    driver::Driver::new(config, seed)?.run(progress)
}
