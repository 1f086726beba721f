//! Very small values up to a full device and across a restart, estimates of
//! their number, block sizes, and fences of new keys.

mod common;

use std::time::Duration;

use common::{in_place, memory};
use floe::config::TinySettings;
use floe::tiny::{LookBeforeFence, OpenTinyError, TinyConfig, TinyStats};
use floe::{ByteSize, PutOptions, Tiny};
use floe_core::Geometry;
use floe_core::tiny::Statistics;
use floe_device::{Clock, DeviceConfig, SharedDevice, virtual_time};
use futures::future::join_all;

const ZONES: u32 = 66;
const ZONE: u64 = 128 << 10;

/// Bytes of an object's header in its page.
const HEADER_BYTES: u64 = 4;

/// Keys to look up.
const ASKED: usize = 2_000;

/// Concurrent puts, whose fences share blocks.
const PUTS_AT_ONCE: u64 = 256;

async fn open(device: &SharedDevice) -> Tiny {
    open_at(device, Clock::real()).await
}

async fn open_at(device: &SharedDevice, clock: Clock) -> Tiny {
    let config = TinyConfig {
        seed: Some(1),
        ram: ByteSize(0),
        ..TinyConfig::default()
    };
    let store = Tiny::open(device.clone(), clock, &config).await;
    store.expect("opens")
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

async fn put(store: &Tiny, number: u64, value: &[u8]) {
    let key = key(number);
    let put = store.put(&key, value, PutOptions::default());
    put.await.expect("put");
}

/// The fraction of keys that are found.
async fn found(store: &Tiny, keys: u64, value: &[u8]) -> f64 {
    let step = (keys as usize / ASKED).max(1);
    let (mut found, mut lookups) = (0, 0);
    for number in (0..keys).step_by(step) {
        let hit = store.get(&key(number)).await.expect("get");
        if let Some(hit) = hit {
            assert_eq!(&hit.bytes[..], value);
            found += 1;
        }
        lookups += 1;
    }
    f64::from(found) / f64::from(lookups)
}

/// Puts values of `bytes` bytes until they take the fraction `share` of the device.
async fn fills(device: SharedDevice, bytes: usize, share: f64) {
    let store = open(&device).await;
    let value = vec![7; bytes];
    let object_bytes = HEADER_BYTES + key(0).len() as u64 + bytes as u64;
    let keys = (share * (u64::from(ZONES) * ZONE) as f64) as u64 / object_bytes;
    for first in (0..keys).step_by(PUTS_AT_ONCE as usize) {
        let numbers = first..(first + PUTS_AT_ONCE).min(keys);
        join_all(numbers.map(|number| put(&store, number, &value))).await;
    }
    let share = found(&store, keys, &value).await;
    assert!(share >= 0.99, "{share} of {keys} with {bytes} bytes");
    assert_eq!(store.stats().engine.searches_cut, 0);
    store.close().await.expect("closes");

    // The newest summaries have no room for their filters.
    let store = open(&device).await;
    let again = found(&store, keys, &value).await;
    assert!(again >= 0.98, "{again} of {keys} after a restart");
    assert_eq!(store.stats().engine.searches_cut, 0);
    store.close().await.expect("closes");
}

#[tokio::test]
async fn values_of_twenty_bytes_are_found_until_the_device_is_full_and_afterwards() {
    fills(memory(in_place(ZONES, ZONE)), 20, 0.85).await;
}

/// On so small a device the journal takes 3 % and indexes 11 %.
#[tokio::test]
async fn values_of_one_byte_are_found_until_the_device_is_nearly_full_and_afterwards() {
    fills(memory(in_place(ZONES, ZONE)), 1, 0.80).await;
}

#[tokio::test]
async fn values_of_twenty_bytes_are_found_in_a_full_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = DeviceConfig {
        zone_size: Some(ByteSize(ZONE)),
        ..DeviceConfig::file(
            folder.path().join("tiny"),
            ByteSize(u64::from(ZONES) * ZONE),
        )
    };
    let device = floe_device::open(&file, &Clock::real()).expect("opens");
    fills(device, 20, 0.85).await;
}

/// Set-groups record how many copies they hold; the number of live ones is
/// estimated within 10 %, also after a restart.
#[test]
fn live_objects_are_those_that_a_get_finds_before_and_after_a_restart() {
    const KEYS: u64 = 6_000;
    for (rounds, deleted) in [(1, 0), (5, 0), (1, KEYS / 2), (5, KEYS / 2)] {
        virtual_time::run(7, |clock: Clock| async move {
            let device = memory(in_place(ZONES, 2 * ZONE));
            let judge = async |store: &Tiny, when: &str| {
                let mut found = 0_u64;
                for number in 0..KEYS {
                    let value = store.get(&key(number)).await.expect("get");
                    found += u64::from(value.is_some());
                }
                let live = store.stats().live;
                let what = format!("{when} {rounds} rounds, {deleted} deleted: {live:?}");
                let error = live.objects.abs_diff(found) as f64 / KEYS as f64;
                assert!(error <= 0.1, "{what}, found {found}");
                let bytes = live.objects * 210;
                assert!(live.bytes.abs_diff(bytes) <= bytes / 100, "{what}");
            };
            let store = open_at(&device, clock.clone()).await;
            for _ in 0..rounds {
                for number in 0..KEYS {
                    put(&store, number, &[7; 202]).await;
                }
            }
            for number in 0..deleted {
                store.delete(&key(number)).await.expect("deleted");
            }
            judge(&store, "before").await;
            store.close().await.expect("closes");

            let store = open_at(&device, clock.clone()).await;
            let copies = store.stats().memory.objects_on_flash;
            assert!(copies > KEYS * rounds * 9 / 10, "{copies}");
            clock.sleep(Duration::from_secs(60)).await;
            judge(&store, "after").await;
            for number in 0..KEYS / 2 {
                put(&store, number, &[8; 202]).await;
            }
            judge(&store, "overwritten after").await;
        });
    }
}

#[test]
fn blocks_are_those_of_the_cache_that_is_there_unless_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // The device's block size, if the cache on it opens.
    let open = |file: &str, block_size: Option<ByteSize>| {
        let settings = TinySettings {
            size: Some(ByteSize::mib(32)),
            zone_size: Some(ByteSize::mib(1)),
            block_size,
            ..TinySettings::default()
        };
        let tier = settings.tier(folder.path().join(file), ByteSize::mib(32));
        let tier = tier.expect("it is enabled");
        let device = floe_device::open(&tier.device, &Clock::real()).expect("opens");
        let block_size = device.geometry().block_size;
        runtime.block_on(async {
            let store = Tiny::open(device, Clock::real(), &tier.engine).await?;
            store.close().await.expect("closes");
            Ok::<u32, OpenTinyError>(block_size)
        })
    };
    let sectors = Some(ByteSize(512));
    assert_eq!(open("new", None).expect("opens"), 4096, "a file");
    assert_eq!(open("old", sectors).expect("opens"), 512);
    assert_eq!(open("old", None).expect("opens"), 512, "as it is");
    let other = open("old", Some(ByteSize::kib(4))).expect_err("another format");
    assert!(matches!(other, OpenTinyError::OtherPlan { .. }), "{other}");
}

/// Stores new keys on flash of `zones` set-groups, and returns the counts.
async fn new_keys(zones: u32, look_before_fence: LookBeforeFence) -> TinyStats {
    let device = memory(in_place(zones, 32 << 10));
    let config = TinyConfig {
        seed: Some(1),
        ram: ByteSize(0),
        look_before_fence,
        ..TinyConfig::default()
    };
    let store = Tiny::open(device, Clock::real(), &config).await;
    let store = store.expect("opens");
    let value = [7; 226];
    let keys = u64::from(zones) * 100;
    for first in (0..keys).step_by(64) {
        join_all((first..first + 64).map(|number| put(&store, number, &value))).await;
    }
    let newest = store.get(&key(keys - 1)).await.expect("get");
    assert_eq!(&newest.expect("the newest").bytes[..], value);
    let stats = store.stats();
    store.close().await.expect("closes");
    stats
}

#[tokio::test]
async fn a_new_key_needs_no_fence_after_a_lookup() {
    // Enough set-groups that most filters are on flash.
    let never = new_keys(402, LookBeforeFence::Never).await;
    let always = new_keys(402, LookBeforeFence::Always).await;
    assert_eq!(never.fences_lookups, 0);
    assert!(never.fences > 2_000, "{}", never.fences);
    assert!(always.fences_lookups > 2_000, "{}", always.fences_lookups);
    assert!(always.fences < never.fences / 20, "{}", always.fences);
}

/// Page filters exclude new keys, also where one index group has room for all set-groups.
#[tokio::test]
async fn on_small_flash_few_new_keys_need_a_fence() {
    let stats = new_keys(62, LookBeforeFence::Never).await;
    assert!(stats.fences < 6_200 / 20, "{}", stats.fences);
}

#[test]
fn sizes_are_those_of_the_cache_that_is_there_unless_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let default = TinySettings::default();
    let (zone, instances) = (default.zone_size, default.instances);
    // The sizes of the cache, and the objects that it had.
    let open = |file: &str, size: u64, zone_size, instances, memory| {
        let settings = TinySettings {
            size: Some(ByteSize::mib(size)),
            zone_size,
            instances,
            memory_size: memory,
            ..TinySettings::default()
        };
        let tier = settings.tier(folder.path().join(file), ByteSize::mib(32));
        let tier = tier.expect("it is enabled");
        let device = floe_device::open(&tier.device, &Clock::real()).expect("opens");
        runtime.block_on(async {
            let store = Tiny::open(device, Clock::real(), &tier.engine).await?;
            put(&store, 1, b"one").await;
            let sizes = *store.sizes().expect("sizes");
            let objects = store.recovery().objects;
            store.close().await.expect("closes");
            Ok::<_, OpenTinyError>((sizes, objects))
        })
    };
    let (new, _) = open("new", 1024, zone, instances, None).expect("opens");
    assert_eq!(new.set_group, ByteSize::mib(4));
    assert_eq!((new.instances, new.set_groups), (1, 254));
    assert_eq!(new.page_filter_bits, 7.0);

    // Other sizes than a new cache would have stay.
    let three = open("old", 64, Some(ByteSize::kib(256)), Some(3), None);
    let (three, _) = three.expect("opens");
    let (same, objects) = open("old", 64, zone, instances, None).expect("opens");
    assert_eq!((same, objects), (three, 1));
    let other = open("old", 64, zone, Some(2), None).expect_err("another number");
    assert!(matches!(other, OpenTinyError::OtherPlan { .. }), "{other}");

    // Less memory costs part of the page filters, no objects.
    let scarce = Some(ByteSize::mib(65));
    let (scarce, objects) = open("old", 64, zone, instances, scarce).expect("opens");
    assert_eq!(objects, 2);
    assert_eq!(scarce.set_group, three.set_group);
    assert!(scarce.page_filter_bits < 7.0, "{scarce:?}");
}

#[tokio::test]
async fn instances_append_to_no_more_zones_than_may_be_open() {
    let limited = |max_open_zones| Geometry {
        max_open_zones,
        ..in_place(1_200, 64 << 10)
    };
    let opens = async |max_open_zones, instances| {
        let config = TinyConfig {
            instances,
            ..TinyConfig::default()
        };
        let device = memory(limited(max_open_zones));
        Tiny::open(device, Clock::real(), &config).await
    };
    let chosen = opens(Some(3), None).await.expect("opens");
    assert_eq!(chosen.sizes().expect("sizes").instances, 1);
    opens(Some(5), Some(3)).await.expect("opens");
    let error = opens(Some(4), Some(3)).await.expect_err("too many");
    let error = error.to_string();
    assert!(error.contains("tiny.instances = 3 cannot work"), "{error}");
    assert!(error.contains("the nearest that works is 2"), "{error}");
}

/// A full store takes the memory, and its lookups the reads, that it announced when it opened.
#[tokio::test]
async fn costs_are_as_announced() {
    // Lookups read less as the open index group fills: these ends are spread over one.
    const ENDS: [u64; 4] = [64 * 4_500, 64 * 4_600, 64 * 4_700, 64 * 4_800];
    let device = memory(in_place(402, 128 << 10));
    let store = open(&device).await;
    let announced = *store.sizes().expect("sizes");
    // 246 bytes with the key.
    let value = [7; 238];
    let (mut most, mut next) = (0, 0);
    let (mut per_hit, mut per_miss) = (0.0, 0.0);
    for end in ENDS {
        for first in (next..end).step_by(64) {
            join_all((first..first + 64).map(|number| put(&store, number, &value))).await;
            let memory = store.stats().memory;
            most = most.max(memory.total_bytes() - memory.other_bytes);
        }
        next = end;
        let before = store.stats().engine;
        let mut hits = 0;
        for number in (end - 150_000..end - 10_000).step_by(41) {
            hits += u64::from(store.get(&key(number)).await.expect("get").is_some());
        }
        let found = store.stats().engine;
        for number in 0..hits {
            let new = key((end << 32) + number);
            assert!(store.get(&new).await.expect("get").is_none());
        }
        let missed = store.stats().engine;
        let pages = |after: &Statistics, before: &Statistics| {
            let of = |all: &Statistics| all.pages_searched + all.index_pages_searched;
            (of(after) - of(before)) as f64 / hits as f64 / ENDS.len() as f64
        };
        per_hit += pages(&found, &before);
        per_miss += pages(&missed, &found);
    }
    let said = announced.costs;
    // This device is never too slow, so that two of three set-groups fill at once.
    let memory = most as f64 / said.memory_bytes() as f64;
    assert!((0.6..=1.0).contains(&memory), "{memory} of {said:?}");
    for (read, said) in [
        (per_hit, said.reads_per_hit),
        (per_miss, said.reads_per_miss),
    ] {
        assert!((0.8..=1.2).contains(&(read / said)), "{read} for {said}");
    }
}
