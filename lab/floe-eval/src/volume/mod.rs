//! Replaying block traces against caches of volumes, in memory and as fast as the
//! decisions are made: both devices are counters, and the trace's own times drive
//! cleaning.
//!
//! | file | has |
//! |---|---|
//! | `case.rs` | the settings of one cache, as a command line writes them |
//! | `working_set.rs` | the distinct bytes of a trace, for capacities as a share of it |
//! | `simulate.rs` | one cache that serves requests |
//! | `replay.rs` | one pass of a trace over several caches |
//! | `spec.rs` | a replay as an experiment describes it, and its figures |
//! | `result.rs` | the result of a replay, and its figures |
//! | `bench/` | driving the code that serves, on modelled devices or files |

mod bench;
mod case;
mod replay;
mod result;
mod simulate;
mod spec;
#[cfg(test)]
mod tests;
mod working_set;

pub use bench::{VolumeBench, drive_volumes};
pub(crate) use case::UNIT_BYTES;
pub use case::{Capacity, VolumeCase};
pub use replay::{VolumeReplayOptions, replay_volumes};
pub(crate) use replay::{each_request, file_name};
pub use result::{MissedRequests, VolumeReplayResult, VolumeResult, VolumeSample};
pub use simulate::Simulation;
pub use spec::{VolumeSpec, volume_figures};
pub use working_set::WorkingSet;
