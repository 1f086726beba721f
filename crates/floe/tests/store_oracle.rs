//! The law, against an oracle: random operations by several clients in virtual
//! time, processes killed and power cut at random moments, faults. The store may
//! forget; it may never lie. A seed that fails fails every time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use floe::{Admission, CacheError, PutOptions, Store, StoreConfig};
use floe_core::chunk::{ChunkConfig, Eviction};
use floe_core::{ByteSize, Geometry};
use floe_device::platter::WriteCache;
use floe_device::power::PowerSwitch;
use floe_device::{Clock, Faults, Faulty, MemoryDevice, virtual_time};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const CLIENTS: u64 = 4;
const KEYS_PER_CLIENT: u64 = 60;

/// What a key may hold.
#[derive(Clone, Debug, Default)]
struct Truth {
    /// Versions that a read may return; a miss is always allowed. Version 0 never exists.
    allowed: Vec<u64>,
}

#[derive(Default)]
struct Oracle {
    keys: Mutex<HashMap<u64, Truth>>,
    hits: Mutex<u64>,
    gets: Mutex<u64>,
}

fn value(key: u64, version: u64, large: bool) -> Bytes {
    let mut random = StdRng::seed_from_u64(key << 32 | version);
    let len = match random.random_range(0..10) {
        0 => random.random_range(0..100),
        1..=6 => random.random_range(100..70_000),
        _ if large => random.random_range(250_000..1_000_000),
        _ => random.random_range(0..65_536),
    };
    let mut bytes = vec![0u8; len.min(if large { 1 << 20 } else { 65_536 })];
    random.fill(&mut bytes[..]);
    if bytes.len() >= 16 {
        bytes[..8].copy_from_slice(&key.to_le_bytes());
        bytes[8..16].copy_from_slice(&version.to_le_bytes());
    }
    Bytes::from(bytes)
}

struct Setup {
    eviction: Eviction,
    large: bool,
    native_append: bool,
    faults: bool,
    crash: Crash,
}

/// How a life ends, unless its work is done first.
#[derive(Clone, Copy, PartialEq)]
enum Crash {
    /// The process is killed: every completed write survives.
    Kill,
    /// The power goes after some number of device operations; what was not
    /// flushed survives, vanishes or is torn, block by block.
    PowerLoss,
}

impl Setup {
    fn is_slots(&self) -> bool {
        self.eviction == Eviction::Clru && !self.native_append
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: 4096,
            zone_size: 4 << 20,
            zone_capacity: if self.native_append { 3 << 20 } else { 4 << 20 },
            // A slot has room for the longest value, so fewer fit.
            zone_count: if self.is_slots() && self.large {
                40
            } else {
                14
            },
            max_open_zones: self.native_append.then_some(5),
            max_active_zones: self.native_append.then_some(6),
            max_append_bytes: 512 << 10,
            random_writes: !self.native_append,
            native_append: self.native_append,
            placement_handles: 0,
        }
    }

    fn config(&self) -> StoreConfig {
        let mut config = StoreConfig {
            chunk: ChunkConfig {
                size: if self.large {
                    ByteSize::mib(1)
                } else {
                    ByteSize::kib(64)
                },
                eviction: self.eviction,
                write_buffer: ByteSize::mib(3),
                ..ChunkConfig::default()
            },
            seed: Some(7),
            ..StoreConfig::default()
        };
        config.ram.size = ByteSize::kib(600);
        config
    }
}

async fn client(
    store: Store,
    oracle: Arc<Oracle>,
    id: u64,
    seed: u64,
    operations: u64,
    large: bool,
) {
    let mut random = StdRng::seed_from_u64(seed ^ id << 40);
    for step in 0..operations {
        let key =
            id * KEYS_PER_CLIENT + (random.random::<f64>().powi(2) * KEYS_PER_CLIENT as f64) as u64;
        let name = format!("key-{key}");
        match random.random_range(0..100) {
            0..35 => {
                let version = seed << 20 | step << 1 | 1;
                let bytes = value(key, version, large);
                // Until it is acknowledged, old and new are both right.
                oracle
                    .keys
                    .lock()
                    .entry(key)
                    .or_default()
                    .allowed
                    .push(version);
                match store
                    .put(name.as_bytes(), bytes, PutOptions::default())
                    .await
                {
                    Ok(Admission::Admitted) => {
                        oracle.keys.lock().entry(key).or_default().allowed = vec![version]
                    }
                    Ok(Admission::Refused) => {
                        oracle.keys.lock().entry(key).or_default().allowed.clear()
                    }
                    Err(CacheError::NotDurable(_)) => {}
                    Err(CacheError::Closed) => return,
                    Err(error) => panic!("put: {error}"),
                }
            }
            35..45 => match store.delete(name.as_bytes()).await {
                Ok(_) => oracle.keys.lock().entry(key).or_default().allowed.clear(),
                Err(CacheError::NotDurable(_)) => {}
                Err(CacheError::Closed) => return,
                Err(error) => panic!("delete: {error}"),
            },
            // Dropping a future half-way is something users do.
            45..50 => poll_once(store.get(name.as_bytes())).await,
            50..70 => check_range(&store, &oracle, key, &name, &mut random, large).await,
            _ => check(&store, &oracle, key, &name, large).await,
        }
    }
}

async fn poll_once<F: Future>(future: F) {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| {
        let _ = future.as_mut().poll(cx);
        std::task::Poll::Ready(())
    })
    .await;
}

async fn check(store: &Store, oracle: &Oracle, key: u64, name: &str, large: bool) {
    let Ok(found) = store.get(name.as_bytes()).await else {
        return;
    };
    *oracle.gets.lock() += 1;
    if let Some(found) = found {
        *oracle.hits.lock() += 1;
        let truth = oracle.keys.lock().get(&key).cloned().unwrap_or_default();
        assert!(
            truth
                .allowed
                .iter()
                .any(|&version| value(key, version, large) == found.bytes),
            "key {key}: a lie from {:?}, version {:?}, {} bytes; allowed {:?}",
            found.tier,
            found
                .bytes
                .get(8..16)
                .map(|v| u64::from_le_bytes(v.try_into().expect("eight bytes"))),
            found.bytes.len(),
            truth.allowed
        );
    }
}

async fn check_range(
    store: &Store,
    oracle: &Oracle,
    key: u64,
    name: &str,
    random: &mut StdRng,
    large: bool,
) {
    let start = random.random_range(0..1_100_000);
    let end = start + random.random_range(0..300_000);
    let Ok(Some(mut reader)) = store.read(name.as_bytes(), start..end).await else {
        return;
    };
    let mut got = Vec::new();
    let mut fault = false;
    while let Some(part) = reader.next().await {
        match part {
            Ok(part) => got.extend_from_slice(&part),
            Err(_) => fault = true,
        }
    }
    let truth = oracle.keys.lock().get(&key).cloned().unwrap_or_default();
    let matches = |version: &u64| {
        let whole = value(key, *version, large);
        let end = (end as usize).min(whole.len());
        let wanted = &whole[(start as usize).min(end)..end];
        if fault {
            wanted.starts_with(&got)
        } else {
            wanted == got
        }
    };
    assert!(
        truth.allowed.iter().any(matches),
        "key {key}: a lie in range {start}..{end}, allowed {:?}",
        truth.allowed
    );
}

/// One life of the process: open, work, and be cut off at a random moment.
fn life(setup: &Setup, power: &PowerSwitch, oracle: &Arc<Oracle>, seed: u64, operations: u64) {
    let oracle = Arc::clone(oracle);
    let config = setup.config();
    let below = power.reopen();
    let (power, crash) = (power.clone(), setup.crash);
    let (faults, large, slots) = (setup.faults, setup.large, setup.is_slots());
    virtual_time::run(seed, |clock: Clock| async move {
        let mut faults_plan = Faults {
            delays: 0.7,
            delay_max: Duration::from_micros(900),
            ..Faults::default()
        };
        let faulty = Arc::new(Faulty::new(below, clock.clone(), seed, faults_plan.clone()));
        let store = Store::open(faulty.clone(), clock.clone(), &config)
            .await
            .expect("the cache opens");
        if faults {
            faults_plan.read_errors = 0.01;
            faults_plan.append_errors = 0.002;
            faults_plan.write_errors = 0.002;
            faults_plan.torn_writes = if slots { 0.002 } else { 0.0 };
            faults_plan.bit_flips = 0.01;
            faulty.set(faults_plan);
        }
        // Everything that survived the crash is checked before it can be overwritten.
        for key in 0..CLIENTS * KEYS_PER_CLIENT {
            check(&store, &oracle, key, &format!("key-{key}"), large).await;
        }
        let mut random = StdRng::seed_from_u64(seed);
        if crash == Crash::PowerLoss {
            // Some of these come while the cache is still being read, some never.
            power.crash_after(random.random_range(1..operations), seed);
        }
        let clients: Vec<_> = (0..CLIENTS)
            .map(|id| {
                tokio::spawn(client(
                    store.clone(),
                    Arc::clone(&oracle),
                    id,
                    seed,
                    operations / CLIENTS,
                    large,
                ))
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
            let _ = store.close().await;
        }
    });
}

fn run(setup: &Setup, lives: u64, operations: u64) {
    let volatile = WriteCache::Volatile { bytes_max: 8 << 20 };
    let (_, power) = MemoryDevice::with_power(setup.geometry(), volatile);
    let oracle = Arc::new(Oracle::default());
    for seed in 1..=lives {
        life(setup, &power, &oracle, seed, operations);
    }
    let (hits, gets) = (*oracle.hits.lock(), *oracle.gets.lock());
    println!("{hits} hits of {gets} gets");
    assert!(
        hits * 10 > gets,
        "it forgets too much: {hits} hits of {gets} gets"
    );
}

#[test]
fn small_values_zplru() {
    run(
        &Setup {
            eviction: Eviction::Zplru,
            large: false,
            native_append: false,
            faults: false,
            crash: Crash::Kill,
        },
        12,
        3000,
    );
}

#[test]
fn large_values_fifo_on_zns() {
    run(
        &Setup {
            eviction: Eviction::Fifo,
            large: true,
            native_append: true,
            faults: false,
            crash: Crash::Kill,
        },
        12,
        1000,
    );
}

#[test]
fn mixed_values_sieve_with_faults() {
    run(
        &Setup {
            eviction: Eviction::Sieve,
            large: true,
            native_append: false,
            faults: true,
            crash: Crash::Kill,
        },
        12,
        1000,
    );
}

#[test]
fn clru_with_host_gc_on_zns() {
    run(
        &Setup {
            eviction: Eviction::Clru,
            large: false,
            native_append: true,
            faults: false,
            crash: Crash::Kill,
        },
        12,
        3000,
    );
}

#[test]
fn clru_with_host_gc_large_values_and_faults() {
    run(
        &Setup {
            eviction: Eviction::Clru,
            large: true,
            native_append: true,
            faults: true,
            crash: Crash::Kill,
        },
        12,
        1000,
    );
}

#[test]
fn power_loss_small_values() {
    let setup = Setup {
        eviction: Eviction::Zplru,
        large: false,
        native_append: false,
        faults: false,
        crash: Crash::PowerLoss,
    };
    run(&setup, 30, 1500);
}

#[test]
fn power_loss_on_zns_with_host_gc() {
    let setup = Setup {
        eviction: Eviction::Clru,
        large: true,
        native_append: true,
        faults: false,
        crash: Crash::PowerLoss,
    };
    run(&setup, 30, 600);
}

/// CLRU on a device that takes writes in place.
const SLOTS: Setup = Setup {
    eviction: Eviction::Clru,
    large: false,
    native_append: false,
    faults: false,
    crash: Crash::Kill,
};

#[test]
fn clru_slots_small_values() {
    run(&SLOTS, 8, 3000);
}

#[test]
fn clru_slots_small_values_and_power_losses() {
    let setup = Setup {
        crash: Crash::PowerLoss,
        ..SLOTS
    };
    run(&setup, 20, 1500);
}

#[test]
fn clru_slots_large_values_and_power_losses() {
    let setup = Setup {
        large: true,
        crash: Crash::PowerLoss,
        ..SLOTS
    };
    run(&setup, 12, 800);
}

#[test]
fn clru_slots_with_faults_and_power_losses() {
    let setup = Setup {
        faults: true,
        crash: Crash::PowerLoss,
        ..SLOTS
    };
    run(&setup, 12, 1500);
}

#[test]
fn clru_slots_large_values_and_faults() {
    let setup = Setup {
        large: true,
        faults: true,
        ..SLOTS
    };
    run(&setup, 8, 800);
}
