//! Runs the real binaries and checks their output.

#![allow(dead_code, unused_imports)] // No test file uses all of it.

use std::path::Path;
use std::process::Command;

#[path = "../../../../crates/floe-cli/tests/common/mod.rs"]
mod product;

pub(crate) use product::{Outcome, Serving, floe, get, outcome};

/// Flags of a cache of 32 MiB without a RAM tier.
pub(crate) const SMALL_CACHE: [&str; 8] = [
    "--device-size",
    "32MiB",
    "--device-zone-size",
    "2MiB",
    "--ram-size",
    "0",
    "--chunk-write-buffer",
    "8MiB",
];

/// The `floe-lab` command in `folder`.
pub(crate) fn lab(folder: &Path) -> Command {
    product::clean(env!("CARGO_BIN_EXE_floe-lab"), folder)
}

pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Outcome {
    outcome(lab(folder).args(arguments).output().expect("floe-lab runs"))
}
