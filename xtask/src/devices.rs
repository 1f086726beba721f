//! `cargo xtask devices`: runs the conformance suite and tests of foreign data
//! on a block device: a loop device over a scratch file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::built::Built;
use crate::project::{self, Outcome};

/// Options of the task.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Fail if no loop device is available.
    #[arg(long)]
    pub require: bool,
}

/// The suite needs at least 8 MiB; signatures of other formats are up to 64 MiB into a device.
const DEVICE_BYTES: u64 = 64 << 20;

/// Runs the suite, or reports why it cannot.
pub fn run(options: &Options) -> Result<()> {
    suite()?.settle("devices", options.require)
}

fn suite() -> Result<Outcome> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(Outcome::Skipped(
            "only root can set up a loop device; run it with sudo".to_owned(),
        ));
    }
    if !project::available("losetup") {
        return Ok(Outcome::Skipped(
            "losetup is not installed; it is part of util-linux".to_owned(),
        ));
    }
    let folder = tempfile::Builder::new()
        .prefix("devices-")
        .tempdir_in(project::scratch()?)?;
    let backing = folder.path().join("disk");
    fs::File::create(&backing)?.set_len(DEVICE_BYTES)?;
    let device = match LoopDevice::over(&backing) {
        Ok(device) => device,
        Err(error) => {
            return Ok(Outcome::Skipped(format!(
                "no loop device could be set up: {error:#}"
            )));
        }
    };
    let tests = ["block_device", "conformance", "block_conformance"];
    let built = Built::new(&tests)?;
    // One after another, since they share the device.
    for test in tests {
        let mut command = built.test("crates/floe-device", test)?;
        command
            .args(["--ignored", "--test-threads=1"])
            .env("FLOE_TEST_BLOCK_DEVICE", &device.path);
        project::run(&mut command)?;
    }
    println!(
        "devices: {} keeps the contract, and foreign data is left alone on it",
        device.path.display()
    );
    Ok(Outcome::Passed)
}

/// A loop device, detached on drop.
struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    fn over(file: &Path) -> Result<Self> {
        let mut command = Command::new("losetup");
        let printed = project::output(command.args(["--find", "--show"]).arg(file))?;
        Ok(LoopDevice {
            path: PathBuf::from(printed.trim()),
        })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let mut command = Command::new("losetup");
        if let Err(error) = project::output(command.arg("--detach").arg(&self.path)) {
            eprintln!("devices: {} stays attached: {error:#}", self.path.display());
        }
    }
}
