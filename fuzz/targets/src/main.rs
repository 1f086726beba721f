//! Runs fuzz targets without a fuzzer: no coverage, but any compiler.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, io};

use clap::{Parser, Subcommand};
use floe_fuzz_targets::{Mutator, TARGETS, Target, target};

/// Longest time that one input may take: more is a hang.
const INPUT_TIME_MAX: Duration = Duration::from_secs(5);

/// Runs Floe's fuzz targets on any compiler.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Feed changed seeds to every target, or to those named.
    Smoke {
        /// Seconds for all targets together.
        #[arg(long, default_value_t = 60.0)]
        seconds: f64,
        /// Seed of the random changes.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Targets to run; all if none is named.
        targets: Vec<String>,
    },
    /// Feed one file to a target.
    Reproduce {
        /// The target.
        target: String,
        /// The input.
        file: PathBuf,
    },
    /// Write every target's seeds to where `cargo fuzz` looks for them.
    Seeds,
    /// List the targets.
    List,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Smoke {
            seconds,
            seed,
            targets,
        } => smoke(seconds, seed, &targets),
        Command::Reproduce { target, file } => reproduce(&target, &file),
        Command::Seeds => write_seeds(),
        Command::List => {
            for target in TARGETS {
                println!("{}", target.name);
            }
            Ok(ExitCode::SUCCESS)
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}

fn find(name: &str) -> Result<&'static Target, String> {
    target(name).ok_or_else(|| {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        format!(
            "no fuzz target is called {name}; there are {}",
            names.join(", ")
        )
    })
}

fn smoke(seconds: f64, seed: u64, names: &[String]) -> Result<ExitCode, String> {
    let mut targets: Vec<&Target> = TARGETS.iter().collect();
    if !names.is_empty() {
        targets = names
            .iter()
            .map(|name| find(name))
            .collect::<Result<_, _>>()?;
    }
    let each = Duration::try_from_secs_f64(seconds / targets.len() as f64)
        .map_err(|_| format!("--seconds {seconds} is not a length of time"))?;
    let mut findings = 0;
    for target in targets {
        match smoke_one(target, each, seed) {
            Ok(inputs) => println!("{:<20} {inputs:>10} inputs, none bad", target.name),
            Err(finding) => {
                findings += 1;
                let file = save(target.name, "artifacts", "smoke", &finding.input)
                    .map_err(|error| format!("cannot save the input that failed: {error}"))?;
                println!("{:<20} {} on {}", target.name, finding.what, file.display());
                println!(
                    "  again with: cargo run --manifest-path fuzz/targets/Cargo.toml -- reproduce {} {}",
                    target.name,
                    file.display()
                );
            }
        }
    }
    Ok(if findings == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// An input that a target failed on.
struct Finding {
    what: &'static str,
    input: Vec<u8>,
}

/// Feeds a target for so long, its seeds first; the number of inputs.
fn smoke_one(target: &Target, time: Duration, seed: u64) -> Result<u64, Finding> {
    let seeds = (target.seeds)();
    let mut mutator = Mutator::new(seed);
    let start = Instant::now();
    let mut inputs = 0;
    while inputs < seeds.len() as u64 || start.elapsed() < time {
        let input = match seeds.get(inputs as usize) {
            Some(seed) => seed.clone(),
            None => mutator.input(&seeds),
        };
        let began = Instant::now();
        // Targets keep no state, so a panic leaves none broken.
        let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
        let what = match outcome {
            Err(_) => "panicked",
            Ok(()) if began.elapsed() > INPUT_TIME_MAX => "took too long",
            Ok(()) => {
                inputs += 1;
                continue;
            }
        };
        return Err(Finding { what, input });
    }
    Ok(inputs)
}

fn reproduce(name: &str, file: &Path) -> Result<ExitCode, String> {
    let target = find(name)?;
    let input = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    (target.run)(&input);
    println!("{name} accepts {}", file.display());
    Ok(ExitCode::SUCCESS)
}

fn write_seeds() -> Result<ExitCode, String> {
    for target in TARGETS {
        for seed in (target.seeds)() {
            save(target.name, "corpus", "seed", &seed)
                .map_err(|error| format!("cannot save a seed of {}: {error}", target.name))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes `bytes` to `fuzz/<folder>/<target>/<prefix>-<checksum>`.
fn save(target: &str, folder: &str, prefix: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(folder)
        .join(target);
    fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{prefix}-{:08x}", crc32c::crc32c(bytes)));
    fs::write(&file, bytes)?;
    Ok(file)
}
