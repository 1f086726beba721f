//! `floe bench`, `floe replay`, `floe report`, `floe trace` and `floe advise`: run `floe-lab`,
//! so that the server links no code of the laboratory.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::LabArgs;
use crate::failure::Failure;

/// The program of the laboratory.
const PROGRAM: &str = "floe-lab";

/// Its package, relative to the root of the repository.
const MANIFEST: &str = "lab/floe-lab/Cargo.toml";

/// Replaces this process with `floe-lab`; returns only on failure.
///
/// Under `cargo run`, cargo builds the program first. Otherwise it is beside
/// this one or on the `PATH`.
pub(super) fn become_lab(subcommand: &str, args: &LabArgs, json: bool) -> Failure {
    let mut command = match manifest() {
        Some(manifest) => under_cargo(&manifest),
        None => Command::new(beside().unwrap_or_else(|| PROGRAM.into())),
    };
    command.args(json.then_some("--json"));
    command.arg(subcommand).args(&args.arguments);
    let error = command.exec();
    let failure = Failure::environment(format!(
        "cannot run `{PROGRAM}`, which implements this command"
    ));
    match error.kind() {
        ErrorKind::NotFound => failure.cure(format!(
            "put `{PROGRAM}` beside `floe` or on the PATH; `cargo build --release --package {PROGRAM}` builds it"
        )),
        _ => failure.because(error),
    }
}

/// The manifest of the laboratory, if `cargo run` started this process.
fn manifest() -> Option<PathBuf> {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let manifest = package.ancestors().nth(2)?.join(MANIFEST);
    (std::env::var_os("CARGO").is_some() && manifest.is_file()).then_some(manifest)
}

fn under_cargo(manifest: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg("run");
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    command.arg("--manifest-path").arg(manifest).arg("--");
    command
}

/// The program in this program's directory.
fn beside() -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    let program = here.parent()?.join(PROGRAM);
    program.is_file().then_some(program)
}
