//! Tasks of developers and CI beside cargo's own commands: `cargo xtask help`.
//!
//! Every task either passes, fails with a reason, or says loudly why it was
//! skipped; `--require` turns the last into a failure.

pub mod attack;
pub mod bench;
pub mod blackbox;
pub mod book;
pub mod ci;
pub mod clients;
pub mod crash;
pub mod devices;
pub mod faults;
pub mod figures;
pub mod fuzz;
pub mod licences;
pub mod memory;
pub mod project;
pub mod report_shot;
pub mod sizes;
pub mod tidy;
pub mod verdicts;
