//! Reads of cache-only buckets find the newest object or none, after evictions, expiry and
//! restarts.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::object::{CacheOnlyBucket, Conditions, Lifetime, Purge};
use crate::origin::emulated::{EmulatedConfig, EmulatedOrigin};
use crate::origin::{
    Attributes, CompleteRequest, DeleteCondition, ListRequest, OriginError, PartRequest,
    PutCondition, UploadedPart,
};

const BUCKET: &str = "kept";

fn name(key: &str) -> ObjectKey {
    ObjectKey::new(BUCKET, key)
}

fn bucket() -> CacheOnlyBucket {
    CacheOnlyBucket {
        bucket: BUCKET.into(),
        ..CacheOnlyBucket::default()
    }
}

fn settings(bucket: CacheOnlyBucket, names: &Path) -> ObjectConfig {
    ObjectConfig {
        cache_only: vec![bucket],
        names: names.to_owned(),
        ..config(Consistency::Etag)
    }
}

fn opened(store: Store, config: ObjectConfig) -> ObjectCache {
    let clock = store.clock().clone();
    let backend = EmulatedOrigin::new(EmulatedConfig::default(), clock).unwrap();
    cache_over(store, &Arc::new(backend), config)
}

async fn in_memory(bucket: CacheOnlyBucket) -> ObjectCache {
    opened(store().await, settings(bucket, Path::new("")))
}

/// The object's bytes; `None` if it is missing, or evicted while it is read.
async fn bytes(cache: &ObjectCache, key: &str) -> Option<Bytes> {
    match cache.get(&name(key), None).await {
        Ok(read) => match read.bytes().await {
            Ok(bytes) => Some(bytes),
            Err(ObjectError::Changed) => None,
            Err(error) => panic!("{error}"),
        },
        Err(ObjectError::Origin(OriginError::NotFound(_))) => None,
        Err(error) => panic!("{error}"),
    }
}

fn size(cache: &ObjectCache) -> (u64, u64) {
    let sizes = cache.cache_only_sizes();
    assert!(sizes.len() == 1 && sizes[0].0 == BUCKET);
    (sizes[0].1.objects, sizes[0].1.bytes)
}

async fn listed(cache: &ObjectCache, request: ListRequest) -> Vec<(String, u64)> {
    let page = cache.list(BUCKET, request).await.unwrap();
    let objects = page.objects.into_iter();
    objects.map(|object| (object.key, object.size)).collect()
}

#[tokio::test]
async fn objects_are_read_as_written_replaced_and_deleted() {
    let cache = in_memory(bucket()).await;
    assert_eq!(bytes(&cache, "a").await, None);
    for size in [0, 1, 1023, 1024, 1025, 5000] {
        let written = pattern(size);
        let etag = cache.put(&name("a"), put(written.clone())).await.unwrap();
        assert_eq!(bytes(&cache, "a").await, Some(written));
        let head = cache.head(&name("a")).await.unwrap();
        assert_eq!(head.meta.size, size as u64);
        assert_eq!(head.meta.client_etag(), etag.etag.as_deref());
    }
    let range = Some(ByteRange::Inclusive {
        first: 1000,
        last: 2100,
    });
    let part = cache.get(&name("a"), range).await.unwrap();
    assert_eq!(part.bytes().await.unwrap(), pattern(5000).slice(1000..2101));
    assert_eq!(cache.stats().fetches, 0);
    assert_eq!(size(&cache), (1, 5000));
    cache.delete(&name("a")).await.unwrap();
    cache.delete(&name("a")).await.unwrap();
    assert_eq!(bytes(&cache, "a").await, None);
    assert_eq!(size(&cache), (0, 0));
}

#[tokio::test]
async fn an_upload_of_another_length_stores_nothing() {
    let cache = in_memory(bucket()).await;
    cache.put(&name("a"), put(pattern(10))).await.unwrap();
    for length in [None, Some(9), Some(11), Some(2000)] {
        let request = PutRequest {
            length,
            ..put(pattern(10).slice(..))
        };
        assert!(cache.put(&name("a"), request).await.is_err(), "{length:?}");
        assert_eq!(bytes(&cache, "a").await, Some(pattern(10)));
    }
    for key in [String::new(), "k".repeat(1025)] {
        assert!(cache.put(&name(&key), put(pattern(1))).await.is_err());
    }
    let long = "k".repeat(1024);
    cache.put(&name(&long), put(pattern(1))).await.unwrap();
    assert_eq!(bytes(&cache, &long).await, Some(pattern(1)));
}

#[tokio::test]
async fn conditions_are_those_of_the_object_in_place() {
    let cache = in_memory(bucket()).await;
    let with = |condition| PutRequest {
        condition: Some(condition),
        ..put(pattern(10))
    };
    let failed = |result: Result<_, ObjectError>| {
        matches!(
            result,
            Err(ObjectError::Origin(
                OriginError::PreconditionFailed | OriginError::NotFound(_)
            ))
        )
    };
    assert!(failed(
        cache.put(&name("a"), with(PutCondition::Exists)).await
    ));
    let first = cache.put(&name("a"), with(PutCondition::Absent)).await;
    let etag = first.unwrap().etag.unwrap();
    assert!(failed(
        cache.put(&name("a"), with(PutCondition::Absent)).await
    ));
    let matches = PutCondition::Matches(etag.clone());
    cache.put(&name("a"), with(matches)).await.unwrap();
    let tagged = |etag: &str| DeleteCondition {
        etag: Some(etag.to_owned()),
        ..DeleteCondition::default()
    };
    let a = name("a");
    assert!(cache.delete_if(&a, tagged("\"other\"")).await.is_err());
    cache.delete_if(&a, tagged(&etag)).await.unwrap();
    assert_eq!(bytes(&cache, "a").await, None);
    // One of many writers at once succeeds.
    let writers = (0..32).map(|_| cache.put(&a, with(PutCondition::Absent)));
    let written = futures::future::join_all(writers).await;
    assert_eq!(written.iter().filter(|result| result.is_ok()).count(), 1);
}

#[tokio::test]
async fn listings_are_ordered_paged_and_folded() {
    let cache = in_memory(bucket()).await;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut model = BTreeMap::new();
    for _ in 0..300 {
        let parts = random.random_range(1..4);
        let part = |_| ["a", "b", "\u{0}", "é", "\u{10ffff}"][random.random_range(0..5)];
        let key: Vec<&str> = (0..parts).map(part).collect();
        let (key, size) = (key.join("/"), random.random_range(0..2000));
        match random.random_range(0..4) {
            0 => {
                cache.delete(&name(&key)).await.unwrap();
                model.remove(&key);
            }
            _ => {
                cache.put(&name(&key), put(pattern(size))).await.unwrap();
                model.insert(key, size as u64);
            }
        }
    }
    assert!(model.len() > 30);
    for prefix in ["", "a", "a/", "b/a", "é", "\u{10ffff}/", "z"] {
        let expected: Vec<_> = model
            .iter()
            .filter(|(key, _)| key.starts_with(prefix))
            .map(|(key, size)| (key.clone(), *size))
            .collect();
        let all = ListRequest {
            prefix: prefix.into(),
            ..ListRequest::default()
        };
        assert_eq!(listed(&cache, all.clone()).await, expected);
        let after = ListRequest {
            start_after: Some("b".into()),
            ..all.clone()
        };
        let later: Vec<_> = expected.iter().filter(|(key, _)| &**key > "b").collect();
        assert!(listed(&cache, after).await.iter().eq(later));
        let mut folded = std::collections::BTreeSet::new();
        for (key, _) in &expected {
            let end = key[prefix.len()..]
                .find('/')
                .map(|at| prefix.len() + at + 1);
            folded.insert(key[..end.unwrap_or(key.len())].to_owned());
        }
        let mut found = Vec::new();
        let mut request = ListRequest {
            delimiter: Some("/".into()),
            max_keys: 2,
            ..all
        };
        loop {
            let page = cache.list(BUCKET, request.clone()).await.unwrap();
            found.extend(page.objects.into_iter().map(|object| object.key));
            found.extend(page.common_prefixes);
            match page.next {
                Some(next) => request.continuation = Some(next),
                None => break,
            }
        }
        found.sort_unstable();
        assert!(found.iter().eq(&folded), "{prefix:?}: {found:?} {folded:?}");
    }
}

#[tokio::test]
async fn a_bucket_keeps_to_its_capacity_and_drops_the_oldest() {
    let cache = in_memory(CacheOnlyBucket {
        capacity: ByteSize(10_000),
        ..bucket()
    })
    .await;
    for number in 0..10 {
        let key = format!("{number}");
        cache.put(&name(&key), put(pattern(3000))).await.unwrap();
    }
    let kept: Vec<_> = listed(&cache, ListRequest::default()).await;
    assert_eq!(kept, ["7", "8", "9"].map(|key| (key.to_owned(), 3000)));
    assert!(bytes(&cache, "6").await.is_none());
    let refused = cache.put(&name("9"), put(pattern(10_001))).await;
    assert!(refused.unwrap_err().to_string().contains("10000"));
    assert_eq!(bytes(&cache, "9").await, Some(pattern(3000)));
    // One transaction removes a few of them.
    let small = (0..20).map(|number| format!("small-{number}"));
    for key in small {
        cache.put(&name(&key), put(pattern(400))).await.unwrap();
    }
    cache.put(&name("z"), put(pattern(9_900))).await.unwrap();
    assert_eq!(bytes(&cache, "z").await, Some(pattern(9_900)));
    while listed(&cache, ListRequest::default()).await != [("z".to_owned(), 9_900)] {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn objects_expire_by_the_longest_prefix() {
    let lifetime = |prefix: &str, ttl_seconds| Lifetime {
        prefix: prefix.into(),
        ttl_seconds,
    };
    let kept = CacheOnlyBucket {
        ttl_seconds: 1000,
        lifetimes: vec![lifetime("x/", 2), lifetime("x/y/", 0)],
        ..bucket()
    };
    let cache = in_memory(kept).await;
    for key in ["a", "x/a", "x/y/a"] {
        cache.put(&name(key), put(pattern(2000))).await.unwrap();
    }
    for (seconds, left) in [(0, &["a", "x/a", "x/y/a"][..]), (3, &["a", "x/y/a"])] {
        Clock::real().sleep(Duration::from_secs(seconds)).await;
        let found: Vec<_> = listed(&cache, ListRequest::default()).await;
        let found: Vec<_> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(found, left);
        for key in ["a", "x/a", "x/y/a"] {
            let is_left = left.contains(&key);
            assert_eq!(bytes(&cache, key).await.is_some(), is_left, "{key}");
            assert_eq!(cache.head(&name(key)).await.is_ok(), is_left, "{key}");
        }
    }
}

#[tokio::test]
async fn a_purge_deletes() {
    let cache = in_memory(bucket()).await;
    for key in ["a/1", "a/2", "b"] {
        cache.put(&name(key), put(pattern(2000))).await.unwrap();
    }
    let purge = Purge::Prefix {
        bucket: BUCKET.into(),
        prefix: "a/".into(),
    };
    cache.purge(&[purge]).await.unwrap();
    assert_eq!(
        listed(&cache, ListRequest::default()).await,
        [("b".to_owned(), 2000)]
    );
    assert_eq!(bytes(&cache, "a/1").await, None);
    cache.put(&name("a/1"), put(pattern(5))).await.unwrap();
    assert_eq!(bytes(&cache, "a/1").await, Some(pattern(5)));
}

async fn upload_part(
    cache: &ObjectCache,
    key: &str,
    upload: &str,
    number: u32,
    bytes: Bytes,
) -> UploadedPart {
    let PutRequest {
        length,
        body,
        late_headers,
        turn,
        ..
    } = put(bytes);
    let request = PartRequest {
        upload: upload.to_owned(),
        number,
        length,
        body,
        late_headers,
        turn,
    };
    let etag = cache.upload_part(&name(key), request).await.unwrap().etag;
    UploadedPart {
        number,
        etag: etag.unwrap(),
    }
}

#[tokio::test]
async fn uploads_in_parts_become_objects() {
    let cache = in_memory(bucket()).await;
    let a = name("a");
    for sizes in [&[3000][..], &[1000, 0, 3000, 10], &[0]] {
        let upload = cache.create_upload(&name("a"), Attributes::default()).await;
        let upload = upload.unwrap();
        assert_eq!(cache.list_uploads(BUCKET).await.unwrap().len(), 1);
        let mut whole = Vec::new();
        let mut parts = Vec::new();
        for (number, &size) in (1..).zip(sizes) {
            upload_part(&cache, "a", &upload, number, pattern(7)).await;
            let bytes = pattern(size);
            whole.extend_from_slice(&bytes);
            parts.push(upload_part(&cache, "a", &upload, number, bytes).await);
        }
        let known = cache.list_parts(&name("a"), &upload).await.unwrap();
        let known: Vec<_> = known.parts.iter().map(|part| part.size as usize).collect();
        assert_eq!(known, sizes);
        let request = CompleteRequest {
            upload: upload.clone(),
            parts,
            ..CompleteRequest::default()
        };
        let mut wrong = request.clone();
        wrong.parts[0].etag = "\"0\"".into();
        assert!(cache.complete_upload(&name("a"), wrong).await.is_err());
        let other = cache.complete_upload(&name("b"), request.clone()).await;
        assert!(other.is_err());
        let done = cache.complete_upload(&name("a"), request.clone()).await;
        let again = cache.complete_upload(&name("a"), request.clone()).await;
        assert_eq!(done.unwrap(), again.unwrap());
        // Removals of replaced chunks must not take those of the object.
        Clock::real().sleep(Duration::from_millis(50)).await;
        assert_eq!(bytes(&cache, "a").await.unwrap(), whole);
        assert!(cache.list_uploads(BUCKET).await.unwrap().is_empty());
        // The answer is kept for the upload, not for the object.
        cache.put(&name("a"), put(pattern(1))).await.unwrap();
        cache.complete_upload(&name("a"), request).await.unwrap();
        assert_eq!(bytes(&cache, "a").await, Some(pattern(1)));
    }
    // Of two completions at once each gets the answer of the one that succeeded.
    let upload = cache.create_upload(&name("a"), Attributes::default()).await;
    let upload = upload.unwrap();
    let mut parts = Vec::new();
    for number in 1..4 {
        parts.push(upload_part(&cache, "a", &upload, number, pattern(50_000)).await);
    }
    let request = CompleteRequest {
        upload,
        parts,
        ..CompleteRequest::default()
    };
    let completions = (0..8).map(|_| cache.complete_upload(&a, request.clone()));
    for done in futures::future::join_all(completions).await {
        assert!(done.unwrap().etag.unwrap().ends_with("-3\""));
    }
    assert_eq!(bytes(&cache, "a").await.unwrap().len(), 150_000);
    cache.put(&a, put(pattern(1))).await.unwrap();
    let upload = cache.create_upload(&name("a"), Attributes::default()).await;
    let upload = upload.unwrap();
    let part = upload_part(&cache, "a", &upload, 1, pattern(2000)).await;
    cache.abort_upload(&name("a"), &upload).await.unwrap();
    assert!(cache.abort_upload(&name("a"), &upload).await.is_err());
    let request = CompleteRequest {
        upload,
        parts: vec![part],
        ..CompleteRequest::default()
    };
    assert!(cache.complete_upload(&name("a"), request).await.is_err());
    assert_eq!(bytes(&cache, "a").await, Some(pattern(1)));
}

#[tokio::test]
async fn eviction_makes_objects_missing_and_their_names_go() {
    let cache = in_memory(bucket()).await;
    let mut sizes = BTreeMap::new();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    let longest = pattern(200_000);
    // Three times what fits.
    for number in 0..1500 {
        let (key, size) = (format!("{number:05}"), random.random_range(0..200_000));
        cache
            .put(&name(&key), put(longest.slice(..size)))
            .await
            .unwrap();
        sizes.insert(key, size);
    }
    let mut kept = 0;
    for (key, &size) in &sizes {
        if let Some(bytes) = bytes(&cache, key).await {
            assert_eq!(bytes, longest.slice(..size), "{key}");
            kept += 1;
        }
    }
    assert!((50..1000).contains(&kept), "{kept}");
    let request = ListRequest {
        max_keys: 10_000,
        ..ListRequest::default()
    };
    let found = listed(&cache, request).await;
    for (key, size) in &found {
        assert_eq!(*size, sizes[key] as u64);
    }
    assert!(
        (kept / 2..kept * 2).contains(&found.len()),
        "{}",
        found.len()
    );
    let (rows, _) = size(&cache);
    assert!(rows < 3 * kept as u64, "{rows} rows of {kept} objects");
}

#[tokio::test]
async fn a_restart_finds_the_newest_acknowledged_objects() {
    let directory = tempfile::tempdir().unwrap();
    let names = directory.path().join("names");
    let device: SharedDevice = Arc::new(MemoryDevice::new(geometry()));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut model: BTreeMap<String, Bytes> = BTreeMap::new();
    for round in 0..6 {
        let store = store_on(Arc::clone(&device), Clock::real()).await;
        let cache = opened(store.clone(), settings(bucket(), &names));
        let mut found = 0;
        for number in 0..40 {
            let key = format!("{number}");
            let read = bytes(&cache, &key).await;
            assert!(
                read.is_none() || read.as_ref() == model.get(&key),
                "{round} {key}"
            );
            found += usize::from(read.is_some());
        }
        assert!(found * 2 >= model.len(), "{found} of {}", model.len());
        for _ in 0..60 {
            let key = format!("{}", random.random_range(0..40));
            match random.random_range(0..4) {
                0 => {
                    cache.delete(&name(&key)).await.unwrap();
                    model.remove(&key);
                }
                _ => {
                    let written = pattern(random.random_range(0..20_000));
                    let byte = Bytes::copy_from_slice(&random.random::<u64>().to_le_bytes());
                    let written: Bytes = [&byte[..], &written].concat().into();
                    cache.put(&name(&key), put(written.clone())).await.unwrap();
                    model.insert(key, written);
                }
            }
        }
        if round % 2 == 0 {
            cache.stop().await;
            store.close().await.unwrap();
            // That a closed store knows of no chunk does not mean that the object is gone.
            let _ = cache.get(&name("0"), None).await;
        }
        // Otherwise as after a crash: what was not yet on flash is lost.
        drop((cache, store));
    }
}

#[tokio::test]
async fn files_that_are_no_names_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let names = directory.path().join("names");
    let open = async |names: &Path| {
        let store = store().await;
        let clock = store.clock().clone();
        let backend = EmulatedOrigin::new(EmulatedConfig::default(), clock.clone()).unwrap();
        let origin = Origin::from_backend(Arc::new(backend), requests(), clock.clone()).unwrap();
        ObjectCache::new(store, origin, clock, settings(bucket(), names))
    };
    std::fs::write(&names, "my letters").unwrap();
    let error = open(&names).await.unwrap_err().to_string();
    assert!(
        error.contains("names") && error.contains("another file"),
        "{error}"
    );
    assert_eq!(std::fs::read(&names).unwrap(), b"my letters");
    let error = open(&directory.path().join("no/such")).await.unwrap_err();
    assert!(error.to_string().contains("written"), "{error}");
    std::fs::remove_file(&names).unwrap();
    let first = open(&names).await.unwrap();
    first.put(&name("a"), put(pattern(3000))).await.unwrap();
    let error = open(&names).await.unwrap_err().to_string();
    assert!(error.contains("another process"), "{error}");
    drop(first);
    // A damaged file is refused, or loses objects; it never panics.
    let whole = std::fs::read(&names).unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
    let mut refused = 0;
    for _ in 0..40 {
        let mut damaged = whole.clone();
        for _ in 0..random.random_range(1..2000) {
            let at = random.random_range(0..damaged.len());
            damaged[at] = random.random();
        }
        std::fs::write(&names, damaged).unwrap();
        refused += usize::from(open(&names).await.is_err());
    }
    assert!(refused > 30, "{refused}");
}

#[tokio::test]
async fn other_buckets_are_the_origins() {
    let cache = in_memory(bucket()).await;
    let other = ObjectKey::new("bucket", "some/object");
    let read = cache.get_if(&other, None, &Conditions::default()).await;
    assert!(read.is_ok());
    assert!(cache.stats().fetches > 0);
    let buckets = cache.list_buckets().await.unwrap();
    assert!(buckets.iter().any(|found| found.name == BUCKET));
    assert!(cache.create_bucket(BUCKET).await.is_err());
    assert!(cache.delete_bucket(BUCKET).await.is_err());
    cache.head_bucket(BUCKET).await.unwrap();
}

#[tokio::test]
async fn an_era_forgets_all_and_an_unconfirmed_node_serves_none() {
    let cache = in_memory(bucket()).await;
    let write = async || {
        let body = pattern(3000);
        cache.put(&name("a"), put(body.clone())).await.unwrap();
        body
    };
    let body = write().await;
    cache.store().membership().withdraw();
    assert_eq!(bytes(&cache, "a").await, None);
    assert!(cache.put(&name("a"), put(pattern(1))).await.is_err());
    assert!(cache.delete(&name("a")).await.is_err());
    assert!(cache.list(BUCKET, ListRequest::default()).await.is_err());
    cache.store().membership().confirm();
    assert_eq!(bytes(&cache, "a").await, Some(body));
    cache.begin_era().await.unwrap();
    assert_eq!(bytes(&cache, "a").await, None);
    let body = write().await;
    assert_eq!(bytes(&cache, "a").await, Some(body));
}
