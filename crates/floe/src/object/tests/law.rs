//! The law: the newest acknowledged version or a miss, never a mixture.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use bytes::Bytes;
use futures::StreamExt;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::origin::GatedOrigin;
use super::*;
use crate::object::{Outcome, Purge};
use crate::origin::{
    Attributes, CompleteRequest, OriginConfig, OriginError, OriginOperation, OriginReason,
    PartRequest, UploadedPart,
};

fn version(letter: u8, len: usize) -> Bytes {
    vec![letter; len].into()
}

/// A read that has asked the origin.
async fn early_read(cache: &ObjectCache) -> tokio::task::JoinHandle<Result<Bytes, ObjectError>> {
    let cache = cache.clone();
    let early = tokio::spawn(async move { read(&cache, None).await });
    settle().await;
    early
}

#[tokio::test]
async fn a_fetch_that_read_the_old_version_does_not_outlive_a_write() {
    for validators in [true, false] {
        let mut gated = GatedOrigin::new();
        gated.validators = validators;
        let origin = Arc::new(gated);
        origin.set(&key(), version(b'a', 3000));
        let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
        origin.responses.close();
        // The origin has read the old version and holds back its response …
        let early = early_read(&cache).await;
        // … while a write completes …
        cache.put(&key(), put(version(b'b', 3000))).await.unwrap();
        origin.responses.reopen();
        // … so the early reader may get the old version or an error,
        if let Ok(bytes) = early.await.unwrap() {
            assert!(bytes == version(b'a', 3000) || bytes == version(b'b', 3000));
        }
        settle().await;
        // … but a reader after the write gets the new one.
        assert_eq!(read(&cache, None).await.unwrap(), version(b'b', 3000));
        assert!(cache.stats().metadata_writes_skipped >= 1);
    }
}

#[tokio::test]
async fn a_reader_after_a_write_does_not_join_a_request_from_before() {
    let origin = GatedOrigin::with(&key(), version(b'a', 10));
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    origin.responses.close();
    let early = tokio::spawn({
        let cache = cache.clone();
        async move { cache.head(&key()).await }
    });
    settle().await;
    cache.put(&key(), put(version(b'b', 20))).await.unwrap();
    let late = tokio::spawn({
        let cache = cache.clone();
        async move { cache.head(&key()).await }
    });
    settle().await;
    origin.responses.reopen();
    assert_eq!(early.await.unwrap().unwrap().meta.size, 10);
    assert_eq!(late.await.unwrap().unwrap().meta.size, 20);
    assert_eq!(cache.head(&key()).await.unwrap().meta.size, 20);
}

/// A version that the origin confirms at once takes no request, and a change past the cache
/// is seen by the next read.
#[tokio::test]
async fn a_version_is_confirmed_without_a_request() {
    let origin = GatedOrigin::with(&key(), version(b'a', 3000));
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Etag)).await;
    read(&cache, None).await.unwrap();
    settle().await;
    origin.at_once.store(true, SeqCst);
    let asked = (origin.gets(), origin.heads.load(SeqCst));
    for reads in 1..=5 {
        assert_eq!(read(&cache, None).await.unwrap(), version(b'a', 3000));
        assert_eq!(cache.head(&key()).await.unwrap().meta.size, 3000);
        assert_eq!(cache.stats().revalidations_unchanged, 2 * reads);
    }
    assert_eq!((origin.gets(), origin.heads.load(SeqCst)), asked);
    origin.set(&key(), version(b'b', 2000));
    assert_eq!(read(&cache, None).await.unwrap(), version(b'b', 2000));
    origin.remove(&key());
    let gone = read(&cache, None).await.unwrap_err();
    assert!(matches!(
        gone,
        ObjectError::Origin(OriginError::NotFound(_))
    ));
}

#[tokio::test]
async fn a_write_completes_when_its_caller_is_dropped() {
    let origin = GatedOrigin::with(&key(), version(b'a', 10));
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    read(&cache, None).await.unwrap();
    origin.puts.close();
    let caller = tokio::spawn({
        let cache = cache.clone();
        async move { cache.put(&key(), put(version(b'b', 10))).await }
    });
    settle().await;
    caller.abort();
    // Before the write takes effect the old version is valid, but is not cached as current.
    assert_eq!(read(&cache, None).await.unwrap(), version(b'a', 10));
    origin.puts.reopen();
    settle().await;
    assert_eq!(read(&cache, None).await.unwrap(), version(b'b', 10));
}

#[tokio::test]
async fn caches_of_objects_over_one_store_see_the_writes_of_each_other() {
    let origin = GatedOrigin::with(&key(), version(b'a', 10));
    let (store, backend) = (store().await, Arc::new(origin.clone()));
    let reader = cache_over(store.clone(), &backend, config(Consistency::Immutable));
    let writer = cache_over(store, &backend, config(Consistency::Immutable));
    origin.responses.close();
    let early = early_read(&reader).await;
    writer.put(&key(), put(version(b'b', 10))).await.unwrap();
    origin.responses.reopen();
    early.await.unwrap().unwrap();
    settle().await;
    assert_eq!(read(&reader, None).await.unwrap(), version(b'b', 10));
}

#[tokio::test]
async fn ranges_read_at_once_are_of_one_version() {
    let origin = GatedOrigin::with(&key(), version(b'a', 20 * 1024));
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    cache.head(&key()).await.unwrap();
    // The first range is cached; the second was not read before the change.
    let first = ByteRange::Inclusive { first: 0, last: 9 };
    assert_eq!(read(&cache, Some(first)).await.unwrap(), version(b'a', 10));
    origin.set(&key(), version(b'b', 20 * 1024));
    let ranges = [0..10, 15_000..15_010];
    let read = cache.get_ranges(&key(), &ranges).await.unwrap();
    assert_eq!(read, [version(b'b', 10), version(b'b', 10)]);
    assert_eq!(cache.stats().read_restarts, 1);
}

#[tokio::test]
async fn a_completed_upload_replaces_what_was_cached() {
    let key = key();
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("bucket")).unwrap();
    let origin = Origin::open(&OriginConfig::directory(root.path()), Clock::real()).unwrap();
    let config = config(Consistency::Immutable);
    let cache = ObjectCache::new(store().await, origin, Clock::real(), config).unwrap();
    cache.put(&key, put(version(b'a', 10))).await.unwrap();
    assert_eq!(read(&cache, None).await.unwrap(), version(b'a', 10));

    let upload = cache.create_upload(&key, Attributes::default());
    let upload = upload.await.unwrap();
    let part = PartRequest {
        upload: upload.clone(),
        number: 1,
        length: None,
        body: put(version(b'b', 20)).body,
        late_headers: Arc::default(),
        turn: None,
    };
    let etag = cache.upload_part(&key, part).await.unwrap().etag.unwrap();
    // An uploaded part alone changes nothing.
    assert_eq!(read(&cache, None).await.unwrap(), version(b'a', 10));
    let parts = vec![UploadedPart { number: 1, etag }];
    let request = CompleteRequest {
        upload,
        parts,
        ..CompleteRequest::default()
    };
    cache.complete_upload(&key, request).await.unwrap();
    assert_eq!(read(&cache, None).await.unwrap(), version(b'b', 20));
}

#[tokio::test]
async fn a_change_at_the_origin_is_seen_by_every_later_read() {
    let gated = GatedOrigin::new();
    let (one, two) = (
        ObjectKey::new("bucket", "one"),
        ObjectKey::new("bucket", "two"),
    );
    gated.set(&one, version(b'a', 10));
    gated.set(&two, version(b'b', 10));
    let origin = Arc::new(gated);
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    for key in [&one, &two] {
        cache.get(key, None).await.unwrap().bytes().await.unwrap();
    }
    let (own, from, to) = (Arc::clone(&origin), one.clone(), two.clone());
    let moved = cache.change(vec![one.clone(), two.clone()], async move {
        let bytes = own.bytes(&from).unwrap();
        own.remove(&from);
        own.set(&to, bytes);
    });
    moved.await.unwrap();
    assert!(cache.head(&one).await.unwrap_err().is_negative());
    let read = cache.get(&two, None).await.unwrap();
    assert_eq!(read.bytes().await.unwrap(), version(b'a', 10));
}

#[tokio::test]
async fn versions_never_mix_when_the_object_changes_between_chunks() {
    let origin = GatedOrigin::with(&key(), version(b'a', 20 * 1024));
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    let mut body = cache.get(&key(), None).await.unwrap().body;
    let first = body.next().await.unwrap().unwrap();
    assert!(first.iter().all(|&b| b == b'a'));
    origin.pieces.close();
    origin.set(&key(), version(b'b', 20 * 1024));
    origin.pieces.reopen();
    let mut failed = false;
    while let Some(piece) = body.next().await {
        match piece {
            Ok(bytes) => assert!(bytes.iter().all(|&b| b == b'a')),
            Err(error) => {
                assert!(matches!(error, ObjectError::Changed));
                failed = true;
            }
        }
    }
    assert!(failed);
    assert_eq!(read(&cache, None).await.unwrap(), version(b'b', 20 * 1024));
}

#[tokio::test]
async fn a_change_before_the_first_byte_begins_the_read_anew() {
    let origin = GatedOrigin::with(&key(), version(b'a', 20 * 1024));
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    cache.head(&key()).await.unwrap();
    origin.set(&key(), version(b'b', 10 * 1024));
    assert_eq!(read(&cache, None).await.unwrap(), version(b'b', 10 * 1024));
    assert_eq!(cache.stats().read_restarts, 1);
}

#[tokio::test]
async fn consistency_modes_ask_the_origin_as_often_as_they_say() {
    for (consistency, ttl_seconds, heads, sees_change) in [
        (Consistency::Immutable, 0, 0, false),
        (Consistency::Ttl, 3600, 0, false),
        (Consistency::Ttl, 0, 3, true),
        (Consistency::Etag, 0, 3, true),
    ] {
        let origin = GatedOrigin::with(&key(), version(b'a', 100));
        let config = ObjectConfig {
            ttl_seconds,
            ..config(consistency)
        };
        let cache = cache(&Arc::new(origin.clone()), config).await;
        for _ in 0..3 {
            assert_eq!(read(&cache, None).await.unwrap(), version(b'a', 100));
        }
        assert_eq!(origin.gets(), 1);
        origin.set(&key(), version(b'b', 100));
        let expected = if sees_change { b'b' } else { b'a' };
        assert_eq!(read(&cache, None).await.unwrap(), version(expected, 100));
        assert_eq!(origin.heads.load(SeqCst), heads);
        let stats = cache.origin().stats();
        let sent = |operation, reason| {
            let sent = stats.requests(operation, reason);
            (sent.succeeded + sent.negative) as usize
        };
        let validations = sent(OriginOperation::Head, OriginReason::Validation);
        assert_eq!(validations, heads);
        assert_eq!(sent(OriginOperation::Head, OriginReason::Fetch), 0);
        let fetches = sent(OriginOperation::Get, OriginReason::Fetch);
        assert_eq!(fetches, origin.gets());
        let all = OriginOperation::ALL.map(|operation| stats.operation(operation).succeeded);
        let negative = OriginOperation::ALL.map(|operation| stats.operation(operation).negative);
        let all = all.iter().chain(&negative).sum::<u64>();
        assert_eq!(
            all as usize,
            validations + fetches,
            "each request has one reason"
        );
    }
}

#[tokio::test]
async fn stale_and_negative_responses_need_their_settings() {
    for asked_for in [false, true] {
        let origin = GatedOrigin::with(&key(), version(b'a', 100));
        let config = ObjectConfig {
            serve_stale: asked_for,
            negative_ttl_seconds: if asked_for { 3600 } else { 0 },
            ..config(Consistency::Etag)
        };
        let cache = cache(&Arc::new(origin.clone()), config).await;
        read(&cache, None).await.unwrap();
        origin.outage.store(true, SeqCst);
        assert_eq!(read(&cache, None).await.is_ok(), asked_for);
        origin.outage.store(false, SeqCst);
        origin.remove(&key());
        for _ in 0..2 {
            let error = read(&cache, None).await.unwrap_err();
            assert!(matches!(
                error,
                ObjectError::Origin(OriginError::NotFound(_))
            ));
        }
        assert_eq!(cache.stats().negative_hits, u64::from(asked_for));
        cache.put(&key(), put(version(b'b', 100))).await.unwrap();
        assert_eq!(read(&cache, None).await.unwrap(), version(b'b', 100));
    }
}

#[tokio::test]
async fn objects_without_validators_are_not_stored_in_etag_mode() {
    let mut gated = GatedOrigin::new();
    gated.validators = false;
    let origin = Arc::new(gated);
    origin.set(&key(), version(b'a', 3000));
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Etag)).await;
    for _ in 0..2 {
        let read = cache.get(&key(), None).await.unwrap();
        assert_eq!(read.outcome, Outcome::Miss);
        assert_eq!(read.bytes().await.unwrap(), version(b'a', 3000));
    }
    assert_eq!(cache.stats().chunks_stored, 0);
}

/// Random reads, writes, deletes and changes past the cache, each checked
/// against the origin's state. A purge or a notification tells of such a change, where the
/// mode does not ask.
#[tokio::test]
async fn ten_thousand_random_operations_obey_the_law() {
    for consistency in [
        Consistency::Etag,
        Consistency::Events,
        Consistency::Immutable,
    ] {
        let origin = Arc::new(GatedOrigin::new());
        let cache = cache(&Arc::new(origin.clone()), config(consistency)).await;
        cache.notify(Vec::new()).await.unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
        let keys: Vec<_> = (0..12)
            .map(|i| ObjectKey::new("bucket", format!("object-{i}")))
            .collect();
        for step in 0..10_000u32 {
            let key = &keys[random.random_range(0..keys.len())];
            let mut value = || {
                let letter = random.random::<u8>();
                version(letter, random.random_range(0..9000))
            };
            match step % 10 {
                0 => drop(cache.put(key, put(value())).await.unwrap()),
                1 => {
                    origin.set(key, value());
                    let object = Purge::Object {
                        bucket: key.bucket().into(),
                        key: key.key().into(),
                    };
                    match consistency {
                        Consistency::Etag | Consistency::Ttl => {}
                        Consistency::Events => cache.notify(vec![key.clone()]).await.unwrap(),
                        Consistency::Immutable => cache.purge(&[object]).await.unwrap(),
                    }
                }
                2 if step % 4 == 0 => cache.delete(key).await.unwrap(),
                _ => check(&cache, &origin, key, &mut random).await,
            }
        }
        assert!(cache.stats().reads_hit > 1000);
        assert_eq!(cache.fetches_in_flight(), 0);
    }
}

async fn check(
    cache: &ObjectCache,
    origin: &GatedOrigin,
    key: &ObjectKey,
    random: &mut Xoshiro256PlusPlus,
) {
    let first = random.random_range(0..9000u64);
    let range = match random.random_range(0..4) {
        0 => None,
        1 => Some(ByteRange::From(first)),
        2 => Some(ByteRange::Suffix(first)),
        _ => Some(ByteRange::Inclusive {
            first,
            last: first + random.random_range(0..3000),
        }),
    };
    let truth = origin.bytes(key);
    let outcome = match cache.get(key, range).await {
        Ok(read) => Ok(read.bytes().await.unwrap()),
        Err(error) => Err(error),
    };
    let Some(truth) = truth else {
        assert!(matches!(
            outcome,
            Err(ObjectError::Origin(OriginError::NotFound(_)))
        ));
        return;
    };
    let size = truth.len() as u64;
    match range.map_or(Some(0..size), |range| range.resolve(size)) {
        Some(range) => assert_eq!(
            outcome.unwrap(),
            truth.slice(range.start as usize..range.end as usize)
        ),
        None => assert!(matches!(
            outcome,
            Err(ObjectError::RangeNotSatisfiable { .. })
        )),
    }
}

/// Concurrent readers and writers: a read gives one whole version, none older
/// than the newest acknowledged before the read began.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_reads_never_go_back() {
    let origin = Arc::new(GatedOrigin::new());
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    let acknowledged = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let stamped = |n: u64| -> Bytes { n.to_le_bytes().repeat(600).into() };
    cache.put(&key(), put(stamped(0))).await.unwrap();
    let writer = tokio::spawn({
        let (cache, acknowledged) = (cache.clone(), acknowledged.clone());
        async move {
            for n in 1..300u64 {
                cache.put(&key(), put(stamped(n))).await.unwrap();
                acknowledged.store(n, SeqCst);
                tokio::task::yield_now().await;
            }
        }
    });
    let readers: Vec<_> = (0..6)
        .map(|_| {
            let (cache, acknowledged) = (cache.clone(), acknowledged.clone());
            tokio::spawn(async move {
                while acknowledged.load(SeqCst) < 299 {
                    let least = acknowledged.load(SeqCst);
                    match read(&cache, None).await {
                        Ok(bytes) => {
                            let stamp = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                            assert!(stamp >= least, "read {stamp} after {least}");
                            assert_eq!(bytes, stamped(stamp));
                        }
                        Err(error) => assert!(matches!(error, ObjectError::Changed)),
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    writer.await.unwrap();
    for reader in readers {
        reader.await.unwrap();
    }
    assert_eq!(read(&cache, None).await.unwrap(), stamped(299));
}
