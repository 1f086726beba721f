//! `cargo xtask ci`: runs all checks, the cheapest failures first.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::project;
use crate::verdicts::{self, Verdict};

/// The steps to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Print the steps and run none.
    #[arg(long)]
    pub list: bool,
    /// Also accept skips that contain one of these texts.
    #[arg(long, value_name = "TEXT")]
    pub expect_skip: Vec<String>,
    /// Also run the papers' experiments at full scale and judge their figures; takes hours.
    #[arg(long)]
    pub full: bool,
    /// Write the verdicts of `--full` into docs/verdicts.md.
    #[arg(long, requires = "full")]
    pub record: bool,
    /// Run only the steps whose names contain one of these words.
    pub only: Vec<String>,
}

struct Step {
    name: &'static str,
    /// The command's words after `cargo`.
    cargo: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// Runs beside the steps after it, which leave a core idle as it does.
    is_beside: bool,
}

const fn step(name: &'static str, cargo: &'static [&'static str]) -> Step {
    Step {
        name,
        cargo,
        environment: &[],
        is_beside: false,
    }
}

/// A step that runs an experiment and judges it with the release build.
macro_rules! judged {
    ($name:literal) => {
        step(
            $name,
            &[
                "run",
                "--release",
                "--package",
                "floe-lab",
                "--",
                "bench",
                concat!("experiments/", $name, ".toml"),
                "--quiet",
                "--verdicts",
            ],
        )
    };
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
    Step {
        environment: &[("RUSTDOCFLAGS", "-Dwarnings")],
        ..step("docs", &["doc", "--no-deps", "--workspace"])
    },
    Step {
        is_beside: true,
        ..step("vm", &["xtask", "vm", "--quick"])
    },
    step("devices", &["xtask", "devices"]),
    step("clients", &["xtask", "clients", "--debug"]),
    step("crash", &["xtask", "crash", "--debug", "--rounds", "6"]),
    step("faults", &["xtask", "faults", "--debug"]),
    step("attack", &["xtask", "attack", "--debug"]),
    step("memory", &["xtask", "memory", "--debug"]),
    step("cluster", &["xtask", "cluster", "--debug", "--quick"]),
    step("chart", &["xtask", "chart", "--debug"]),
    step("sweep", &["xtask", "sweep", "--debug"]),
    step("fuzz", &["xtask", "fuzz-smoke"]),
    // Its own workspace, which clippy does not see.
    step(
        "peers",
        &[
            "check",
            "--locked",
            "--manifest-path",
            "lab/peers/Cargo.toml",
            // It shares what the step `clippy` has checked of its dependencies.
            "--target-dir",
            "target",
        ],
    ),
    step(
        "deny",
        &["deny", "--offline", "check", "bans", "licenses", "sources"],
    ),
];

/// Skips that are no failure in CI: another step covers them, or not every machine can.
const EXPECTED_SKIPS: &[&str] = &[
    "deny: cargo-deny is not installed",
    "book: mdbook",
    "chart: ",
    "cluster: ",
    "clocks that are wrong: ",
    "sweep: ",
];

/// Steps that `--full` adds: the documentation as a book, attacks on the build that ships,
/// SQL through the cache, all tests in the virtual machine, longer tests of volumes, and the
/// papers' experiments, which fail if a verdict differs from
/// `experiments/known-to-differ.toml`.
const FULL: &[Step] = &[
    // The links are checked by `tidy`.
    step("book", &["xtask", "book"]),
    step("attack-release", &["xtask", "attack"]),
    step("clients-more", &["xtask", "clients", "--more", "--debug"]),
    // Its own workspace, whose dependencies take minutes to build.
    step(
        "datafusion",
        &[
            "run",
            "--locked",
            "--manifest-path",
            "lab/datafusion/Cargo.toml",
        ],
    ),
    step("vm-full", &["xtask", "vm"]),
    step("cluster-full", &["xtask", "cluster"]),
    Step {
        environment: &[("FLOE_FULL", "1")],
        ..step(
            "volume",
            &["test", "--package", "floe-core", "--lib", "volume::"],
        )
    },
    Step {
        environment: &[("FLOE_FULL", "1")],
        ..step(
            "oracles",
            &[
                "test",
                "--package",
                "floe",
                "--test",
                "store_oracle",
                "--test",
                "array_oracle",
                "--test",
                "tiny_oracle",
                "--test",
                "hybrid_oracle",
            ],
        )
    },
    // A million crashes.
    Step {
        environment: &[("FLOE_FULL", "1"), ("CARGO_PROFILE_DEV_OPT_LEVEL", "2")],
        ..step(
            "volume-crashes",
            &[
                "test",
                "--package",
                "floe",
                "--lib",
                "volume::tests",
                "--",
                "--nocapture",
            ],
        )
    },
    judged!("zncache-table5"),
    judged!("oxcache-table5"),
    judged!("zncache-gc"),
    judged!("oxcache-gc"),
    judged!("findings-held-zone"),
    judged!("findings-allocator"),
    judged!("zncache-clru"),
    judged!("zncache-clru-host"),
    judged!("policies-cloudphysics"),
    judged!("nemo-fig12"),
    judged!("nemo-fig13"),
    judged!("nemo-fig14"),
    judged!("nemo-fig15"),
    judged!("nemo-fig16"),
    judged!("nemo-fig17"),
    judged!("nemo-fig19a"),
    judged!("nemo-fig19b"),
    judged!("nemo-table6"),
    judged!("nemo-eq6-8"),
    judged!("nemo-appendix"),
    judged!("nemo-working-set"),
    judged!("nemo-memory"),
    judged!("nemo-sizes"),
    judged!("adacache-fig5"),
    judged!("adacache-fig7"),
    judged!("adacache-fig9"),
    judged!("adacache-fig10"),
    judged!("adacache-replacement"),
    judged!("adacache-metadata"),
    judged!("iocache-fig2"),
    judged!("iocache-fig8"),
    judged!("iocache-fig9"),
    judged!("iocache-fig13"),
    judged!("iocache-table1"),
    judged!("iocache-table3"),
    judged!("volumes-files"),
    judged!("volumes-flush"),
    judged!("fleet"),
    judged!("volumes-profiles"),
];

struct Finished {
    name: &'static str,
    result: &'static str,
    took: Duration,
    printed: Printed,
}

/// The output of a step.
#[derive(Default)]
struct Printed {
    /// The last lines.
    end: VecDeque<String>,
    /// Lines that report skips.
    skips: Vec<String>,
    /// Lines that count figures that hold.
    counts: Vec<String>,
}

impl Printed {
    fn add(&mut self, line: String) {
        if line.starts_with(project::SKIPPED) {
            self.skips.push(line.clone());
        }
        if verdicts::is_count(&line) {
            self.counts.push(line.clone());
        }
        if self.end.len() == END_LINES {
            self.end.pop_front();
        }
        self.end.push_back(line);
    }
}

/// Lines of a failed step to repeat below the summary: readers see the end of a
/// log first, and often nothing else is kept.
const END_LINES: usize = 60;

/// Runs all steps, even after a failure, and prints a summary.
pub fn run(options: &Options) -> Result<()> {
    let full = if options.full { FULL } else { &[] };
    let wanted: Vec<&Step> = STEPS
        .iter()
        .chain(full)
        .filter(|s| {
            options.only.is_empty() || options.only.iter().any(|w| s.name.contains(w.as_str()))
        })
        .collect();
    if options.list {
        for step in wanted {
            println!("{:<22} cargo {}", step.name, step.cargo.join(" "));
        }
        return Ok(());
    }
    // A step may build it anew at the same path.
    let xtask = std::env::current_exe().context("finding xtask")?;
    let finished = run_steps(&wanted, &xtask);
    println!("\n== summary");
    for step in &finished {
        println!(
            "{:<22} {:<8} {:>7.1} s",
            step.name,
            step.result,
            step.took.as_secs_f64()
        );
        step.printed
            .counts
            .iter()
            .for_each(|count| println!("  {count}"));
    }
    if options.record {
        verdicts::record(&judged(&finished))?;
    }
    let failed: Vec<&Finished> = finished.iter().filter(|f| f.result == FAILED).collect();
    for step in &failed {
        println!("\n== the end of {}", step.name);
        step.printed.end.iter().for_each(|line| println!("{line}"));
    }
    let unexpected = unexpected_skips(&finished, &options.expect_skip);
    for skip in &unexpected {
        println!("\nnot expected: {skip}");
    }
    if !failed.is_empty() {
        let names: Vec<&str> = failed.iter().map(|step| step.name).collect();
        bail!("failed: {}", names.join(", "));
    }
    // A developer's machine may lack programs that CI installs.
    if !unexpected.is_empty() && std::env::var_os("CI").is_some() {
        bail!(
            "{} skips that CI did not expect; install what they name, or pass --expect-skip",
            unexpected.len()
        );
    }
    Ok(())
}

/// The verdicts of the finished experiments.
fn judged(finished: &[Finished]) -> Vec<Verdict> {
    let is_judged = |step: &&Finished| !step.printed.counts.is_empty();
    let verdict = |step: &Finished| Verdict {
        experiment: step.name.to_owned(),
        sentences: step.printed.counts.clone(),
        is_as_expected: step.result == PASSED,
        took: step.took,
    };
    finished.iter().filter(is_judged).map(verdict).collect()
}

fn unexpected_skips<'a>(finished: &'a [Finished], expected: &[String]) -> Vec<&'a str> {
    let is_expected = |skip: &str| {
        EXPECTED_SKIPS.iter().any(|text| skip.contains(text))
            || expected.iter().any(|text| skip.contains(text.as_str()))
    };
    finished
        .iter()
        .flat_map(|step| &step.printed.skips)
        .map(String::as_str)
        .filter(|skip| !is_expected(skip))
        .collect()
}

const PASSED: &str = "passed";
const FAILED: &str = "FAILED";
const SKIPPED: &str = "skipped";

/// Runs the steps one after another, but for those that run beside others.
fn run_steps(steps: &[&Step], xtask: &Path) -> Vec<Finished> {
    std::thread::scope(|scope| {
        let mut finished = Vec::new();
        let mut beside = Vec::new();
        for &step in steps {
            match step.is_beside {
                true => beside.push(scope.spawn(move || run_step(step, xtask))),
                false => finished.push(run_step(step, xtask)),
            }
        }
        let beside = beside.into_iter().map(|step| step.join());
        finished.extend(beside.map(|step| step.expect("steps do not panic")));
        finished
    })
}

fn run_step(step: &Step, xtask: &Path) -> Finished {
    println!("\n== {}: cargo {}", step.name, step.cargo.join(" "));
    let began = Instant::now();
    let mut printed = Printed::default();
    let result = if step.name == "deny" && !project::available("cargo-deny") {
        let skip =
            "skipped: deny: cargo-deny is not installed; `cargo install cargo-deny --locked`";
        eprintln!("{skip}");
        printed.add(skip.to_owned());
        SKIPPED
    } else {
        let prefix = match step.is_beside {
            true => format!("{} | ", step.name),
            false => String::new(),
        };
        match run_shown(command(step, xtask), prefix, &mut printed) {
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
        printed,
    }
}

/// The step's command. Tasks run in this build of xtask: `cargo xtask` would build it
/// again, with the features of one package.
fn command(step: &Step, xtask: &Path) -> Command {
    let (mut command, words) = match step.cargo {
        ["xtask", task @ ..] => (Command::new(xtask), task),
        words => (project::cargo(), words),
    };
    command.args(words).envs(step.environment.iter().copied());
    command
}

/// How long to wait for a finished step's output: a process that it left
/// running may hold the pipe open.
const REST: Duration = Duration::from_secs(5);

/// Runs `command`, shows its output, each line behind `prefix`, and records it in `printed`.
fn run_shown(mut command: Command, prefix: String, printed: &mut Printed) -> Result<()> {
    let (output, input) = std::io::pipe().context("making a pipe")?;
    let errors = input.try_clone().context("making a pipe")?;
    let child = command.stdout(input).stderr(errors).spawn();
    // It also holds the other end of the pipe.
    drop(command);
    let mut child = child.context("starting cargo")?;
    let (lines, received) = mpsc::channel();
    std::thread::spawn(move || show(output, &prefix, &lines));
    let status = std::thread::spawn(move || child.wait());
    let mut ended = None;
    while ended.is_none_or(|ended: Instant| ended.elapsed() < REST) {
        match received.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => printed.add(line),
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

/// Copies lines to standard output, each behind `prefix`, and to `lines`.
fn show(output: impl Read, prefix: &str, lines: &mpsc::Sender<String>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output
        .read_until(b'\n', &mut line)
        .is_ok_and(|read| read > 0)
    {
        // Standard output may be closed; the step goes on.
        let _ = std::io::stdout().write_all(&[prefix.as_bytes(), &line].concat());
        let _ = lines.send(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_skips_that_are_not_named_are_unexpected() {
        let mut printed = Printed::default();
        for line in [
            "test a ... ok",
            "skipped: deny: cargo-deny is not installed",
            "skipped: no traces",
            "skipped: no Chromium",
        ] {
            printed.add(line.to_owned());
        }
        let finished = [Finished {
            name: "test",
            result: PASSED,
            took: Duration::ZERO,
            printed,
        }];
        let unexpected = unexpected_skips(&finished, &["no traces".to_owned()]);
        assert_eq!(unexpected, ["skipped: no Chromium"]);
    }

    #[test]
    fn steps_that_count_verdicts_are_recorded() {
        let finished = |name, line: &str| {
            let mut printed = Printed::default();
            printed.add(line.to_owned());
            Finished {
                name,
                result: PASSED,
                took: Duration::ZERO,
                printed,
            }
        };
        let count = "published: all of 3 judged figures hold.";
        let recorded = judged(&[finished("test", "test a ... ok"), finished("smoke", count)]);
        let recorded: Vec<_> = recorded
            .iter()
            .map(|v| (&*v.experiment, &*v.sentences))
            .collect();
        assert_eq!(recorded, [("smoke", &[count.to_owned()][..])]);
    }

    /// Judged by tests, run in real time with figures that depend on the machine, or run by hand
    /// because they take hours.
    const ELSEWHERE: [&str; 8] = [
        "nemo-large",
        "nemo-large-fill",
        "nemo-large-reads",
        "zncache-table5-small",
        "nemo-working-set-small",
        "oxcache-resources",
        "nemo-kangaroo",
        "nemo-traces",
    ];

    #[test]
    fn every_judged_experiment_is_run_by_full() {
        let folder = project::root().join("experiments");
        let entries = std::fs::read_dir(folder).expect("experiments");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        for path in paths.filter(|path| path.is_file()) {
            let text = std::fs::read_to_string(&path).expect("text");
            let name = path.file_stem().expect("a name").to_string_lossy();
            // One that extends another has at least its figures.
            let extends = text.lines().any(|line| line.starts_with("extends"));
            let is_judged = text.contains("\n[[published") || extends;
            let is_run = FULL.iter().any(|step| step.name == name);
            let is_elsewhere = ELSEWHERE.contains(&name.as_ref());
            assert_eq!(is_judged, is_run || is_elsewhere, "{name}");
        }
    }
}
