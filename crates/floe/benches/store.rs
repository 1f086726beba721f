//! The library's overhead over the device: flash hits beside a plain io_uring
//! loop on another file, write amplification, index memory, recovery.
//!
//! `cargo bench -p floe --bench store [-- --quick] [--json]`
//!
//! To profile one case: `-- --only <KiB of values>,<depth>,<runtime> [--seconds
//! <n>]`, and without the plain loop: `--alone`.
//!
//! Peers alternate in short slices, so that a disturbance affects both. Each
//! row is a JSON object or, without `--json`, a line of text.

use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crc_fast::CrcAlgorithm;
use floe::{Bytes, InRam, PutOptions, RamConfig, Store, StoreConfig, Tier};
use floe_core::ByteSize;
use floe_core::chunk::ChunkConfig;
use floe_device::baseline::{Cost, Reads, Stopwatch, plain_reads, plain_reads_into};
use floe_device::{Clock, DeviceConfig};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Slices of each case.
const SLICES: u32 = 8;
/// Concurrent puts while filling.
const FILL_DEPTH: u64 = 64;
/// Size of the flash relative to the values.
const ROOM: f64 = 1.3;

struct Options {
    json: bool,
    /// Values of 4 KiB: the recovery that is measured has this many chunks.
    small_values: u64,
    large_values: u64,
    time: Duration,
    depths: &'static [usize],
    only: Option<Only>,
    /// Measure hits without the plain loop.
    alone: bool,
}

/// The one case to measure.
struct Only {
    value_bytes: usize,
    depth: usize,
    runtime: String,
}

impl Only {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(',');
        Some(Only {
            value_bytes: parts.next()?.parse::<usize>().ok()? << 10,
            depth: parts.next()?.parse().ok()?,
            runtime: parts.next()?.to_owned(),
        })
    }

    fn is(&self, depth: usize, runtime: &str) -> bool {
        self.depth == depth && self.runtime == runtime
    }
}

fn main() {
    let after = |flag: &str| std::env::args().skip_while(|a| a != flag).nth(1);
    let given = |flag: &str| std::env::args().any(|argument| argument == flag);
    let mut options = Options {
        json: given("--json"),
        small_values: 1_000_000,
        large_values: 16_384,
        time: Duration::from_secs(4),
        depths: &[1, 8, 64],
        only: after("--only").map(|text| {
            Only::parse(&text).expect("--only takes <KiB of values>,<depth>,<runtime>")
        }),
        alone: given("--alone"),
    };
    if given("--quick") {
        options = Options {
            small_values: 50_000,
            large_values: 2_048,
            time: Duration::from_secs(1),
            depths: &[64],
            ..options
        };
    }
    if let Some(seconds) = after("--seconds") {
        options.time = Duration::from_secs(seconds.parse().expect("--seconds takes a number"));
    }
    if options.only.is_none() {
        for row in ram_hits(options.time) {
            options.show(&row);
        }
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
    for (bytes, values) in [
        (64 << 10, options.large_values),
        (4 << 10, options.small_values),
    ] {
        if options
            .only
            .as_ref()
            .is_some_and(|only| only.value_bytes != bytes)
        {
            continue;
        }
        let case = Case::new(folder.path(), bytes, values);
        options.show(&case.fill());
        for &depth in options.depths {
            for (name, runtime) in runtimes() {
                if options
                    .only
                    .as_ref()
                    .is_none_or(|only| only.is(depth, name))
                {
                    options.show(&case.compare_hits(name, &runtime, depth, &options));
                }
            }
        }
        if options.only.is_none() {
            for row in case.recoveries() {
                options.show(&row);
            }
        }
        for file in [&case.path, &case.plain] {
            std::fs::remove_file(file).expect("the scratch file was there");
        }
    }
}

impl Options {
    fn show(&self, row: &Value) {
        if self.json {
            println!("{row}");
            return;
        }
        let cells: Vec<String> = row
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key} {value}"))
            .collect();
        println!("{}", cells.join(", "));
    }
}

/// The runtimes of a server's worker and of an application.
fn runtimes() -> [(&'static str, Runtime); 2] {
    let current = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let multi = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    [
        ("current_thread", current.expect("a runtime")),
        ("multi_thread", multi.expect("a runtime")),
    ]
}

/// Values of one size in one cache file.
struct Case {
    path: PathBuf,
    /// A file as large as the values, for the plain loop: the cache's own file
    /// has holes, which need no I/O.
    plain: PathBuf,
    bytes: usize,
    values: u64,
    flash: ByteSize,
}

impl Case {
    fn new(folder: &Path, bytes: usize, values: u64) -> Self {
        let needed = (values * bytes as u64) as f64 * ROOM;
        let zone = ByteSize::mib(64).bytes();
        let plain = folder.join(format!("plain-{bytes}"));
        write_file(&plain, values * bytes as u64);
        Case {
            path: folder.join(format!("cache-{bytes}")),
            plain,
            bytes,
            values,
            // Two metadata zones, and a few free ones.
            flash: ByteSize((needed as u64).next_multiple_of(zone) + 8 * zone),
        }
    }

    async fn open(&self) -> Store {
        let clock = Clock::real();
        let device = floe_device::open(&DeviceConfig::file(self.path.clone(), self.flash), &clock);
        let config = StoreConfig {
            chunk: ChunkConfig {
                size: ByteSize::kib(64),
                ..ChunkConfig::default()
            },
            // Every hit must come from flash.
            ram: RamConfig {
                size: ByteSize(0),
                ..RamConfig::default()
            },
            ..StoreConfig::default()
        };
        Store::open(device.expect("the device opens"), clock, &config)
            .await
            .expect("the store opens")
    }

    /// Fills a new cache; returns the cost of the writes.
    fn fill(&self) -> Value {
        let [_, (_, runtime)] = runtimes();
        runtime.block_on(async {
            let store = self.open().await;
            let watch = Stopwatch::start();
            put_all(&store, self.bytes, self.values).await;
            store.flush().await.expect("the device flushes");
            let cost = watch.stop(self.values);
            let stats = store.stats();
            let row = json!({
                "value_kib": self.bytes >> 10,
                "values": self.values,
                "put_per_second": cost.rate(),
                "put_cpu_us": micros(&cost),
                "write_amplification": stats.alwa(),
                "puts_dropped": stats.engine.counts.puts_dropped,
                "index_bytes_per_value": stats.engine.index_bytes as f64
                    / stats.engine.index_entries.max(1) as f64,
            });
            store.close().await.expect("the store closes");
            row
        })
    }

    /// Compares flash hits with plain reads.
    fn compare_hits(
        &self,
        name: &str,
        runtime: &Runtime,
        depth: usize,
        options: &Options,
    ) -> Value {
        let store = runtime.block_on(self.open());
        let mut reads = Reads {
            bytes: self.bytes,
            depth,
            count: 64 * depth as u64,
            span: self.values * self.bytes as u64,
            seed: 1,
        };
        let ordinary = |reads: &Reads| plain_reads(&self.plain, reads, false).expect("plain reads");
        let plain = |reads: &Reads| plain_reads(&self.plain, reads, true).expect("plain reads");
        // A loop that also reads each byte, as a checksum must.
        let checked = |reads: &Reads| {
            plain_reads_into(&self.plain, reads, true, |bytes| {
                black_box(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes));
            })
            .expect("plain reads")
        };
        let trial = plain(&reads);
        reads.count =
            ((trial.rate() * options.time.as_secs_f64()) as u64 / u64::from(2 * SLICES)).max(1_000);
        let (mut hits, mut limit, mut unregistered, mut verifying) =
            (Vec::new(), vec![trial], Vec::new(), Vec::new());
        for slice in 0..SLICES {
            reads.seed = u64::from(slice);
            if !options.alone {
                limit.push(plain(&reads));
                unregistered.push(ordinary(&reads));
                verifying.push(checked(&reads));
            }
            hits.push(runtime.block_on(get_hits(&store, reads, self.values)));
        }
        runtime.block_on(store.close()).expect("the store closes");
        let (hits, limit) = (together(&hits), together(&limit));
        let (unregistered, verifying) = (together(&unregistered), together(&verifying));
        json!({
            "value_kib": self.bytes >> 10,
            "depth": depth,
            "runtime": name,
            "hit_per_second": hits.rate(),
            "loop_per_second": limit.rate(),
            "throughput_ratio": hits.rate() / limit.rate(),
            "hit_cpu_us": micros(&hits),
            "loop_cpu_us": micros(&limit),
            "cpu_ratio": micros(&hits) / micros(&limit),
            "unregistered_loop_cpu_us": micros(&unregistered),
            "cpu_ratio_unregistered": micros(&hits) / micros(&unregistered),
            "throughput_ratio_unregistered": hits.rate() / unregistered.rate(),
            "checking_loop_cpu_us": micros(&verifying),
            "cpu_ratio_checking": micros(&hits) / micros(&verifying),
        })
    }

    /// Measures opening after a close and after a kill.
    fn recoveries(&self) -> Vec<Value> {
        let mut rows = Vec::new();
        for after in ["close", "kill"] {
            let [(_, runtime), _] = runtimes();
            rows.push(runtime.block_on(async {
                let watch = Stopwatch::start();
                let store = self.open().await;
                let cost = watch.stop(1);
                let report = store.recovery();
                let row = json!({
                    "value_kib": self.bytes >> 10,
                    "recovered_after": after,
                    "chunks": report.records,
                    "cpu_ms": cost.cpu.as_secs_f64() * 1e3,
                    "wall_ms": cost.wall.as_secs_f64() * 1e3,
                    "zones_scanned": report.zones_scanned,
                });
                if after == "close" {
                    // Leaves open zones for the next recovery.
                    put_all(&store, self.bytes, 64).await;
                    store.flush().await.expect("the device flushes");
                }
                row
            }));
        }
        rows
    }
}

fn write_file(path: &Path, bytes: u64) {
    let mut file = std::fs::File::create(path).expect("a scratch file");
    let mut noise = vec![0; 1 << 20];
    Xoshiro256PlusPlus::seed_from_u64(2).fill_bytes(&mut noise);
    let mut left = bytes as usize;
    while left > 0 {
        let step = left.min(noise.len());
        file.write_all(&noise[..step])
            .expect("room for the scratch file");
        left -= step;
    }
    file.sync_all().expect("the scratch file reaches the disk");
}

async fn put_all(store: &Store, bytes: usize, values: u64) {
    let mut noise = vec![0; bytes];
    Xoshiro256PlusPlus::seed_from_u64(1).fill_bytes(&mut noise);
    let (next, noise) = (Arc::new(AtomicU64::new(0)), Arc::new(noise));
    let writers: Vec<_> = (0..FILL_DEPTH)
        .map(|_| {
            let (store, next, noise) = (store.clone(), Arc::clone(&next), Arc::clone(&noise));
            tokio::spawn(async move {
                loop {
                    let key = next.fetch_add(1, Relaxed);
                    if key >= values {
                        return;
                    }
                    let mut value = noise.to_vec();
                    value[..8].copy_from_slice(&key.to_le_bytes());
                    store
                        .put(
                            &key.to_le_bytes(),
                            Bytes::from(value),
                            PutOptions::default(),
                        )
                        .await
                        .expect("the store takes the value");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("a writer writes");
    }
}

async fn get_hits(store: &Store, reads: Reads, values: u64) -> Cost {
    let left = Arc::new(AtomicU64::new(reads.count));
    let watch = Stopwatch::start();
    let readers: Vec<_> = (0..reads.depth as u64)
        .map(|reader| {
            let (store, left) = (store.clone(), Arc::clone(&left));
            let mut random = Xoshiro256PlusPlus::seed_from_u64(reads.seed ^ (reader << 32));
            tokio::spawn(async move {
                while left
                    .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
                    .is_ok()
                {
                    let key = random.random_range(0..values);
                    let value = store
                        .get(&key.to_le_bytes())
                        .await
                        .expect("the store is open");
                    let value = value.expect("nothing was evicted");
                    assert_eq!(value.tier, Tier::Flash);
                    assert_eq!(value.bytes[..8], key.to_le_bytes());
                }
            })
        })
        .collect();
    for reader in readers {
        reader.await.expect("a reader reads");
    }
    watch.stop(reads.count)
}

/// Hits in the RAM tier on one thread: the synchronous lookup, the async one,
/// and a plain map of the standard library.
fn ram_hits(time: Duration) -> Vec<Value> {
    const VALUES: u64 = 100_000;
    const BYTES: usize = 100;
    const BATCH: u64 = 200_000;
    let [(_, runtime), _] = runtimes();
    runtime.block_on(async {
        let clock = Clock::real();
        let device = floe_device::open(&DeviceConfig::memory(ByteSize::gib(1)), &clock);
        let config = StoreConfig::default();
        let store = Store::open(device.expect("the device opens"), clock, &config)
            .await
            .expect("the store opens");
        put_all(&store, BYTES, VALUES).await;
        store.flush().await.expect("the device flushes");
        let mut map = std::collections::HashMap::new();
        for key in 0..VALUES {
            let key = key.to_le_bytes();
            // The first get brings the value into the RAM tier.
            let value = store.get(&key).await.expect("the store is open");
            map.insert(key, value.expect("nothing was evicted").bytes);
        }
        let mut costs = [Vec::new(), Vec::new(), Vec::new()];
        let began = std::time::Instant::now();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        while began.elapsed() < time {
            let keys: Vec<_> = (0..BATCH)
                .map(|_| random.random_range(0..VALUES).to_le_bytes())
                .collect();
            let watch = Stopwatch::start();
            for key in &keys {
                let found = store.get_ram(key).expect("the store is open");
                assert!(matches!(found, InRam::Hit(_)));
            }
            costs[0].push(watch.stop(BATCH));
            let watch = Stopwatch::start();
            for key in &keys {
                let found = store.get(key).await.expect("the store is open");
                assert!(found.is_some_and(|found| found.tier == Tier::Ram));
            }
            costs[1].push(watch.stop(BATCH));
            let watch = Stopwatch::start();
            for key in &keys {
                let found = map.get(key).cloned();
                assert!(found.is_some_and(|found| found.len() == BYTES));
            }
            costs[2].push(watch.stop(BATCH));
        }
        let names = ["get_ram", "get", "HashMap"];
        let rows = names.iter().zip(&costs).map(|(name, costs)| {
            json!({
                "ram_hit_by": name,
                "value_bytes": BYTES,
                "values": VALUES,
                "cpu_ns": micros(&together(costs)) * 1e3,
            })
        });
        rows.collect()
    })
}

fn together(costs: &[Cost]) -> Cost {
    let zero = Cost {
        count: 0,
        wall: Duration::ZERO,
        cpu: Duration::ZERO,
    };
    costs.iter().fold(zero, |sum, cost| sum.plus(*cost))
}

fn micros(cost: &Cost) -> f64 {
    cost.cpu_per_operation().as_secs_f64() * 1e6
}
