//! An experiment is one TOML file. Running it writes a folder of results.
//!
//! The file describes one run or replay, and what is varied:
//!
//! ```toml
//! name = "zero-latency"              # part of the folder's name
//! title = "What a near origin costs"
//! about = "Why this is measured, and what to look for."
//! seed = 42                          # of everything random
//! time = "real"                      # or "virtual"
//!
//! [bench]                            # drive a cache; see `BenchCase`
//! ratio = 2.0                        # working set / what the cache holds
//! requests = 20000
//! pacing = { mode = "closed", clients = 64 }
//! workload = { kind = "zipf", skew = 0.99 }
//! cache = { target = "store", chunk = { size = "64KiB" } }
//!
//! [[vary]]                           # every combination of all lists is a case
//! key = "bench.cache.origin-latency.ms"
//! label = "origin ms"
//! values = [0, 1, 10]
//!
//! [[vary]]                           # its keys are those of a file beside this one
//! from = "lists/block-traces.toml"
//!
//! [[curves]]                         # charts over the cases; see `CurveSpec`
//! title = "Get latency"
//! x = "origin ms"
//! y = ["get_latency_p50", "get_latency_p99"]
//!
//! [[published]]                      # what it is judged by; see `Published`
//! kind = "published"                 # or "derived", or "goal"
//! case = "origin ms 10"
//! metric = "hit_ratio"
//! value = 0.5
//! source = "A paper, Table 5"
//! ```
//!
//! `extends = "other.toml"` takes all keys of an experiment beside it that it does not give
//! itself. Instead of `[bench]`, `[replay]` replays a trace against pure policies; see
//! [`ReplayCase`]; `[tiny]` drives an engine for tiny objects, see
//! [`crate::tiny::TinyCase`]; `[fleet]` drives many nodes; see [`crate::fleet::FleetCase`].
//! Unknown keys are errors.

mod assemble;
mod cache;
mod cases;
mod curves;
mod drive;
mod host;
mod host_spec;
mod inherit;
mod known;
mod lists;
mod overrides;
mod published;
mod records;
mod schema;
mod sweep;
#[cfg(test)]
mod tests;
mod tolerance;

use serde::{Deserialize, Serialize};

pub use crate::shared::{TraceCase, find_shared};
pub use cache::{CacheSpec, CacheUnderTest, TargetKind};
pub use host_spec::HostSpec;
pub use known::{Known, KnownToDiffer};
pub use overrides::Override;
pub use published::{Expectation, Kind, Published, PublishedTable};
pub use schema::{
    Adjust, BenchCase, CurveSpec, Experiment, PanelKind, PanelSpec, REQUEST_SIZE, ReplayCase,
    Selection, TimeKind, Vary,
};
pub use sweep::{ExperimentOptions, are_pieces, merge, run};
pub use tolerance::{TOLERANCES, Tolerance};

/// A part of an experiment's cases: every `count`th, from the `index`th on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// The part, from 1 to `count`.
    pub index: usize,
    /// Number of parts.
    pub count: usize,
}

impl Shard {
    /// True if the case number `case`, from 0, belongs to the part.
    pub fn has(self, case: usize) -> bool {
        case % self.count == self.index - 1
    }
}

impl std::str::FromStr for Shard {
    type Err = String;

    /// Reads `2/5`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let number = |text: &str| text.trim().parse::<usize>().ok();
        match parts.and_then(|(index, count)| Some((number(index)?, number(count)?))) {
            Some((index, count)) if index >= 1 && index <= count => Ok(Shard { index, count }),
            _ => Err(format!(
                "`{text}` is not a part; write 2/5 for the second of five"
            )),
        }
    }
}
