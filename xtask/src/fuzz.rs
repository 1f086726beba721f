//! `cargo xtask fuzz-smoke`: runs every fuzz target for a short time.

use std::num::NonZero;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, anyhow, bail};

use crate::built::Built;
use crate::project::{self, Outcome};

/// The targets and their time.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Seconds per target; by default all targets share a minute.
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Fail if fuzzing is impossible, instead of reporting a skip.
    #[arg(long)]
    pub require: bool,
}

/// Seconds that all targets share by default.
const SHARED_SECONDS: u64 = 60;
const SECONDS_MIN: u64 = 3;

/// Runs every target of `fuzz/`; a crash is a failure.
pub fn run(options: &Options) -> anyhow::Result<()> {
    smoke(options)?.settle("fuzz-smoke", options.require)
}

fn smoke(options: &Options) -> anyhow::Result<Outcome> {
    if !project::root().join("fuzz/Cargo.toml").is_file() {
        bail!("there is no fuzz/ workspace");
    }
    let layouts = project::output(targets_command(&[]).arg("list"))?;
    let layouts: Vec<&str> = layouts.lines().map(str::trim).collect();
    let targets = layouts.len() as u64 + READERS;
    let seconds = options
        .seconds
        .unwrap_or_else(|| (SHARED_SECONDS / targets).max(SECONDS_MIN));
    let without_coverage = fuzzer().err();
    if let Some(reason) = &without_coverage
        && options.require
    {
        return Ok(Outcome::Skipped(reason.clone()));
    }

    let fuzz_layouts = || match without_coverage {
        None => fuzz_layouts(&layouts, seconds),
        Some(reason) => {
            eprintln!("fuzz-smoke: without coverage, on this compiler: {reason}");
            let all = (seconds * layouts.len() as u64).to_string();
            project::run(targets_command(&["--release"]).args(["smoke", "--seconds", &all]))
        }
    };
    // The readers take one thread, and the layouts are built meanwhile.
    thread::scope(|scope| {
        let readers = scope.spawn(|| feed_readers(seconds * READERS));
        fuzz_layouts().and(joined(readers))
    })?;
    println!("fuzz-smoke: {targets} targets, {seconds} s each, no crash");
    Ok(Outcome::Passed)
}

/// Targets in `fuzz/readers`. They link all of Floe, which takes minutes to
/// build for coverage. So a smoke run feeds them without feedback, in a test
/// that shares the packages and features that the other tests have built.
const READERS: u64 = 8;

fn feed_readers(seconds: u64) -> anyhow::Result<()> {
    println!("fuzz-smoke: the {READERS} readers, without coverage, for {seconds} s");
    let mut command = Built::new(&["fuzz_smoke"])?.test("fuzz/readers", "fuzz_smoke")?;
    command
        .arg("--nocapture")
        .env("FLOE_FUZZ_SECONDS", seconds.to_string());
    project::run(&mut command)
}

fn fuzz_layouts(targets: &[&str], seconds: u64) -> anyhow::Result<()> {
    project::run(targets_command(&[]).arg("seeds"))?;
    // One build for all targets, with debug assertions.
    project::run(fuzz_command("build").args(LAYOUTS_ONLY))?;
    let at_once = thread::available_parallelism().map_or(1, NonZero::get);
    for targets in targets.chunks(at_once) {
        thread::scope(|scope| {
            let run = |target| scope.spawn(move || fuzz_layout(target, seconds));
            let running: Vec<_> = targets.iter().copied().map(run).collect();
            running.into_iter().try_for_each(joined)
        })?;
    }
    Ok(())
}

fn fuzz_layout(target: &str, seconds: u64) -> anyhow::Result<()> {
    println!("fuzz-smoke: {target} for {seconds} s");
    let output = fuzz_command("run")
        .args(LAYOUTS_ONLY)
        .args([target, "--"])
        .arg(format!("-max_total_time={seconds}"))
        .args(["-rss_limit_mb=2048", "-timeout=10"])
        .output()
        .context("starting cargo-fuzz")?;
    if !output.status.success() {
        bail!(
            "the fuzz target {target} failed; its input lies in fuzz/artifacts/{target}/\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

fn joined(thread: thread::ScopedJoinHandle<'_, anyhow::Result<()>>) -> anyhow::Result<()> {
    let result = thread.join();
    result.unwrap_or_else(|_| Err(anyhow!("a thread of fuzz-smoke panicked")))
}

/// Without the readers there is little to build.
const LAYOUTS_ONLY: [&str; 3] = ["--no-default-features", "--sanitizer", "none"];

/// Checks that a fuzzer can run here. The error has the reason.
fn fuzzer() -> Result<(), String> {
    if !nightly() {
        return Err(
            "no nightly compiler; `rustup toolchain install nightly --profile minimal`".into(),
        );
    }
    if !cargo_fuzz_available() && !install_cargo_fuzz() {
        return Err("cargo-fuzz is not there and could not be installed".into());
    }
    Ok(())
}

/// The targets as a program for any compiler, built with `options`: seeds, and runs without a
/// fuzzer.
fn targets_command(options: &[&str]) -> Command {
    let mut command = project::cargo();
    command.args(["run", "--quiet"]).args(options).args([
        "--manifest-path",
        "fuzz/targets/Cargo.toml",
        "--",
    ]);
    command
}

/// `cargo +nightly fuzz`, without the environment of the stable toolchain that runs this task.
fn fuzz_command(subcommand: &str) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "fuzz", subcommand])
        .current_dir(project::root());
    for variable in [
        "CARGO",
        "RUSTUP_TOOLCHAIN",
        "RUSTC",
        "RUSTDOC",
        "RUSTFLAGS",
        "CARGO_TARGET_DIR",
    ] {
        command.env_remove(variable);
    }
    command
}

fn nightly() -> bool {
    quiet(Command::new("rustup").args(["run", "nightly", "rustc", "--version"]))
}

fn cargo_fuzz_available() -> bool {
    quiet(Command::new("cargo").args(["fuzz", "--version"]))
}

fn install_cargo_fuzz() -> bool {
    println!("fuzz-smoke: installing cargo-fuzz");
    let mut command = Command::new("cargo");
    command
        .args(["install", "cargo-fuzz", "--locked", "--quiet", "--debug"])
        .current_dir(project::root());
    project::run(&mut command).is_ok()
}

fn quiet(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
