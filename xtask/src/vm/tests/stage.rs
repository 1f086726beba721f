//! The machine of a run of tests.

use anyhow::{Context, Result};

use crate::built::Built;
use crate::vm::machine::{Machine, RigKind};

/// The tests that take a real device, and the folders of their packages.
const TESTS: &[(&str, &str)] = &[
    ("conformance", "crates/floe-device"),
    ("block_conformance", "crates/floe-device"),
    ("zoned", "crates/floe-device"),
    ("nvme", "crates/floe-device"),
    ("store_oracle", "crates/floe"),
    ("tiny_oracle", "crates/floe"),
    ("placement", "crates/floe"),
    // It runs `floe-lab`.
    ("drives", "lab/floe-lab"),
];

/// The machine and the programs that tests use.
pub(in crate::vm) struct Stage {
    pub(in crate::vm) machine: Machine,
    pub(in crate::vm) rig: RigKind,
    /// Debug builds, which the guest sees where they are.
    pub(in crate::vm) programs: Built,
    /// Of loads, and of the moments of faults.
    pub(in crate::vm) seed: u64,
}

impl Stage {
    /// Builds `floe` and the tests that take a real device.
    pub(in crate::vm) fn build_programs() -> Result<Built> {
        Built::new(&TESTS.iter().map(|(name, _)| *name).collect::<Vec<_>>())
    }

    /// Those of `disks` that the rig has: zones in files need a newer kernel than QEMU boots.
    pub(super) fn disks<'a>(&self, disks: &[&'a str]) -> Vec<&'a str> {
        let has = |disk: &&&str| self.rig == RigKind::Uml || **disk != "zloop";
        disks.iter().filter(has).copied().collect()
    }

    /// The path of `floe`, as a word of a command.
    pub(super) fn floe(&self) -> Result<&str> {
        self.word("crates/floe-cli", "floe")
    }

    /// The path of `floe-lab`, as a word of a command.
    pub(super) fn lab(&self) -> Result<&str> {
        self.word("lab/floe-lab", "floe-lab")
    }

    /// The path of a test, as a word of a command.
    pub(super) fn test(&self, name: &str) -> Result<&str> {
        let folder = TESTS.iter().find(|test| test.0 == name).map(|test| test.1);
        self.word(folder.with_context(|| format!("no test {name}"))?, name)
    }

    fn word(&self, folder: &str, name: &str) -> Result<&str> {
        let path = self.programs.path(folder, name)?.to_str();
        path.with_context(|| format!("the path of {name} is no text"))
    }
}
