//! A campaign of crashes: workloads run once on recorded devices, and the cache is
//! opened on what a power loss at any moment may have left of all devices.

use std::ops::Range;
use std::time::Duration;

use floe_core::hash::HashSeed;
use floe_core::layout::CacheId;
use floe_core::layout::volume::BlockRecord;
use floe_core::policy::promotion::{NhitConfig, PromotionConfig};
use floe_device::block::history::{Choice, History, Image, Replay};
use floe_device::{BlockDevice, Faults, Faulty, IoBuf, IoData, OpFuture, virtual_time};
use parking_lot::Mutex;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::below::below;
use super::oracle::Playback;
use super::seeds::{each_seed, is_full};
use super::workload::{Disk, Workload};
use super::*;
use crate::volume::layout;
use crate::volume::shard::Retired;
use crate::volume::table::{self, Boot};

/// Workloads of the campaign.
const WORKLOADS: usize = 200;

/// The least log that works, so that checkpoints run.
const LOG_BYTES: u64 = 512 << 10;

/// Data lies behind this offset.
const LOG_END: u64 = 1 << 20;

/// Of so many images one is also crashed during its recovery.
const NESTED_EVERY: usize = 16;

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    PowerLoss,
    /// A second one, during recovery.
    SecondPowerLoss,
    /// The process dies: what it began takes effect.
    Death,
}

impl Crash {
    fn boot(self) -> Boot {
        match self {
            Crash::Death => Boot([0; 16]),
            Crash::PowerLoss => Boot([1; 16]),
            Crash::SecondPowerLoss => Boot([2; 16]),
        }
    }
}

/// Where a workload was crashed, and the law that it then broke.
#[derive(Debug)]
#[expect(dead_code, reason = "it is printed")]
struct Violation {
    workload: Box<Workload>,
    point: usize,
    choice: usize,
    what: String,
}

/// A recorded workload.
struct Recorded {
    replay: Replay,
    /// Of each volume.
    playbacks: Vec<Playback>,
    done: Done,
}

/// Counts of a campaign.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    images: u64,
    /// Workloads that were crashed at every moment.
    every_moment: u64,
    /// Logs that were moved to the table.
    checkpoints: u64,
    /// Blocks that were written back, and that left for others.
    cleaned: u64,
    evicted: u64,
}

impl std::ops::AddAssign for Done {
    fn add_assign(&mut self, other: Done) {
        self.images += other.images;
        self.every_moment += other.every_moment;
        self.checkpoints += other.checkpoints;
        self.cleaned += other.cleaned;
        self.evicted += other.evicted;
    }
}

/// A device whose operations take different times.
fn delayed(below: SharedBlockDevice, clock: &Clock, seed: u64) -> SharedBlockDevice {
    let faults = Faults {
        delays: 0.7,
        delay_max: Duration::from_micros(400),
        ..Faults::default()
    };
    Arc::new(Faulty::new(below, clock.clone(), seed, faults))
}

/// A mistake that the campaign must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// Batches are written before the data of their records is.
    MetadataBeforeData,
    /// Places are used again before the table has durably forgotten their blocks.
    EarlyReuse,
}

impl Workload {
    async fn open(
        &self,
        device: SharedBlockDevice,
        clock: &Clock,
        settings: &VolumeCacheConfig,
        boot: Boot,
    ) -> Result<VolumeCache, OpenVolumesError> {
        let identity = ([self.seed as u8; 16], self.seed);
        if table::read_superblock(&device).await?.is_err() {
            let (size, block) = (device.size_bytes(), device.block_bytes());
            let plan = layout::plan(size, block, settings)?;
            let plan = floe_core::layout::volume::VolumeFormatPlan {
                log_bytes: LOG_BYTES,
                ..plan
            };
            let identity = (CacheId(identity.0), HashSeed(identity.1));
            let device = Arc::clone(&device);
            table::format(device, plan, identity, clock.unix_seconds(), boot, 0).await?;
        }
        VolumeCache::open_as(device, None, clock.clone(), settings, boot, identity).await
    }

    /// Attaches every volume to its backing device.
    async fn attach(
        &self,
        cache: &VolumeCache,
        backings: &[SharedBlockDevice],
    ) -> Result<Vec<Volume>, OpenVolumesError> {
        let mut volumes = Vec::new();
        for (number, (disk, backing)) in self.volumes.iter().zip(backings).enumerate() {
            let config = VolumeConfig {
                mode: disk.mode,
                allow_data_loss: true,
                ..VolumeConfig::default()
            };
            let name = format!("disk-{number}");
            volumes.push(cache.attach(&name, Arc::clone(backing), &config).await?);
        }
        Ok(volumes)
    }

    /// Runs the requests.
    async fn record(&self, clock: Clock, planted: Option<Planted>) -> Recorded {
        let history = History::default();
        let slow = |bytes: u64, block: u32, seed: u64| {
            let blank = Image::blank(ByteSize(bytes), block).expect("an image");
            history.record(delayed(blank.device(), &clock, seed), &blank)
        };
        let mut device = slow(self.cache_bytes, self.cache_block, self.seed);
        let disks = self.volumes.iter().zip(1..);
        let backings: Vec<_> = disks
            .map(|(disk, number)| slow(disk.bytes, disk.block, self.seed ^ number << 32))
            .collect();
        if planted == Some(Planted::MetadataBeforeData) {
            device = Arc::new(EarlyAnswers::new(device, &clock));
        }
        let opened = self.open(Arc::clone(&device), &clock, &self.settings, Boot([0; 16]));
        let cache = opened.await.expect("it opens");
        let volumes = self.attach(&cache, &backings).await;
        let volumes = volumes.expect("they attach");
        if planted == Some(Planted::EarlyReuse) {
            tokio::spawn(reuse_early(volumes[0].clone(), clock.clone()));
        }
        if self.fills_log {
            tokio::spawn(fill_log(volumes[0].clone(), clock.clone()));
        }
        let disks = self.volumes.iter().zip(&volumes).zip(0..);
        let mut oracles: Vec<_> = disks
            .map(|((disk, volume), number)| {
                disk.oracle(self.seed ^ number << 32, volume.block_bytes())
                    .slowed_by(&clock)
                    .recorded_with(&history)
            })
            .collect();
        let runs = oracles.iter_mut().zip(&volumes);
        let runs = runs.map(|(oracle, volume)| oracle.run(volume, self.requests, self.depth));
        futures::future::join_all(runs).await;
        cache.abandon();
        let superblock = table::read_superblock(&device).await;
        let superblock = superblock.expect("it reads").expect("a superblock");
        let turnover = cache.stats().counts.turnover;
        Recorded {
            done: Done {
                checkpoints: u64::from(superblock.first_batch > 1),
                cleaned: turnover.cleaned,
                evicted: turnover.evicted + turnover.replaced,
                ..Done::default()
            },
            replay: history.replay(),
            playbacks: oracles.into_iter().map(Oracle::playback).collect(),
        }
    }

    /// Opens the cache on the images of a crash, reads everything, and judges it. With
    /// `nested`, the recovery is crashed too.
    async fn recover(
        &self,
        images: &[Image],
        playbacks: &[Playback],
        clock: &Clock,
        (crash, nested): (Crash, Option<u64>),
    ) -> Result<(), String> {
        let history = History::default();
        let devices = images.iter().map(|image| match nested {
            // Requests run while the table is read.
            Some(seed) => history.record(delayed(image.device(), clock, seed), image),
            None => image.device(),
        });
        let mut backings: Vec<_> = devices.collect();
        let device = backings.remove(0);
        // Reads bring nothing in.
        let settings = VolumeCacheConfig {
            promotion: PromotionConfig::Nhit(NhitConfig {
                threshold: 1000,
                trigger_percent: 0,
            }),
            ..self.settings.clone()
        };
        let opened = self.open(device, clock, &settings, crash.boot()).await;
        let cache = opened.map_err(|error| format!("it does not open: {error}"))?;
        let volumes = self.attach(&cache, &backings).await;
        let volumes = volumes.map_err(|error| format!("it does not attach: {error}"))?;
        for (at, disk) in self.volumes.iter().enumerate() {
            let (volume, playback) = (&volumes[at], &playbacks[at]);
            let judged = disk.judge(volume, &backings[at], playback, crash);
            judged
                .await
                .map_err(|what| format!("volume {at}: {what}"))?;
        }
        cache.abandon();
        if cache.stats().checksum_errors > 0 {
            return Err("a checksum differs from that of sound data".to_owned());
        }
        let Some(seed) = nested else {
            return Ok(());
        };
        let mut replay = history.replay();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let point = random.random_range(replay.points());
        let images = replay.images(point, &mut Choice::random(seed));
        let again = self.recover(&images, playbacks, clock, (Crash::SecondPowerLoss, None));
        Box::pin(again)
            .await
            .map_err(|what| format!("after a crash of the recovery at {point}: {what}"))
    }

    /// Crashes the workload `images` times, at every moment if there are as many, and
    /// judges what is left.
    fn crash(&self, images: usize, planted: Option<Planted>) -> Result<Done, Violation> {
        let Recorded {
            mut replay,
            mut playbacks,
            mut done,
        } = virtual_time::run(self.seed, |clock| self.record(clock, planted));
        let points = replay.points();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let is_every = images > *points.end();
        let every = points.clone().filter(|_| is_every);
        let mut chosen: Vec<_> = every.collect();
        done.every_moment = u64::from(is_every);
        done.images = images as u64;
        chosen.resize_with(images, || random.random_range(points.clone()));
        chosen.sort_unstable();
        virtual_time::run(self.seed, |clock| async move {
            for (number, point) in chosen.into_iter().enumerate() {
                playbacks
                    .iter_mut()
                    .for_each(|playback| playback.go_to(point));
                let choice = number % 5;
                let (mut kept, crash) = match choice {
                    0 => (Choice::Nothing, Crash::PowerLoss),
                    1 => (Choice::All, Crash::PowerLoss),
                    2 => (Choice::All, Crash::Death),
                    _ => (Choice::random(random.random()), Crash::PowerLoss),
                };
                let images = replay.images(point, &mut kept);
                let nested = number.is_multiple_of(NESTED_EVERY) && crash == Crash::PowerLoss;
                let nested = nested.then(|| random.random());
                let result = self.recover(&images, &playbacks, &clock, (crash, nested));
                result.await.map_err(|what| Violation {
                    workload: Box::new(self.clone()),
                    point,
                    choice,
                    what,
                })?;
            }
            Ok(done)
        })
    }
}

impl Disk {
    /// The requests to the volume, whose blocks have `block` bytes.
    fn oracle(&self, seed: u64, block: u32) -> Oracle {
        let (used, written_end) = (&self.used, self.written_end);
        Oracle::new(used.end - used.start, seed)
            .based_at(used.start)
            .writes_below((written_end - used.start) as usize / 512)
            .issuing(block, self.mix)
    }

    /// Judges the volume after a crash.
    async fn judge(
        &self,
        volume: &Volume,
        backing: &SharedBlockDevice,
        playback: &Playback,
        crash: Crash,
    ) -> Result<(), String> {
        let Range { start, end } = self.used;
        let len = (end - start) as usize;
        let read = volume.read_at(start, len).await;
        let content = read.map_err(|error| format!("it does not read: {error}"))?;
        playback.judge(&content, crash != Crash::Death)?;
        let is_always_clean = !self.mode.makes_dirty() && self.mix.switches == 0;
        let below = backing.read(start, IoBuf::zeroed(len)).await;
        let below = below.map_err(|error| format!("the backing device: {error}"))?;
        match is_always_clean && *content != *below {
            true => Err("the cache differs from the backing device".to_owned()),
            false => Ok(()),
        }
    }
}

/// Crashes workloads 10,000 times, or a million times if `FLOE_FULL` is set: then at
/// every moment, and more often than once.
#[test]
fn a_crash_at_any_moment_keeps_what_was_flushed() {
    let images = if is_full() { 1_000_000 } else { 10_000 } / WORKLOADS;
    let done = Mutex::new(Done::default());
    each_seed(WORKLOADS as u64, WORKLOADS as u64, |number| {
        if is_full() && number.is_multiple_of(10) {
            eprintln!("workload {number} of {WORKLOADS}, crashed {images} times each");
        }
        match Workload::random(number).crash(images, None) {
            Ok(more) => *done.lock() += more,
            Err(violation) => panic!("{violation:#?}"),
        }
    });
    let done = done.into_inner();
    println!("{WORKLOADS} workloads: {done:?}");
    assert!(done.checkpoints > 0, "no log was moved to the table");
    assert!(done.cleaned > 100 && done.evicted > 1000, "{done:?}");
}

/// Crashes workloads with a mistake until one breaks the law.
fn find(planted: Planted) -> Violation {
    let workloads = (0..WORKLOADS as u64).map(Workload::random);
    let mut found = workloads.filter_map(|workload| workload.crash(400, Some(planted)).err());
    found.next().expect("the campaign finds the mistake")
}

#[test]
fn the_campaign_finds_metadata_that_precedes_its_data() {
    let found = find(Planted::MetadataBeforeData);
    assert!(found.what.contains("reads as version"), "{found:?}");
}

#[test]
fn the_campaign_finds_places_that_are_reused_early() {
    let found = find(Planted::EarlyReuse);
    assert!(found.what.contains("reads as version"), "{found:?}");
}

/// A cache device that answers writes of data before they have ended.
#[derive(Debug)]
struct EarlyAnswers {
    below: SharedBlockDevice,
    clock: Clock,
}

impl EarlyAnswers {
    fn new(below: SharedBlockDevice, clock: &Clock) -> Self {
        let clock = clock.clone();
        EarlyAnswers { below, clock }
    }
}

impl BlockDevice for EarlyAnswers {
    below!(read, write_zeroes, discard, flush);

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        let write = self.below.write(at, data);
        if at < LOG_END {
            return write;
        }
        let sleep = self.clock.sleep(Duration::from_millis(2));
        tokio::spawn(async move {
            sleep.await;
            write.await
        });
        OpFuture::ready(Ok(()))
    }
}

/// Releases places as soon as their blocks leave, without a commit.
async fn reuse_early(volume: Volume, clock: Clock) {
    loop {
        clock.sleep(Duration::from_micros(20)).await;
        for shard in &volume.shared.shards {
            let mut state = shard.lock();
            let state = &mut *state;
            let retired = std::mem::take(&mut state.retired);
            let (unused, used) = retired.into_iter().partition(|one| state.is_unused(one));
            let unused: Vec<Retired> = unused;
            state.retired = used;
            for retired in unused {
                state.cache.release(retired.block.place);
            }
        }
    }
}

/// Enqueues records of areas that are not in use, so that the log goes around.
async fn fill_log(volume: Volume, clock: Clock) {
    loop {
        clock.sleep(Duration::from_millis(100)).await;
        let records = (0..1000).map(|bit| BlockRecord::Intent { bit: 20_000 + bit });
        volume.shared.table.enqueue(records);
    }
}
