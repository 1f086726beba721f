//! Tiny objects through the public API.

use std::time::Duration;

use floe::tiny::{OpenTinyError, TinyConfig};
use floe::{ByteSize, Bytes, Cache, CacheConfig, CacheError, PutOptions, Tiny};
use floe_core::Geometry;
use floe_core::policy::admission::{AdmissionConfig, RejectFirstConfig};
use floe_device::{Clock, MemoryDevice, SharedDevice, virtual_time};
use std::sync::Arc;

fn device() -> SharedDevice {
    Arc::new(MemoryDevice::new(Geometry {
        block_size: 4096,
        zone_size: 64 << 10,
        zone_capacity: 64 << 10,
        zone_count: 34,
        max_open_zones: None,
        max_active_zones: None,
        max_append_bytes: 64 << 10,
        random_writes: true,
        native_append: false,
        placement_handles: 0,
    }))
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

#[test]
fn what_is_closed_is_warm_and_hardly_more_is_written_than_was_put() {
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

#[test]
fn values_end_with_their_time_and_keys_have_limits() {
    virtual_time::run(2, |clock: Clock| async move {
        let store = Tiny::open(device(), clock.clone(), &config())
            .await
            .expect("opens");
        let brief = PutOptions {
            ttl: Some(Duration::from_secs(10)),
            ..PutOptions::default()
        };
        store.put(b"brief", b"life", brief).await.expect("put");
        assert!(store.get(b"brief").await.expect("get").is_some());
        clock.sleep(Duration::from_secs(11)).await;
        assert!(store.get(b"brief").await.expect("get").is_none());
        let long = [b'k'; 256];
        let refused = store.put(&long, b"v", PutOptions::default()).await;
        assert!(matches!(refused, Err(CacheError::KeyTooLong { .. })));
        let refused = store.put(b"k", &[0; 4096], PutOptions::default()).await;
        assert!(matches!(refused, Err(CacheError::ValueTooLarge { .. })));
    });
}

#[test]
fn what_is_not_admitted_stays_in_memory_and_outdates_flash() {
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
fn another_plan_is_refused_with_the_setting() {
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

#[tokio::test]
async fn a_cache_sends_what_is_small_to_its_tiny_engine() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = CacheConfig::file(folder.path().join("cache.floe"), ByteSize::gib(1));
    let mut tier = floe::cache::TinyTierConfig::default();
    tier.device.path = Some(folder.path().join("tiny.floe"));
    tier.device.size = Some(ByteSize::mib(32));
    tier.device.zone_size = ByteSize::mib(1);
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
    // A key changes sides, both ways, and is never in two places.
    cache
        .put(b"large", Bytes::from_static(b"now small"))
        .await
        .expect("put");
    assert_eq!(
        cache.get(b"large").await.expect("get"),
        Some(Bytes::from_static(b"now small"))
    );
    assert!(cache.delete(b"large").await.expect("delete"));
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
