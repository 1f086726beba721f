//! The fuzz targets of a crate, and a program that runs them without a fuzzer: it
//! has no coverage, but works with any compiler.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::smoke::{save, smoke};

/// A function under test that takes arbitrary bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target and of its driver.
    pub name: &'static str,
    /// Takes any bytes. A panic is a finding.
    pub run: fn(&[u8]),
    /// Valid inputs, which reach deep code at once.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// The targets of a crate.
#[derive(Clone, Copy, Debug)]
pub struct Collection {
    /// The crate's name in its drivers.
    pub crate_name: &'static str,
    /// The command that starts its program.
    pub program: &'static str,
    /// The targets.
    pub targets: &'static [Target],
}

/// Runs fuzz targets on any compiler.
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
    /// Write the seeds of every target to the folder where `cargo fuzz` reads them.
    Seeds,
    /// List the targets.
    List,
}

impl Collection {
    /// Runs the target of this name once.
    ///
    /// # Panics
    /// If there is no such target, or if it found a fault.
    pub fn run(&self, name: &str, data: &[u8]) {
        match self.find(name) {
            Ok(target) => (target.run)(data),
            Err(error) => panic!("{error}"),
        }
    }

    /// Feeds changed seeds to every target, for `time` in all, and prints the
    /// progress. Returns the number of targets that failed.
    ///
    /// # Errors
    /// If an input that a target failed on cannot be saved.
    pub fn smoke(&self, time: Duration, seed: u64) -> Result<usize, String> {
        let targets: Vec<&Target> = self.targets.iter().collect();
        smoke(self, &targets, time, seed)
    }

    /// The crate's program.
    pub fn command_line(&self) -> ExitCode {
        self.execute(Arguments::parse().command)
            .unwrap_or_else(|error| {
                eprintln!("error: {error}");
                ExitCode::from(2)
            })
    }

    /// Checks that `fuzz_targets/` and `fuzz/Cargo.toml` have an entry for each of
    /// these targets, and no other that names this crate.
    ///
    /// # Errors
    /// If entries are missing, or the drivers cannot be read.
    pub fn check_drivers(&self) -> Result<(), String> {
        let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let names: BTreeSet<&str> = self.targets.iter().map(|target| target.name).collect();
        if names.len() != self.targets.len() {
            return Err("two targets share a name".into());
        }
        let manifest = read(&fuzz.join("Cargo.toml"))?;
        for name in &names {
            let driver = read(&fuzz.join(format!("fuzz_targets/{name}.rs")))?;
            if !driver.contains(&format!("{}::run(\"{name}\"", self.crate_name)) {
                return Err(format!("{name}.rs runs another target"));
            }
            if !manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")) {
                return Err(format!("fuzz/Cargo.toml has no [[bin]] for {name}"));
            }
        }
        let folder = fs::read_dir(fuzz.join("fuzz_targets")).map_err(|e| e.to_string())?;
        for entry in folder {
            let path = entry.map_err(|e| e.to_string())?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let is_ours = read(&path)?.contains(&format!("{}::", self.crate_name));
            if is_ours && !names.contains(&*name) {
                return Err(format!("{name}.rs drives no target"));
            }
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<&Target, String> {
        self.targets
            .iter()
            .find(|target| target.name == name)
            .ok_or_else(|| {
                let names: Vec<_> = self.targets.iter().map(|target| target.name).collect();
                format!(
                    "no fuzz target of {} is called {name}; there are {}",
                    self.crate_name,
                    names.join(", ")
                )
            })
    }

    fn execute(&self, command: Command) -> Result<ExitCode, String> {
        match command {
            Command::Smoke {
                seconds,
                seed,
                targets: names,
            } => {
                let mut targets: Vec<&Target> = self.targets.iter().collect();
                if !names.is_empty() {
                    targets = names
                        .iter()
                        .map(|name| self.find(name))
                        .collect::<Result<_, _>>()?;
                }
                let time = Duration::try_from_secs_f64(seconds)
                    .map_err(|_| format!("--seconds {seconds} is not a length of time"))?;
                if smoke(self, &targets, time, seed)? > 0 {
                    return Ok(ExitCode::FAILURE);
                }
            }
            Command::Reproduce { target, file } => {
                let input =
                    fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
                self.run(&target, &input);
                println!("{target} accepts {}", file.display());
            }
            Command::Seeds => self.write_seeds()?,
            Command::List => {
                for target in self.targets {
                    println!("{}", target.name);
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn write_seeds(&self) -> Result<(), String> {
        for target in self.targets {
            for seed in (target.seeds)() {
                save(target.name, "corpus", "seed", &seed)
                    .map_err(|error| format!("cannot save a seed of {}: {error}", target.name))?;
            }
        }
        Ok(())
    }
}
