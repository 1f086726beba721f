//! `cargo xtask ci`: every check, in the order in which a failure is cheapest.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

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
    step("attack", &["xtask", "attack", "--debug"]),
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
    /// The last that it printed.
    end: VecDeque<String>,
}

/// Lines of a failed step that are printed once more below the summary: the
/// end of a log is what its reader sees first, and often all there is left.
const END_LINES: usize = 60;

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
    let failed: Vec<&Finished> = finished.iter().filter(|f| f.result == FAILED).collect();
    for step in &failed {
        println!("\n== the end of {}", step.name);
        step.end.iter().for_each(|line| println!("{line}"));
    }
    if !failed.is_empty() {
        let names: Vec<&str> = failed.iter().map(|step| step.name).collect();
        bail!("failed: {}", names.join(", "));
    }
    Ok(())
}

const PASSED: &str = "passed";
const FAILED: &str = "FAILED";
const SKIPPED: &str = "skipped";

fn run_step(step: &Step) -> Finished {
    println!("\n== {}: cargo {}", step.name, step.cargo.join(" "));
    let began = Instant::now();
    let mut end = VecDeque::new();
    let result = if step.name == "deny" && !project::available("cargo-deny") {
        eprintln!("SKIPPED deny: cargo-deny is not installed; `cargo install cargo-deny --locked`");
        SKIPPED
    } else {
        let mut command: Command = project::cargo();
        command
            .args(step.cargo)
            .envs(step.environment.iter().copied());
        match run_shown(command, &mut end) {
            Ok(()) => PASSED,
            Err(error) => {
                println!("{error:#}");
                FAILED
            }
        }
    };
    Finished {
        name: step.name,
        result,
        took: began.elapsed(),
        end,
    }
}

/// How long to wait for what a step printed when it has ended: something that it
/// left running may hold the pipe open.
const REST: Duration = Duration::from_secs(5);

/// Runs `command`, shows what it prints, and keeps the last lines of that.
fn run_shown(mut command: Command, end: &mut VecDeque<String>) -> Result<()> {
    let (output, input) = std::io::pipe().context("making a pipe")?;
    let errors = input.try_clone().context("making a pipe")?;
    let child = command.stdout(input).stderr(errors).spawn();
    // It holds the pipe's other end open, too.
    drop(command);
    let mut child = child.context("starting cargo")?;
    let (lines, printed) = mpsc::channel();
    std::thread::spawn(move || show(output, &lines));
    let status = std::thread::spawn(move || child.wait());
    let mut ended = None;
    while ended.is_none_or(|ended: Instant| ended.elapsed() < REST) {
        match printed.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => {
                if end.len() == END_LINES {
                    end.pop_front();
                }
                end.push_back(line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if status.is_finished() => {
                ended.get_or_insert_with(Instant::now);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    let status = status
        .join()
        .map_err(|_| anyhow!("waiting for cargo panicked"))??;
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}

/// Copies lines to standard output and to `lines`.
fn show(output: impl Read, lines: &mpsc::Sender<String>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output
        .read_until(b'\n', &mut line)
        .is_ok_and(|read| read > 0)
    {
        // Whoever was to see it may be gone; the step goes on.
        let _ = std::io::stdout().write_all(&line);
        let _ = lines.send(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
}
