//! The law for a cache of two engines: keys whose values are tiny now and
//! large then, processes killed and power cut. It may forget; it may never lie.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use floe::tiny::TinyConfig;
use floe::{Admission, Cache, CacheError, ChunkConfig, Store, StoreConfig, Tiny};
use floe_core::{ByteSize, Geometry};
use floe_device::platter::WriteCache;
use floe_device::power::PowerSwitch;
use floe_device::{Clock, Faults, Faulty, MemoryDevice, virtual_time};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const CLIENTS: u64 = 4;
const KEYS_PER_CLIENT: u64 = 500;
const THRESHOLD: ByteSize = ByteSize::kib(2);

#[derive(Default)]
struct Oracle {
    /// Versions that a read may return; a miss is always allowed.
    keys: Mutex<HashMap<u64, Vec<u64>>>,
    /// Hits and gets of tiny values, and of others.
    hits: Mutex<[u64; 2]>,
}

fn value(key: u64, version: u64) -> Bytes {
    let mut random = StdRng::seed_from_u64(key << 32 | version);
    let len = if random.random_ratio(3, 4) {
        random.random_range(16..900)
    } else {
        random.random_range(2_000..40_000)
    };
    let mut bytes = vec![0u8; len];
    random.fill(&mut bytes[..]);
    bytes[..8].copy_from_slice(&key.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    Bytes::from(bytes)
}

fn geometry(zones: u32, zone_bytes: u64) -> Geometry {
    Geometry {
        block_size: 4096,
        zone_size: zone_bytes,
        zone_capacity: zone_bytes,
        zone_count: zones,
        max_open_zones: None,
        max_active_zones: None,
        max_append_bytes: 512 << 10,
        random_writes: true,
        native_append: false,
        placement_handles: 0,
    }
}

async fn open(chunks: Arc<Faulty>, tiny: Arc<Faulty>, clock: Clock) -> Cache {
    let mut config = StoreConfig {
        chunk: ChunkConfig {
            size: ByteSize::kib(64),
            write_buffer: ByteSize::mib(3),
            ..ChunkConfig::default()
        },
        seed: Some(7),
        ..StoreConfig::default()
    };
    config.ram.size = ByteSize::kib(600);
    let tiny_config = TinyConfig {
        ram: ByteSize::kib(64),
        seed: Some(8),
        ..TinyConfig::default()
    };
    let store = Store::open(chunks, clock.clone(), &config)
        .await
        .expect("the store opens");
    let tiny = Tiny::open(tiny, clock, &tiny_config)
        .await
        .expect("the tiny engine opens");
    Cache::over(store).with_tiny(tiny, THRESHOLD)
}

async fn client(cache: Cache, oracle: Arc<Oracle>, id: u64, seed: u64, operations: u64) {
    let mut random = StdRng::seed_from_u64(seed ^ id << 40);
    for step in 0..operations {
        let draw = random.random::<f64>().powi(2);
        let key = id * KEYS_PER_CLIENT + (draw * KEYS_PER_CLIENT as f64) as u64;
        let name = format!("key-{key}");
        match random.random_range(0..100) {
            0..45 => {
                let version = seed << 20 | step << 1 | 1;
                oracle.keys.lock().entry(key).or_default().push(version);
                let bytes = value(key, version);
                let result = if random.random_bool(0.1) {
                    in_pieces(&cache, &name, bytes).await
                } else {
                    cache.put(name.as_bytes(), bytes).await
                };
                match result {
                    Ok(Admission::Admitted) => {
                        oracle.keys.lock().insert(key, vec![version]);
                    }
                    Ok(Admission::Refused) => {
                        oracle.keys.lock().insert(key, Vec::new());
                    }
                    Err(CacheError::NotDurable(_)) => {}
                    Err(CacheError::Closed) => return,
                    Err(error) => panic!("put: {error}"),
                }
            }
            45..55 => match cache.delete(name.as_bytes()).await {
                Ok(_) => oracle.keys.lock().entry(key).or_default().clear(),
                Err(CacheError::NotDurable(_)) => {}
                Err(CacheError::Closed) => return,
                Err(error) => panic!("delete: {error}"),
            },
            _ => check(&cache, &oracle, key).await,
        }
    }
}

async fn in_pieces(cache: &Cache, name: &str, bytes: Bytes) -> Result<Admission, CacheError> {
    let mut writer = cache
        .writer(name.as_bytes(), bytes.len() as u64, Default::default())
        .await?;
    let half = bytes.len() / 2;
    writer.write(bytes.slice(..half)).await?;
    writer.write(bytes.slice(half..)).await?;
    writer.finish().await
}

async fn check(cache: &Cache, oracle: &Oracle, key: u64) {
    let name = format!("key-{key}");
    let before = oracle.keys.lock().get(&key).cloned().unwrap_or_default();
    let Ok(found) = cache.get(name.as_bytes()).await else {
        return;
    };
    let Some(found) = found else {
        return;
    };
    let after = oracle.keys.lock().get(&key).cloned().unwrap_or_default();
    let mut allowed = before.iter().chain(&after);
    assert!(
        allowed.any(|&version| value(key, version) == found),
        "key {key}: a lie, version {:?}; allowed {before:?} {after:?}",
        found
            .get(8..16)
            .map(|v| u64::from_le_bytes(v.try_into().expect("eight bytes"))),
    );
    let is_large = found.len() as u64 > THRESHOLD.bytes();
    oracle.hits.lock()[usize::from(is_large)] += 1;
}

fn life(powers: &[PowerSwitch; 2], oracle: &Arc<Oracle>, seed: u64, operations: u64, loss: bool) {
    let oracle = Arc::clone(oracle);
    let [chunks, tiny] = powers.each_ref().map(PowerSwitch::reopen);
    let powers = powers.clone();
    virtual_time::run(seed, |clock: Clock| async move {
        let plan = Faults {
            delays: 0.7,
            delay_max: Duration::from_micros(900),
            ..Faults::default()
        };
        let faulty = |below, seed| Arc::new(Faulty::new(below, clock.clone(), seed, plan.clone()));
        let cache = open(faulty(chunks, seed), faulty(tiny, seed + 1), clock.clone()).await;
        for key in 0..CLIENTS * KEYS_PER_CLIENT {
            check(&cache, &oracle, key).await;
        }
        let mut random = StdRng::seed_from_u64(seed);
        if loss {
            for power in &powers {
                power.crash_after(random.random_range(1..operations), seed);
            }
        }
        let clients: Vec<_> = (0..CLIENTS)
            .map(|id| {
                let (cache, oracle) = (cache.clone(), Arc::clone(&oracle));
                tokio::spawn(client(cache, oracle, id, seed, operations / CLIENTS))
            })
            .collect();
        let cut_off = Duration::from_micros(random.random_range(0..operations * 400));
        let work = async {
            for client in clients {
                client.await.expect("a client does not panic");
            }
        };
        tokio::select! {
            biased;
            () = work => {}
            () = clock.sleep(cut_off) => {}
        }
        if seed.is_multiple_of(5) {
            let _ = cache.close().await;
        }
    });
}

fn run(lives: u64, operations: u64, loss: bool) {
    let volatile = WriteCache::Volatile { bytes_max: 8 << 20 };
    let (_, chunks) = MemoryDevice::with_power(geometry(14, 4 << 20), volatile);
    let (_, tiny) = MemoryDevice::with_power(geometry(20, 128 << 10), volatile);
    let oracle = Arc::new(Oracle::default());
    for seed in 1..=lives {
        life(
            &[chunks.clone(), tiny.clone()],
            &oracle,
            seed,
            operations,
            loss,
        );
    }
    let hits = *oracle.hits.lock();
    println!("{hits:?} hits of tiny and other values");
    assert!(hits.iter().all(|hits| *hits > 500), "{hits:?}");
}

#[test]
fn killed() {
    run(8, 8_000, false);
}

#[test]
fn power_lost() {
    run(12, 4_000, true);
}
