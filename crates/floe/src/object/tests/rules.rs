//! Settings by bucket and prefix, and their reload.

use std::sync::atomic::Ordering::SeqCst;

use floe_core::policy::admission::{AdmissionConfig, RejectFirstConfig};

use super::origin::GatedOrigin;
use super::*;
use crate::object::{ChunkAdmission, ObjectRule};

fn rule(objects: &str) -> ObjectRule {
    ObjectRule {
        objects: objects.into(),
        ..ObjectRule::default()
    }
}

fn with_rules(consistency: Consistency, rules: Vec<ObjectRule>) -> ObjectConfig {
    ObjectConfig {
        rules,
        ..config(consistency)
    }
}

/// Requests to the origin of a read, after which the cache has what it keeps.
async fn requests_of_read(cache: &ObjectCache, origin: &GatedOrigin, key: &ObjectKey) -> usize {
    let before = origin.gets() + origin.heads.load(SeqCst);
    let bytes = cache.get(key, None).await.unwrap().bytes().await.unwrap();
    assert_eq!(bytes, pattern(3000));
    settle().await;
    origin.gets() + origin.heads.load(SeqCst) - before
}

#[tokio::test]
async fn a_rule_decides_for_its_objects_alone() {
    let keys = ["fixed/a", "never/a", "other"].map(|key| ObjectKey::new("bucket", key));
    let origin = GatedOrigin::with(&keys[0], pattern(3000));
    keys.iter().for_each(|key| origin.set(key, pattern(3000)));
    let rules = vec![
        ObjectRule {
            consistency: Some(Consistency::Immutable),
            chunk_size: Some(ByteSize(512)),
            ..rule("bucket/fixed/")
        },
        ObjectRule {
            cache: Some(false),
            consistency: Some(Consistency::Immutable),
            ..rule("bucket/never/")
        },
    ];
    let config = with_rules(Consistency::Etag, rules);
    let cache = cache(&Arc::new(origin.clone()), config).await;
    let mut after = Vec::new();
    for key in &keys {
        requests_of_read(&cache, &origin, key).await;
        after.push(requests_of_read(&cache, &origin, key).await);
    }
    // Served without the origin; fetched again; confirmed by a HEAD.
    assert_eq!(after, [0, 1, 1]);
    let cached = cache.cached(&keys[0]).await.unwrap();
    assert_eq!((cached.bytes, cache.cached(&keys[1]).await), (3000, None));
    // The chunks of 512 bytes of the first, and those of 1 KiB of the last.
    assert_eq!(cache.stats().chunks_stored, 6 + 3);
}

#[tokio::test]
async fn a_rule_puts_on_flash_what_the_policy_declines() {
    let keys = ["kept/a", "other"].map(|key| ObjectKey::new("bucket", key));
    let origin = GatedOrigin::with(&keys[0], pattern(20_000));
    origin.set(&keys[1], pattern(20_000));
    let all = ObjectRule {
        admission: Some(ChunkAdmission::All),
        ..rule("bucket/kept/")
    };
    for chunk_size in [ByteSize::kib(1), ByteSize::kib(16)] {
        let mut store = StoreConfig::default();
        store.chunk.size = ByteSize::mib(1);
        store.admission = AdmissionConfig::RejectFirst(RejectFirstConfig::default());
        let device = Arc::new(MemoryDevice::new(geometry()));
        let store = Store::open(device, Clock::real(), &store).await.unwrap();
        let config = ObjectConfig {
            chunk_size,
            ..with_rules(Consistency::Immutable, vec![all.clone()])
        };
        let cache = cache_over(store, &Arc::new(origin.clone()), config);
        let mut declined = Vec::new();
        for key in &keys {
            let bytes = cache.get(key, None).await.unwrap().bytes().await.unwrap();
            assert_eq!(bytes, pattern(20_000));
            settle().await;
            let stats = cache.stats();
            declined.push((stats.chunks_declined > 0, stats.chunks_stored > 0));
        }
        assert_eq!(declined, [(false, true), (true, true)], "{chunk_size}");
    }
}

#[tokio::test]
async fn a_reload_holds_for_the_next_read() {
    let origin = GatedOrigin::with(&key(), pattern(3000));
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    requests_of_read(&cache, &origin, &key()).await;
    assert_eq!(requests_of_read(&cache, &origin, &key()).await, 0);
    let strict = ObjectRule {
        consistency: Some(Consistency::Etag),
        ..rule("bucket")
    };
    let strict = with_rules(Consistency::Immutable, vec![strict]);
    cache.reload(&strict).unwrap();
    assert_eq!(requests_of_read(&cache, &origin, &key()).await, 1);
    cache.reload(&config(Consistency::Immutable)).unwrap();
    assert_eq!(requests_of_read(&cache, &origin, &key()).await, 0);
    // Larger than the store's longest value.
    let large = ObjectRule {
        chunk_size: Some(ByteSize::gib(1)),
        ..rule("bucket")
    };
    let large = with_rules(Consistency::Etag, vec![large]);
    assert!(cache.reload(&large).is_err());
    assert_eq!(requests_of_read(&cache, &origin, &key()).await, 0);
}
