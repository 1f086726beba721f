//! Builds of `floe` and of the workspace's tests, for tasks that run them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::project;

/// The build of the `floe` binary that a task uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Optimised.
    Release,
    /// The profile and the features of the tests' build.
    Debug,
}

impl Profile {
    /// `Debug` if the flag is given.
    pub fn from_flag(debug: bool) -> Self {
        if debug {
            Profile::Debug
        } else {
            Profile::Release
        }
    }
}

/// Builds `floe` and returns the path of its binary.
pub fn build_floe(profile: Profile) -> Result<PathBuf> {
    if profile == Profile::Debug {
        return Ok(Built::new(&[])?.path("crates/floe-cli", "floe")?.to_owned());
    }
    project::run(project::cargo().args([
        "build",
        "--package",
        "floe-cli",
        "--bin",
        "floe",
        "--release",
    ]))?;
    Ok(project::target_dir().join("release/floe"))
}

/// Executables by the folder of their package and their own name.
pub struct Built(BTreeMap<(PathBuf, String), PathBuf>);

impl Built {
    /// Builds `floe` and the tests of these names.
    ///
    /// In CI it builds all tests, as its step `test` did: cargo takes the features of shared
    /// crates from what is built together, so that a part would be built anew.
    pub fn new(tests: &[&str]) -> Result<Self> {
        let mut command = project::cargo();
        command.args(["test", "--workspace", "--no-run"]);
        if std::env::var_os("CI").is_none() {
            // It runs `floe`.
            command.args(["--test", "command_line"]);
            for test in tests {
                command.args(["--test", test]);
            }
        }
        command.arg("--message-format=json-render-diagnostics");
        let messages = project::output(&mut command)?;
        let mut executables = BTreeMap::new();
        for line in messages.lines() {
            let message: Value = serde_json::from_str(line)?;
            let target = &message["target"];
            // A program's own tests have its name.
            if target["kind"][0] == "bin" && message["profile"]["test"] == true {
                continue;
            }
            let name = target["name"].as_str();
            let executable = message["executable"].as_str();
            let manifest = message["manifest_path"].as_str().map(Path::new);
            if let (Some(name), Some(executable), Some(manifest)) = (name, executable, manifest)
                && let Some(package) = manifest.parent()
            {
                executables.insert((package.to_owned(), name.to_owned()), executable.into());
            }
        }
        Ok(Built(executables))
    }

    /// The path of the executable `name` of the package in `folder` of the project.
    pub fn path(&self, folder: &str, name: &str) -> Result<&Path> {
        let key = (project::root().join(folder), name.to_owned());
        let path = self.0.get(&key).map(PathBuf::as_path);
        path.with_context(|| format!("cargo built no {name} in {folder}"))
    }

    /// The test `name` of the package in `folder`, to be run there as cargo runs it.
    pub fn test(&self, folder: &str, name: &str) -> Result<Command> {
        let mut command = Command::new(self.path(folder, name)?);
        command.current_dir(project::root().join(folder));
        Ok(command)
    }
}
