//! The frame of a command line, which `floe` and `floe-lab` share.

use clap::{Parser, Subcommand};

/// One of the subcommands `A`, and the form of its result.
#[derive(Debug, Parser)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli<A: Subcommand> {
    /// Print the result as JSON on standard output
    #[arg(long, global = true)]
    pub json: bool,
    /// The subcommand.
    #[command(subcommand)]
    pub command: A,
}
