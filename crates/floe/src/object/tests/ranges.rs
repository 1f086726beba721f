//! Every range gives exactly its bytes: all missing, all cached, partly cached.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use floe_device::Clock;
use proptest::prelude::*;

use super::origin::GatedOrigin;
use super::*;
use crate::object::{ConditionalRead, Conditions, EtagCondition};
use crate::origin::emulated::{EmulatedConfig, EmulatedOrigin, SizeRule, verify};

const SEED: u64 = 5;

fn emulated(size: u64) -> Arc<EmulatedOrigin> {
    let config = EmulatedConfig {
        seed: SEED,
        size: SizeRule::Fixed {
            bytes: ByteSize(size),
        },
        piece_size: ByteSize(700),
        ..EmulatedConfig::default()
    };
    Arc::new(EmulatedOrigin::new(config, Clock::real()).unwrap())
}

async fn check(cache: &ObjectCache, size: u64, range: Option<ByteRange>) {
    let expected = range.map_or(Some(0..size), |range| range.resolve(size));
    match (cache.get(&key(), range).await, expected) {
        (Ok(read), Some(expected)) => {
            assert_eq!((read.meta.size, &read.range), (size, &expected));
            let bytes = read.bytes().await.unwrap();
            assert_eq!(bytes.len() as u64, expected.end - expected.start);
            verify(SEED, &key(), expected.start, &bytes).unwrap();
        }
        (Err(ObjectError::RangeNotSatisfiable { size: reported }), None) => {
            assert_eq!(reported, size)
        }
        (outcome, expected) => panic!("{range:?} of {size}: {outcome:?}, expected {expected:?}"),
    }
}

#[tokio::test]
async fn the_matrix_of_ranges() {
    let edges = [0, 1, 1023, 1024, 1025, 2048, 5119, 5120, 5121, u64::MAX];
    for size in [0, 1, 1023, 1024, 1025, 5120, 5121] {
        let warm = cache(&emulated(size), config(Consistency::Immutable)).await;
        for first in edges {
            for range in [
                None,
                Some(ByteRange::From(first)),
                Some(ByteRange::Suffix(first)),
                Some(ByteRange::Inclusive {
                    first,
                    last: first.saturating_add(1500),
                }),
                Some(ByteRange::Inclusive {
                    first: 0,
                    last: first,
                }),
            ] {
                let cold = cache(&emulated(size), config(Consistency::Etag)).await;
                check(&cold, size, range).await;
                check(&warm, size, range).await;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_ranges_of_random_objects(
        size in 0u64..40_000,
        ranges in proptest::collection::vec((0u64..45_000, 0u64..20_000), 1..12),
        chunk in 512u64..5000,
        window_kib in 64u64..128,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let config = ObjectConfig {
                chunk_size: ByteSize(chunk),
                fetch_window: ByteSize::kib(window_kib),
                ..config(Consistency::Immutable)
            };
            let cache = cache(&emulated(size), config).await;
            for (first, len) in ranges {
                let range = ByteRange::Inclusive { first, last: first + len };
                check(&cache, size, Some(range)).await;
            }
        });
    }
}

/// One GET confirms a known object and brings the chunk that the cache lacks.
#[tokio::test]
async fn a_range_that_is_not_cached_takes_one_request() {
    let bytes = pattern(10_000);
    let origin = GatedOrigin::with(&key(), bytes.clone());
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Etag)).await;
    let expect = async |range: ByteRange, of: &Bytes, fetched: &[(u64, u64)], heads: usize| {
        origin.ranges.lock().clear();
        let before = origin.heads.load(SeqCst);
        let wanted = range.resolve(of.len() as u64).unwrap();
        let got = read(&cache, Some(range)).await.unwrap();
        assert!(
            got == of[wanted.start as usize..wanted.end as usize],
            "{range:?}"
        );
        let ranges = origin.ranges.lock().clone();
        let ranges: Vec<_> = ranges
            .iter()
            .map(|range| (range.start, range.end))
            .collect();
        assert_eq!(ranges, fetched, "{range:?}");
        assert_eq!(origin.heads.load(SeqCst) - before, heads, "{range:?}");
        settle().await;
    };
    let part = |first, last| ByteRange::Inclusive { first, last };
    expect(part(0, 10), &bytes, &[(0, 1024)], 0).await;
    expect(part(0, 20), &bytes, &[], 1).await;
    expect(part(5000, 5001), &bytes, &[(4096, 5120)], 0).await;
    // No chunk comes twice.
    expect(part(3000, 6000), &bytes, &[(2048, 4096), (5120, 6144)], 0).await;
    expect(ByteRange::Suffix(10), &bytes, &[(9216, 10_000)], 0).await;
    let changed = pattern(12_345).slice(1..);
    origin.set(&key(), changed.clone());
    expect(part(7000, 7001), &changed, &[(6144, 7168)], 0).await;
    // A shorter one, which ends before the range.
    let short = pattern(2000);
    origin.set(&key(), short.clone());
    let beyond = read(&cache, Some(part(8000, 8001))).await;
    assert!(beyond.unwrap_err().is_negative());
    settle().await;
    expect(part(1999, 3000), &short, &[(1024, 2000)], 0).await;
}

#[tokio::test]
async fn readers_of_different_chunks_need_one_request_each() {
    let bytes = pattern(10_000);
    let origin = GatedOrigin::with(&key(), bytes.clone());
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Etag)).await;
    origin.responses.close();
    let part = |chunk: u64| {
        let range = ByteRange::Inclusive {
            first: chunk * 1024,
            last: chunk * 1024 + 9,
        };
        let cache = cache.clone();
        tokio::spawn(async move { read(&cache, Some(range)).await.unwrap() })
    };
    let mut readers = Vec::new();
    for chunk in [1, 3, 3, 5] {
        readers.push((chunk as usize * 1024, part(chunk)));
        Clock::real().sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((origin.gets(), origin.heads.load(SeqCst)), (3, 1));
    origin.responses.reopen();
    for (start, reader) in readers {
        assert!(reader.await.unwrap() == bytes[start..start + 10]);
    }
    assert_eq!((origin.gets(), origin.heads.load(SeqCst)), (3, 1));
}

#[tokio::test]
async fn many_ranges_are_read_at_once() {
    let ranges = [4000..4100, 0..1, 4050..9999, 1000..3000];
    for consistency in [Consistency::Immutable, Consistency::Etag] {
        let cache = cache(&emulated(5000), config(consistency)).await;
        for _ in 0..2 {
            let read = cache.get_ranges(&key(), &ranges).await.unwrap();
            assert_eq!(read.len(), ranges.len());
            for (range, bytes) in ranges.iter().zip(&read) {
                assert_eq!(bytes.len() as u64, range.end.min(5000) - range.start);
                verify(SEED, &key(), range.start, bytes).unwrap();
            }
        }
        assert!(cache.get_ranges(&key(), &[]).await.unwrap().is_empty());
        let beyond = cache.get_ranges(&key(), &[0..1, 5000..5001]).await;
        assert!(beyond.unwrap_err().is_negative());
    }
}

#[tokio::test]
async fn conditions_are_judged_on_the_version_that_is_read() {
    let cache = cache(&emulated(100), config(Consistency::Immutable)).await;
    let meta = cache.head(&key()).await.unwrap().meta;
    let tags = EtagCondition::Tags(vec![meta.etag.clone().unwrap()]);
    let none_match = Conditions {
        if_none_match: Some(tags.clone()),
        ..Conditions::default()
    };
    let outcome = cache.get_if(&key(), None, &none_match).await.unwrap();
    assert!(matches!(outcome, ConditionalRead::NotModified(_)));
    let matches_other = Conditions {
        if_match: Some(EtagCondition::Tags(vec!["\"other\"".into()])),
        ..Conditions::default()
    };
    let outcome = cache.get_if(&key(), None, &matches_other).await.unwrap();
    assert!(matches!(outcome, ConditionalRead::PreconditionFailed(_)));
    let matches_own = Conditions {
        if_match: Some(tags),
        ..Conditions::default()
    };
    let outcome = cache.get_if(&key(), None, &matches_own).await.unwrap();
    assert!(matches!(outcome, ConditionalRead::Read(_)));
}

#[tokio::test]
async fn corrupt_metadata_and_chunks_of_another_length_are_misses() {
    let store = store().await;
    let origin = emulated(3000);
    let cache = cache_over(store.clone(), &origin, config(Consistency::Immutable));
    check(&cache, 3000, None).await;
    let record = [b"m".as_slice(), b"bucket\0some/object"].concat();
    let options = crate::PutOptions::default();
    let garbage = bytes::Bytes::from_static(b"garbage");
    store.put(&record, garbage, options).await.unwrap();
    check(&cache, 3000, None).await;
    assert_eq!(cache.stats().metadata_corrupt, 1);
}
