//! Settings by bucket and prefix, and their reload.

use std::sync::atomic::Ordering::SeqCst;

use super::origin::GatedOrigin;
use super::*;
use crate::object::ObjectRule;

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
