//! Workloads, traces, experiments, results and reports for Floe.
//!
//! | module | for |
//! |---|---|
//! | [`workload`] | drawing ids: uniform, Zipfian as YCSB, hotspots, scans, mixes |
//! | [`trace`] | reading recorded requests |
//! | [`stat`], [`convert`], [`mrc`] | describing a trace, writing it in another format, its miss-ratio curve |
//! | [`advise`] | the cache that a block trace needs |
//! | [`mod@replay`] | miss ratios of eviction policies on traces |
//! | [`run`] | driving a cache, a server that runs or an origin, closed or open loop, in real or virtual time |
//! | [`hosts`] | the hosts of ZNCache and OxCache on the simulated SSD |
//! | [`fleet`] | many nodes in virtual time: a ring, a network, nodes that join and die |
//! | [`tiny`] | driving engines for tiny objects on modelled flash |
//! | [`volume`] | replaying block traces against caches of volumes |
//! | [`metrics`] | the series that a run measures |
//! | [`results`] | figures with their provenance, one per row |
//!
//! Must not depend on code of servers. Of protocols it has the clients'
//! side, written from their descriptions.

#![forbid(unsafe_code)]

pub mod advise;
pub mod convert;
pub mod error;
pub mod experiment;
pub mod fleet;
pub mod hosts;
pub mod metrics;
pub mod mrc;
mod ratio;
pub mod replay;
pub mod report;
pub mod results;
pub mod run;
mod shared;
pub mod stat;
pub mod tiny;
pub mod trace;
pub mod volume;
pub mod workload;

pub use error::EvalError;
pub use replay::{ReplayOptions, ReplayResult, replay};
pub use report::report;
pub use run::{BenchOptions, RunResult, bench};
