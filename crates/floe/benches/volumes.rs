//! The driver of volumes on devices in memory: hits of 4 KiB beside the device alone,
//! one after the other, by processor time.
//!
//! `cargo bench -p floe --bench volumes [-- --quick] [--json]`
//!
//! The cases take turns in short slices, so that a disturbance affects all of them.
//! Each row is a JSON object or, without `--json`, a line of text.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use floe::volume::{Mode, Volume, VolumeCache, VolumeCacheConfig, VolumeConfig};
use floe_core::ByteSize;
use floe_device::baseline::{Cost, Stopwatch};
use floe_device::block::BlockDevice;
use floe_device::{Clock, Counters, IoBuf, IoData, MemoryBlocks, OpFuture, SharedBlockDevice};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::runtime::{Builder, Runtime};

const BLOCK: usize = 4096;
const VOLUME: ByteSize = ByteSize::mib(128);
const SLICES: u32 = 7;
/// Requests between two looks at the time.
const BATCH: u64 = 2048;

fn main() {
    let given = |flag: &str| std::env::args().any(|argument| argument == flag);
    let slice = match given("--quick") {
        true => Duration::from_millis(50),
        false => Duration::from_millis(500),
    };
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (cache, volume) = runtime.block_on(cached(1));
    let (shards_cache, sharded) = runtime.block_on(cached(16));
    let device = memory(VOLUME);
    runtime.block_on(fill(&device));
    let cases: [(&str, Case<'_>); 6] = [
        ("the device alone, read", Case::Device(&device)),
        ("the device alone, write", Case::DeviceWrite(&device)),
        ("read hit, one shard", Case::Read(&volume)),
        ("read hit, 16 shards", Case::Read(&sharded)),
        ("write of dirty blocks, one shard", Case::Write(&volume)),
        ("write of dirty blocks, 16 shards", Case::Write(&sharded)),
    ];
    let mut costs = vec![Vec::new(); cases.len()];
    for seed in 0..SLICES {
        for ((_, case), costs) in cases.iter().zip(&mut costs) {
            let cost = case.run(&runtime, slice, u64::from(seed));
            costs.push(cost.cpu_per_operation().as_nanos() as f64);
        }
    }
    for ((name, _), costs) in cases.iter().zip(&mut costs) {
        costs.sort_unstable_by(f64::total_cmp);
        let ns: f64 = costs[costs.len() / 2];
        let row = serde_json::json!({
            "case": name,
            "cpu_ns_per_request_median": ns.round(),
            "requests_per_cpu_second": (1e9 / ns).round(),
            "goal": "1,000,000 requests a second on one core",
        });
        match given("--json") {
            true => println!("{row}"),
            false => println!("{name:40} {ns:8.0} ns of CPU, {:.2} M/s", 1e3 / ns),
        }
    }
    runtime.block_on(async {
        cache.close().await.expect("it closes");
        shards_cache.close().await.expect("it closes");
    });
    start(given("--json"));
}

/// Blocks of the cache that is started after an unclean stop.
const BLOCKS: u64 = 1 << 20;

/// Opens a cache of a million dirty blocks whose process died.
fn start(json: bool) {
    let config = VolumeCacheConfig {
        sizes: "4KiB".parse().expect("a size"),
        ..VolumeCacheConfig::default()
    };
    let device: SharedBlockDevice = Arc::new(MetadataOnly {
        below: memory(ByteSize((BLOCKS + BLOCKS / 4) * BLOCK as u64)),
        data: IoData::slice(&data_of_blocks(), 0..BLOCK),
    });
    let backing = memory(ByteSize(BLOCKS * BLOCK as u64));
    let runtime = || Builder::new_current_thread().enable_all().build();
    let mode = VolumeConfig {
        mode: Mode::WriteBack,
        allow_data_loss: true,
        ..VolumeConfig::default()
    };
    runtime().expect("a runtime").block_on(async {
        let cache = VolumeCache::open(Arc::clone(&device), Clock::real(), &config).await;
        let volume = cache
            .expect("it opens")
            .attach("bench", Arc::clone(&backing), &mode)
            .await;
        let volume = volume.expect("it attaches");
        let data = data_of_blocks();
        for at in (0..BLOCKS * BLOCK as u64).step_by(data.len()) {
            let written = volume.write_at(at, data.clone(), false).await;
            written.expect("it writes");
        }
    });
    let mut costs: Vec<f64> = (0..5)
        .map(|_| {
            runtime().expect("a runtime").block_on(async {
                let stopwatch = Stopwatch::start();
                let cache = VolumeCache::open(Arc::clone(&device), Clock::real(), &config).await;
                let cache = cache.expect("it opens");
                let attached = cache.attach("bench", Arc::clone(&backing), &mode).await;
                attached.expect("it attaches");
                let cost = stopwatch.stop(1);
                let dirty = cache.stats().occupancy.dirty_bytes;
                assert_eq!(dirty, BLOCKS * BLOCK as u64);
                cost.cpu_per_operation().as_secs_f64()
            })
        })
        .collect();
    costs.sort_unstable_by(f64::total_cmp);
    let seconds = costs[costs.len() / 2];
    let name = "start after an unclean stop, 1,048,576 dirty blocks of 4 KiB";
    let row = serde_json::json!({
        "case": name,
        "cpu_s_median": seconds,
        "goal": "less than 0.5 s",
    });
    match json {
        true => println!("{row}"),
        false => println!("{name}: {seconds:.3} s of CPU"),
    }
}

fn data_of_blocks() -> IoData {
    let mut buf = IoBuf::zeroed(256 << 10);
    buf.fill(0xa5);
    buf.freeze()
}

/// Memory that keeps everything but the data of blocks.
#[derive(Debug)]
struct MetadataOnly {
    below: SharedBlockDevice,
    /// The first block of all data.
    data: IoData,
}

impl BlockDevice for MetadataOnly {
    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        match data.starts_with(&self.data) {
            true => OpFuture::ready(Ok(())),
            false => self.below.write(at, data),
        }
    }

    fn read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf> {
        self.below.read(at, buf)
    }

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        self.below.write_zeroes(range)
    }

    fn counters(&self) -> &Counters {
        self.below.counters()
    }

    fn describe(&self) -> String {
        self.below.describe()
    }

    fn flush(&self) -> OpFuture<()> {
        self.below.flush()
    }

    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        self.below.discard(range)
    }

    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.below.block_bytes()
    }
}

enum Case<'a> {
    Device(&'a SharedBlockDevice),
    DeviceWrite(&'a SharedBlockDevice),
    Read(&'a Volume),
    Write(&'a Volume),
}

impl Case<'_> {
    /// Issues requests one after the other for `time`.
    fn run(&self, runtime: &Runtime, time: Duration, seed: u64) -> Cost {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let data = IoBuf::zeroed(BLOCK).freeze();
        runtime.block_on(async {
            let stopwatch = Stopwatch::start();
            let began = std::time::Instant::now();
            let mut count = 0;
            while began.elapsed() < time {
                for _ in 0..BATCH {
                    let at = random.random_range(0..VOLUME.bytes() / BLOCK as u64) * BLOCK as u64;
                    match self {
                        Case::Device(device) => {
                            let read = device.read(at, device.allocate(BLOCK)).await;
                            drop(read.expect("it reads"));
                        }
                        Case::DeviceWrite(device) => {
                            let written = device.write(at, data.clone()).await;
                            written.expect("it writes");
                        }
                        Case::Read(volume) => {
                            let read = volume.read_at(at, BLOCK).await;
                            drop(read.expect("it reads"));
                        }
                        Case::Write(volume) => {
                            let written = volume.write_at(at, data.clone(), false).await;
                            written.expect("it writes");
                        }
                    }
                }
                count += BATCH;
            }
            stopwatch.stop(count)
        })
    }
}

/// A write-back volume, all of whose blocks are dirty in the cache.
async fn cached(shards: u32) -> (VolumeCache, Volume) {
    let config = VolumeCacheConfig {
        shards,
        ..VolumeCacheConfig::default()
    };
    let room = ByteSize(VOLUME.bytes() * 2);
    let cache = VolumeCache::open(memory(room), Clock::real(), &config).await;
    let cache = cache.expect("it opens");
    let mode = VolumeConfig {
        mode: Mode::WriteBack,
        allow_data_loss: true,
        ..VolumeConfig::default()
    };
    let volume = cache.attach("bench", memory(VOLUME), &mode).await;
    let volume = volume.expect("it attaches");
    let data = IoBuf::zeroed(256 << 10).freeze();
    for at in (0..VOLUME.bytes()).step_by(data.len()) {
        let written = volume.write_at(at, data.clone(), false).await;
        written.expect("it writes");
    }
    (cache, volume)
}

/// Gives every page memory.
async fn fill(device: &SharedBlockDevice) {
    for at in (0..VOLUME.bytes()).step_by(256 << 10) {
        let mut buf = IoBuf::zeroed(256 << 10);
        buf.fill(1);
        let written = device.write(at, buf.freeze()).await;
        written.expect("it writes");
    }
}

fn memory(size: ByteSize) -> SharedBlockDevice {
    Arc::new(MemoryBlocks::new(size, 4096).expect("whole blocks"))
}
