//! The papers' hosts, directly on the simulated SSD: a discrete-event driver
//! without threads, I/O or a runtime.
//!
//! ZNCache and OxCache differ from Floe's engine in how they hold zones, wait
//! and copy. These differences explain most of their results. They are
//! documented settings here ([`HostBehaviour`]), so that a paper's result can
//! be separated from its device's.
//!
//! | file | for |
//! |---|---|
//! | `chunks` | CLRU: eviction of chunks |
//! | `config` | the settings, and the papers' values |
//! | `driver` | the clients' requests |
//! | `drive` | a real drive that carries out the commands, if one is named |
//! | `mover` | the state of the host's own garbage collection |
//! | `moving` | eviction, and the host's own garbage collection |
//! | `plan` | quantities that follow from the settings |
//! | `zones` | allocation and eviction of zones |
//! | `pool` | threads that serve clients in turn |
//! | `series` | measuring |

mod chunks;
mod config;
mod drive;
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
/// If the configuration is invalid, or the host deadlocks. The error then has
/// every client's state.
pub fn run(
    config: &HostConfig,
    seed: u64,
    progress: &mut dyn FnMut(HostProgress),
) -> Result<HostResult, EvalError> {
    driver::Driver::new(config, seed)?.run(progress)
}
