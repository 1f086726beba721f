//! `cargo xtask crash`: the real server, a real load, `kill -9`.
//!
//! Each round starts the server on the data of the round before, runs a mixed
//! load from several connections, kills the server at a seeded moment, starts
//! it again and checks that it tells the truth: no wrong byte, nothing
//! overwritten or deleted returns, and what was cached still is.

mod items;
mod ledger;
mod load;
mod verdicts;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use self::ledger::{Ledger, State};
use self::load::{BUCKET, World};
use self::verdicts::Verdicts;
use crate::blackbox::content;
use crate::blackbox::server::{SMALL_CHUNK, SMALL_ZONE, Server, Setup, log_tail};
use crate::project::{self, Profile};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How many times the server is killed.
    #[arg(long, default_value_t = 50)]
    pub rounds: u32,
    /// Chooses the load and the moments.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Only through this frontend; otherwise through one after the other.
    #[arg(long)]
    pub frontend: Option<Frontend>,
    /// Use the debug build.
    #[arg(long)]
    pub debug: bool,
    /// Use this binary instead of building one.
    #[arg(long)]
    pub binary: Option<PathBuf>,
}

/// What the load speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Frontend {
    /// Objects, read through from an origin.
    S3,
    /// Items, tiny ones and others.
    Memcached,
}

const CONNECTIONS: u64 = 6;
const CHANGING_OBJECTS: usize = 120;
const FIXED_OBJECTS: usize = 48;
/// So many of the fixed objects, 7 MiB, have room on the flash of every cache.
const RESIDENT_OBJECTS: usize = 34;

/// Every policy runs on a roomy and on a tight cache in turn.
const POLICIES: &[&str] = &["zplru", "clru", "sieve", "fifo"];

/// Crashes that one cache lives through before the next begins with an empty
/// one: enough caches for every policy where there are many rounds.
fn rounds_per_cache(rounds: u32) -> u32 {
    (rounds / 10).clamp(2, 5)
}

/// The share of those that must be on flash before a kill, or nothing is measured.
const RESIDENT_RATIO_MIN: f64 = 0.9;

/// How far the hit ratio may fall over a crash, in points.
const RATIO_LOSS_MAX: f64 = 1.0;

/// Lookups of chunks, by result.
const CHUNKS: &str = "floe_object_chunk_lookups_total";
const HITS: &[&str] = &["result=\"ram\"", "result=\"buffer\"", "result=\"flash\""];
const MISSES: &[&str] = &["result=\"miss\"", "result=\"joined\""];

/// Consistency modes in turn. Only `etag` would notice stale bytes by itself:
/// the others show that invalidations survive.
const MODES: &[&str] = &["immutable", "etag", "ttl"];

/// What the rounds measured.
#[derive(Default)]
struct Figures {
    restart_times: Vec<Duration>,
    ratio_losses: Vec<f64>,
    judged: u64,
    acknowledged: u64,
}

impl Figures {
    fn add(&mut self, verdicts: &Verdicts) {
        let (judged, acknowledged) = verdicts.counts();
        self.judged += judged;
        self.acknowledged += acknowledged;
    }
}

/// Runs the rounds; the first broken promise fails.
pub fn run(options: &Options) -> Result<()> {
    let binary = match &options.binary {
        Some(given) => given.clone(),
        None => project::build_floe(Profile::from_flag(options.debug))?,
    };
    for frontend in [Frontend::S3, Frontend::Memcached] {
        if options.frontend.is_none_or(|only| only == frontend) {
            rounds(&binary, options, frontend)?;
        }
    }
    Ok(())
}

/// Runs the rounds of one frontend and says what they showed.
fn rounds(binary: &Path, options: &Options, frontend: Frontend) -> Result<()> {
    let mut figures = Figures::default();
    let mut round = 0;
    let mut group = 0;
    while round < options.rounds {
        let rounds = round..options.rounds.min(round + rounds_per_cache(options.rounds));
        round = rounds.end;
        match frontend {
            Frontend::S3 => one_cache(binary, options.seed, group, rounds, &mut figures)?,
            Frontend::Memcached => {
                items::one_cache(binary, options.seed, group, rounds, &mut figures)?
            }
        }
        group += 1;
    }
    figures.restart_times.sort();
    let median = figures.restart_times[figures.restart_times.len() / 2];
    let slowest = figures.restart_times[figures.restart_times.len() - 1];
    let worst = figures.ratio_losses.iter().copied().fold(0.0, f64::max);
    println!(
        "crash: {frontend:?}: {} rounds, {} answers judged, {} writes acknowledged, no lie; restart \
         {median:?} median, {slowest:?} slowest; hit ratio fell by {worst:.2} points at most",
        options.rounds, figures.judged, figures.acknowledged
    );
    Ok(())
}

/// Lives through `rounds` crashes with one cache.
fn one_cache(
    binary: &Path,
    seed: u64,
    group: u32,
    rounds: std::ops::Range<u32>,
    figures: &mut Figures,
) -> Result<()> {
    // Every second cache is too small for the data, so that eviction runs
    // while the crash comes; there the load itself pushes out what was read
    // before, so only `flash_survives` can compare.
    let roomy = group.is_multiple_of(2);
    let folder = tempfile::Builder::new()
        .prefix("crash-")
        .tempdir_in(project::scratch()?)?;
    let policy = POLICIES[group as usize / 2 % POLICIES.len()];
    let setup = Setup {
        binary: binary.to_path_buf(),
        data_dir: folder.path().to_path_buf(),
        cache_size: if roomy { "512MiB" } else { "40MiB" }.to_owned(),
        zone_size: SMALL_ZONE,
        chunk_size: SMALL_CHUNK,
        ram_size: "4MiB".to_owned(),
        consistency: MODES[group as usize % MODES.len()],
        more: vec![format!("--chunk-eviction={policy}")],
    };
    let world = new_world(&setup.data_dir, group)?;
    for round in rounds {
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(u64::from(round));
        one_round(&setup, &world, seed, roomy, figures).with_context(|| {
            format!(
                "round {round} ({} cache, {policy}, consistency {}) failed; the server's last words:\n{}",
                if roomy { "roomy" } else { "tight" },
                setup.consistency,
                log_tail(&setup.data_dir)
            )
        })?;
    }
    figures.add(&world.verdicts);
    Ok(())
}

fn one_round(
    setup: &Setup,
    world: &World,
    seed: u64,
    roomy: bool,
    figures: &mut Figures,
) -> Result<()> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let server = Server::start(setup)?;
    world.probe(server.s3, FIXED_OBJECTS)?; // fills the cache
    let before = probe_ratio(world, &server, FIXED_OBJECTS)?;
    let moment = Duration::from_millis(random.random_range(30..900));
    let s3 = server.s3;
    load_until_killed(server, seed, moment, |seed, stop| {
        world.drive(s3, seed, stop);
    })?;
    world.verdicts.truthful()?;

    sometimes_killed_again(setup, &mut random)?;
    let server = Server::start(setup)?;
    figures.restart_times.push(server.start_time);
    let after = probe_ratio(world, &server, FIXED_OBJECTS)?;
    world.verify(server.s3)?;
    world.verdicts.truthful()?;
    let loss = (before - after) * 100.0;
    println!(
        "crash: killed after {moment:?}, restarted in {:?}, hit ratio {:.1} % -> {:.1} %",
        server.start_time,
        before * 100.0,
        after * 100.0
    );
    if roomy {
        if loss > RATIO_LOSS_MAX {
            bail!("the restart was not warm: the hit ratio fell by {loss:.2} points");
        }
        figures.ratio_losses.push(loss);
    }
    server.stop()?;
    flash_survives(setup, world, seed, figures)
}

/// One time in five the server dies once more, while it recovers.
fn sometimes_killed_again(setup: &Setup, random: &mut Xoshiro256PlusPlus) -> Result<()> {
    if random.random_ratio(1, 5) {
        let again = Server::spawn(setup)?;
        thread::sleep(Duration::from_millis(random.random_range(0..60)));
        again.kill()?;
    }
    Ok(())
}

/// Runs `drive` with a seed for each connection, kills the server at `moment`,
/// and waits for every connection to notice.
fn load_until_killed(
    server: Server,
    seed: u64,
    moment: Duration,
    drive: impl Fn(u64, &AtomicBool) + Sync,
) -> Result<()> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let (drive, stop) = (&drive, &stop);
            let seed = seed.wrapping_mul(31).wrapping_add(connection);
            scope.spawn(move || drive(seed, stop));
        }
        thread::sleep(moment);
        let killed = server.kill();
        stop.store(true, Ordering::Relaxed);
        killed
    })
}

/// Kills the server while only what lies on its flash is read, and compares.
/// Without a RAM tier, because what was only there is rightly gone. The reading
/// goes on longer than caches of slots take to note what was used.
fn flash_survives(setup: &Setup, world: &World, seed: u64, figures: &mut Figures) -> Result<()> {
    let setup = Setup {
        ram_size: "0".to_owned(),
        ..setup.clone()
    };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
    let server = Server::start(&setup)?;
    for _ in 0..2 {
        world.probe(server.s3, RESIDENT_OBJECTS)?; // brings them onto flash
    }
    let before = probe_ratio(world, &server, RESIDENT_OBJECTS)?;
    if before < RESIDENT_RATIO_MIN {
        bail!(
            "only {:.1} % of what should fit the flash is there",
            before * 100.0
        );
    }
    let (stop, s3) = (AtomicBool::new(false), server.s3);
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| world.reread(s3, RESIDENT_OBJECTS, &stop));
        }
        thread::sleep(Duration::from_millis(random.random_range(150..400)));
        let killed = server.kill();
        stop.store(true, Ordering::Relaxed);
        killed
    })?;
    let server = Server::start(&setup)?;
    figures.restart_times.push(server.start_time);
    let after = probe_ratio(world, &server, RESIDENT_OBJECTS)?;
    world.verdicts.truthful()?;
    let loss = (before - after) * 100.0;
    println!(
        "crash: on flash before a kill {:.1} %, after it {:.1} %",
        before * 100.0,
        after * 100.0
    );
    if loss > RATIO_LOSS_MAX {
        bail!("the restart lost flash: the hit ratio fell by {loss:.2} points");
    }
    figures.ratio_losses.push(loss);
    server.stop()
}

/// The share of chunk lookups that hit while the first `count` fixed objects are read once.
fn probe_ratio(world: &World, server: &Server, count: usize) -> Result<f64> {
    let counts = || anyhow::Ok((server.metric(CHUNKS, HITS)?, server.metric(CHUNKS, MISSES)?));
    let (hits_before, misses_before) = counts()?;
    world.probe(server.s3, count)?;
    let (hits, misses) = counts()?;
    let (hits, misses) = (hits - hits_before, misses - misses_before);
    if hits + misses == 0.0 {
        bail!("reading every fixed object did not move {CHUNKS}");
    }
    Ok(hits / (hits + misses))
}

/// Writes the fixed objects into the origin's folder.
fn new_world(data_dir: &Path, group: u32) -> Result<World> {
    let bucket = data_dir.join("origin").join(BUCKET);
    fs::create_dir_all(&bucket).with_context(|| format!("creating {}", bucket.display()))?;
    let mut fixed = Vec::new();
    for index in 0..FIXED_OBJECTS {
        let key = format!("fixed-{group}-{index}");
        let len = 100_000 + index * 9_973;
        fs::write(bucket.join(&key), content(&key, 0, len))?;
        fixed.push(Ledger::new(key, State::Present { version: 0, len }));
    }
    let changing = (0..CHANGING_OBJECTS)
        .map(|index| Ledger::new(format!("changing-{group}-{index}"), State::Absent))
        .collect();
    Ok(World {
        fixed,
        changing,
        verdicts: Verdicts::default(),
    })
}
