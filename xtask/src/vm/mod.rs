//! `cargo xtask vm`: virtual machines whose kernels drive real storage. QEMU emulates NVMe
//! drives with zones, with placement handles and without both. User-mode Linux has the
//! drives that a newer kernel offers by itself, and translates no code.
//!
//! The guest sees the host's root read-only under an overlay in memory, so it runs the
//! host's builds. The tests run on the host, and send commands to the guest's agent.

pub mod agent;
mod guest;
mod initramfs;
mod kernel;
mod machine;
mod packages;
mod qemu;
mod tests;
mod uml;
pub mod writes;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use self::kernel::Kernel;
use self::machine::{BOOT_PATIENCE, Cut, Machine, Rig, RigKind};
use self::packages::Packages;
use self::qemu::Qemu;
use self::tests::{Stage, TESTS, Test};
use self::uml::Uml;
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
    /// The virtual machine. Without it, QEMU, then user-mode Linux unless --quick is given.
    #[arg(long, value_enum)]
    pub rig: Option<RigKind>,
    /// Keep the disks and the console's log.
    #[arg(long)]
    pub keep: bool,
    /// Fail if a machine is not available.
    #[arg(long)]
    pub require: bool,
}

/// The variable that tells a process that it has a network of its own, for user-mode Linux.
const ISOLATED: &str = "FLOE_VM_ISOLATED";

/// Runs the tests, or reports why it cannot.
pub fn run(options: &Options) -> Result<()> {
    let rigs = match options.rig {
        _ if is_isolated() => vec![RigKind::Uml],
        Some(rig) => vec![rig],
        None if options.quick => vec![RigKind::Qemu],
        None => RigKind::value_variants().to_vec(),
    };
    let chosen = rigs.into_iter().map(|rig| (rig, choose(options, rig)));
    let chosen: Vec<_> = chosen.filter(|(_, tests)| !tests.is_empty()).collect();
    ensure!(!chosen.is_empty(), "no test has such a name on these rigs");
    let failed: Vec<_> = chosen
        .into_iter()
        .filter_map(|(rig, tests)| {
            let result = suite(options, rig, &tests);
            let result = result
                .and_then(|outcome| outcome.settle(&format!("vm with {rig:?}"), options.require));
            result.err().map(|error| format!("{rig:?}: {error:#}"))
        })
        .collect();
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

fn is_isolated() -> bool {
    std::env::var_os(ISOLATED).is_some()
}

fn choose(options: &Options, rig: RigKind) -> Vec<&'static Test> {
    let is_chosen = |test: &&Test| match options.only.as_slice() {
        [] => !options.quick || test.is_quick,
        only => only.iter().any(|word| test.name.contains(word.as_str())),
    };
    let tests = TESTS.iter().filter(|test| test.rigs.contains(&rig));
    tests.filter(is_chosen).collect()
}

fn suite(options: &Options, kind: RigKind, tests: &[&Test]) -> Result<Outcome> {
    let folder = project::scratch()?.join("vm");
    std::fs::create_dir_all(&folder)?;
    let packages = match Packages::install(&folder) {
        Ok(packages) => packages,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let kernel = match kind {
        RigKind::Qemu => None,
        RigKind::Uml if !is_isolated() && uml::probe().is_err() => {
            let why = "no network namespace with a veth pair can be made here";
            return Ok(Outcome::Skipped(why.to_owned()));
        }
        RigKind::Uml => match Kernel::install(&folder.join("uml"), &packages) {
            Ok(kernel) => Some(kernel),
            Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
        },
    };
    let programs = Stage::build_programs()?;
    if kernel.is_some() && !is_isolated() {
        return isolate();
    }
    let mut run = tempfile::Builder::new()
        .prefix("run-")
        .tempdir_in(&folder)?;
    run.disable_cleanup(options.keep);
    let result = rig(packages, kernel, &folder, run.path())
        .and_then(|rig| run_all(tests, rig, kind, programs, options.seed));
    if options.keep {
        println!("vm: disks and console.log are in {}", run.path().display());
    }
    result.map(|()| Outcome::Passed)
}

/// Runs this task with user-mode Linux in a network of its own.
fn isolate() -> Result<Outcome> {
    let mut again = uml::isolated();
    again.args(std::env::args_os()).env(ISOLATED, "1");
    project::run(&mut again)?;
    Ok(Outcome::Passed)
}

fn rig(
    packages: Packages,
    kernel: Option<Kernel>,
    folder: &Path,
    run: &Path,
) -> Result<Box<dyn Rig>> {
    Ok(match kernel {
        None => Box::new(Qemu::new(packages, folder, run)?),
        Some(kernel) => Box::new(Uml::new(packages, kernel, run)?),
    })
}

fn run_all(
    chosen: &[&Test],
    rig: Box<dyn Rig>,
    kind: RigKind,
    programs: Built,
    seed: u64,
) -> Result<()> {
    let began = Instant::now();
    let stage = Stage {
        machine: Machine::boot(rig, BOOT_PATIENCE)?,
        rig: kind,
        programs,
        seed,
    };
    println!(
        "vm: Linux {} booted in {:.1} s by {}",
        stage.machine.kernel()?,
        began.elapsed().as_secs_f64(),
        stage.machine.rig_name()
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
                    stage.machine.console_tail()
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
