//! After a purge nothing that was cached before it is used.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::origin::GatedOrigin;
use super::*;
use crate::object::{Outcome, Purge};

fn prefix(bucket: &str, prefix: &str) -> Purge {
    Purge::Prefix {
        bucket: bucket.into(),
        prefix: prefix.into(),
    }
}

fn bucket(bucket: &str) -> Purge {
    Purge::Bucket {
        bucket: bucket.into(),
    }
}

fn object(key: &ObjectKey) -> Purge {
    Purge::Object {
        bucket: key.bucket().into(),
        key: key.key().into(),
    }
}

/// Reads an object; true if its first bytes came from the cache.
async fn hits(cache: &ObjectCache, key: &ObjectKey) -> bool {
    let read = cache.get(key, None).await.unwrap();
    let is_hit = matches!(read.outcome, Outcome::Hit(_));
    read.bytes().await.unwrap();
    settle().await;
    is_hit
}

#[tokio::test]
async fn a_purge_forgets_metadata_and_chunks_of_the_same_version() {
    for consistency in [Consistency::Immutable, Consistency::Ttl, Consistency::Etag] {
        let origin = GatedOrigin::with(&key(), pattern(3000));
        let cache = cache(&Arc::new(origin.clone()), config(consistency)).await;
        for purge in [
            object(&key()),
            prefix("bucket", "some/"),
            prefix("bucket", ""),
            bucket("bucket"),
            Purge::All,
        ] {
            hits(&cache, &key()).await;
            assert!(hits(&cache, &key()).await, "{purge:?}");
            let missed = cache.stats().chunks_missed;
            cache.purge(std::slice::from_ref(&purge)).await.unwrap();
            assert!(!hits(&cache, &key()).await, "{purge:?}");
            assert!(cache.stats().chunks_missed > missed, "{purge:?}");
        }
        for other in [
            object(&ObjectKey::new("bucket", "some")),
            prefix("bucket", "some/object/"),
            prefix("bucke", "t"),
            bucket("bucket2"),
        ] {
            cache.purge(std::slice::from_ref(&other)).await.unwrap();
            assert!(hits(&cache, &key()).await, "{other:?}");
        }
    }
}

#[tokio::test]
async fn what_was_requested_before_a_purge_is_not_used_after_it() {
    let origin = GatedOrigin::with(&key(), pattern(3000));
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    origin.responses.close();
    let early = tokio::spawn({
        let cache = cache.clone();
        async move { read(&cache, None).await }
    });
    settle().await;
    cache.purge(&[prefix("bucket", "so")]).await.unwrap();
    let late = tokio::spawn({
        let cache = cache.clone();
        async move { read(&cache, None).await }
    });
    settle().await;
    assert_eq!(origin.gets(), 2, "a later read joined an earlier request");
    origin.responses.reopen();
    assert_eq!(early.await.unwrap().unwrap(), pattern(3000));
    assert_eq!(late.await.unwrap().unwrap(), pattern(3000));
}

/// Purges and reads at random, with restarts: a hit is of what was cached after the last
/// purge that the object was in.
#[tokio::test]
async fn no_restart_takes_a_purge_back() {
    for seed in 0..4 {
        purge_and_restart(seed).await;
    }
}

async fn purge_and_restart(seed: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let names = ["a", "a/b", "a/bc", "a/b/c", "b", "ab", "a/b/d"];
    let keys: Vec<ObjectKey> = ["one", "two"]
        .iter()
        .flat_map(|bucket| names.iter().map(|name| ObjectKey::new(*bucket, *name)))
        .collect();
    let origin = Arc::new(GatedOrigin::new());
    for key in &keys {
        origin.set(key, Bytes::from(vec![b'x'; 1500]));
    }
    let device: SharedDevice = Arc::new(MemoryDevice::new(geometry()));
    let backend = Arc::new(Arc::clone(&origin));
    let open = async |store| cache_over(store, &backend, config(Consistency::Immutable));
    let mut cache = open(store_on(Arc::clone(&device), Clock::real()).await).await;
    let mut cached: HashMap<ObjectKey, bool> = HashMap::new();
    let (mut found, mut purged) = (0, 0);
    for _ in 0..400 {
        match rng.random_range(0..12) {
            0 => {
                let purge = match rng.random_range(0..8) {
                    0 => Purge::All,
                    1 => bucket("one"),
                    2 | 3 => object(keys.choose(&mut rng).unwrap()),
                    _ => prefix(
                        "one",
                        ["a", "a/", "a/b", "b", "c", ""].choose(&mut rng).unwrap(),
                    ),
                };
                cache.purge(std::slice::from_ref(&purge)).await.unwrap();
                for (key, is_cached) in &mut cached {
                    let within = match &purge {
                        Purge::All => true,
                        Purge::Bucket { bucket } => key.bucket() == bucket,
                        Purge::Prefix { bucket, prefix } => {
                            key.bucket() == bucket && key.key().starts_with(prefix)
                        }
                        Purge::Object { bucket, key: own } => {
                            key.bucket() == bucket && key.key() == own
                        }
                    };
                    purged += u32::from(within && *is_cached);
                    *is_cached &= !within;
                }
            }
            1 => {
                // Values that wait in memory are lost: they become misses.
                match rng.random_bool(0.5) {
                    true => cache.store().close().await.unwrap(),
                    false => cache.stop().await,
                }
                drop(cache);
                settle().await;
                cache = open(store_on(Arc::clone(&device), Clock::real()).await).await;
            }
            _ => {
                let key = keys.choose(&mut rng).unwrap();
                if hits(&cache, key).await {
                    found += 1;
                    assert!(
                        cached.get(key).is_some_and(|c| *c),
                        "{key} with seed {seed}"
                    );
                }
                cached.insert(key.clone(), true);
            }
        }
    }
    assert!(found > 50 && purged > 20, "{found} hits, {purged} purged");
}

#[tokio::test]
async fn an_era_ends_what_no_origin_confirmed_and_keeps_chunks() {
    for (consistency, asks) in [
        (Consistency::Immutable, 0),
        (Consistency::Ttl, 1),
        (Consistency::Etag, 1),
    ] {
        let origin = GatedOrigin::with(&key(), pattern(3000));
        let cache = cache(&Arc::new(origin.clone()), config(consistency)).await;
        hits(&cache, &key()).await;
        let before = (cache.stats().revalidations, cache.stats().chunks_missed);
        cache.begin_era().await.unwrap();
        assert_eq!(read(&cache, None).await.unwrap(), pattern(3000));
        let stats = cache.stats();
        assert_eq!(stats.revalidations - before.0, asks, "{consistency:?}");
        assert_eq!(stats.chunks_missed, before.1, "{consistency:?}");
        // Metadata that was validated in the era counts in it.
        hits(&cache, &key()).await;
        let again = u64::from(consistency == Consistency::Etag);
        assert_eq!(cache.stats().revalidations - before.0, asks + again);
    }
}

#[tokio::test]
async fn a_node_that_is_not_confirmed_validates_each_object() {
    let origin = GatedOrigin::with(&key(), pattern(3000));
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Ttl)).await;
    hits(&cache, &key()).await;
    cache.store().membership().withdraw();
    for asked in 1..4 {
        assert_eq!(read(&cache, None).await.unwrap(), pattern(3000));
        assert_eq!(cache.stats().revalidations, asked);
    }
    cache.store().membership().confirm();
    assert_eq!(read(&cache, None).await.unwrap(), pattern(3000));
    assert_eq!(cache.stats().revalidations, 3);
}
