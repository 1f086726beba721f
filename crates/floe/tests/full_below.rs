//! A device larger than the storage below it: a sparse file on a full disk.

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{in_place, memory};
use floe::device::{Clock, virtual_time};
use floe::tiny::TinyConfig;
use floe::{ByteSize, ChunkConfig, PutOptions, RamConfig, Store, StoreConfig, Tiny};
use floe_device::faulty::{Faults, Faulty};

const ZONES: u32 = 128;
const ZONE_BYTES: u64 = 1 << 20;
const VALUE_BYTES: usize = 60_000;

async fn store(clock: Clock, seed: u64, space_bytes: u64) -> Store {
    let below = memory(in_place(ZONES, ZONE_BYTES));
    let faults = Faults {
        space_bytes: Some(space_bytes),
        delays: 0.5,
        delay_max: Duration::from_micros(200),
        ..Faults::default()
    };
    let device = Arc::new(Faulty::new(below, clock.clone(), seed, faults));
    let config = StoreConfig {
        chunk: ChunkConfig {
            size: ByteSize::kib(64),
            ..ChunkConfig::default()
        },
        ram: RamConfig {
            size: ByteSize(0),
            ..RamConfig::default()
        },
        ..StoreConfig::default()
    };
    Store::open(device, clock, &config).await.unwrap()
}

fn key(index: usize) -> String {
    format!("key-{index}")
}

fn value(index: usize) -> Bytes {
    Bytes::from(vec![index as u8; VALUE_BYTES])
}

/// Writes values, and deletes some, which the journal must record.
async fn put(store: &Store, count: usize, deleting: bool) {
    for index in 0..count {
        let options = PutOptions::default();
        // Without space a value is not stored, or its tombstone not written.
        let _ = store
            .put(key(index).as_bytes(), value(index), options)
            .await;
        if deleting && index % 3 == 0 {
            let _ = store.delete(key(index / 2).as_bytes()).await;
        }
    }
    let _ = store.flush().await;
}

async fn hits(store: &Store, count: usize) -> usize {
    let mut hits = 0;
    for index in 0..count {
        if let Some(found) = store.get(key(index).as_bytes()).await.unwrap() {
            assert_eq!(found.bytes, value(index));
            hits += 1;
        }
    }
    hits
}

/// Space runs out repeatedly, for values and for the journal: values that fit are kept.
#[test]
fn values_that_fit_a_full_disk_are_kept() {
    for seed in 0..60 {
        virtual_time::run(seed, move |clock| async move {
            let zones = 8 + seed % 6;
            // Two zones are the journal's.
            let space = (2 + zones) * ZONE_BYTES + (seed % 64) * 4096;
            let store = store(clock.clone(), seed, space).await;
            let full = (zones * ZONE_BYTES) as usize / VALUE_BYTES;
            let few = full / 6;
            for round in 0..3 {
                put(&store, full * 4, true).await;
                put(&store, few, false).await;
                let hits = hits(&store, few).await;
                // Space may run out again at this moment.
                assert!(
                    hits * 2 > few,
                    "{hits} of {few}, seed {seed}, round {round}"
                );
                let usable = u64::from(ZONES - 2) - store.stats().engine.zones_retired;
                assert!(
                    (zones - 3..zones + 5).contains(&usable),
                    "{usable} of {zones} zones in use with seed {seed}, round {round}"
                );
                // Long enough for the cache to try again.
                clock.sleep(Duration::from_secs(100)).await;
            }
        });
    }
}

/// As above for tiny objects. Extents that were given up are used again once there is space.
#[test]
fn tiny_objects_that_fit_a_full_disk_are_kept() {
    const ZONES: u32 = 34;
    const ZONE_BYTES: u64 = 64 << 10;
    /// Approximate objects per zone.
    const OBJECTS: usize = 240;
    for seed in 0..10 {
        virtual_time::run(seed, move |clock| async move {
            let below = memory(in_place(ZONES, ZONE_BYTES));
            let device = Arc::new(Faulty::new(below, clock.clone(), seed, Faults::default()));
            let config = TinyConfig {
                seed: Some(seed),
                ram: ByteSize::kib(16),
                ..TinyConfig::default()
            };
            let open = || Tiny::open(device.clone(), clock.clone(), &config);
            let store = open().await.unwrap();
            let value = |index: usize| vec![index as u8; 230];
            let put = async |from: usize, to: usize| {
                for index in from..to {
                    let (key, value) = (key(index), value(index));
                    let put = store.put(key.as_bytes(), &value, PutOptions::default());
                    put.await.unwrap();
                }
            };
            let hits = async |store: &Tiny, from: usize, to: usize| {
                let mut hits = 0;
                for index in from..to {
                    if let Some(found) = store.get(key(index).as_bytes()).await.unwrap() {
                        assert_eq!(found.bytes, value(index));
                        hits += 1;
                    }
                }
                hits
            };
            let zones = 8 + seed % 4;
            device.set(Faults {
                space_bytes: Some(zones * ZONE_BYTES + seed * 4096),
                ..Faults::default()
            });
            let written = 100 * OBJECTS;
            put(0, written).await;
            // The journal has some of the zones, and others are being written.
            let fitting = (zones as usize - 4) * OBJECTS;
            let found = hits(&store, written - fitting, written).await;
            assert!(
                found * 10 > fitting * 9,
                "{found} of {fitting}, seed {seed}"
            );

            device.set(Faults::default());
            clock.sleep(Duration::from_secs(100)).await;
            put(written, 2 * written).await;
            let fitting = 24 * OBJECTS;
            let found = hits(&store, 2 * written - fitting, 2 * written).await;
            assert!(found * 10 > fitting * 9, "{found} of {fitting} again");

            store.close().await.unwrap();
            let store = open().await.unwrap();
            let found = hits(&store, 2 * written - fitting, 2 * written).await;
            assert!(found * 10 > fitting * 9, "{found} of {fitting}, reopened");
        });
    }
}
