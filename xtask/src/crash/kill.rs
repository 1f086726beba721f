//! Kills the server under load, restarts it, and records the figures.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::verdicts::Verdicts;
use crate::blackbox::server::{Server, Setup};

pub(super) const CONNECTIONS: u64 = 6;

/// Largest loss of the hit ratio in a crash, in points.
pub(super) const RATIO_LOSS_MAX: f64 = 1.0;

/// The measurements of the rounds.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) restart_times: Vec<Duration>,
    pub(super) ratio_losses: Vec<f64>,
    pub(super) judged: u64,
    pub(super) acknowledged: u64,
}

/// The rounds of one cache, and what its seeds derive from.
pub(super) struct Rounds<'a> {
    pub(super) binary: &'a Path,
    pub(super) seed: u64,
    /// The cache's number.
    pub(super) group: u32,
    pub(super) rounds: Range<u32>,
}

impl Rounds<'_> {
    /// The number and the seed of each round. Another `stream` has other seeds.
    pub(super) fn seeds(&self, stream: u64) -> impl Iterator<Item = (u32, u64)> {
        let seed = self.seed.wrapping_mul(1_000_003);
        let seed_of = move |round| seed.wrapping_add(u64::from(round) | stream);
        self.rounds
            .clone()
            .map(move |round| (round, seed_of(round)))
    }
}

impl Figures {
    pub(super) fn add(&mut self, verdicts: &Verdicts) {
        let (judged, acknowledged) = verdicts.counts();
        self.judged += judged;
        self.acknowledged += acknowledged;
    }
}

/// Runs `drive` with a seed per connection, kills the server at a seeded
/// moment, and restarts it. One time in five it is killed again during
/// recovery. Returns the moment too.
pub(super) fn under_load(
    setup: &Setup,
    server: Server,
    seed: u64,
    verdicts: &Verdicts,
    figures: &mut Figures,
    drive: impl Fn(u64, &AtomicBool) + Sync,
) -> Result<(Server, Duration)> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let moment = Duration::from_millis(random.random_range(30..900));
    at(server, moment, |connection, stop| {
        drive(seed.wrapping_mul(31).wrapping_add(connection), stop);
    })?;
    verdicts.truthful()?;

    if random.random_ratio(1, 5) {
        let again = Server::spawn(setup)?;
        thread::sleep(Duration::from_millis(random.random_range(0..60)));
        again.kill()?;
    }
    let server = Server::start(setup)?;
    figures.restart_times.push(server.start_time);
    Ok((server, moment))
}

/// Runs `drive` per connection, kills the server after a while, and waits until
/// all connections have broken.
pub(super) fn at(
    server: Server,
    moment: Duration,
    drive: impl Fn(u64, &AtomicBool) + Sync,
) -> Result<()> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let (drive, stop) = (&drive, &stop);
            scope.spawn(move || drive(connection, stop));
        }
        thread::sleep(moment);
        let killed = server.kill();
        stop.store(true, Ordering::Relaxed);
        killed
    })
}
