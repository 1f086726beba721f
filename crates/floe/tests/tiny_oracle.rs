//! The law for tiny objects, against an oracle: random operations by several
//! clients in virtual time, processes killed and power cut at random moments,
//! faults. The store may forget; it may never lie. A seed that fails fails
//! every time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use floe::tiny::TinyConfig;
use floe::{CacheError, PutOptions, Tiny};
use floe_core::tiny::nemo::NemoConfig;
use floe_core::{ByteSize, Geometry};
use floe_device::platter::WriteCache;
use floe_device::power::PowerSwitch;
use floe_device::{Clock, Faults, Faulty, MemoryDevice, virtual_time};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const CLIENTS: u64 = 4;
const KEYS_PER_CLIENT: u64 = 2_000;

#[derive(Default)]
struct Oracle {
    /// Versions that a read may return; a miss is always allowed.
    keys: Mutex<HashMap<u64, Vec<u64>>>,
    hits: Mutex<u64>,
    gets: Mutex<u64>,
}

fn value(key: u64, version: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(key << 32 | version);
    let mut bytes = vec![0u8; random.random_range(16..600)];
    random.fill(&mut bytes[..]);
    bytes[..8].copy_from_slice(&key.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes
}

#[derive(Clone)]
struct Setup {
    nemo: NemoConfig,
    instances: u32,
    native_append: bool,
    faults: bool,
    power_loss: bool,
}

impl Setup {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: 4096,
            zone_size: 256 << 10,
            zone_capacity: if self.native_append {
                192 << 10
            } else {
                256 << 10
            },
            zone_count: 26,
            max_open_zones: self.native_append.then_some(5),
            max_active_zones: self.native_append.then_some(6),
            max_append_bytes: 64 << 10,
            random_writes: !self.native_append,
            native_append: self.native_append,
            placement_handles: 0,
        }
    }

    fn config(&self) -> TinyConfig {
        TinyConfig {
            instances: Some(self.instances),
            nemo: self.nemo.clone(),
            seed: Some(7),
            ram: ByteSize::kib(64),
            ..TinyConfig::default()
        }
    }
}

async fn client(store: Tiny, oracle: Arc<Oracle>, id: u64, seed: u64, operations: u64) {
    let mut random = StdRng::seed_from_u64(seed ^ id << 40);
    for step in 0..operations {
        let draw = random.random::<f64>().powi(2);
        let key = id * KEYS_PER_CLIENT + (draw * KEYS_PER_CLIENT as f64) as u64;
        let name = format!("key-{key}");
        match random.random_range(0..100) {
            0..45 => {
                let version = seed << 20 | step << 1 | 1;
                // Until it is acknowledged, old and new are both right.
                oracle.keys.lock().entry(key).or_default().push(version);
                let bytes = value(key, version);
                // Dropping a future half-way is something users do.
                if random.random_ratio(1, 40) {
                    poll_once(store.put(name.as_bytes(), &bytes, PutOptions::default())).await;
                    continue;
                }
                match store
                    .put(name.as_bytes(), &bytes, PutOptions::default())
                    .await
                {
                    Ok(()) => *oracle.keys.lock().entry(key).or_default() = vec![version],
                    Err(CacheError::NotDurable(_)) => {}
                    Err(CacheError::Closed) => return,
                    Err(error) => panic!("put: {error}"),
                }
            }
            45..52 => match store.delete(name.as_bytes()).await {
                Ok(()) => oracle.keys.lock().entry(key).or_default().clear(),
                Err(CacheError::NotDurable(_)) => {}
                Err(CacheError::Closed) => return,
                Err(error) => panic!("delete: {error}"),
            },
            52..55 => poll_once(store.get(name.as_bytes())).await,
            _ => check(&store, &oracle, key).await,
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

async fn check(store: &Tiny, oracle: &Oracle, key: u64) {
    let name = format!("key-{key}");
    // What may be returned is what was right at any time during the read.
    let before = oracle.keys.lock().get(&key).cloned().unwrap_or_default();
    let Ok(found) = store.get(name.as_bytes()).await else {
        return;
    };
    *oracle.gets.lock() += 1;
    if let Some(found) = found {
        *oracle.hits.lock() += 1;
        let after = oracle.keys.lock().get(&key).cloned().unwrap_or_default();
        let mut allowed = before.iter().chain(&after);
        assert!(
            allowed.any(|&version| value(key, version) == found.bytes),
            "key {key}: a lie from {:?}, version {:?}; allowed {before:?} {after:?}",
            found.tier,
            found
                .bytes
                .get(8..16)
                .map(|v| u64::from_le_bytes(v.try_into().expect("eight bytes"))),
        );
    }
}

/// One life of the process: open, work, and be cut off at a random moment.
fn life(setup: &Setup, power: &PowerSwitch, oracle: &Arc<Oracle>, seed: u64, operations: u64) {
    let oracle = Arc::clone(oracle);
    let config = setup.config();
    let below = power.reopen();
    let power = power.clone();
    let (faults, power_loss) = (setup.faults, setup.power_loss);
    virtual_time::run(seed, |clock: Clock| async move {
        let mut plan = Faults {
            delays: 0.7,
            delay_max: Duration::from_micros(900),
            ..Faults::default()
        };
        let faulty = Arc::new(Faulty::new(below, clock.clone(), seed, plan.clone()));
        let store = Tiny::open(faulty.clone(), clock.clone(), &config)
            .await
            .expect("the cache opens");
        if faults {
            plan.read_errors = 0.01;
            plan.append_errors = 0.001;
            plan.bit_flips = 0.01;
            faulty.set(plan);
        }
        // Everything that survived the crash is checked before it can be overwritten.
        for key in 0..CLIENTS * KEYS_PER_CLIENT {
            check(&store, &oracle, key).await;
        }
        let mut random = StdRng::seed_from_u64(seed);
        if power_loss {
            power.crash_after(random.random_range(1..operations), seed);
        }
        let clients: Vec<_> = (0..CLIENTS)
            .map(|id| {
                let (store, oracle) = (store.clone(), Arc::clone(&oracle));
                tokio::spawn(client(store, oracle, id, seed, operations / CLIENTS))
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

fn run(setup: &Setup, lives: u64, operations: u64, hits_per_100: u64) {
    let volatile = WriteCache::Volatile { bytes_max: 8 << 20 };
    let (_, power) = MemoryDevice::with_power(setup.geometry(), volatile);
    let oracle = Arc::new(Oracle::default());
    for seed in 1..=lives {
        life(setup, &power, &oracle, seed, operations);
    }
    let (hits, gets) = (*oracle.hits.lock(), *oracle.gets.lock());
    println!("{hits} hits of {gets} gets");
    assert!(
        hits * 100 > gets * hits_per_100,
        "it forgets too much: {hits} hits of {gets} gets"
    );
}

const LIVES: u64 = 6;
const OPERATIONS: u64 = 14_000;

fn ours() -> Setup {
    Setup {
        nemo: NemoConfig::default(),
        instances: 1,
        native_append: false,
        faults: false,
        power_loss: false,
    }
}

#[test]
fn killed() {
    run(&ours(), LIVES, OPERATIONS, 20);
}

#[test]
fn killed_as_published() {
    let setup = Setup {
        nemo: NemoConfig::published(),
        ..ours()
    };
    run(&setup, LIVES, OPERATIONS, 20);
}

#[test]
fn killed_with_several_set_groups_in_a_zone_and_two_instances() {
    let setup = Setup {
        nemo: NemoConfig {
            set_group_pages: Some(16),
            ..NemoConfig::default()
        },
        instances: 2,
        ..ours()
    };
    run(&setup, LIVES, OPERATIONS, 20);
}

#[test]
fn killed_on_zns_with_set_groups_of_two_zones() {
    let setup = Setup {
        nemo: NemoConfig {
            set_group_pages: Some(96),
            ..NemoConfig::default()
        },
        native_append: true,
        ..ours()
    };
    run(&setup, LIVES, OPERATIONS, 10);
}

#[test]
fn power_loss() {
    let setup = Setup {
        power_loss: true,
        ..ours()
    };
    run(&setup, 16, OPERATIONS / 2, 5);
}

#[test]
fn power_loss_on_zns() {
    let setup = Setup {
        power_loss: true,
        native_append: true,
        ..ours()
    };
    run(&setup, 16, OPERATIONS / 2, 5);
}

#[test]
fn faults_and_power_loss() {
    let setup = Setup {
        faults: true,
        power_loss: true,
        ..ours()
    };
    run(&setup, 16, OPERATIONS / 2, 2);
}
