//! `cargo xtask crash`: kills the real server under a real load.
//!
//! Each round starts the server on the data of the round before, runs a mixed
//! load from several connections, kills the server at a seeded moment and
//! restarts it. It then checks the law: no wrong byte, nothing overwritten or
//! deleted returns, and cached values are still cached. Volumes keep every
//! acknowledged write, also when connections die.

pub(crate) mod items;
mod kill;
mod ledger;
mod load;
mod objects;
mod verdicts;
mod volumes;

use std::path::{Path, PathBuf};

use anyhow::Result;

use self::kill::{Figures, Rounds};
use crate::built::{self, Profile};

/// The rounds to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Number of kills.
    #[arg(long, default_value_t = 50)]
    pub rounds: u32,
    /// Seed of the load and the moments.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Only through this frontend; otherwise through each in turn.
    #[arg(long)]
    pub frontend: Option<Frontend>,
    /// Use the debug build.
    #[arg(long)]
    pub debug: bool,
    /// Use this binary instead of building one.
    #[arg(long)]
    pub binary: Option<PathBuf>,
}

/// The protocol of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Frontend {
    /// Objects, read through from an origin.
    S3,
    /// Items, tiny ones and others.
    Memcached,
    /// Blocks of volumes, write-back and write-through in turn.
    Nbd,
}

/// Crashes of one cache before the next one starts empty: with many rounds,
/// enough caches for every policy.
fn rounds_per_cache(rounds: u32) -> u32 {
    (rounds / 10).clamp(2, 5)
}

/// Runs the rounds until the first violation.
pub fn run(options: &Options) -> Result<()> {
    let binary = match &options.binary {
        Some(given) => given.clone(),
        None => built::build_floe(Profile::from_flag(options.debug))?,
    };
    for frontend in [Frontend::S3, Frontend::Memcached, Frontend::Nbd] {
        if options.frontend.is_none_or(|only| only == frontend) {
            rounds(&binary, options, frontend)?;
        }
    }
    Ok(())
}

/// Runs the rounds of one frontend and prints the results.
fn rounds(binary: &Path, options: &Options, frontend: Frontend) -> Result<()> {
    let mut figures = Figures::default();
    let mut round = 0;
    let mut group = 0;
    while round < options.rounds {
        let rounds = round..options.rounds.min(round + rounds_per_cache(options.rounds));
        round = rounds.end;
        let one_cache = match frontend {
            Frontend::S3 => objects::one_cache,
            Frontend::Memcached => items::one_cache,
            Frontend::Nbd => volumes::one_cache,
        };
        let rounds = Rounds {
            binary,
            seed: options.seed,
            group,
            rounds,
        };
        one_cache(rounds, &mut figures)?;
        group += 1;
    }
    figures.restart_times.sort();
    let median = figures.restart_times[figures.restart_times.len() / 2];
    let slowest = figures.restart_times[figures.restart_times.len() - 1];
    let worst = figures.ratio_losses.iter().copied().reduce(f64::max);
    let hits = worst.map_or(String::new(), |points| {
        format!("; hit ratio fell by {points:.2} points at most")
    });
    println!(
        "crash: {frontend:?}: {} rounds, {} answers judged, {} writes acknowledged, no lie; restart \
         {median:?} median, {slowest:?} slowest{hits}",
        options.rounds, figures.judged, figures.acknowledged
    );
    Ok(())
}
