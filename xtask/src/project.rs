//! Paths of the project, and commands that build and run its programs.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The prefix of a line that reports a skip, in tasks and tests.
pub const SKIPPED: &str = "skipped: ";

/// The result of a task that may be impossible on a machine.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran and passed.
    Passed,
    /// It cannot run here; with the reason.
    Skipped(String),
}

impl Outcome {
    /// Reports a skip on standard error, or fails if `required`.
    pub fn settle(self, task: &str, required: bool) -> Result<()> {
        match self {
            Outcome::Passed => Ok(()),
            Outcome::Skipped(reason) if required => {
                bail!("{task} could not run: {reason}")
            }
            Outcome::Skipped(reason) => {
                eprintln!("{SKIPPED}{task}: {reason}");
                Ok(())
            }
        }
    }
}

/// The workspace's root folder.
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// The directory of xtask's build products and virtual environments.
pub fn scratch() -> Result<PathBuf> {
    let folder = target_dir().join("xtask");
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

/// Cargo's target folder.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(set) => root().join(set),
        None => root().join("target"),
    }
}

/// The cargo that runs this task.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs `command`; a status other than 0 is an error that names it.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("could not start {}", shown(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", shown(command));
    }
    Ok(())
}

/// The standard output of `command`; an error carries its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("could not start {}", shown(command)))?;
    if !output.status.success() {
        bail!(
            "{} failed: {}\n{}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// True if `program --version` succeeds.
pub fn available(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn shown(command: &Command) -> impl Display {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    format!("`{}`", words.join(" "))
}

/// The last part of a path.
pub fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
