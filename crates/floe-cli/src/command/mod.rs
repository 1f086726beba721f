//! The subcommands.

mod announcement;
mod cache;
mod config;
mod control;
mod device;
mod format;
mod inspect;
mod inspect_volumes;
mod inspection;
mod lab;
mod memory;
mod ring;
mod runtime;
mod serve;
mod status;
mod volume;

use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches};
use floe::config::Schema;

use crate::args::{self, Action};
use crate::cli::Cli;
use crate::failure::Failure;
use crate::manual;

/// Runs the subcommand.
///
/// # Errors
/// The subcommand's failure.
pub(crate) fn run(schema: &Schema, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let cli = Cli::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    let below = innermost(matches);
    match cli.command {
        Action::Serve(args) => return serve::run(schema, below, &args, cli.json),
        Action::Format(args) => format::run(schema, below, &args, cli.json)?,
        Action::Bench(args) => return Err(lab::become_lab("bench", &args, cli.json)),
        Action::Replay(args) => return Err(lab::become_lab("replay", &args, cli.json)),
        Action::Report(args) => return Err(lab::become_lab("report", &args, cli.json)),
        Action::Trace(args) => return Err(lab::become_lab("trace", &args, cli.json)),
        Action::Advise(args) => return Err(lab::become_lab("advise", &args, cli.json)),
        Action::Inspect(args) => inspect::run(schema, below, &args, cli.json)?,
        Action::Check(args) => inspect::check(schema, below, &args, cli.json)?,
        Action::Device(action) => device::run(&action, cli.json)?,
        Action::Cache(action) => {
            cache::run(&control::Client::of(schema, below)?, &action, cli.json)?;
        }
        Action::Volume(action) => volume::run(schema, below, &action, cli.json)?,
        Action::Ring(action) => return ring::run(&action, cli.json),
        Action::Status(args) => return status::run(schema, below, &args, cli.json),
        Action::Config(action) => config::run(schema, below, action, cli.json)?,
        Action::Completions { shell } => manual::completions(&mut args::command(schema), shell)?,
        Action::Man { dir } => manual::pages(args::command(schema), dir.as_deref())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The arguments of the innermost subcommand.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    match matches.subcommand() {
        Some((_, below)) => innermost(below),
        None => matches,
    }
}
