//! The subcommands.

mod config;
mod evaluate;
mod figures;
mod format;
mod inspect;
mod load;
mod manual;
mod remote;
mod report;
mod serve;
mod workload;

use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches};
use floe::config::Schema;
use tokio::runtime::{Builder, Runtime};

use crate::args::{Action, Cli};
use crate::failure::Failure;

/// Runs what the command line asks for.
///
/// # Errors
/// Why it could not be done.
pub(crate) fn run(schema: &Schema, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let cli = Cli::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    let below = innermost(matches);
    match cli.command {
        Action::Serve(args) => return serve::run(schema, below, &args, cli.json),
        Action::Format(args) => format::run(schema, below, &args, cli.json)?,
        Action::Bench(args) => evaluate::bench(schema, below, &args, cli.json)?,
        Action::Replay(args) => evaluate::replay(schema, below, &args, cli.json)?,
        Action::Report(args) => report::run(&args, cli.json)?,
        Action::Inspect(args) => inspect::run(schema, below, &args, cli.json)?,
        Action::Check(args) => inspect::check(schema, below, &args, cli.json)?,
        Action::Config(action) => config::run(schema, below, action, cli.json)?,
        Action::Completions { shell } => manual::completions(schema, shell)?,
        Action::Man { dir } => manual::pages(schema, dir.as_deref())?,
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

/// A runtime for commands that do one thing after another.
fn small_runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::environment("cannot start the runtime").because(error))
}
