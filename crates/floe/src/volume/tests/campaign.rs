//! A campaign of crashes: workloads run once on recorded devices, and the cache is
//! opened on what a power loss at any moment may have left of both devices.

use std::ops::Range;
use std::time::Duration;

use floe_core::hash::HashSeed;
use floe_core::layout::CacheId;
use floe_core::layout::volume::BlockRecord;
use floe_core::policy::promotion::{NhitConfig, PromotionConfig};
use floe_core::volume::Piece;
use floe_device::block::history::{Choice, History, Image, Replay};
use floe_device::{BlockDevice, Counters, Faults, Faulty, IoBuf, IoData, OpFuture, virtual_time};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::oracle::Playback;
use super::*;
use crate::volume::layout;
use crate::volume::table::{self, Boot};

/// Bytes of the devices: the cache has a fifth of the bytes in use.
const CACHE_BYTES: u64 = (1 << 20) + (272 << 10);
const BACKING_BYTES: u64 = 5 << 20;

/// The bytes of the volume that are in use, in two areas of write intent.
const USED: Range<u64> = (4 << 20) - (384 << 10)..(4 << 20) + (384 << 10);

/// The least log that works, so that checkpoints run.
const LOG_BYTES: u64 = 512 << 10;

/// Data lies behind this offset.
const LOG_END: u64 = 1 << 20;

/// Of so many images one is also crashed during its recovery.
const NESTED_EVERY: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Workload {
    seed: u64,
    mode: Mode,
    fill: Fill,
}

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
    workload: Workload,
    point: usize,
    choice: usize,
    what: String,
}

/// A recorded workload.
struct Recorded {
    replay: Replay,
    playback: Playback,
    has_checkpoint: bool,
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
    fn settings(self) -> VolumeCacheConfig {
        VolumeCacheConfig {
            sizes: "4KiB..16KiB".parse().expect("sizes"),
            shards: 1,
            ..config(self.fill)
        }
    }

    async fn open(
        self,
        device: SharedBlockDevice,
        clock: &Clock,
        settings: &VolumeCacheConfig,
        boot: Boot,
    ) -> Result<VolumeCache, OpenVolumesError> {
        let identity = ([self.seed as u8; 16], self.seed);
        if table::read_superblock(&device).await?.is_err() {
            let (size, block) = (device.size_bytes(), device.block_bytes());
            let plan = layout::plan(size, block, settings.sizes, settings.shards)?;
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

    async fn attach(self, cache: &VolumeCache, backing: &SharedBlockDevice) -> Volume {
        let config = VolumeConfig {
            mode: self.mode,
            ..VolumeConfig::default()
        };
        let volume = cache.attach("disk", Arc::clone(backing), &config).await;
        volume.expect("it attaches")
    }

    /// Runs the requests.
    async fn record(self, clock: Clock, planted: Option<Planted>) -> Recorded {
        let history = History::default();
        let slow = |bytes: u64, seed: u64| {
            let blank = Image::blank(ByteSize(bytes), 512).expect("an image");
            let faults = Faults {
                delays: 0.7,
                delay_max: Duration::from_micros(400),
                ..Faults::default()
            };
            let device = Faulty::new(blank.device(), clock.clone(), seed, faults);
            history.record(Arc::new(device), &blank)
        };
        let mut device = slow(CACHE_BYTES, self.seed);
        let backing = slow(BACKING_BYTES, !self.seed);
        if planted == Some(Planted::MetadataBeforeData) {
            device = Arc::new(EarlyAnswers::new(device, &clock));
        }
        let settings = self.settings();
        let opened = self.open(Arc::clone(&device), &clock, &settings, Boot([0; 16]));
        let cache = opened.await.expect("it opens");
        let volume = self.attach(&cache, &backing).await;
        if planted == Some(Planted::EarlyReuse) {
            tokio::spawn(reuse_early(volume.clone(), clock.clone()));
        }
        if self.seed % 4 == 1 {
            tokio::spawn(fill_log(volume.clone(), clock.clone()));
        }
        let used = USED.end - USED.start;
        let mut oracle = Oracle::new(used, self.seed)
            .based_at(USED.start)
            .slowed_by(&clock)
            .recorded_with(&history);
        if self.seed.is_multiple_of(2) {
            // One area keeps its clean blocks.
            oracle = oracle.writes_below(used as usize / 512 / 2);
        }
        let depth = 1 + self.seed as usize % 8;
        oracle.run(&volume, 400, depth).await;
        cache.abandon();
        let superblock = table::read_superblock(&device).await;
        let superblock = superblock.expect("it reads").expect("a superblock");
        Recorded {
            has_checkpoint: superblock.first_batch > 1,
            replay: history.replay(),
            playback: oracle.playback(),
        }
    }

    /// Opens the cache on the images of a crash, reads everything, and judges it. With
    /// `nested`, the recovery is crashed too.
    async fn recover(
        self,
        images: &[Image],
        playback: &Playback,
        clock: &Clock,
        (crash, nested): (Crash, Option<u64>),
    ) -> Result<(), String> {
        let history = History::default();
        let devices = images.iter().map(|image| match nested {
            Some(_) => history.record(image.device(), image),
            None => image.device(),
        });
        let [device, backing]: [SharedBlockDevice; 2] =
            devices.collect::<Vec<_>>().try_into().expect("two devices");
        // Reads bring nothing in.
        let settings = VolumeCacheConfig {
            promotion: PromotionConfig::Nhit(NhitConfig {
                threshold: 1000,
                trigger_percent: 0,
            }),
            ..self.settings()
        };
        let opened = self.open(device, clock, &settings, crash.boot()).await;
        let cache = opened.map_err(|error| format!("it does not open: {error}"))?;
        let volume = self.attach(&cache, &backing).await;
        let range = playback.range();
        let len = (range.end - range.start) as usize;
        let read = volume.read_at(range.start, len).await;
        let content = read.map_err(|error| format!("it does not read: {error}"))?;
        cache.abandon();
        playback.judge(&content, crash != Crash::Death)?;
        if !self.mode.makes_dirty() {
            let read = backing.read(range.start, IoBuf::zeroed(len)).await;
            let below = read.map_err(|error| format!("the backing device: {error}"))?;
            if *content != *below {
                return Err("the cache differs from the backing device".to_owned());
            }
        }
        let Some(seed) = nested else {
            return Ok(());
        };
        let mut replay = history.replay();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let point = random.random_range(replay.points());
        let images = replay.images(point, &mut Choice::random(seed));
        let again = self.recover(&images, playback, clock, (Crash::SecondPowerLoss, None));
        Box::pin(again)
            .await
            .map_err(|what| format!("after a crash of the recovery at {point}: {what}"))
    }

    /// Crashes the workload at up to `points` moments, once each, and judges what is
    /// left. Returns true if the log was moved to the table meanwhile.
    fn crash(self, points: usize, planted: Option<Planted>) -> Result<bool, Violation> {
        let Recorded {
            mut replay,
            mut playback,
            has_checkpoint,
        } = virtual_time::run(self.seed, |clock| self.record(clock, planted));
        let last = *replay.points().end();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut chosen: Vec<_> = (0..points).map(|_| random.random_range(0..=last)).collect();
        chosen.sort_unstable();
        virtual_time::run(self.seed, |clock| async move {
            for (number, point) in chosen.into_iter().enumerate() {
                playback.go_to(point);
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
                let result = self.recover(&images, &playback, &clock, (crash, nested));
                result.await.map_err(|what| Violation {
                    workload: self,
                    point,
                    choice,
                    what,
                })?;
            }
            Ok(has_checkpoint)
        })
    }
}

/// Crashes workloads 10,000 times, or a million times if `FLOE_FULL` is set.
#[test]
fn a_crash_at_any_moment_keeps_what_was_flushed() {
    let is_full = std::env::var_os("FLOE_FULL").is_some();
    let (seeds, points) = if is_full { (0..500, 334) } else { (0..4, 417) };
    let mut checkpoints = 0;
    for seed in seeds {
        for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteOnly] {
            for fill in [Fill::Fetch, Fill::Sector] {
                let workload = Workload { seed, mode, fill };
                match workload.crash(points, None) {
                    Ok(has_checkpoint) => checkpoints += u32::from(has_checkpoint),
                    Err(violation) => panic!("{violation:?}"),
                }
            }
        }
    }
    assert!(checkpoints > 0, "no log was moved to the table");
}

/// Crashes workloads with a mistake until one breaks the law.
fn find(planted: Planted) -> Violation {
    let workloads = (0..50).map(|seed| Workload {
        seed,
        mode: Mode::WriteBack,
        fill: [Fill::Sector, Fill::Fetch][seed as usize / 2 % 2],
    });
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
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.below.block_bytes()
    }

    fn describe(&self) -> String {
        self.below.describe()
    }

    fn read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf> {
        self.below.read(at, buf)
    }

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

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        self.below.write_zeroes(range)
    }

    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        self.below.discard(range)
    }

    fn flush(&self) -> OpFuture<()> {
        self.below.flush()
    }

    fn counters(&self) -> &Counters {
        self.below.counters()
    }
}

/// Releases places as soon as their blocks leave, without a commit.
async fn reuse_early(volume: Volume, clock: Clock) {
    loop {
        clock.sleep(Duration::from_micros(20)).await;
        for shard in &volume.shared.shards {
            let mut state = shard.lock();
            let state = &mut *state;
            let free = |piece: &mut Piece| state.locks.is_free(piece.extent);
            for piece in state.retired.extract_if(.., free) {
                state.cache.release(piece.place);
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
