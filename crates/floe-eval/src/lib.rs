//! Workloads, traces, experiments, results and reports for Floe.

#![forbid(unsafe_code)]

pub mod replay;
pub mod trace;
pub mod workload;
