//! The programs under test: the debug builds, which the guest sees where they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::project;

/// The tests that take a real device.
const TESTS: &[&str] = &[
    "conformance",
    "block_conformance",
    "zoned",
    "nvme",
    "store_oracle",
    "tiny_oracle",
];

/// The manifests of the packages that have the programs.
const OWNERS: &[&str] = &[
    "floe-device/Cargo.toml",
    "floe-cli/Cargo.toml",
    "floe/Cargo.toml",
];

/// Built programs by name.
pub(super) struct Programs(BTreeMap<String, PathBuf>);

impl Programs {
    /// Builds [`TESTS`], and `floe` if a test needs it.
    pub(super) fn build(with_server: bool) -> Result<Self> {
        let mut command = project::cargo();
        // The features of a build of all tests, so that it shares its crates.
        command.args(["build", "--workspace"]);
        if with_server {
            command.args(["--bin", "floe"]);
        }
        for test in TESTS {
            command.args(["--test", test]);
        }
        command.arg("--message-format=json-render-diagnostics");
        let messages = project::output(&mut command)?;
        let mut programs = BTreeMap::new();
        for line in messages.lines() {
            let message: Value = serde_json::from_str(line)?;
            let name = message["target"]["name"].as_str();
            let executable = message["executable"].as_str();
            let manifest = message["manifest_path"].as_str().unwrap_or_default();
            // Other packages have tests of the same names.
            let is_ours = OWNERS.iter().any(|owner| manifest.ends_with(owner));
            if let (Some(name), Some(executable), true) = (name, executable, is_ours) {
                programs.insert(name.to_owned(), executable.into());
            }
        }
        Ok(Programs(programs))
    }

    /// The program of this name, as a word of a command.
    pub(super) fn word(&self, name: &str) -> Result<&str> {
        let path = self.0.get(name).map(PathBuf::as_path);
        let word = path.and_then(Path::to_str);
        word.with_context(|| format!("cargo built no {name}"))
    }
}
