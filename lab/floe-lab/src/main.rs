//! The laboratory's command: experiments, traces and reports. `floe bench`,
//! `floe replay`, `floe report`, `floe trace` and `floe advise` run it.

#![forbid(unsafe_code)]

mod advise;
mod args;
mod evaluate;
mod figures;
mod load;
mod outcome;
mod remote;
mod report;
mod trace;
mod volume;
mod workload;

use std::process::ExitCode;

use args::Action;
use clap::FromArgMatches as _;
use floe_cli::cli::Cli;
use floe_cli::failure::Failure;
use floe_cli::{manual, settings};

fn main() -> ExitCode {
    floe_cli::run(run)
}

fn run() -> Result<ExitCode, Failure> {
    let schema = settings::schema()?;
    let matches = settings::parse(args::command(&schema));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let below = matches.subcommand().map_or(&matches, |(_, below)| below);
    match cli.command {
        Action::Bench(args) => evaluate::bench(&schema, below, &args, cli.json)?,
        Action::Replay(args) => evaluate::replay(&schema, below, &args, cli.json)?,
        Action::Report(args) => report::run(&args, cli.json)?,
        Action::Trace(action) => trace::run(&action, cli.json)?,
        Action::Advise(args) => advise::run(&args, cli.json)?,
        Action::Completions { shell } => {
            manual::completions(&mut args::command(&schema), shell)?;
        }
        Action::Man { dir } => manual::pages(args::command(&schema), dir.as_deref())?,
    }
    Ok(ExitCode::SUCCESS)
}
