//! `cargo xtask fuzz-smoke`: every fuzz target for a short while.

use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::project::{self, Outcome};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Seconds for each target; without it, a minute is shared by all.
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Fail where fuzzing is impossible, instead of saying so and passing.
    #[arg(long)]
    pub require: bool,
}

/// Seconds that all targets share when nothing else is asked for.
const SHARED_SECONDS: u64 = 60;
const SECONDS_MIN: u64 = 5;

/// Fuzzes every target of `fuzz/`; a crash fails.
pub fn run(options: &Options) -> anyhow::Result<()> {
    smoke(options)?.settle("fuzz-smoke", options.require)
}

fn smoke(options: &Options) -> anyhow::Result<Outcome> {
    if !project::root().join("fuzz/Cargo.toml").is_file() {
        bail!("there is no fuzz/ workspace");
    }
    project::run(targets_command().arg("seeds"))?;
    if let Err(reason) = fuzzer() {
        if options.require {
            return Ok(Outcome::Skipped(reason));
        }
        eprintln!("fuzz-smoke: without coverage, on this compiler: {reason}");
        project::run(targets_command().arg("smoke").args(blind_seconds(options)))?;
        return Ok(Outcome::Passed);
    }
    let listed = project::output(fuzz_command().arg("list"))?;
    let targets: Vec<&str> = listed
        .lines()
        .map(str::trim)
        .filter(|t| !t.is_empty())
        .collect();
    if targets.is_empty() {
        bail!("fuzz/ has no targets");
    }
    let seconds = options
        .seconds
        .unwrap_or_else(|| (SHARED_SECONDS / targets.len() as u64).max(SECONDS_MIN));
    // One build for all; without the release flags, because a smoke run wants its assertions.
    project::run(fuzz_command().args(["build", "--sanitizer", "none"]))?;
    for target in &targets {
        println!("fuzz-smoke: {target} for {seconds} s");
        let output = fuzz_command()
            .args(["run", "--sanitizer", "none", target, "--"])
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
    }
    println!(
        "fuzz-smoke: {} targets, {seconds} s each, no crash",
        targets.len()
    );
    Ok(Outcome::Passed)
}

/// Whether a real fuzzer can run here; else why not.
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

/// The targets as a program for any compiler: seeds, and runs without a fuzzer.
fn targets_command() -> Command {
    let mut command = project::cargo();
    command.args([
        "run",
        "--quiet",
        "--release",
        "--manifest-path",
        "fuzz/targets/Cargo.toml",
        "--",
    ]);
    command
}

/// The stable runner shares its seconds among all targets.
fn blind_seconds(options: &Options) -> Vec<String> {
    const TARGETS_ABOUT: u64 = 10;
    let seconds = options
        .seconds
        .map_or(SHARED_SECONDS, |each| each * TARGETS_ABOUT);
    vec!["--seconds".into(), seconds.to_string()]
}

/// `cargo +nightly fuzz`, free of the stable toolchain that runs this task.
fn fuzz_command() -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "fuzz"])
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
        .args(["install", "cargo-fuzz", "--locked", "--quiet"])
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
