//! `cargo xtask ci`: every check, in the order in which a failure is cheapest.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::project;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Print the steps and run none.
    #[arg(long)]
    pub list: bool,
    /// Run only the steps whose names contain one of these words.
    pub only: Vec<String>,
}

struct Step {
    name: &'static str,
    /// Words of the command, after `cargo`.
    cargo: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

const fn step(name: &'static str, cargo: &'static [&'static str]) -> Step {
    Step {
        name,
        cargo,
        environment: &[],
    }
}

const STEPS: &[Step] = &[
    step("format", &["fmt", "--all", "--check"]),
    step(
        "clippy",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    ),
    step("test", &["test", "--workspace"]),
    step("doctest", &["test", "--workspace", "--doc"]),
    Step {
        name: "docs",
        cargo: &["doc", "--no-deps", "--workspace"],
        environment: &[("RUSTDOCFLAGS", "-Dwarnings")],
    },
    step("devices", &["xtask", "devices"]),
    step("clients", &["xtask", "clients", "--debug"]),
    step("crash", &["xtask", "crash", "--debug", "--rounds", "6"]),
    step("faults", &["xtask", "faults", "--debug"]),
    step("memory", &["xtask", "memory", "--debug"]),
    step("fuzz", &["xtask", "fuzz-smoke"]),
    step(
        "deny",
        &["deny", "--offline", "check", "bans", "licenses", "sources"],
    ),
];

struct Finished {
    name: &'static str,
    result: &'static str,
    took: Duration,
}

/// Runs the steps, all of them even where one fails, and sums up.
pub fn run(options: &Options) -> Result<()> {
    let wanted: Vec<&Step> = STEPS
        .iter()
        .filter(|s| {
            options.only.is_empty() || options.only.iter().any(|w| s.name.contains(w.as_str()))
        })
        .collect();
    if options.list {
        for step in wanted {
            println!("{:<10} cargo {}", step.name, step.cargo.join(" "));
        }
        return Ok(());
    }
    let finished: Vec<Finished> = wanted.into_iter().map(run_step).collect();
    println!("\n== summary");
    for step in &finished {
        println!(
            "{:<10} {:<8} {:>7.1} s",
            step.name,
            step.result,
            step.took.as_secs_f64()
        );
    }
    let failed: Vec<&str> = finished
        .iter()
        .filter(|f| f.result == FAILED)
        .map(|f| f.name)
        .collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

const PASSED: &str = "passed";
const FAILED: &str = "FAILED";
const SKIPPED: &str = "skipped";

fn run_step(step: &Step) -> Finished {
    println!("\n== {}: cargo {}", step.name, step.cargo.join(" "));
    let began = Instant::now();
    let result = if step.name == "deny" && !project::available("cargo-deny") {
        eprintln!("SKIPPED deny: cargo-deny is not installed; `cargo install cargo-deny --locked`");
        SKIPPED
    } else {
        let mut command: Command = project::cargo();
        command
            .args(step.cargo)
            .envs(step.environment.iter().copied());
        match project::run(&mut command) {
            Ok(()) => PASSED,
            Err(error) => {
                eprintln!("{error:#}");
                FAILED
            }
        }
    };
    Finished {
        name: step.name,
        result,
        took: began.elapsed(),
    }
}
