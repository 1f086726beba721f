//! Scenarios that the real binary must pass. Each has its own directory; all
//! run, even after a failure.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::server::{SMALL_CHUNK, SMALL_ZONE, Setup, log_tail};
use crate::built::{self, Profile};
use crate::project::{self, Outcome};

/// The scenarios to run, and the binary to run them on.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Only the scenarios whose names contain one of these words.
    pub only: Vec<String>,
    /// Use the debug build.
    #[arg(long)]
    pub debug: bool,
    /// Use this binary instead of building one.
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Fail if a scenario is impossible on this machine.
    #[arg(long)]
    pub require: bool,
}

/// A name, and the check behind it.
pub type Scenario = (&'static str, fn(&Place) -> Result<Outcome>);

/// Exit status of an invalid command line or configuration.
pub const USAGE: i32 = 2;
/// Exit status of a fault in the environment.
pub const ENVIRONMENT: i32 = 3;

/// Time limit of a command that must fail.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(20);

/// For scenarios that are possible everywhere.
pub fn passed(result: Result<()>) -> Result<Outcome> {
    result.map(|()| Outcome::Passed)
}

/// Runs the chosen `scenarios` of `task`, and fails with the names of those that failed.
pub fn run(task: &str, scenarios: &[Scenario], options: &Options) -> Result<()> {
    let binary = match &options.binary {
        // The scenarios start the binary from other directories.
        Some(given) => given
            .canonicalize()
            .with_context(|| given.display().to_string())?,
        None => built::build_floe(Profile::from_flag(options.debug))?,
    };
    let mut failed = Vec::new();
    for (name, scenario) in scenarios {
        if !options.only.is_empty() && !options.only.iter().any(|word| name.contains(word.as_str()))
        {
            continue;
        }
        let folder = tempfile::Builder::new()
            .prefix(&format!("{task}-"))
            .tempdir_in(project::scratch()?)?;
        let place = Place {
            binary: binary.clone(),
            folder: folder.path().to_path_buf(),
        };
        let began = Instant::now();
        match scenario(&place) {
            Ok(Outcome::Passed) => {
                println!(
                    "{task}: {name}: as it should be ({:.1} s)",
                    began.elapsed().as_secs_f64()
                );
            }
            Ok(skipped) => skipped.settle(&format!("{task}: {name}"), options.require)?,
            Err(error) => {
                println!(
                    "{task}: {name}: FAILED: {error:#}\n{}",
                    log_tail(&place.folder)
                );
                failed.push(*name);
            }
        }
    }
    ensure!(
        failed.is_empty(),
        "{} scenarios failed: {}",
        failed.len(),
        failed.join("; ")
    );
    Ok(())
}

/// A scenario's binary and directory.
pub struct Place {
    /// The `floe` binary.
    pub binary: PathBuf,
    /// The scenario's own folder.
    pub folder: PathBuf,
}

impl Place {
    /// A small server in this directory, with `more` flags.
    pub fn setup(&self, more: Vec<String>) -> Setup {
        Setup {
            binary: self.binary.clone(),
            data_dir: self.folder.clone(),
            cache_size: "64MiB".to_owned(),
            zone_size: SMALL_ZONE,
            chunk_size: SMALL_CHUNK,
            ram_size: "0".to_owned(),
            consistency: "immutable",
            more,
        }
    }

    /// Runs `floe` with `arguments` until it ends.
    pub fn floe(&self, arguments: &[&str]) -> Result<Output> {
        let mut child = Command::new(&self.binary)
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let began = Instant::now();
        while child.try_wait()?.is_none() {
            if began.elapsed() > FAILURE_TIMEOUT {
                child.kill()?;
                child.wait()?;
                bail!("`floe {}` neither rejected nor ended", arguments.join(" "));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(child.wait_with_output()?)
    }

    /// `floe` must fail with `status` and an error that contains `words`.
    pub fn assert_fails(&self, arguments: &[&str], status: i32, words: &[&str]) -> Result<()> {
        let output = self.floe(arguments)?;
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(status),
            "expected exit status {status}, got {}:\n{messages}",
            output.status
        );
        for word in words {
            ensure!(
                messages.contains(word),
                "the error does not say {word:?}:\n{messages}"
            );
        }
        ensure!(!messages.contains("panicked"), "it panicked:\n{messages}");
        Ok(())
    }
}
