//! The devices' conformance suites on real drives.

use std::time::Duration;

use anyhow::Result;

use crate::vm::machine::Machine;
use crate::vm::programs::Programs;

const PATIENCE: Duration = Duration::from_secs(400);

/// Devices with zones, and block devices, over a conventional drive.
pub(super) fn conventional(machine: &mut Machine, programs: &Programs) -> Result<()> {
    for test in ["conformance", "block_conformance"] {
        run(machine, programs, test, "FLOE_TEST_BLOCK_DEVICE", "conv-2")?;
    }
    Ok(())
}

/// Runs the ignored tests of `test`, which find the disk in `variable`.
fn run(
    machine: &Machine,
    programs: &Programs,
    test: &str,
    variable: &str,
    disk: &str,
) -> Result<()> {
    let words = [
        "env",
        &format!("{variable}=/dev/vm/{disk}"),
        programs.word(test)?,
        "--ignored",
        "--test-threads=1",
    ];
    machine.guest().run(&words, PATIENCE).map(drop)
}
