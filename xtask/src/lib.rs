//! Tasks for developers and CI: `cargo xtask help`.
//!
//! Every task passes, fails with a reason, or reports why it was skipped;
//! `--require` turns a skip into a failure.

pub mod attack;
pub mod bench;
pub mod blackbox;
pub mod book;
pub mod built;
pub mod chart;
pub mod ci;
pub mod clients;
pub mod cluster;
pub mod crash;
pub mod devices;
pub mod faults;
pub mod figures;
pub mod fuzz;
pub mod licences;
pub mod memory;
mod packages;
pub mod project;
pub mod report_shot;
pub mod sizes;
pub mod sweep;
pub mod tidy;
pub mod verdicts;
pub mod vm;
