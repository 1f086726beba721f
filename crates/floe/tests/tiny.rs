//! Tiny objects through the public API.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{in_place, memory, power_switch, zoned};
use floe::tiny::{OpenTinyError, TinyConfig, TinyDurability, TinyEngine};
use floe::{ByteSize, Bytes, Cache, CacheConfig, CacheError, ChunkConfig, InRam, OpenError};
use floe::{PutOptions, Store, StoreConfig, Tiny, WriteBatch};
use floe_core::policy::admission::{AdmissionConfig, RejectFirstConfig};
use floe_core::tiny::nemo::NemoConfig;
use floe_device::virtual_time;
use floe_device::{Clock, DeviceConfig, Faults, Faulty, SharedDevice, ZoneReport, ZoneState};

const ZONES: u32 = 34;
const ZONE: u64 = 64 << 10;

fn device() -> SharedDevice {
    memory(in_place(ZONES, ZONE))
}

fn config() -> TinyConfig {
    TinyConfig {
        seed: Some(1),
        ram: ByteSize::kib(256),
        ..TinyConfig::default()
    }
}

fn name(number: u32) -> String {
    format!("key-{number:06}")
}

async fn put(store: &Tiny, number: u32, value: &[u8]) {
    let key = name(number);
    let put = store.put(key.as_bytes(), value, PutOptions::default());
    put.await.expect("put");
}

#[test]
fn closed_caches_open_warm_and_write_hardly_more_than_was_put() {
    virtual_time::run(1, |clock: Clock| async move {
        let device = device();
        let store = Tiny::open(device.clone(), clock.clone(), &config())
            .await
            .expect("opens");
        assert!(store.recovery().formatted);
        let value = [7u8; 240];
        for number in 0..20_000 {
            let name = name(number);
            store
                .put(name.as_bytes(), &value, PutOptions::default())
                .await
                .expect("put");
        }
        let stats = store.stats();
        assert!(stats.engine.write_amplification() < 1.15, "{stats:?}");
        store.close().await.expect("closes");
        assert!(matches!(store.get(b"key").await, Err(CacheError::Closed)));

        let store = Tiny::open(device, clock, &config()).await.expect("opens");
        assert!(store.recovery().objects > 6_000, "{:?}", store.recovery());
        let mut hits = 0;
        for number in 14_000..20_000 {
            let found = store.get(name(number).as_bytes()).await.expect("get");
            hits += u32::from(found.is_some_and(|found| found.bytes[..] == value));
        }
        assert!(hits > 5_500, "{hits}");
    });
}

/// Each life ends within a zone that holds set-groups, and the drive allows six such zones.
#[test]
fn restarts_leave_no_zones_active() {
    virtual_time::run(1, |clock: Clock| async move {
        let power = power_switch(zoned(ZONES, 4 * ZONE));
        let config = TinyConfig {
            nemo: NemoConfig {
                set_group_pages: Some(8),
                ..NemoConfig::default()
            },
            ram: ByteSize::kib(64),
            ..config()
        };
        const PUTS: u32 = 200;
        for life in 0..12 {
            let device = power.reopen();
            let store = Tiny::open(device.clone(), clock.clone(), &config);
            let store = store.await.expect("opens");
            let report = device.report().await.expect("reports");
            let is_active =
                |zone: &ZoneReport| matches!(zone.state, ZoneState::Open | ZoneState::Closed);
            // The first two belong to the journal.
            assert!(!report.iter().skip(2).any(is_active), "{report:?}");
            for number in life * PUTS..(life + 1) * PUTS {
                put(&store, number, &[7; 300]).await;
            }
            store.close().await.expect("closes");
        }
        let store = Tiny::open(power.reopen(), clock, &config);
        let store = store.await.expect("opens");
        for number in 0..12 * PUTS {
            let found = store.get(name(number).as_bytes()).await.expect("get");
            assert!(found.is_some(), "{number}");
        }
    });
}

#[test]
fn overwrites_before_a_close_are_warm() {
    virtual_time::run(5, |clock: Clock| async move {
        let device = device();
        let config = config();
        let open = || Tiny::open(device.clone(), clock.clone(), &config);
        let store = open().await.expect("opens");
        for number in 0..30 {
            put(&store, number, b"old").await;
        }
        store.close().await.expect("closes");
        // All objects are on flash: these overwrites need fences, and fill no set-group.
        let store = open().await.expect("opens");
        for number in 0..10 {
            put(&store, number, b"new").await;
            store
                .delete(name(10 + number).as_bytes())
                .await
                .expect("deleted");
        }
        store.close().await.expect("closes");
        for _ in 0..3 {
            let store = open().await.expect("opens");
            assert_eq!(store.recovery().fences, 0);
            for number in 0..30 {
                let found = store.get(name(number).as_bytes()).await.expect("get");
                let found = found.map(|found| found.bytes);
                let expected: Option<&[u8]> = match number {
                    0..10 => Some(b"new"),
                    10..20 => None,
                    _ => Some(b"old"),
                };
                assert_eq!(found.as_deref(), expected, "{number}");
            }
            store.close().await.expect("closes");
        }
    });
}

#[test]
fn values_expire_and_keys_have_limits() {
    virtual_time::run(2, |clock: Clock| async move {
        let store = Tiny::open(device(), clock.clone(), &config())
            .await
            .expect("opens");
        let brief = PutOptions::default().with_ttl(Duration::from_secs(10));
        store.put(b"brief", b"life", brief).await.expect("put");
        assert!(store.get(b"brief").await.expect("get").is_some());
        clock.sleep(Duration::from_secs(11)).await;
        assert_eq!(store.stats().expired, 0);
        assert!(store.get(b"brief").await.expect("get").is_none());
        assert!(store.get(b"never").await.expect("get").is_none());
        assert_eq!(store.stats().expired, 1);
        store.flush().await.expect("flushed");
        assert!(store.get(b"brief").await.expect("get").is_none());
        assert_eq!(store.stats().expired, 2);
        let long = [b'k'; 256];
        let rejected = store.put(&long, b"v", PutOptions::default()).await;
        assert!(matches!(rejected, Err(CacheError::KeyTooLong { .. })));
        let rejected = store.put(b"k", &[0; 4096], PutOptions::default()).await;
        assert!(matches!(rejected, Err(CacheError::ValueTooLarge { .. })));
    });
}

#[test]
fn rejected_values_stay_in_memory_and_supersede_flash() {
    virtual_time::run(3, |clock: Clock| async move {
        let config = TinyConfig {
            admission: AdmissionConfig::RejectFirst(RejectFirstConfig::default()),
            ..config()
        };
        let device = device();
        let store = Tiny::open(device.clone(), clock.clone(), &config)
            .await
            .expect("opens");
        store
            .put(b"seen once", b"1", PutOptions::default())
            .await
            .expect("put");
        let found = store.get(b"seen once").await.expect("get");
        assert_eq!(found.expect("in memory").bytes, Bytes::from_static(b"1"));
        assert_eq!(store.stats().admission.rejected, 1);
        store
            .put(b"seen once", b"2", PutOptions::default())
            .await
            .expect("put");
        assert_eq!(store.stats().admission.admitted, 1);
        store.close().await.expect("closes");
        let store = Tiny::open(device, clock, &config).await.expect("opens");
        let found = store.get(b"seen once").await.expect("get");
        assert_eq!(found.expect("on flash").bytes, Bytes::from_static(b"2"));
    });
}

#[test]
fn another_plan_is_rejected_with_the_setting() {
    virtual_time::run(4, |clock: Clock| async move {
        let device = device();
        let store = Tiny::open(device.clone(), clock.clone(), &config())
            .await
            .expect("opens");
        store.close().await.expect("closes");
        let mut other = config();
        other.nemo.candidates = 1;
        let error = Tiny::open(device, clock, &other)
            .await
            .expect_err("another plan");
        assert!(matches!(error, OpenTinyError::OtherPlan { .. }));
        assert!(error.to_string().contains("candidate"), "{error}");
    });
}

#[test]
fn a_cache_of_the_other_kind_is_recognised() {
    virtual_time::run(7, |clock: Clock| async move {
        let chunks = StoreConfig {
            chunk: ChunkConfig {
                size: ByteSize::kib(64),
                ..ChunkConfig::default()
            },
            ..StoreConfig::default()
        };
        let device = memory(in_place(16, 4 << 20));
        let tiny = Tiny::open(device.clone(), clock.clone(), &config()).await;
        tiny.expect("opens").close().await.expect("closes");
        let error = Store::open(device, clock.clone(), &chunks).await;
        let error = error.expect_err("tiny objects");
        assert!(matches!(error, OpenError::OtherKind { .. }), "{error:?}");

        let device = memory(in_place(16, 4 << 20));
        let store = Store::open(device.clone(), clock.clone(), &chunks).await;
        store.expect("opens").close().await.expect("closes");
        let error = Tiny::open(device, clock, &config()).await;
        let error = error.expect_err("chunks").to_string();
        assert!(error.contains("this is a superblock"), "{error}");
    });
}

fn of(engine: TinyEngine) -> TinyConfig {
    let mut config = TinyConfig {
        engine,
        ram: ByteSize(0),
        ..config()
    };
    config.fairywren.over_provisioning_percent = 30;
    config
}

#[test]
fn the_error_of_an_unsupported_engine_names_cause_and_remedy() {
    virtual_time::run(5, |clock: Clock| async move {
        for (engine, geometry, message) in [
            (
                TinyEngine::Set,
                zoned(ZONES, ZONE),
                "tiny.engine = set cannot work: sets of one page are rewritten in place, and this device writes its zones only sequentially; nemo, log and fairywren work",
            ),
            (
                TinyEngine::Kangaroo,
                zoned(ZONES, ZONE),
                "tiny.kangaroo.set_storage = in_place cannot work: sets of one page are rewritten in place, and this device writes its zones only sequentially; use set_storage = \"zoned\"",
            ),
            (
                TinyEngine::FairyWren,
                in_place(12, ZONE),
                "device = 10 zones of 16 pages cannot work: the engine needs 11 zones that hold pages; use a larger device or smaller zones",
            ),
        ] {
            let opened = Tiny::open(memory(geometry), clock.clone(), &of(engine)).await;
            let error = opened.expect_err("it cannot run");
            assert!(matches!(error, OpenTinyError::Config(_)), "{error:?}");
            assert_eq!(error.to_string(), message);
        }
    });
}

#[test]
fn a_cache_of_another_engine_is_another_plan() {
    virtual_time::run(6, |clock: Clock| async move {
        for engine in TinyEngine::ALL {
            let device = device();
            let store = Tiny::open(device.clone(), clock.clone(), &of(engine))
                .await
                .expect("opens");
            assert_eq!(store.engine(), engine);
            store.close().await.expect("closes");
            for other in TinyEngine::ALL {
                let opened = Tiny::open(device.clone(), clock.clone(), &of(other)).await;
                if other == engine {
                    opened.expect("it is the same");
                    continue;
                }
                let error = opened.expect_err("another engine").to_string();
                let names = format!("the engine on flash is {engine}, but {other} is wanted");
                assert!(error.contains("another plan"), "{error}");
                assert!(error.contains(&names), "{error}");
            }
        }
    });
}

#[test]
fn without_fences_only_a_closed_store_is_warm() {
    virtual_time::run(7, |clock: Clock| async move {
        let power = power_switch(in_place(ZONES, ZONE));
        let open = async |durability| {
            power.crash(1);
            let device = power.reopen();
            let config = TinyConfig {
                durability,
                ..of(TinyEngine::Nemo)
            };
            let store = Tiny::open(device, clock.clone(), &config).await;
            store.expect("opens")
        };
        let put = async |store: &Tiny, value: &[u8]| {
            let put = store.put(b"key", value, PutOptions::default());
            put.await.expect("put");
        };
        let get = async |store: &Tiny| {
            let found = store.get(b"key").await.expect("get");
            found.map(|found| found.bytes)
        };
        let none = TinyDurability::None;
        let store = open(none).await;
        put(&store, b"older").await;
        store.flush().await.expect("flushes");
        put(&store, b"old").await;
        store
            .put(b"deleted", b"", PutOptions::default())
            .await
            .expect("put");
        store.flush().await.expect("flushes");
        store.delete(b"deleted").await.expect("deletes");
        store.close().await.expect("closes");
        // A life that writes nothing needs no close.
        let store = open(none).await;
        assert!(store.get(b"deleted").await.expect("get").is_none());
        assert_eq!(get(&store).await.as_deref(), Some(&b"old"[..]));
        drop(store);
        let store = open(none).await;
        assert_eq!(get(&store).await.as_deref(), Some(&b"old"[..]));
        put(&store, b"new").await;
        assert_eq!(store.stats().fences, 0);
        // A flush alone is no close: writes may follow.
        store.flush().await.expect("flushes");
        put(&store, b"newer").await;
        drop(store);
        let store = open(TinyDurability::Power).await;
        let recovery = *store.recovery();
        assert!(recovery.unclosed && recovery.cold && !recovery.journal_damaged);
        assert_eq!(get(&store).await, None);
        put(&store, b"fenced").await;
        store.flush().await.expect("flushes");
        drop(store);
        let store = open(none).await;
        assert_eq!(get(&store).await.as_deref(), Some(&b"fenced"[..]));
        store.close().await.expect("closes");
        let store = open(TinyDurability::Power).await;
        assert_eq!(get(&store).await.as_deref(), Some(&b"fenced"[..]));
        store.close().await.expect("closes");
    });
}

#[test]
fn the_fences_of_a_batch_share_a_group() {
    virtual_time::run(7, |clock: Clock| async move {
        let store = Tiny::open(device(), clock.clone(), &config()).await;
        let store = store.expect("opens");
        for number in 0..64 {
            put(&store, number, b"old").await;
        }
        store.flush().await.expect("flushes");
        // Appends to flash for overwrites of four keys, between which the journal could begin.
        let mut first = 0;
        let mut overwrite = async |batch: Option<WriteBatch>| {
            let before = store.stats();
            let mut puts = Vec::new();
            for number in first..first + 4 {
                let mut put = Box::pin(put(&store, number, b"new"));
                if futures::poll!(&mut put).is_pending() {
                    puts.push(put);
                }
                clock.sleep(Duration::from_micros(50)).await;
            }
            assert_eq!(puts.len(), if batch.is_some() { 4 } else { 0 });
            if let Some(batch) = batch {
                batch.end();
            }
            futures::future::join_all(puts).await;
            first += 4;
            let after = store.stats();
            assert_eq!(after.fences - before.fences, 4);
            after.device.since(&before.device).appends
        };
        assert_eq!(overwrite(None).await, 4);
        assert_eq!(overwrite(Some(store.batch())).await, 1);
        store.close().await.expect("closes");
    });
}

#[test]
fn volatile_engines_begin_empty() {
    virtual_time::run(7, |clock: Clock| async move {
        for engine in TinyEngine::ALL {
            let device = device();
            let mut config = of(engine);
            let mut identity = None;
            for life in 0..3u8 {
                let store = Tiny::open(device.clone(), clock.clone(), &config)
                    .await
                    .expect("opens");
                let recovery = *store.recovery();
                let is_warm = engine == TinyEngine::Nemo;
                assert_eq!(recovery.formatted, life == 0);
                assert_eq!(recovery.cold, life > 0 && !is_warm, "{engine}");
                assert_eq!(*identity.get_or_insert(store.identity()), store.identity());
                let mut found = 0;
                for number in 0..8_000 {
                    let name = name(number);
                    let before = store.get(name.as_bytes()).await.expect("get");
                    found += u32::from(before.is_some());
                    let value = [life; 240];
                    let put = store.put(name.as_bytes(), &value, PutOptions::default());
                    put.await.expect("put");
                }
                assert_eq!(found > 0, life > 0 && is_warm, "{engine}: {found}");
                let mut hits = 0;
                for number in 0..8_000 {
                    let found = store.get(name(number).as_bytes()).await.expect("get");
                    hits += u32::from(found.is_some_and(|found| found.bytes[..] == [life; 240]));
                }
                assert!(hits > 1_500, "{engine}: {hits}");
                store.close().await.expect("closes");
                // Without recovery this setting is no part of the format.
                config.set.over_provisioning_percent = 30;
                config.kangaroo.over_provisioning_percent = 20;
            }
        }
    });
}

#[test]
fn volatile_engines_acknowledge_writes_without_a_fence() {
    virtual_time::run(8, |clock: Clock| async move {
        for engine in TinyEngine::ALL {
            let device = device();
            let store = Tiny::open(device.clone(), clock.clone(), &of(engine))
                .await
                .expect("opens");
            let flushes = device.counters().snapshot().flushes;
            for number in 0..20_000 {
                put(&store, number % 5_000, &[1; 240]).await;
            }
            let more = device.counters().snapshot().flushes - flushes;
            assert_eq!(more == 0, engine != TinyEngine::Nemo, "{engine}: {more}");
            // A fence is durable by its own write: only set-groups need flushes.
            let fences = store.stats().fences;
            assert!(more <= fences / 2, "{engine}: {more} for {fences} fences");
        }
    });
}

#[test]
fn repeated_overwrites_need_one_fence_per_set_group() {
    const HOT: u32 = 4;
    const SETS: u64 = 15;
    virtual_time::run(3, |clock: Clock| async move {
        let store = Tiny::open(device(), clock, &config()).await.expect("opens");
        for number in 0..HOT {
            put(&store, number, &[1; 100]).await;
        }
        store.flush().await.expect("flushed");
        let before = store.stats();
        // Among objects of other sizes, which spread over set-groups.
        for round in 1..2000 {
            let len = 100 + (round * 37 % 900) as usize;
            put(&store, round % HOT, &vec![1; len]).await;
            put(&store, HOT + round, &[1; 200]).await;
        }
        let stats = store.stats();
        let fences = stats.fences - before.fences;
        let outdated = fences + stats.fences_spared - before.fences_spared;
        // False positives count a few other objects as superseded.
        let of_others = outdated - 1999;
        let flushed = stats.engine.object_pages_written - before.engine.object_pages_written;
        let set_groups = 1 + flushed / SETS;
        assert!(set_groups > 5, "{set_groups}");
        assert!(
            fences - of_others <= u64::from(HOT) * set_groups,
            "{fences} fences, {of_others} of others, {set_groups} set-groups"
        );
        store.close().await.expect("closes");
    });
}

/// Resets of the two metadata zones at formatting: the second before the first
/// is written, and again before it gets a copy of the superblock.
const METADATA_RESETS: u64 = 3;

#[test]
fn opening_empties_no_zones() {
    virtual_time::run(9, |clock: Clock| async move {
        for engine in TinyEngine::ALL {
            let device = device();
            for _ in 0..2 {
                let before = device.counters().snapshot().resets;
                let store = Tiny::open(device.clone(), clock.clone(), &of(engine))
                    .await
                    .expect("opens");
                // Background tasks have finished by then.
                clock.sleep(Duration::from_secs(1)).await;
                let resets = device.counters().snapshot().resets - before;
                assert!(resets <= METADATA_RESETS, "{engine}: {resets}");
                let put = store.put(b"key", b"value", PutOptions::default());
                put.await.expect("put");
                store.close().await.expect("closes");
            }
        }
    });
}

/// A file reports no zone states when opened.
#[tokio::test]
async fn opening_a_file_empties_no_zones_and_keeps_objects_warm() {
    let folder = tempfile::tempdir().expect("a folder");
    for engine in TinyEngine::ALL {
        let device = DeviceConfig {
            zone_size: Some(ByteSize(ZONE)),
            ..DeviceConfig::file(folder.path().join(engine.name()), ByteSize::mib(4))
        };
        for life in 0..3u8 {
            let device = floe_device::open(&device, &Clock::real()).expect("opens");
            let store = Tiny::open(device.clone(), Clock::real(), &of(engine))
                .await
                .expect("opens");
            let resets = device.counters().snapshot().resets;
            assert!(resets <= METADATA_RESETS, "{engine}: {resets}");
            let found = store.get(name(0).as_bytes()).await.expect("get");
            let is_warm = life > 0 && engine == TinyEngine::Nemo;
            assert_eq!(found.is_some(), is_warm, "{engine}");
            for number in 0..500 {
                let (name, value) = (name(number), [life; 240]);
                let put = store.put(name.as_bytes(), &value, PutOptions::default());
                put.await.expect("put");
                let found = store.get(name.as_bytes()).await.expect("get");
                assert_eq!(found.expect("in memory").bytes[..], [life; 240]);
            }
            store.close().await.expect("closes");
        }
    }
}

/// Waits until all objects in memory are on flash.
async fn written(store: &Tiny, clock: &Clock) {
    while matches!(store.get_ram(b"key"), Ok(InRam::Hit(_))) {
        clock.sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_lost_write_is_a_miss_not_a_page_of_an_earlier_life() {
    virtual_time::run(10, |clock: Clock| async move {
        let below = device();
        let config = of(TinyEngine::Set);
        for life in [b"1", b"2"] {
            let device = Faulty::new(below.clone(), clock.clone(), 1, Faults::default());
            let device = Arc::new(device);
            let store = Tiny::open(device.clone(), clock.clone(), &config)
                .await
                .expect("opens");
            device.set(Faults {
                lost_writes: if life == b"1" { 0.0 } else { 1.0 },
                ..Faults::default()
            });
            let put = store.put(b"key", life, PutOptions::default());
            put.await.expect("put");
            written(&store, &clock).await;
            let found = store.get(b"key").await.expect("get");
            let found = found.map(|found| found.bytes);
            let is_right = match life {
                b"1" => found.as_deref() == Some(&b"1"[..]),
                _ => found.is_none(),
            };
            assert!(is_right, "{found:?}");
        }
    });
}

#[test]
fn writes_do_not_wait_for_retired_zones() {
    virtual_time::run(11, |clock: Clock| async move {
        for engine in TinyEngine::ALL {
            let device = Faulty::new(device(), clock.clone(), 1, Faults::default());
            let device = Arc::new(device);
            let store = Tiny::open(device.clone(), clock.clone(), &of(engine))
                .await
                .expect("opens");
            device.set(Faults {
                append_errors: 1.0,
                reset_errors: 1.0,
                ..Faults::default()
            });
            let mut ended = None;
            for number in 0..30_000 {
                let name = name(number);
                let put = store.put(name.as_bytes(), &[1; 240], PutOptions::default());
                if let Err(error) = put.await {
                    ended = Some(error);
                    break;
                }
            }
            // Sets in place are not appended, and Nemo drops objects that it cannot place.
            let is_worn = !matches!(engine, TinyEngine::Set | TinyEngine::Nemo);
            assert_eq!(ended.is_some(), is_worn, "{engine}: {ended:?}");
        }
    });
}

#[tokio::test]
async fn a_cache_sends_small_values_to_its_tiny_engine() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = CacheConfig::file(folder.path().join("cache.floe"), ByteSize::gib(1));
    let mut tier = floe::cache::TinyTierConfig::default();
    tier.device.path = Some(folder.path().join("tiny.floe"));
    tier.device.size = Some(ByteSize::mib(32));
    tier.device.zone_size = Some(ByteSize::mib(1));
    config.tiny = Some(tier);
    let cache = Cache::open(&config).await.expect("opens");
    cache
        .put(b"small", Bytes::from_static(b"s"))
        .await
        .expect("put");
    cache
        .put(b"large", Bytes::from(vec![1; 50_000]))
        .await
        .expect("put");
    let tiny = cache.tiny().expect("configured");
    assert_eq!(tiny.stats().engine.objects_in, 1);
    assert_eq!(
        cache.get(b"small").await.expect("get"),
        Some(Bytes::from_static(b"s"))
    );
    assert_eq!(
        cache.get(b"large").await.expect("get").map(|v| v.len()),
        Some(50_000)
    );
    // A key moves between the engines in both directions, and is never in both.
    cache
        .put(b"large", Bytes::from_static(b"now small"))
        .await
        .expect("put");
    assert_eq!(
        cache.get(b"large").await.expect("get"),
        Some(Bytes::from_static(b"now small"))
    );
    assert!(cache.remove(b"large").await.expect("delete"));
    assert_eq!(cache.get(b"large").await.expect("get"), None);
    cache.close().await.expect("closes");
    drop(cache);
    let cache = Cache::open(&config).await.expect("opens again");
    assert_eq!(
        cache.get(b"small").await.expect("get"),
        Some(Bytes::from_static(b"s"))
    );
    assert_eq!(cache.get(b"large").await.expect("get"), None);
    cache.close().await.expect("closes");
}

#[test]
fn overwrites_of_the_smallest_objects_do_not_fill_the_journal() {
    virtual_time::run(6, |clock: Clock| async move {
        for instances in [1, 3] {
            let config = TinyConfig {
                instances: Some(instances),
                ..config()
            };
            let store = Tiny::open(device(), clock.clone(), &config).await;
            let store = store.expect("opens");
            for round in 0..4 {
                for number in 0..12_000 * instances {
                    put(&store, number, &[round]).await;
                }
            }
            // More than fit a metadata zone.
            let stats = store.stats();
            assert!(stats.fences > 2 * ZONE / 16, "{stats:?}");
            assert!(stats.fences_delays > 0, "{stats:?}");
            store.close().await.expect("closes");
        }
    });
}

#[test]
fn overwrites_before_a_flush_survive_a_crash() {
    virtual_time::run(8, |clock: Clock| async move {
        let device = device();
        let config = config();
        let open = || Tiny::open(device.clone(), clock.clone(), &config);
        let store = open().await.expect("opens");
        for value in [b"old", b"new"] {
            for number in 0..20 {
                put(&store, number, value).await;
            }
            store.flush().await.expect("flushed");
        }
        drop(store);
        let store = open().await.expect("opens");
        assert_eq!(store.recovery().fences, 0);
        for number in 0..20 {
            let found = store.get(name(number).as_bytes()).await.expect("get");
            assert_eq!(found.expect("found").bytes[..], *b"new", "{number}");
            put(&store, number, b"old").await;
        }
        // Ended fences cover no more writes.
        store.flush().await.expect("flushed");
        for number in 0..20 {
            put(&store, number, b"newest").await;
        }
        drop(store);
        let store = open().await.expect("opens");
        assert_eq!(store.recovery().fences, 20);
        for number in 0..20 {
            let found = store.get(name(number).as_bytes()).await.expect("get");
            assert!(found.is_none(), "{number}");
        }
    });
}

#[test]
fn concurrent_writers_lose_nothing_and_leave_room_for_the_notes_of_set_groups() {
    // Flash has room for all objects; there are more writers than places in the journal.
    const CROWD: u32 = 5_000;
    virtual_time::run(7, |clock: Clock| async move {
        let store = Tiny::open(device(), clock, &config()).await.expect("opens");
        let puts: Vec<_> = (0..CROWD)
            .map(|number| {
                let store = store.clone();
                let value = vec![7; 140 + number as usize * 31 % 190];
                tokio::spawn(async move { put(&store, number, &value).await })
            })
            .collect();
        for put in puts {
            put.await.expect("stored");
        }
        assert_eq!(store.stats().engine.evicted, 0, "{:?}", store.stats());
        for number in 0..CROWD {
            let found = store.get(name(number).as_bytes()).await.expect("get");
            assert!(found.is_some(), "{number}");
        }
        store.close().await.expect("closes");
    });
}
