//! The crash rounds for volumes over NBD: no acknowledged write is lost, whether the
//! server or a connection dies, and no write of either lands later.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::kill::{self, CONNECTIONS, Figures, Rounds};
use super::verdicts::{Stop, Verdicts};
use crate::blackbox::nbd::Endpoint;
use crate::blackbox::scenario::Place;
use crate::blackbox::sectors::SECTOR_BYTES;
use crate::blackbox::server::{Server, Setup, log_tail, volume_flags};
use crate::blackbox::volume_load::Part;
use crate::project;

/// Twice the cache, so that it evicts and cleans.
const VOLUME_SECTORS: u64 = (24 << 20) / SECTOR_BYTES as u64;
const CACHE_SIZE: &str = "12MiB";

const WRITE_BACK: &str = "write-back";
const WRITE_THROUGH: &str = "write-through";

/// A volume and its load.
struct World {
    mode: &'static str,
    backing: PathBuf,
    /// One part for each connection.
    parts: Vec<Mutex<Part>>,
    verdicts: Verdicts,
}

/// Kills the server and all connections each round on one volume.
pub(super) fn one_cache(rounds: Rounds<'_>, figures: &mut Figures) -> Result<()> {
    let mode = match rounds.group.is_multiple_of(2) {
        true => WRITE_BACK,
        false => WRITE_THROUGH,
    };
    let folder = tempfile::Builder::new()
        .prefix("crash-")
        .tempdir_in(project::scratch()?)?;
    let world = World::new(folder.path(), mode)?;
    let place = Place {
        binary: rounds.binary.to_path_buf(),
        folder: folder.path().to_path_buf(),
    };
    let setup = place.setup(volume_flags(&world.backing, mode, CACHE_SIZE));
    for (round, seed) in rounds.seeds(1 << 41) {
        one_round(&setup, &world, seed, figures).with_context(|| {
            format!(
                "round {round} of a {mode} volume failed; run with --seed {}; the server's last words:\n{}",
                rounds.seed,
                log_tail(&setup.data_dir)
            )
        })?;
    }
    let mut flushes = 0;
    for part in &world.parts {
        let counts = lock(part).counts;
        ensure!(counts.errors == 0, "{} requests failed", counts.errors);
        figures.judged += counts.judged;
        figures.acknowledged += counts.writes;
        flushes += counts.flushes;
    }
    println!("crash: {mode} volume: {flushes} flushes acknowledged");
    Ok(())
}

fn one_round(setup: &Setup, world: &World, seed: u64, figures: &mut Figures) -> Result<()> {
    let server = Server::start(setup)?;
    let drive = |seed, stop: &_| world.drive(seed, stop);
    let (server, moment) = kill::under_load(setup, server, seed, &world.verdicts, figures, drive)?;
    world.verify().context("after the server died")?;
    world.break_connections(seed)?;
    world.verify().context("after connections died")?;
    println!(
        "crash: {} volume killed after {moment:?}, restarted in {:?}, {CONNECTIONS} connections broken off twice",
        world.mode, server.start_time
    );
    match seed.is_multiple_of(2) {
        true => server.stop(),
        false => server.kill(),
    }
}

impl World {
    /// A volume whose backing file is a new one in `folder`.
    fn new(folder: &Path, mode: &'static str) -> Result<Self> {
        let backing = folder.join("backing");
        fs::File::create(&backing)?.set_len(VOLUME_SECTORS * SECTOR_BYTES as u64)?;
        let sectors = VOLUME_SECTORS / CONNECTIONS;
        let part = |number| {
            let sectors = number * sectors..(number + 1) * sectors;
            Mutex::new(Part::new(Endpoint::Unix(folder.join("nbd.sock")), sectors))
        };
        Ok(World {
            mode,
            backing,
            parts: (0..CONNECTIONS).map(part).collect(),
            verdicts: Verdicts::default(),
        })
    }

    /// One connection's load until `stop` or until the connection breaks. The seeds of
    /// a round's connections are consecutive.
    fn drive(&self, seed: u64, stop: &AtomicBool) {
        let mut part = lock(&self.parts[(seed % CONNECTIONS) as usize]);
        let client = part.connect();
        let step = |client: &mut _, random: &mut _| part.step(client, random).map_err(Stop::from);
        self.verdicts.drive(client, seed, stop, step);
    }

    /// Breaks every connection off twice while its requests are in flight. The next one
    /// takes over at once.
    fn break_connections(&self, seed: u64) -> Result<()> {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..)
                .zip(&self.parts)
                .map(|(number, part)| {
                    let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed ^ number);
                    scope.spawn(move || {
                        let mut part = lock(part);
                        for _ in 0..2 {
                            let mut client = part.connect()?;
                            part.take_over(&mut client, &mut random)?;
                            for _ in 0..random.random_range(1..80) {
                                part.step(&mut client, &mut random)?;
                            }
                            part.break_off(client, &mut random);
                        }
                        let mut client = part.connect()?;
                        part.take_over(&mut client, &mut random)
                    })
                })
                .collect();
            for thread in threads {
                let ended = thread.join();
                ended.map_err(|_| anyhow::anyhow!("a thread of the load panicked"))??;
            }
            Ok(())
        })
    }

    /// Judges every sector, and the backing file if it must have all.
    fn verify(&self) -> Result<()> {
        for part in &self.parts {
            lock(part).verify()?;
        }
        if self.mode == WRITE_THROUGH {
            let bytes = fs::read(&self.backing)?;
            for part in &self.parts {
                let found = lock(part).compare(&bytes);
                found
                    .map_err(anyhow::Error::msg)
                    .context("the backing file")?;
            }
        }
        self.verdicts.truthful()
    }
}

/// A panicking thread fails the run where it is joined.
fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}
