//! The crash rounds for memcached's items: most are tiny, some are chunks. The
//! cache may forget items, but must not return overwritten or deleted ones.

use std::io;
use std::net::SocketAddr;
use std::slice;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::kill::{self, Figures, RATIO_LOSS_MAX, Rounds};
use super::ledger::{Ledger, Seen, Since, State, Written};
use super::verdicts::Verdicts;
use crate::blackbox::content;
use crate::blackbox::memcached::Client;
use crate::blackbox::server::{SMALL_CHUNK, SMALL_ZONE, Server, Setup, log_tail};
use crate::project;

const FIXED_ITEMS: usize = 24_000;
const CHANGING_ITEMS: usize = 6_000;
const FIXED_BYTES: usize = 300;
/// Pipelined requests when there are no other writers.
const BATCH: usize = 200;
/// Set-groups in memory, which a kill loses.
const SET_GROUPS_IN_MEMORY: usize = 3;

/// The flash for tiny objects and its geometry.
struct Shape {
    name: &'static str,
    size: &'static str,
    zone_size: &'static str,
    set_group_bytes: usize,
    /// All items fit.
    roomy: bool,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "roomy",
        size: "64MiB",
        zone_size: "128KiB",
        set_group_bytes: 128 << 10,
        roomy: true,
    },
    // Set-groups are evicted and zones reused around the crash.
    Shape {
        name: "tight",
        size: "8MiB",
        zone_size: "64KiB",
        set_group_bytes: 64 << 10,
        roomy: false,
    },
];

/// The items of one cache, and their observed states.
pub(crate) struct World {
    /// Written once.
    pub(crate) fixed: Vec<Ledger>,
    /// Written, overwritten and deleted under load.
    pub(crate) changing: Vec<Ledger>,
    pub(crate) verdicts: Verdicts,
    /// A write may end in an error. Then either state is right.
    pub(crate) may_fail: bool,
}

/// The states of the changing items at one moment.
pub(crate) struct Moment(Vec<Since>);

/// Runs a crash each round on one cache.
pub(super) fn one_cache(rounds: Rounds<'_>, figures: &mut Figures) -> Result<()> {
    let group = rounds.group;
    let shape = &SHAPES[group as usize % SHAPES.len()];
    let folder = tempfile::Builder::new()
        .prefix("crash-")
        .tempdir_in(project::scratch()?)?;
    let setup = Setup {
        binary: rounds.binary.to_path_buf(),
        data_dir: folder.path().to_path_buf(),
        cache_size: "40MiB".to_owned(),
        zone_size: SMALL_ZONE,
        chunk_size: SMALL_CHUNK,
        ram_size: "4MiB".to_owned(),
        consistency: "immutable",
        more: vec![
            format!("--tiny-size={}", shape.size),
            format!("--tiny-zone-size={}", shape.zone_size),
            "--tiny-ram-size=256KiB".to_owned(),
        ],
    };
    let world = World::new(group, FIXED_ITEMS, CHANGING_ITEMS);
    for (round, seed) in rounds.seeds(1 << 40) {
        one_round(&setup, shape, &world, seed, figures).with_context(|| {
            format!(
                "round {round} of items ({} flash) failed; the server's last words:\n{}",
                shape.name,
                log_tail(&setup.data_dir)
            )
        })?;
    }
    figures.add(&world.verdicts);
    Ok(())
}

fn one_round(
    setup: &Setup,
    shape: &Shape,
    world: &World,
    seed: u64,
    figures: &mut Figures,
) -> Result<()> {
    let server = Server::start(setup)?;
    world.fill(server.memcached)?;
    let before = world.hits(server.memcached, &world.fixed)?;
    let address = server.memcached;
    let drive = |seed, stop: &_| world.drive(address, seed, stop);
    let (server, moment) = kill::under_load(setup, server, seed, &world.verdicts, figures, drive)?;
    let after = world.hits(server.memcached, &world.fixed)?;
    world.hits(server.memcached, &world.changing)?;
    world.verdicts.truthful()?;
    println!(
        "crash: {} items killed after {moment:?}, restarted in {:?}, hits {:.1} % -> {:.1} %",
        shape.name,
        server.start_time,
        before * 100.0,
        after * 100.0
    );
    if shape.roomy {
        figures.ratio_losses.push((before - after) * 100.0);
        // The items in memory are lost; the others are on flash.
        let in_memory = (SET_GROUPS_IN_MEMORY * shape.set_group_bytes) as f64;
        let allowed = in_memory / (FIXED_ITEMS * FIXED_BYTES) as f64 + RATIO_LOSS_MAX / 100.0;
        if before - after > allowed {
            bail!(
                "the restart was not warm: it lost {:.1} % of the items, and memory held {:.1} % at most",
                (before - after) * 100.0,
                allowed * 100.0
            );
        }
    }
    server.stop()
}

impl World {
    /// Items of the cache number `group` that were never written.
    pub(crate) fn new(group: u32, fixed: usize, changing: usize) -> Self {
        let ledgers = |kind: &str, count: usize| {
            (0..count)
                .map(|index| Ledger::new(format!("{kind}-{group}-{index}"), State::Absent))
                .collect()
        };
        World {
            fixed: ledgers("fixed", fixed),
            changing: ledgers("changing", changing),
            verdicts: Verdicts::default(),
            may_fail: false,
        }
    }

    /// Sets every missing fixed item. These items always have the same value.
    pub(crate) fn fill(&self, address: SocketAddr) -> io::Result<()> {
        let mut client = Client::open(address)?;
        let mut absent = Vec::new();
        for batch in self.fixed.chunks(BATCH) {
            let found = client.get_all(&keys(batch))?;
            absent.extend(
                batch
                    .iter()
                    .zip(found)
                    .filter_map(|(ledger, item)| item.is_none().then_some(ledger)),
            );
        }
        for batch in absent.chunks(BATCH) {
            let items: Vec<_> = batch
                .iter()
                .map(|ledger| (ledger.key(), content(ledger.key(), 1, FIXED_BYTES)))
                .collect();
            for ledger in batch {
                // Every state but the first is this one.
                ledger.write(|_| fixed_state(), |_| Ok::<_, ()>(Written::Done));
            }
            if client.set_all(&items)? < items.len() {
                self.verdicts
                    .lie("a healthy server did not store an item".to_owned());
            }
        }
        Ok(())
    }

    /// The states of now.
    pub(crate) fn moment(&self) -> Moment {
        Moment(self.changing.iter().map(Ledger::begin_read).collect())
    }

    /// Reads and judges every changing item of a cache that has a state since `moment`.
    pub(crate) fn judge_since(&self, address: SocketAddr, moment: &Moment) -> io::Result<()> {
        self.hits_since(address, &self.changing, &moment.0)
            .map(drop)
    }

    /// Reads and judges every item of `ledgers`; returns the fraction found.
    pub(crate) fn hits(&self, address: SocketAddr, ledgers: &[Ledger]) -> io::Result<f64> {
        let since: Vec<_> = ledgers.iter().map(Ledger::begin_read).collect();
        self.hits_since(address, ledgers, &since)
    }

    fn hits_since(
        &self,
        address: SocketAddr,
        ledgers: &[Ledger],
        since: &[Since],
    ) -> io::Result<f64> {
        let mut client = Client::open(address)?;
        let mut hits = 0;
        for (batch, since) in ledgers.chunks(BATCH).zip(since.chunks(BATCH)) {
            match self.read_all(&mut client, batch, since) {
                Ok(found) => hits += found,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    self.verdicts.lie(error.to_string());
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(hits as f64 / ledgers.len() as f64)
    }

    /// One connection's load until `stop` or until the connection breaks.
    pub(crate) fn drive(&self, address: SocketAddr, seed: u64, stop: &AtomicBool) {
        let step = |client: &mut _, random: &mut _| Ok(self.step(client, random)?);
        self.verdicts.drive(Client::open(address), seed, stop, step);
    }

    fn step(&self, client: &mut Client, random: &mut Xoshiro256PlusPlus) -> io::Result<()> {
        let changing = &self.changing[random.random_range(0..self.changing.len())];
        match random.random_range(0..100) {
            0..30 => self.read(client, changing),
            30..40 => self.read(
                client,
                &self.fixed[random.random_range(0..self.fixed.len())],
            ),
            40..75 => self.store("set", client, changing, random_len(random)),
            75..80 => self.store("add", client, changing, random_len(random)),
            80..85 => self.store("replace", client, changing, random_len(random)),
            85..90 => self.compare_and_swap(client, changing, random_len(random)),
            _ => self.delete(client, changing),
        }
    }

    fn read(&self, client: &mut Client, ledger: &Ledger) -> io::Result<()> {
        let since = ledger.begin_read();
        self.read_all(client, slice::from_ref(ledger), &[since])
            .map(drop)
    }

    /// Reads items in one batch and judges the responses by their states `since` a moment;
    /// returns how many were found.
    fn read_all(
        &self,
        client: &mut Client,
        ledgers: &[Ledger],
        since: &[Since],
    ) -> io::Result<usize> {
        let found = client.get_all(&keys(ledgers))?;
        let mut hits = 0;
        for ((ledger, since), item) in ledgers.iter().zip(since).zip(found) {
            if let Some(item) = item {
                ledger
                    .judge(*since, None, &Seen::Bytes(item.bytes))
                    .map_err(lied)?;
                hits += 1;
            }
            // A miss is always allowed.
            self.verdicts.answer_judged();
        }
        Ok(hits)
    }

    fn store(
        &self,
        verb: &str,
        client: &mut Client,
        ledger: &Ledger,
        len: usize,
    ) -> io::Result<()> {
        self.write(
            ledger,
            |version| State::Present { version, len },
            |state| client.store(verb, ledger.key(), &bytes_of(ledger, state), None),
        )
    }

    fn compare_and_swap(&self, client: &mut Client, ledger: &Ledger, len: usize) -> io::Result<()> {
        let Some(seen) = client.get(ledger.key())? else {
            return Ok(());
        };
        let since = ledger.begin_read();
        self.write(
            ledger,
            |version| State::Present { version, len },
            |state| {
                let changed_since = ledger.begin_read() != since;
                let bytes = bytes_of(ledger, state);
                let response = client.store("cas", ledger.key(), &bytes, Some(seen.cas))?;
                if changed_since && response == "STORED" {
                    let key = ledger.key();
                    return Err(lied(format!("{key}: swapped what had been changed since")));
                }
                Ok(response)
            },
        )
    }

    fn delete(&self, client: &mut Client, ledger: &Ledger) -> io::Result<()> {
        self.write(ledger, |_| State::Absent, |_| client.delete(ledger.key()))
    }

    fn write(
        &self,
        ledger: &Ledger,
        state: impl FnOnce(u32) -> State,
        operation: impl FnOnce(State) -> io::Result<String>,
    ) -> io::Result<()> {
        let outcome = ledger.write(state, |state| match operation(state)?.as_str() {
            "STORED" | "DELETED" => Ok(Written::Done),
            "NOT_FOUND" if state == State::Absent => Ok(Written::Done),
            "NOT_STORED" | "EXISTS" | "NOT_FOUND" => Ok(Written::Rejected),
            error if self.may_fail && error.starts_with("SERVER_ERROR") => Ok(Written::Unknown),
            other => Err(lied(format!("{}: answered {other:?}", ledger.key()))),
        });
        if outcome.transpose()? == Some(Written::Done) {
            self.verdicts.write_acknowledged();
        }
        Ok(())
    }
}

fn fixed_state() -> State {
    State::Present {
        version: 1,
        len: FIXED_BYTES,
    }
}

fn bytes_of(ledger: &Ledger, state: State) -> Vec<u8> {
    match state {
        State::Present { version, len } => content(ledger.key(), version, len),
        State::Absent => Vec::new(),
    }
}

fn keys(ledgers: &[Ledger]) -> Vec<&str> {
    ledgers.iter().map(Ledger::key).collect()
}

fn lied(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Mostly tiny, some empty, some chunks.
fn random_len(random: &mut Xoshiro256PlusPlus) -> usize {
    match random.random_range(0..100) {
        0..2 => 0,
        2..70 => random.random_range(1..400),
        70..90 => random.random_range(400..2_000),
        90..98 => random.random_range(2_000..20_000),
        _ => random.random_range(20_000..100_000),
    }
}
