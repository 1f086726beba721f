//! The log alone, with numbers as records, on faulty media.
//!
//! Each run is a sequence of lives. A life sends groups of numbers in order, and
//! is cut at a random operation. The next life must find every live number of
//! the acknowledged groups, in order and once, and no number that was never
//! sent. Numbers may be missing only if a block of the log is rotten. Then the
//! log must detect the loss, except of a last block without its second copy.

mod flash;
mod waiters;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use floe_core::chunk::Durability;
use floe_core::hash::HashSeed;
use floe_core::layout::{
    CacheId, FormatPlan, JournalChain, JournalRecord, LayoutError, Structure, Superblock,
    ZoneLayout,
};
use floe_core::{Address, Geometry};
use floe_device::power::PowerSwitch;
use floe_device::sim_media::WriteCache;
use floe_device::{
    ByteSize, Clock, DeviceConfig, FileDevice, MemoryDevice, SharedDevice, SimDevice, virtual_time,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::JoinHandle;

use super::keeper::{QUIET_TIME, TICK};
use super::start::start;
use super::zones::Log;
use super::*;
use crate::error::CacheError;
use flash::{Change, Faults, Flash, Rates};

/// A number is live until so many newer ones were sent: a checkpoint of a few blocks.
const COUNTED: u64 = 700;

const ZONE: u64 = 96 << 10;

const BLOCK: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Toy {
    Number(u64),
    End(u64),
}

impl JournalRecord for Toy {
    const BLOCK: Structure = Structure::Journal;

    fn encoded_bytes(&self) -> usize {
        16
    }

    fn encode(&self, out: &mut [u8]) -> Result<(), LayoutError> {
        let (kind, value) = match *self {
            Toy::Number(number) => (1, number),
            Toy::End(count) => (2, count),
        };
        out[0] = kind;
        out[8..16].copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (record, rest) = bytes.split_first_chunk::<16>()?;
        let value = u64::from_le_bytes(*record.last_chunk()?);
        match record[0] {
            1 => Some((Toy::Number(value), rest)),
            2 => Some((Toy::End(value), rest)),
            _ => None,
        }
    }

    fn checkpoint_end(records: u64) -> Self {
        Toy::End(records)
    }

    fn as_checkpoint_end(&self) -> Option<u64> {
        match *self {
            Toy::End(count) => Some(count),
            Toy::Number(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct ToySuperblock(Superblock);

impl LogSuperblock for ToySuperblock {
    type Record = Toy;

    fn encode(&self, out: &mut [u8]) -> Result<usize, LayoutError> {
        self.0.encode(out)
    }

    fn decode(bytes: &[u8]) -> Result<Self, LayoutError> {
        Superblock::decode(bytes).map(ToySuperblock)
    }

    fn chain(&self) -> JournalChain {
        JournalChain::new(self.0.id, self.0.epoch)
    }

    fn with_epoch(self, epoch: u64) -> Self {
        ToySuperblock(Superblock { epoch, ..self.0 })
    }
}

/// A number that no log can write.
const PANICS: u64 = u64::MAX;

/// The live numbers, in memory or read back: the engines do both.
struct Numbers<const IN_MEMORY: bool> {
    live: Vec<u64>,
    newest: u64,
}

impl<const IN_MEMORY: bool> Contents for Numbers<IN_MEMORY> {
    type Superblock = ToySuperblock;
    type Entry = u64;
    type Entries = Vec<u64>;

    const READS_BACK: bool = !IN_MEMORY;
    const FAILS_FOR_GOOD: bool = IN_MEMORY;

    fn record(number: &u64) -> Toy {
        Toy::Number(*number)
    }

    fn stands_alone(_: &u64) -> bool {
        IN_MEMORY
    }

    fn begun(&mut self, _: u64) {}

    fn gather(&mut self, numbers: &mut Vec<u64>) {
        assert!(!numbers.contains(&PANICS), "as a test wants it");
        self.newest = numbers.last().map_or(self.newest, |newest| *newest);
        self.live.extend(&*numbers);
    }

    fn live(&mut self, written: Vec<Toy>) -> impl IntoIterator<Item = Toy, IntoIter: Send> + Send {
        let live = match IN_MEMORY {
            true => self.live.clone(),
            false => numbers(&written),
        };
        let newest = self.newest;
        live.into_iter()
            .filter(move |number| number + COUNTED > newest)
            .map(Toy::Number)
    }

    fn written(&mut self, _: &[u64], _: &Result<Written, LogError>) {}
}

fn numbers(records: &[Toy]) -> Vec<u64> {
    let number = |record: &Toy| match record {
        Toy::Number(number) => Some(*number),
        Toy::End(_) => None,
    };
    records.iter().filter_map(number).collect()
}

/// The medium of the log.
enum Medium {
    /// In memory; the power can be cut.
    Power(PowerSwitch),
    File(PathBuf),
}

impl Medium {
    fn reopen(&self) -> SharedDevice {
        match self {
            Medium::Power(power) => power.reopen(),
            Medium::File(path) => {
                let config = DeviceConfig {
                    zone_size: Some(ByteSize(ZONE)),
                    max_append: ByteSize(APPEND),
                    ..DeviceConfig::file(path, ByteSize(4 * ZONE))
                };
                Arc::new(FileDevice::open(&config).expect("opens"))
            }
        }
    }
}

/// Shorter than some groups.
const APPEND: u64 = 2 * BLOCK;

/// The ends of lives and the faults in them.
#[derive(Clone, Copy, Debug)]
struct Lives {
    durability: Durability,
    /// Lives end with a power loss, not only the end of the process.
    power_loss: bool,
    rates: Rates,
    /// A block rots between two lives, or an append is lost.
    rots: bool,
    in_memory: bool,
}

const QUIET: Lives = Lives {
    durability: Durability::Power,
    power_loss: true,
    rates: Rates {
        appends: 0.0,
        resets: 0.0,
        flushes: 0.0,
    },
    rots: false,
    in_memory: false,
};

const FAULTY: Rates = Rates {
    appends: 0.03,
    resets: 0.05,
    flushes: 0.05,
};

/// Lives that ended with a rotten block.
#[derive(Debug, Default)]
struct Counts {
    rotten: u64,
    /// Of those, with all live numbers.
    whole: u64,
    forgot: u64,
}

/// A sequence of lives.
struct Run {
    medium: Medium,
    clock: Clock,
    lives: Lives,
    faults: Arc<Mutex<Faults>>,
    random: StdRng,
    /// The last number that was sent.
    sent: u64,
    acknowledged: BTreeSet<u64>,
    /// The first number of the last acknowledged groups, whose block may have no
    /// second copy: no quiet time followed.
    single_from: u64,
    /// A log was begun before.
    is_formatted: bool,
    counts: Counts,
}

impl Run {
    fn new(medium: Medium, clock: Clock, lives: Lives, seed: u64) -> Self {
        Run {
            medium,
            clock,
            lives,
            faults: Arc::new(Mutex::new(Faults::new(seed))),
            random: StdRng::seed_from_u64(seed),
            sent: 0,
            acknowledged: BTreeSet::new(),
            single_from: u64::MAX,
            is_formatted: false,
            counts: Counts::default(),
        }
    }

    async fn run(mut self) -> Counts {
        for _ in 0..6 {
            let device = Flash::over(self.medium.reopen(), &self.faults);
            if self.lives.rots && !self.faults.lock().is_rotten() && self.random.random() {
                self.rot(&device).await;
            }
            self.life(device).await;
            let loses_power = self.lives.power_loss && self.random.random_bool(0.9);
            if let Medium::Power(power) = &self.medium
                && loses_power
            {
                power.crash(self.random.random());
            }
            self.faults.lock().restart(loses_power);
        }
        self.counts
    }

    /// Makes one block that is not blank rotten, often the last.
    async fn rot(&mut self, device: &SharedDevice) {
        let mut blocks = Vec::new();
        for zone in METADATA {
            for offset in (0..device.geometry().zone_capacity).step_by(BLOCK as usize) {
                let at = Address::new(zone, offset);
                let read = device.read(at, device.allocate(BLOCK as usize)).await;
                if read.expect("reads").iter().any(|byte| *byte != 0) {
                    blocks.push(at);
                }
            }
        }
        let last = blocks.iter().max_by_key(|at| at.offset);
        let chosen = match self.random.random() {
            true => last,
            false => blocks.choose(&mut self.random),
        };
        let changes = [Change::Flip, Change::Zeros, Change::Garbage];
        let change = *changes.choose(&mut self.random).expect("some");
        if let Some(at) = chosen {
            self.faults.lock().rot(*at, BLOCK, change);
        }
    }

    async fn life(&mut self, device: SharedDevice) {
        let found = match superblocks::<ToySuperblock>(&device).await {
            Ok(superblocks) => newest(&device, superblocks).await.expect("reads"),
            // The only superblock is garbage: an engine opens it only to format it.
            Err(FindError::Foreign(_)) => None,
            Err(error) => panic!("{error:?}"),
        };
        let live = self.check(found.as_ref());
        {
            let mut faults = self.faults.lock();
            faults.rates = self.lives.rates;
            faults.cut_after = Some(self.random.random_range(1..70));
            if self.lives.rots && !faults.is_rotten() && self.random.random() {
                faults.lost_append = Some(self.random.random_range(1..30));
            }
        }
        let (zone, superblock) = match &found {
            Some(found) => {
                let superblock = found.superblock.with_epoch(found.epoch_max + 1);
                (other(found.zone), superblock)
            }
            None => {
                let id = CacheId(self.random.random());
                (METADATA[0], superblock(device.geometry(), id))
            }
        };
        if found.is_none() && device.reset(METADATA[1]).await.is_err() {
            return;
        }
        let records = live.iter().copied().map(Toy::Number);
        let log = Log::begin(device, self.lives.durability, superblock, zone, records).await;
        let Ok(log) = log else {
            return;
        };
        self.is_formatted = true;
        // The next life must find all of these.
        self.acknowledged = live.iter().copied().collect();
        self.single_from = u64::MAX;
        let newest = self.sent;
        match self.lives.in_memory {
            true => self.send(log, Numbers::<true> { live, newest }).await,
            false => self.send(log, Numbers::<false> { live, newest }).await,
        }
    }

    /// Compares the found numbers with the acknowledged ones. Returns the live ones.
    fn check(&mut self, found: Option<&Found<ToySuperblock>>) -> Vec<u64> {
        let is_rotten = self.faults.lock().is_rotten();
        let knows_loss = found.is_none_or(|found| found.damaged);
        self.counts.rotten += u64::from(is_rotten);
        self.counts.whole += u64::from(is_rotten && !knows_loss);
        self.counts.forgot += u64::from(is_rotten && knows_loss);
        if knows_loss {
            assert!(is_rotten || !self.is_formatted, "it forgets: {found:?}");
            self.acknowledged.clear();
            self.is_formatted = false;
            return Vec::new();
        }
        let records = found.map_or(&[][..], |found| &found.records);
        let live = numbers(records);
        assert!(live.is_sorted_by(|a, b| a < b), "{live:?}");
        assert!(live.last().is_none_or(|last| *last <= self.sent));
        let counted = self.sent.saturating_sub(COUNTED) + 1;
        for number in self.acknowledged.range(counted..) {
            let had_one_copy = is_rotten && *number >= self.single_from;
            let is_found = live.binary_search(number).is_ok();
            assert!(is_found || had_one_copy, "{number} is lost");
        }
        // The next life expects no number that a rotten block lost, even if this life ends before
        // its own log has begun.
        self.acknowledged
            .retain(|number| *number < counted || live.binary_search(number).is_ok());
        live
    }

    /// Sends groups until the device fails.
    async fn send<const M: bool>(&mut self, log: Log<ToySuperblock>, numbers: Numbers<M>) {
        let (queue, task) = start(log, numbers, self.clock.clone());
        for _ in 0..60 {
            if self.faults.lock().is_off() {
                break;
            }
            let mut sent = Vec::new();
            let first = self.sent + 1;
            for _ in 0..self.random.random_range(1..4) {
                let count = match self.random.random_range(0..10) {
                    0 => 600,
                    _ => self.random.random_range(1..20),
                };
                let group: Vec<u64> = (self.sent + 1..).take(count).collect();
                self.sent += count as u64;
                let place = queue.place().await.expect("it is open");
                sent.push((place.send(group.clone()), group));
            }
            for (receipt, group) in sent {
                if receipt.wait().await.is_ok() {
                    self.acknowledged.extend(group);
                    self.single_from = first;
                }
            }
            if self.random.random_bool(0.3) {
                // The second copy is made now, unless that fails.
                let failures = self.faults.lock().failures();
                self.clock.sleep(2 * QUIET_TIME).await;
                let faults = self.faults.lock();
                if !faults.is_off() && faults.failures() == failures {
                    self.single_from = u64::MAX;
                }
            }
        }
        drop(queue);
        task.await.expect("no panic");
    }
}

fn superblock(geometry: &Geometry, id: CacheId) -> ToySuperblock {
    ToySuperblock(Superblock {
        id,
        hash_seed: HashSeed(1),
        created_unix_s: 0,
        epoch: 1,
        plan: FormatPlan {
            block_size: geometry.block_size,
            zone_count: geometry.zone_count,
            zone_size: geometry.zone_size,
            zone_capacity: geometry.zone_capacity,
            chunk_bytes: 65_536,
            piece_bytes: 65_536,
            layout: ZoneLayout::Log,
        },
    })
}

fn in_place() -> Geometry {
    Geometry {
        max_append_bytes: APPEND as u32,
        ..Geometry::in_place(4, ZONE)
    }
}

fn zoned() -> Geometry {
    Geometry {
        random_writes: false,
        native_append: true,
        ..in_place()
    }
}

fn memory(geometry: Geometry, cache: WriteCache) -> Medium {
    Medium::Power(MemoryDevice::with_power(geometry, cache).1)
}

const VOLATILE: WriteCache = WriteCache::Volatile { bytes_max: 1 << 20 };

/// Runs `lives` over every medium in memory.
fn everywhere(lives: Lives) -> Counts {
    let mut all = Counts::default();
    for seed in 0..SEEDS {
        let counts = virtual_time::run(seed, async |clock| {
            let medium = match seed % 5 {
                0 => memory(in_place(), VOLATILE),
                1 => memory(zoned(), VOLATILE),
                2 => memory(in_place(), WriteCache::None),
                3 => memory(zoned(), WriteCache::Protected),
                _ => {
                    let config = DeviceConfig {
                        zone_size: Some(ByteSize(ZONE)),
                        max_append: ByteSize(APPEND),
                        ..DeviceConfig::sim(ByteSize(8 * ZONE))
                    };
                    let sim = SimDevice::with_power(&config, &clock);
                    Medium::Power(sim.expect("a drive").1)
                }
            };
            let lives = Lives {
                in_memory: seed % 2 == 0,
                ..lives
            };
            Run::new(medium, clock, lives, seed).run().await
        });
        all.rotten += counts.rotten;
        all.whole += counts.whole;
        all.forgot += counts.forgot;
    }
    all
}

const SEEDS: u64 = 100;

#[test]
fn power_losses_lose_nothing() {
    everywhere(QUIET);
}

#[test]
fn deaths_of_the_process_lose_nothing() {
    for durability in [Durability::Power, Durability::Process] {
        everywhere(Lives {
            durability,
            power_loss: false,
            ..QUIET
        });
    }
}

#[test]
fn failed_appends_and_flushes_lose_nothing() {
    everywhere(Lives {
        rates: FAULTY,
        ..QUIET
    });
}

#[test]
fn a_rotten_block_is_replaced_by_its_copy_or_known_to_be_lost() {
    let counts = everywhere(Lives {
        rots: true,
        ..QUIET
    });
    assert!(counts.whole > 0 && counts.forgot > 0, "{counts:?}");
}

#[test]
fn all_faults_at_once_lose_nothing_undetected() {
    everywhere(Lives {
        rates: FAULTY,
        rots: true,
        ..QUIET
    });
}

/// On a file a reset leaves old bytes behind.
#[tokio::test]
async fn a_log_in_a_file_survives_deaths_of_the_process() {
    for seed in 0..40 {
        let folder = tempfile::tempdir().expect("a folder");
        let lives = Lives {
            power_loss: false,
            rots: seed % 2 == 0,
            rates: FAULTY,
            in_memory: seed % 4 < 2,
            ..QUIET
        };
        let medium = Medium::File(folder.path().join("log"));
        Run::new(medium, Clock::real(), lives, seed).run().await;
    }
}

/// One rotten block costs nothing while there are two superblocks. A crash may
/// leave one alone, and where that one rots the device looks foreign.
#[tokio::test]
async fn one_of_two_superblocks_may_rot() {
    let records = [Toy::Number(1)];
    for (rotten, has_copy) in [(0, true), (1, true), (0, false)] {
        let Medium::Power(power) = memory(in_place(), WriteCache::None) else {
            unreachable!("it is in memory");
        };
        let faults = Arc::new(Mutex::new(Faults::new(1)));
        let device = Flash::over(power.reopen(), &faults);
        let new = superblock(device.geometry(), CacheId([1; 16]));
        let begun = Log::begin(
            Arc::clone(&device),
            Durability::Power,
            new,
            METADATA[0],
            records,
        );
        begun.await.expect("begins");
        if !has_copy {
            device.reset(METADATA[1]).await.expect("resets");
        }
        let at = Address::new(METADATA[rotten], 0);
        faults.lock().rot(at, BLOCK, Change::Garbage);
        let found = superblocks::<ToySuperblock>(&device).await;
        if !has_copy {
            assert!(matches!(found, Err(FindError::Foreign(_))), "{found:?}");
            continue;
        }
        let found = newest(&device, found.expect("a superblock")).await;
        let found = found.expect("reads").expect("a log");
        assert_eq!((found.damaged, found.records), (false, records.to_vec()));
    }
}
