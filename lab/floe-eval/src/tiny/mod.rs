//! Tiny objects: any of the five engines, over any workload, on modelled flash.
//!
//! ```text
//! workload ──► RAM tier ──► engine on floe_core::tiny::model ──► what it does to flash ──► simulated SSD
//! ```
//!
//! The engine runs on a model of flash that keeps hashes and lengths, so a run
//! is as fast as its engine. Optionally, a simulated SSD executes its reads and
//! writes in virtual time, to measure latencies and the drive's own writes.
//!
//! | file | for |
//! |---|---|
//! | `case` | the keys of `[tiny]` |
//! | `engines` | the engines by name |
//! | `workload` | the requests |
//! | `ram` | the RAM tier |
//! | `driver` | executes requests |
//! | `flow` | the driver for a device, through `floe::Tiny` |
//! | `watch`, `timing`, `device` | the simulated SSD |
//! | `series`, `figures` | measuring |

mod case;
mod device;
mod driver;
mod engines;
mod figures;
mod flow;
mod progress;
mod ram;
mod series;
#[cfg(test)]
mod tests;
mod timing;
mod watch;
pub mod workload;

use std::path::Path;

pub use case::{EngineKind, TinyCase};
pub use device::{TinyDevice, TinyDeviceKind};
pub(crate) use figures::series_names;
pub use progress::TinyProgress;

use crate::error::EvalError;
use crate::run::RunResult;

/// Runs a case. The same case and seed give the same result, except in real
/// time. Blocks, and must be called outside of any runtime. Calls `progress`
/// a few times per second. Files are searched next to the experiment at
/// `experiment`; a file without a path is created in the folder `scratch`.
///
/// # Errors
/// If the case is invalid or a file cannot be read; [`EvalError::Absent`] if it
/// does not exist.
pub fn run(
    case: &TinyCase,
    name: &str,
    seed: u64,
    experiment: &Path,
    scratch: &Path,
    progress: &mut dyn FnMut(TinyProgress),
) -> Result<RunResult, EvalError> {
    let run = engines::Run {
        case,
        name,
        seed,
        experiment,
        scratch,
        progress,
    };
    match case.device.kind {
        TinyDeviceKind::Drive => flow::run(run),
        _ => engines::run(run),
    }
}
