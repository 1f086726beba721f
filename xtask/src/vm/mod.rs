//! `cargo xtask vm`: a virtual machine whose kernel drives real storage: NVMe drives
//! with zones, with placement handles and without both, emulated by QEMU.
//!
//! The guest sees the host's root read-only under an overlay in memory, so it runs the
//! host's builds. The tests run on the host, and send commands to the guest's agent.

pub mod agent;
mod guest;
mod initramfs;
mod machine;
mod packages;
mod tests;

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use self::machine::{Accelerator, Cut, Rig};
use self::packages::Packages;
use self::tests::{Stage, TESTS, Test};
use crate::built::Built;
use crate::project::{self, Outcome};

/// The tests to run, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Only the tests whose names contain one of these words.
    pub only: Vec<String>,
    /// Leave out the tests that take long.
    #[arg(long)]
    pub quick: bool,
    /// Seed of the loads, and of the moments of power cuts.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The virtual machine.
    #[arg(long, value_enum, default_value_t = RigKind::Qemu)]
    pub rig: RigKind,
    /// Keep the disks and the console's log.
    #[arg(long)]
    pub keep: bool,
    /// Fail if the machine is not available.
    #[arg(long)]
    pub require: bool,
}

/// The kinds of virtual machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RigKind {
    /// QEMU with Debian's kernel: NVMe with zones, FDP, power cuts.
    Qemu,
}

/// Runs the tests, or reports why it cannot.
pub fn run(options: &Options) -> Result<()> {
    let RigKind::Qemu = options.rig;
    suite(options)?.settle("vm", options.require)
}

fn suite(options: &Options) -> Result<Outcome> {
    let is_chosen = |test: &&Test| match options.only.as_slice() {
        [] => !options.quick || test.is_quick,
        only => only.iter().any(|word| test.name.contains(word.as_str())),
    };
    let chosen: Vec<&Test> = TESTS.iter().filter(is_chosen).collect();
    ensure!(!chosen.is_empty(), "no test has such a name");
    let folder = project::scratch()?.join("vm");
    std::fs::create_dir_all(&folder)?;
    let packages = match Packages::install(&folder) {
        Ok(packages) => packages,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let programs = Stage::build_programs()?;
    let mut run = tempfile::Builder::new()
        .prefix("run-")
        .tempdir_in(&folder)?;
    run.disable_cleanup(options.keep);
    let result = Rig::new(packages, &folder, run.path())
        .and_then(|rig| run_all(&chosen, &rig, programs, options.seed));
    if options.keep {
        println!("vm: disks and console.log are in {}", run.path().display());
    }
    result.map(|()| Outcome::Passed)
}

fn run_all(chosen: &[&Test], rig: &Rig, programs: Built, seed: u64) -> Result<()> {
    let began = Instant::now();
    let stage = Stage {
        machine: rig.boot()?,
        programs,
        seed,
    };
    println!(
        "vm: Linux {} booted in {:.1} s under {}",
        stage.machine.kernel()?,
        began.elapsed().as_secs_f64(),
        match rig.accelerator() {
            Accelerator::Kvm => "KVM",
            Accelerator::Tcg => "emulation",
        }
    );
    let mut failed = Vec::new();
    for test in chosen {
        let began = Instant::now();
        println!("vm: {}", test.name);
        let result = (test.run)(&stage);
        let seconds = began.elapsed().as_secs_f64();
        match result {
            Ok(()) => println!("vm: {}: passed ({seconds:.1} s)", test.name),
            Err(error) => {
                println!(
                    "vm: {}: FAILED ({seconds:.1} s): {error:#}\n{}",
                    test.name,
                    rig.console_tail()
                );
                failed.push(test.name);
                // The next test gets a machine without the leavings of this one.
                stage.machine.cut_power(Cut::Kill)?;
                stage
                    .machine
                    .restart(Cut::Kill)
                    .context("after a failed test")?;
            }
        }
    }
    ensure!(
        failed.is_empty(),
        "{} tests failed: {}",
        failed.len(),
        failed.join("; ")
    );
    println!(
        "vm: {} tests passed in {:.0} s",
        chosen.len(),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}
