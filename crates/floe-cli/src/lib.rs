//! The `floe` command: parses arguments, calls the library, prints results and sets exit codes.
//!
//! `floe-lab`, the command of the laboratory, shares the public modules: the
//! frame of the command line, settings and their flags, failures and output.
//!
//! This crate must not depend on the laboratory, or on how a cache works.

#![forbid(unsafe_code)]

mod args;
pub mod cli;
mod command;
pub mod device;
pub mod failure;
mod frontends;
mod logging;
pub mod manual;
mod notify;
pub mod output;
mod panic;
mod reload;
mod ring;
pub mod settings;
pub mod style;
mod version;
mod volumes;

use std::panic::UnwindSafe;
use std::process::ExitCode;

pub use version::{COMMIT, VERSION};

use failure::{Exit, Failure};

/// The `floe` command with the arguments of this process.
pub fn main() -> ExitCode {
    run(|| {
        let schema = settings::schema()?;
        let matches = settings::parse(args::command(&schema));
        command::run(&schema, &matches)
    })
}

/// Runs a command and reports its failure; a panic is a bug.
pub fn run(command: impl FnOnce() -> Result<ExitCode, Failure> + UnwindSafe) -> ExitCode {
    panic::explain();
    match std::panic::catch_unwind(command) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => failure.report(),
        // The panic hook has printed the report.
        Err(_) => Exit::Bug.code(),
    }
}
