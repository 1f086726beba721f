//! The driver of volumes: hits of 4 KiB on devices in memory beside the device alone, by
//! processor time; two threads beside one; hits on a file beside a plain io_uring loop;
//! starts after an unclean stop.
//!
//! `cargo bench -p floe --bench volumes [-- --quick] [--json] [--only hits|threads|file|start]`
//!
//! The cases take turns in short slices, so that a disturbance affects all of them.
//! Each row is a JSON object or, without `--json`, a line of text.

mod file;
mod threads;

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
/// Bytes of the cache device.
const ROOM: ByteSize = ByteSize::mib(256);
const SLICES: u32 = 7;
/// Requests between two looks at the time.
const BATCH: u64 = 2048;

fn main() {
    let after = |flag: &str| std::env::args().skip_while(|a| a != flag).nth(1);
    let given = |flag: &str| std::env::args().any(|argument| argument == flag);
    let options = Options {
        json: given("--json"),
        slice: match given("--quick") {
            true => Duration::from_millis(50),
            false => Duration::from_millis(500),
        },
    };
    let only = after("--only");
    let parts: [Part; 4] = [
        ("hits", hits),
        ("threads", threads::scale),
        ("file", file::compare),
        ("start", start),
    ];
    for (name, part) in parts {
        if only.as_ref().is_none_or(|only| only == name) {
            part(&options);
        }
    }
}

/// A name, and what measures.
type Part = (&'static str, fn(&Options));

struct Options {
    json: bool,
    /// Time of a slice of one case.
    slice: Duration,
}

impl Options {
    fn show(&self, row: &serde_json::Value, text: &str) {
        match self.json {
            true => println!("{row}"),
            false => println!("{text}"),
        }
    }
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Hits of one thread, one after the other, beside the device alone.
fn hits(options: &Options) {
    let runtime = runtime();
    let (cache, volume) = runtime.block_on(cached(memory(ROOM), &sharded(1)));
    let (shards_cache, sharded) = runtime.block_on(cached(memory(ROOM), &sharded(16)));
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
            let cost = runtime.block_on(case.run(options.slice, u64::from(seed)));
            costs.push(cost.cpu_per_operation().as_nanos() as f64);
        }
    }
    for ((name, _), costs) in cases.iter().zip(costs) {
        let ns = median(costs);
        let row = serde_json::json!({
            "case": name,
            "cpu_ns_per_request_median": ns.round(),
            "requests_per_cpu_second": (1e9 / ns).round(),
            "goal": "1,000,000 requests a second on one core",
        });
        let text = format!("{name:40} {ns:8.0} ns of CPU, {:.2} M/s", 1e3 / ns);
        options.show(&row, &text);
    }
    runtime.block_on(async {
        cache.close().await.expect("it closes");
        shards_cache.close().await.expect("it closes");
    });
}

/// Blocks of the cache that is started after an unclean stop.
const BLOCKS: u64 = 1 << 20;

/// Opens a cache of a million dirty blocks whose process died.
fn start(options: &Options) {
    let config = VolumeCacheConfig {
        sizes: "4KiB".parse().expect("a size"),
        ..VolumeCacheConfig::default()
    };
    let device: SharedBlockDevice = Arc::new(MetadataOnly {
        below: memory(ByteSize((BLOCKS + BLOCKS / 4) * BLOCK as u64)),
        data: IoData::slice(&data_of_blocks(), 0..BLOCK),
    });
    let backing = memory(ByteSize(BLOCKS * BLOCK as u64));
    let mode = VolumeConfig {
        mode: Mode::WriteBack,
        allow_data_loss: true,
        ..VolumeConfig::default()
    };
    runtime().block_on(async {
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
    let costs: Vec<[f64; 2]> = (0..5)
        .map(|_| {
            runtime().block_on(async {
                let [first, all] = [(); 2].map(|()| Stopwatch::start());
                let cache = VolumeCache::open(Arc::clone(&device), Clock::real(), &config).await;
                let cache = cache.expect("it opens");
                let attached = cache.attach("bench", Arc::clone(&backing), &mode).await;
                let volume = attached.expect("it attaches");
                volume.read_at(0, BLOCK).await.expect("it reads");
                let first = first.stop(1);
                cache.loaded().await.expect("it reads");
                let all = all.stop(1);
                let dirty = cache.stats().occupancy.dirty_bytes;
                assert_eq!(dirty, BLOCKS * BLOCK as u64);
                [all, first].map(|cost| cost.cpu_per_operation().as_secs_f64())
            })
        })
        .collect();
    let [seconds, first] = [0, 1].map(|at| median(costs.iter().map(|cost| cost[at]).collect()));
    let name = "start after an unclean stop, 1,048,576 dirty blocks of 4 KiB";
    let row = serde_json::json!({
        "case": name,
        "cpu_s_median": seconds,
        "cpu_s_median_until_a_read_is_answered": first,
        "goal": "less than 0.5 s",
    });
    let text = format!("{name}: {seconds:.3} s of CPU, {first:.3} until a read is answered");
    options.show(&row, &text);
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

#[derive(Clone, Copy)]
enum Case<'a> {
    Device(&'a SharedBlockDevice),
    DeviceWrite(&'a SharedBlockDevice),
    Read(&'a Volume),
    Write(&'a Volume),
    /// Copies of a volume's bytes, without locks.
    Copy(&'a [u8]),
}

impl Case<'_> {
    /// Issues requests one after the other for `time`.
    async fn run(self, time: Duration, seed: u64) -> Cost {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let data = IoBuf::zeroed(BLOCK).freeze();
        let mut buf = IoBuf::zeroed(BLOCK);
        let stopwatch = Stopwatch::start();
        let began = Instant::now();
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
                    Case::Copy(bytes) => {
                        buf.copy_from_slice(&bytes[at as usize..][..BLOCK]);
                        black_box(&mut buf);
                    }
                }
            }
            count += BATCH;
        }
        stopwatch.stop(count)
    }
}

fn sharded(shards: u32) -> VolumeCacheConfig {
    VolumeCacheConfig {
        shards,
        ..VolumeCacheConfig::default()
    }
}

/// A write-back volume, all of whose blocks are dirty in the cache.
async fn cached(device: SharedBlockDevice, config: &VolumeCacheConfig) -> (VolumeCache, Volume) {
    let cache = VolumeCache::open(device, Clock::real(), config).await;
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
