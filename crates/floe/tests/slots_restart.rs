//! CLRU in slots across a `kill -9`: a restart is warm, although evictions
//! write nothing and recency is in RAM.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use floe::{PutOptions, PutOutcome, Store, StoreConfig};
use floe_core::chunk::{ChunkConfig, Eviction};
use floe_core::{ByteSize, Geometry};
use floe_device::{Clock, MemoryDevice, SharedDevice, virtual_time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const VALUE_BYTES: usize = 3000;

/// About 1000 slots of 64 KiB.
fn device() -> SharedDevice {
    Arc::new(MemoryDevice::new(Geometry::in_place(18, 4 << 20)))
}

async fn open(device: &SharedDevice, clock: Clock) -> Store {
    let mut config = StoreConfig {
        chunk: ChunkConfig {
            size: ByteSize::kib(64),
            eviction: Eviction::Clru,
            write_buffer: ByteSize::mib(8),
            flush_delay_ms: 0,
            ..ChunkConfig::default()
        },
        seed: Some(3),
        ..StoreConfig::default()
    };
    config.ram.size = ByteSize(0);
    Store::open(device.clone(), clock, &config).await.unwrap()
}

fn name(key: u64) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

fn value(key: u64) -> Bytes {
    Bytes::from(vec![(key % 251) as u8; VALUE_BYTES])
}

async fn put(store: &Store, key: u64) {
    let admission = store
        .put(&name(key), value(key), PutOptions::default())
        .await;
    assert_eq!(admission.unwrap(), PutOutcome::Stored);
}

async fn hits(store: &Store, key: u64) -> bool {
    match store.get(&name(key)).await.unwrap() {
        Some(found) => {
            assert_eq!(found.bytes, value(key));
            true
        }
        None => false,
    }
}

async fn count_hits(store: &Store, keys: &[u64]) -> usize {
    let mut count = 0;
    for &key in keys {
        count += usize::from(hits(store, key).await);
    }
    count
}

async fn live_keys(store: &Store, keys: std::ops::Range<u64>) -> Vec<u64> {
    keys.filter(|&key| store.contains(&name(key)).unwrap())
        .collect()
}

/// Old values that were just read, and the newest values, survive; values
/// evicted before the kill take none of their slots.
#[test]
fn hot_and_new_values_outlive_a_kill() {
    for (written, newest) in [(3400, 50), (3700, 150), (4300, 250)] {
        let device = device();
        let below = device.clone();
        let (keys, before) = virtual_time::run(newest, |clock: Clock| async move {
            let store = open(&below, clock.clone()).await;
            for key in 0..written {
                put(&store, key).await;
            }
            store.flush().await.unwrap();
            let live = live_keys(&store, 0..written).await;
            let mut keys = live[..150].to_vec();
            assert_eq!(count_hits(&store, &keys).await, 150);
            for key in written..written + newest {
                put(&store, key).await;
            }
            store.flush().await.unwrap();
            keys.extend(written - 200..written + newest);
            let before = count_hits(&store, &keys).await;
            assert_eq!(before, keys.len());
            // The last tenth of a second of recency may be lost.
            clock.sleep(Duration::from_millis(300)).await;
            (keys, before)
            // The end of the runtime stops every task at any point: a kill.
        });
        // Twice: the second kill comes before new reads.
        for again in 1..3 {
            let (below, keys) = (device.clone(), keys.clone());
            virtual_time::run(newest + again, |clock: Clock| async move {
                let store = open(&below, clock.clone()).await;
                // Includes evictions at the restart, and the effects of its first writes.
                clock.sleep(Duration::from_millis(1)).await;
                for key in 0..20 {
                    put(&store, again * 10_000 + key).await;
                }
                clock.sleep(Duration::from_millis(1)).await;
                let after = count_hits(&store, &keys).await;
                assert!(after * 100 >= before * 99, "{before} hits, then {after}");
            });
        }
    }
}

/// Evicted values are not served after a kill, but tables still name them:
/// deleting such a key removes it from them permanently, as before the kill.
#[test]
fn deleting_what_a_restart_evicted_again_clears_its_table() {
    const WRITTEN: u64 = 2000;
    let device = device();
    let below = device.clone();
    let live = virtual_time::run(1, |clock: Clock| async move {
        let store = open(&below, clock.clone()).await;
        for key in 0..WRITTEN {
            put(&store, key).await;
        }
        store.flush().await.unwrap();
        clock.sleep(Duration::from_millis(300)).await;
        live_keys(&store, 0..WRITTEN).await
    });
    let below = device.clone();
    virtual_time::run(2, |clock: Clock| async move {
        let store = open(&below, clock.clone()).await;
        assert!(store.recovery().evicted_records > 50);
        assert_eq!(live_keys(&store, 0..WRITTEN).await, live);
        let stats = store.stats().engine;
        assert_eq!(stats.slots_total, stats.live_records + stats.slots_free);
        // Rewrites every second key, so that slots of evicted values are reused.
        for key in (0..WRITTEN).step_by(2) {
            put(&store, key).await;
        }
        for key in 0..WRITTEN {
            store.delete(&name(key)).await.unwrap();
        }
    });
    virtual_time::run(3, |clock: Clock| async move {
        let store = open(&device, clock).await;
        let recovery = store.recovery();
        assert_eq!((recovery.records, recovery.evicted_records), (0, 0));
        assert!(live_keys(&store, 0..WRITTEN).await.is_empty());
    });
}

/// One part of a sequence of requests with a skewed and slowly changing
/// popularity. Returns the hit ratio.
async fn requests(store: &Store, clock: &Clock, seed: u64, part: u64) -> f64 {
    const REQUESTS: u32 = 500;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed << 32 | part);
    let mut found = 0;
    for _ in 0..REQUESTS {
        let uniform: f64 = random.random();
        let key = (uniform.powi(4) * 3000.0) as u64 + part * 20;
        if random.random_ratio(1, 50) {
            store.delete(&name(key)).await.unwrap();
        } else if hits(store, key).await {
            found += 1;
        } else {
            put(store, key).await;
        }
        if random.random_ratio(1, 20) {
            clock.sleep(Duration::from_millis(20)).await;
        }
    }
    f64::from(found) / f64::from(REQUESTS)
}

/// Parts of the sequence.
const PARTS: u64 = 24;

/// The same requests with and without kills between the parts. The loss of one
/// seed is between zero and two points, so many are averaged.
#[test]
fn a_kill_costs_less_than_a_point_of_the_hit_ratio() {
    const SEEDS: u64 = 32;
    let runs: Vec<_> = (0..SEEDS)
        .map(|seed| std::thread::spawn(move || hit_ratios(seed)))
        .collect();
    // Sums of hit ratios: before the cache is full, and in two periods after that.
    let mut sums = [[0.0; 2]; 3];
    for run in runs {
        for (part, ratios) in run.join().expect("a seed's run").into_iter().enumerate() {
            let sum = &mut sums[part / 8];
            sum[0] += ratios[0];
            sum[1] += ratios[1];
        }
    }
    // Eight kills before the cache is full, and three per turnover after that.
    for sum in sums {
        let [without, with] = sum.map(|sum| sum / (8 * SEEDS) as f64);
        println!("hit ratio {without:.4} without kills, {with:.4} with");
        assert!(
            without - with <= 0.01,
            "{without} without, {with} with kills"
        );
    }
}

/// The hit ratio of each part, without and with a kill before it.
fn hit_ratios(seed: u64) -> Vec<[f64; 2]> {
    let below = device();
    let without: Vec<f64> = virtual_time::run(1, |clock: Clock| async move {
        let store = open(&below, clock.clone()).await;
        let mut ratios = Vec::new();
        for part in 0..PARTS {
            ratios.push(requests(&store, &clock, seed, part).await);
        }
        ratios
    });
    let device = device();
    let with = |part| {
        let below = device.clone();
        virtual_time::run(part, |clock: Clock| async move {
            let store = open(&below, clock.clone()).await;
            requests(&store, &clock, seed, part).await
        })
    };
    (0..PARTS)
        .zip(without)
        .map(|(part, without)| [without, with(part)])
        .collect()
}
