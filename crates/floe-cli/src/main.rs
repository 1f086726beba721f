//! The `floe` command: arguments in, library calls, answers and exit codes out.
//!
//! What it refuses to know: how a cache works.

#![forbid(unsafe_code)]

mod args;
mod command;
mod device;
mod faces;
mod failure;
mod logging;
mod notify;
mod output;
mod panic;
mod reload;
mod settings;

use std::process::ExitCode;

fn main() -> ExitCode {
    panic::explain();
    match std::panic::catch_unwind(run) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => failure.report(),
        // The hook has said what happened and how to report it.
        Err(_) => failure::Exit::Bug.code(),
    }
}

fn run() -> Result<ExitCode, failure::Failure> {
    let schema = settings::schema()?;
    let matches = args::command(&schema).get_matches();
    command::run(&schema, &matches)
}
