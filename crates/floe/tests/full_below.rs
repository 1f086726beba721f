//! A device that is larger than what lies below it: a sparse file on a disk
//! that is full.

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{in_place, memory};
use floe::device::{Clock, virtual_time};
use floe::{ByteSize, ChunkConfig, PutOptions, RamConfig, Store, StoreConfig};
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

/// Writes values; in between some are deleted, which the journal must note.
async fn put(store: &Store, count: usize, deleting: bool) {
    for index in 0..count {
        let options = PutOptions::default();
        // What there is no room for is not stored, or its death not noted.
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

/// Space runs out, for values and for the journal, and not only once: what it
/// suffices for is kept all the same.
#[test]
fn what_there_is_room_for_is_kept() {
    for seed in 0..100 {
        virtual_time::run(seed, move |clock| async move {
            let zones = 8 + seed % 6;
            let space = zones * ZONE_BYTES + (seed % 64) * 4096;
            let store = store(clock.clone(), seed, space).await;
            let full = space as usize / VALUE_BYTES;
            let few = full / 6;
            for round in 0..3 {
                put(&store, full * 4, true).await;
                put(&store, few, false).await;
                let hits = hits(&store, few).await;
                assert_eq!(hits, few, "seed {seed}, round {round}");
                let usable = u64::from(ZONES - 2) - store.stats().engine.zones_retired;
                assert!(
                    (zones - 3..zones + 5).contains(&usable),
                    "{usable} of {zones} zones in use with seed {seed}, round {round}"
                );
                // Long enough that it is looked whether there is more.
                clock.sleep(Duration::from_secs(100)).await;
            }
        });
    }
}
