//! Flash reads of hits and misses, before and after restarts: page filters say which pages of
//! the index to read.

mod common;

use std::time::Duration;

use common::{in_place, memory};
use floe::tiny::{NemoConfig, TinyConfig};
use floe::{ByteSize, PutOptions, Tiny};
use floe_device::{Clock, SharedDevice, virtual_time};
use futures::future::join_all;

/// Keys of 200 bytes that fill most of the flash, in several index groups.
const KEYS: u64 = 80_000;

const VALUE: [u8; 192] = [7; 192];

async fn open(device: &SharedDevice, clock: &Clock, page_filter_bits: f64) -> Tiny {
    let nemo = NemoConfig {
        page_filter_bits,
        object_bytes: 8 + VALUE.len() as u32,
        ..NemoConfig::default()
    };
    open_with(device, clock, nemo).await
}

async fn open_with(device: &SharedDevice, clock: &Clock, nemo: NemoConfig) -> Tiny {
    let config = TinyConfig {
        seed: Some(1),
        ram: ByteSize(0),
        nemo,
        ..TinyConfig::default()
    };
    let store = Tiny::open(device.clone(), clock.clone(), &config).await;
    store.expect("opens")
}

async fn put(store: &Tiny, numbers: std::ops::Range<u64>) {
    for number in numbers.clone().step_by(256) {
        let numbers = number..(number + 256).min(numbers.end);
        join_all(numbers.map(async |number| {
            let key = number.to_be_bytes();
            let put = store.put(&key, &VALUE, PutOptions::default());
            put.await.expect("put");
        }))
        .await;
    }
}

/// The share of these keys that are found, and the mean number of pages that a lookup reads.
async fn look_up(store: &Tiny, numbers: std::ops::Range<u64>) -> (f64, f64) {
    let pages = || {
        let engine = store.stats().engine;
        (engine.pages_searched + engine.index_pages_searched) as f64
    };
    let before = pages();
    let (mut found, mut lookups) = (0.0, 0.0);
    for number in numbers.step_by(37) {
        let hit = store.get(&number.to_be_bytes()).await.expect("get");
        if let Some(hit) = &hit {
            assert_eq!(&hit.bytes[..], VALUE);
        }
        found += f64::from(u8::from(hit.is_some()));
        lookups += 1.0;
    }
    (found / lookups, (pages() - before) / lookups)
}

/// Waits until the page filters are loaded.
async fn settle(store: &Tiny, clock: &Clock) {
    while !store.is_idle() {
        clock.sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_hit_reads_two_pages_and_a_miss_hardly_any_also_after_restarts() {
    virtual_time::run(3, |clock: Clock| async move {
        let device = memory(in_place(400, 64 << 10));
        let store = open(&device, &clock, 7.0).await;
        put(&store, 0..KEYS).await;
        settle(&store, &clock).await;
        let (found, per_hit) = look_up(&store, 0..KEYS).await;
        let (none, per_miss) = look_up(&store, 1 << 40..(1 << 40) + KEYS).await;
        assert!(found > 0.99 && none == 0.0, "{found} {none}");
        assert!(per_hit < 2.3 && per_miss < 0.6, "{per_hit} {per_miss}");
        store.close().await.expect("closes");

        // The group that was not complete has no page filters, so its filters have more false
        // positives. Once it is complete, it is kept in memory as a whole.
        for more in [KEYS / 4, KEYS / 8] {
            let store = open(&device, &clock, 7.0).await;
            settle(&store, &clock).await;
            let (again, per_hit) = look_up(&store, KEYS / 2..KEYS).await;
            let (none, per_miss) = look_up(&store, 1 << 40..(1 << 40) + KEYS).await;
            assert!(again > 0.99 && none == 0.0, "{again} {none}");
            assert!(per_hit < 2.3 && per_miss < 1.0, "{per_hit} {per_miss}");
            put(&store, KEYS / 2..KEYS / 2 + more).await;
            store.close().await.expect("closes");
        }

        // Without page filters, and again with them.
        let store = open(&device, &clock, 0.0).await;
        let (found, many) = look_up(&store, KEYS / 2..KEYS).await;
        assert!(found > 0.99 && many > 4.0, "{found} {many}");
        put(&store, KEYS / 2..KEYS / 2 + 1_000).await;
        store.close().await.expect("closes");
        let store = open(&device, &clock, 7.0).await;
        let (found, before) = look_up(&store, KEYS / 2..KEYS).await;
        settle(&store, &clock).await;
        let (again, after) = look_up(&store, KEYS / 2..KEYS).await;
        assert!(found > 0.99 && again > 0.99, "{found} {again}");
        assert!(after < 2.3 && before > after, "{before} {after}");
        store.close().await.expect("closes");
    });
}

/// With objects of the expected size there would be one index group, and no page filters.
#[test]
fn page_filters_of_shorter_objects_than_expected_are_loaded() {
    virtual_time::run(5, |clock: Clock| async move {
        const KEYS: u64 = 90_000;
        let device = memory(in_place(130, 64 << 10));
        let store = open_with(&device, &clock, NemoConfig::default()).await;
        for number in (0..KEYS).step_by(256) {
            join_all((number..number + 256).map(async |number| {
                let key = number.to_be_bytes();
                let put = store.put(&key, &VALUE[..52], PutOptions::default());
                put.await.expect("put");
            }))
            .await;
        }
        store.close().await.expect("closes");
        let store = open_with(&device, &clock, NemoConfig::default()).await;
        let (_, before) = look_up(&store, 1 << 40..(1 << 40) + KEYS).await;
        settle(&store, &clock).await;
        let (_, after) = look_up(&store, 1 << 40..(1 << 40) + KEYS).await;
        assert!(after < before / 2.0, "{before} {after}");
        store.close().await.expect("closes");
    });
}
