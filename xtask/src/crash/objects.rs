//! Crash rounds with objects of the S3 frontend, whose caches stay warm.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::kill::{self, Figures, RATIO_LOSS_MAX, Rounds};
use super::ledger::{Ledger, State};
use super::load::{BUCKET, World};
use super::verdicts::Verdicts;
use crate::blackbox::content;
use crate::blackbox::server::{SMALL_CHUNK, SMALL_ZONE, Server, Setup, log_tail};
use crate::project;

const CHANGING_OBJECTS: usize = 120;
const FIXED_OBJECTS: usize = 48;
/// Fixed objects, 7 MiB together, that fit the flash of every cache.
const RESIDENT_OBJECTS: usize = 34;

/// Every policy runs on a roomy and on a tight cache in turn.
const POLICIES: &[&str] = &["zplru", "clru", "sieve", "fifo"];

/// The fraction of them that must be on flash before a kill; otherwise the measurement is void.
const RESIDENT_RATIO_MIN: f64 = 0.9;

/// Lookups of chunks, by result.
const CHUNKS: &str = "floe_object_chunk_lookups_total";
const HITS: &[&str] = &["result=\"ram\"", "result=\"buffer\"", "result=\"flash\""];
const MISSES: &[&str] = &["result=\"miss\"", "result=\"joined\""];

/// Consistency modes in turn. Only `etag` would detect stale bytes itself: the
/// others show that invalidations survive.
const MODES: &[&str] = &["immutable", "etag", "ttl"];

/// Runs a crash each round on one cache.
pub(super) fn one_cache(rounds: Rounds<'_>, figures: &mut Figures) -> Result<()> {
    let group = rounds.group;
    // Every second cache is too small for the data, so that it evicts during
    // the crash. Its load evicts objects that were read before, so only
    // `flash_survives` can compare hit ratios.
    let roomy = group.is_multiple_of(2);
    let folder = tempfile::Builder::new()
        .prefix("crash-")
        .tempdir_in(project::scratch()?)?;
    let policy = POLICIES[group as usize / 2 % POLICIES.len()];
    let setup = Setup {
        binary: rounds.binary.to_path_buf(),
        data_dir: folder.path().to_path_buf(),
        cache_size: if roomy { "512MiB" } else { "40MiB" }.to_owned(),
        zone_size: SMALL_ZONE,
        chunk_size: SMALL_CHUNK,
        ram_size: "4MiB".to_owned(),
        consistency: MODES[group as usize % MODES.len()],
        more: vec![format!("--chunk-eviction={policy}")],
    };
    let world = new_world(&setup.data_dir, group)?;
    for (round, seed) in rounds.seeds(0) {
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
    let server = Server::start(setup)?;
    world.probe(server.s3, FIXED_OBJECTS)?; // fills the cache
    let before = probe_ratio(world, &server, FIXED_OBJECTS)?;
    let s3 = server.s3;
    let drive = |seed, stop: &_| world.drive(s3, seed, stop);
    let (server, moment) = kill::under_load(setup, server, seed, &world.verdicts, figures, drive)?;
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

/// Kills the server during reads of objects on its flash, and compares hit
/// ratios. There is no RAM tier, because its values are lost in a kill. The
/// reads last longer than slots take to record recency.
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
    let s3 = server.s3;
    let moment = Duration::from_millis(random.random_range(150..400));
    kill::at(server, moment, |_, stop| {
        world.reread(s3, RESIDENT_OBJECTS, stop)
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

/// The hit ratio of chunk lookups while the first `count` fixed objects are read once.
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

/// Writes the fixed objects into the origin's directory.
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
