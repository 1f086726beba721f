//! Gets of tiny values in memory while set-groups fill and are flushed, beside the same load
//! without a flush.
//!
//! `cargo bench -p floe --bench stalls [-- --quick] [--json] [--only <MiB of set-groups>]`
//!
//! One thread gets hot values from the RAM tier at a steady rate. A runtime of two threads puts
//! values at a steady rate: in *still* slices they overwrite a few hot keys in memory, which
//! fills nothing; in *flushing* slices they are new keys, which fill set-groups on a file. Slices
//! alternate. Each row has the latencies of the gets of all slices of one kind.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use floe::{InRam, PutOptions, Tiny, TinyConfig};
use floe_core::ByteSize;
use floe_device::{Clock, DeviceConfig};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// As in the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VALUE_BYTES: usize = 226;

/// Gets and puts a second.
const GETS: u32 = 4_000;
const PUTS: u32 = 50_000;

/// Puts that are under way at once.
const DEPTH: u32 = 64;

const HOT_KEYS: u64 = 10_000;

fn main() {
    let after = |flag: &str| std::env::args().skip_while(|a| a != flag).nth(1);
    let given = |flag: &str| std::env::args().any(|argument| argument == flag);
    let is_quick = given("--quick");
    let is_json = given("--json");
    let only = after("--only");
    let show = |row: &Value| match is_json {
        true => println!("{row}"),
        false => {
            let cells = row.as_object().into_iter().flatten();
            let cells = cells.map(|(name, value)| format!("{}: {value}", name.replace('_', " ")));
            println!("{}", cells.collect::<Vec<_>>().join(", "));
        }
    };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
    // Each slice flushes: 50,000 puts fill 14 MiB a second.
    let cases: &[(u64, u64, u64, u64)] = match is_quick {
        true => &[(4, 64, 3, 2)],
        false => &[(4, 64, 7, 10), (128, 8, 7, 24), (1077, 5, 3, 90)],
    };
    for (mib, zones, slices, seconds) in cases {
        // The largest take nine minutes.
        let is_asked = match &only {
            Some(only) => *only == mib.to_string(),
            None => *mib < 1024,
        };
        if !is_asked {
            continue;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let case = Case::open(
            &runtime,
            &folder.path().join("tiny"),
            ByteSize::mib(*mib),
            *zones,
        );
        let time = Duration::from_secs(*seconds);
        let mut still = Vec::new();
        let mut flushing = Vec::new();
        for _ in 0..*slices {
            still.push(case.slice(&runtime, time, false));
            flushing.push(case.slice(&runtime, time, true));
        }
        let flushed = flushing.iter().map(|slice| slice.set_groups).sum::<u64>();
        for (name, slices) in [("still", &still), ("flushing", &flushing)] {
            let latencies = slices.iter().flat_map(|slice| &slice.latencies);
            let mut all: Vec<f64> = latencies.copied().collect();
            all.sort_unstable_by(f64::total_cmp);
            let at = |share: f64| {
                let nth = (all.len() - 1) as f64 * share;
                (all[nth.round() as usize] * 10.0).round() / 10.0
            };
            let puts: f64 = slices.iter().map(|slice| slice.puts_per_second).sum();
            show(&json!({
                "set_groups": format!("{mib} MiB"),
                "load": name,
                "p50_us": at(0.5),
                "p99_us": at(0.99),
                "p99_9_us": at(0.999),
                "p99_99_us": at(0.9999),
                "longest_us": at(1.0),
                "gets": all.len(),
                "puts_per_second": (puts / slices.len() as f64).round(),
                "set_groups_flushed": if name == "flushing" { flushed } else { 0 },
            }));
        }
        runtime
            .block_on(async { case.tiny.close().await })
            .expect("it closes");
        std::fs::remove_file(folder.path().join("tiny")).expect("the scratch file was there");
    }
}

/// An open cache with hot values in its RAM tier.
struct Case {
    tiny: Tiny,
    clock: Clock,
    /// The next new key.
    next: AtomicU64,
}

struct Slice {
    /// Of gets, in microseconds.
    latencies: Vec<f64>,
    puts_per_second: f64,
    set_groups: u64,
}

impl Case {
    fn open(runtime: &Runtime, path: &std::path::Path, zone: ByteSize, zones: u64) -> Self {
        let clock = Clock::real();
        let device = DeviceConfig {
            zone_size: Some(zone),
            ..DeviceConfig::file(path, ByteSize(zone.bytes() * (zones + 3)))
        };
        let tiny = runtime.block_on(async {
            let device = floe_device::open(&device, &clock).expect("the device opens");
            let tiny = Tiny::open(device, clock.clone(), &TinyConfig::default())
                .await
                .expect("the cache opens");
            for key in 0..HOT_KEYS {
                put(&tiny, key).await;
            }
            tiny.flush().await.expect("it flushes");
            // Read from flash, they enter the RAM tier.
            for key in 0..HOT_KEYS {
                let got = tiny.get(&key.to_le_bytes()).await.expect("it is open");
                assert!(got.is_some(), "nothing was evicted");
            }
            tiny
        });
        Case {
            tiny,
            clock,
            next: AtomicU64::new(1 << 32),
        }
    }

    fn slice(&self, runtime: &Runtime, time: Duration, flushes: bool) -> Slice {
        let before = self.tiny.stats().engine.object_pages_written;
        let ends = AtomicBool::new(false);
        let puts = AtomicU64::new(0);
        let began = Instant::now();
        let latencies = std::thread::scope(|scope| {
            scope.spawn(|| {
                runtime.block_on(async {
                    let putters = (0..DEPTH).map(|_| self.put_on(&ends, &puts, began, flushes));
                    futures::future::join_all(putters).await;
                });
            });
            let latencies = self.get_on(began + time);
            ends.store(true, Relaxed);
            latencies
        });
        let pages = self.tiny.stats().engine.object_pages_written - before;
        let zone = self.tiny.device().geometry().zone_capacity;
        Slice {
            latencies,
            puts_per_second: (puts.load(Relaxed) as f64 / began.elapsed().as_secs_f64()).round(),
            set_groups: pages * 4096 / zone,
        }
    }

    /// Gets hot values at a steady rate until `end`.
    fn get_on(&self, end: Instant) -> Vec<f64> {
        let gap = Duration::from_secs(1) / GETS;
        let mut latencies = Vec::new();
        let mut due = Instant::now();
        let mut number = 0u64;
        while due < end {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            // Keys that the puts do not overwrite.
            let key = 1000 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (HOT_KEYS - 1000);
            let began = Instant::now();
            let got = self.tiny.get_ram(&key.to_le_bytes()).expect("it is open");
            latencies.push(began.elapsed().as_secs_f64() * 1e6);
            assert!(matches!(got, InRam::Hit(_)), "{key} is in memory");
            number += 1;
            due += gap;
        }
        latencies
    }

    /// One of `DEPTH` tasks that put values at a steady rate together.
    async fn put_on(&self, ends: &AtomicBool, puts: &AtomicU64, began: Instant, flushes: bool) {
        while !ends.load(Relaxed) {
            let number = puts.fetch_add(1, Relaxed);
            let due = began + Duration::from_secs(1) * (number as u32) / PUTS;
            let now = Instant::now();
            // The clock of the runtime has milliseconds: puts come in small bursts.
            if due > now + Duration::from_millis(1) {
                self.clock.sleep(due - now).await;
            }
            let key = match flushes {
                true => self.next.fetch_add(1, Relaxed),
                false => number % 1000,
            };
            put(&self.tiny, key).await;
        }
    }
}

async fn put(tiny: &Tiny, key: u64) {
    tiny.put(&key.to_le_bytes(), &[7; VALUE_BYTES], PutOptions::default())
        .await
        .expect("it takes values");
}
