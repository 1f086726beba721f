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
//! | `mover` | the state of the host's own garbage collection |
//! | `moving` | eviction, and the host's own garbage collection |
//! | `plan` | what follows from them |
//! | `zones` | which zone a chunk goes to, which is evicted |
//! | `pool` | threads that serve clients in turn |
//! | `series` | measuring |

mod chunks;
mod config;
mod driver;
mod mover;
mod moving;
mod plan;
mod pool;
mod result;
mod series;
#[cfg(test)]
mod tests;
mod zones;

use crate::error::EvalError;

pub(crate) use config::overlaid;
pub use config::{
    DeviceChoice, EvictionPolicy, HostBehaviour, HostConfig, Left, Placement, Remote, StartState,
    Waiters,
};
pub use result::{HostProgress, HostResult};

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
