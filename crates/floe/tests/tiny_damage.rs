//! Tiny objects on damaged or failing flash.

mod common;

use std::sync::Arc;

use common::{in_place, memory, open_tiny as open, tiny_config as config, zoned};
use floe::tiny::TinyConfig;
use floe::{Bytes, CacheError, PutOptions, Tiny};
use floe_core::ZoneId;
use floe_device::{Address, Clock, Faults, Faulty, IoBuf, Placement, SharedDevice, virtual_time};

const ZONES: u32 = 12;
const ZONE: u64 = 64 << 10;
const BLOCK: usize = 4096;

async fn put(store: &Tiny, key: u32, value: &[u8]) -> Result<(), CacheError> {
    let key = format!("key-{key}");
    store
        .put(key.as_bytes(), value, PutOptions::default())
        .await
}

async fn get(store: &Tiny, key: u32) -> Option<Bytes> {
    let key = format!("key-{key}");
    let found = store.get(key.as_bytes()).await.expect("get");
    found.map(|found| found.bytes)
}

async fn overwrite(device: &SharedDevice, at: Address, bytes: &[u8]) {
    let mut buf = IoBuf::zeroed(bytes.len());
    buf.copy_from_slice(bytes);
    let written = device.write(at, buf.freeze(), Placement(0)).await;
    written.expect("the damage is done");
}

/// An unreadable set-group may hold the newest copy: no older copy is served,
/// even long after its fences were dropped.
#[test]
fn no_older_object_is_found_if_any_zone_is_damaged() {
    const KEYS: u32 = 40;
    let mut hits = 0;
    for damaged in 2..ZONES {
        hits += virtual_time::run(1, async |clock: Clock| {
            let device = memory(in_place(ZONES, ZONE));
            let store = open(&device, &clock).await;
            for value in [b"older", b"newer"] {
                for key in 0..KEYS {
                    put(&store, key, value).await.expect("put");
                }
                store.flush().await.expect("flush");
            }
            store.close().await.expect("closes");
            // The next life's journal has no fences of objects on flash.
            open(&device, &clock).await.close().await.expect("closes");

            let garbage = [0x5a; ZONE as usize];
            overwrite(&device, Address::new(ZoneId(damaged), 0), &garbage).await;
            let mut hits = 0;
            for _ in 0..2 {
                let store = open(&device, &clock).await;
                for key in 0..KEYS {
                    let found = get(&store, key).await;
                    hits += u32::from(found.is_some());
                    let newest = found.is_none_or(|found| found == b"newer"[..]);
                    assert!(newest, "key {key}, zone {damaged}");
                }
                store.close().await.expect("closes");
            }
            hits
        });
    }
    // Damage in other zones costs no objects.
    assert!(hits > KEYS * (ZONES - 7) * 2, "{hits}");
}

#[test]
fn writes_that_fail_cost_zones_and_not_the_few_that_may_be_open() {
    virtual_time::run(2, async |clock: Clock| {
        let drive = memory(zoned(4 * ZONES, ZONE));
        let faults = Faults {
            torn_writes: 0.05,
            spared_zones: vec![ZoneId(0), ZoneId(1)],
            ..Faults::default()
        };
        let faulty = Arc::new(Faulty::new(drive, clock.clone(), 1, Faults::default()));
        let store = open(&(Arc::clone(&faulty) as SharedDevice), &clock).await;
        let value = [7; 400];
        faulty.set(faults);
        for key in 0..12_000 {
            put(&store, key, &value).await.expect("there is room");
        }
        assert!(faulty.injected() > 8, "{}", faulty.injected());
        faulty.set(Faults::default());
        let before = store.stats().engine.bytes_written();
        for key in 0..6_000 {
            put(&store, key, &value).await.expect("there is room");
        }
        let written = store.stats().engine.bytes_written() - before;
        assert!(written > 2_000_000, "{written}");
    });
}

/// A crash during the first format may keep the journal's first block and lose
/// the superblock before it.
#[test]
fn an_interrupted_format_starts_again() {
    virtual_time::run(3, async |clock: Clock| {
        let device = memory(in_place(ZONES, ZONE));
        drop(open(&device, &clock).await);
        for zone in [ZoneId(0), ZoneId(1)] {
            // The copy in the second zone is written last.
            overwrite(&device, Address::new(zone, 0), &[0; BLOCK]).await;
        }
        let store = open(&device, &clock).await;
        assert!(store.recovery().formatted, "{:?}", store.recovery());
    });
}

/// A superblock in version 1 of the format.
const VERSION_1: [u8; 112] = [
    0x46, 0x6c, 0x6f, 0x65, 0x54, 0x69, 0x6e, 0x97, 0xd8, 0xf1, 0x8a, 0xd1, 0x01, 0x00, 0x00, 0x00,
    0x70, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
    0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x2a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x80, 0x85, 0x74, 0x67, 0x00, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x10, 0x00, 0x00, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00,
    0x0d, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];

#[test]
fn a_cache_of_an_older_format_is_rejected_with_the_command_that_formats() {
    virtual_time::run(4, async |clock: Clock| {
        let device = memory(in_place(ZONES, ZONE));
        let mut block = [0; BLOCK];
        block[..VERSION_1.len()].copy_from_slice(&VERSION_1);
        overwrite(&device, Address::new(ZoneId(0), 0), &block).await;
        let rejected = Tiny::open(Arc::clone(&device), clock.clone(), &config()).await;
        let error = rejected.expect_err("another version").to_string();
        let reason = "format version 1; this build reads version 3";
        assert!(error.contains(reason), "{error}");
        assert!(error.contains("floe format --tiny --force"), "{error}");

        let config = TinyConfig {
            format: true,
            ..config()
        };
        let opened = Tiny::open(device, clock, &config).await.expect("opens");
        assert!(opened.recovery().formatted);
    });
}
