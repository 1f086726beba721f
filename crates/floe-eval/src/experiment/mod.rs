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
//! [[curves]]                         # charts over the cases; see `CurveSpec`
//! title = "Get latency"
//! x = "origin ms"
//! y = ["get_latency_p50", "get_latency_p99"]
//!
//! [[published]]                      # what others found; see `Published`
//! case = "origin ms 10"
//! metric = "hit_ratio"
//! value = 0.5
//! source = "where it is written"
//! ```
//!
//! Instead of `[bench]`, `[replay]` replays a trace against pure policies; see
//! [`ReplayCase`]. Unknown keys are errors.

mod cache;
mod cases;
mod execute;
mod schema;
#[cfg(test)]
mod tests;

pub use cache::{CacheSpec, CacheUnderTest, TargetKind};
pub use execute::{ExperimentOptions, run};
pub use schema::{
    BenchCase, CurveSpec, Expectation, Experiment, Published, ReplayCase, TimeKind, TraceCase, Vary,
};
