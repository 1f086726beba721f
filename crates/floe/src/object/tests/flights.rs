//! Single-flight: readers share one fetch and may leave at any time.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use futures::StreamExt;
use futures::future::join_all;

use super::origin::GatedOrigin;
use super::*;
use crate::object::Outcome;
use crate::origin::OriginError;

#[tokio::test]
async fn many_readers_cause_one_fetch_and_see_bytes_as_they_arrive() {
    let origin = GatedOrigin::with(&key(), pattern(900));
    origin.responses.close();
    origin.pieces.close();
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    let readers: Vec<_> = (0..50)
        .map(|_| {
            let cache = cache.clone();
            tokio::spawn(async move { cache.get(&key(), None).await })
        })
        .collect();
    settle().await;
    assert_eq!(origin.gets(), 1);
    origin.responses.reopen();
    origin.pieces.admit(1);
    // All readers have the first bytes while the origin holds back the second piece.
    let mut reads = Vec::new();
    for reader in join_all(readers).await {
        reads.push(reader.unwrap().unwrap());
    }
    assert_eq!(
        reads.iter().filter(|r| r.outcome == Outcome::Miss).count(),
        1
    );
    origin.pieces.reopen();
    for read in reads {
        assert_eq!(read.bytes().await.unwrap(), pattern(900));
    }
    assert_eq!((origin.gets(), cache.fetches_in_flight()), (1, 0));
    assert_eq!(read(&cache, None).await.unwrap(), pattern(900));
    assert_eq!((origin.gets(), cache.stats().reads_hit), (1, 1));
    settle().await;
    assert_eq!(cache.fetch_memory_used(), 0);
}

#[tokio::test]
async fn the_fetch_goes_on_when_the_reader_who_began_it_leaves() {
    let origin = GatedOrigin::with(&key(), pattern(900));
    origin.pieces.close();
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    let leader = tokio::spawn({
        let cache = cache.clone();
        async move { read(&cache, None).await }
    });
    settle().await;
    let follower = tokio::spawn({
        let cache = cache.clone();
        async move { read(&cache, None).await }
    });
    settle().await;
    leader.abort();
    settle().await;
    origin.pieces.reopen();
    assert_eq!(follower.await.unwrap().unwrap(), pattern(900));
    assert_eq!(origin.gets(), 1);
    settle().await;
    assert_eq!(
        (cache.fetches_in_flight(), cache.fetch_memory_used()),
        (0, 0)
    );
}

#[tokio::test]
async fn an_unwatched_fetch_completes_or_is_cancelled_as_configured() {
    for cancel in [false, true] {
        let origin = GatedOrigin::with(&key(), pattern(900));
        origin.pieces.close();
        let config = ObjectConfig {
            cancel_abandoned: cancel,
            ..config(Consistency::Immutable)
        };
        let cache = cache(&Arc::new(origin.clone()), config).await;
        let only = tokio::spawn({
            let cache = cache.clone();
            async move { read(&cache, None).await }
        });
        settle().await;
        only.abort();
        settle().await;
        assert_eq!(cache.fetches_in_flight(), usize::from(!cancel));
        assert_eq!(cache.stats().fetches_cancelled, u64::from(cancel));
        origin.pieces.reopen();
        settle().await;
        assert_eq!(read(&cache, None).await.unwrap(), pattern(900));
        assert_eq!(origin.gets(), 1 + usize::from(cancel));
        assert_eq!(cache.fetch_memory_used(), 0);
    }
}

#[tokio::test]
async fn a_failed_fetch_fails_its_waiting_readers_only() {
    let origin = GatedOrigin::with(&key(), pattern(900));
    origin.responses.close();
    origin.failures.store(1, SeqCst);
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let cache = cache.clone();
            tokio::spawn(async move { read(&cache, None).await })
        })
        .collect();
    settle().await;
    origin.responses.reopen();
    for waiter in waiting {
        let error = waiter.await.unwrap().unwrap_err();
        assert!(
            matches!(
                error,
                ObjectError::Origin(OriginError::Rejected { status: 418, .. })
            ),
            "{error:?}"
        );
    }
    assert_eq!(origin.gets(), 1);
    assert_eq!(read(&cache, None).await.unwrap(), pattern(900));
    assert_eq!((origin.gets(), cache.fetches_in_flight()), (2, 0));
}

#[tokio::test]
async fn a_short_body_is_resumed_or_is_an_error_and_not_stored() {
    let origin = GatedOrigin::with(&key(), pattern(3000));
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    origin.cuts.store(2, SeqCst);
    assert_eq!(read(&cache, None).await.unwrap(), pattern(3000));
    assert_eq!(cache.stats().fetches_resumed, 2);
    cache.invalidate(&key()).await.unwrap();
    origin.set(&key(), pattern(2999));
    origin.cuts.store(usize::MAX, SeqCst);
    assert!(matches!(
        read(&cache, None).await,
        Err(ObjectError::Origin(OriginError::ShortBody { .. }))
    ));
    origin.cuts.store(0, SeqCst);
    settle().await;
    assert_eq!(read(&cache, None).await.unwrap(), pattern(2999));
    assert_eq!(cache.fetches_in_flight(), 0);
}

#[tokio::test]
async fn adjacent_missing_chunks_are_one_request_and_only_what_is_touched_is_fetched() {
    let origin = GatedOrigin::with(&key(), pattern(20 * 1024));
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    let range = |first, last| Some(ByteRange::Inclusive { first, last });
    read(&cache, range(5 * 1024 + 10, 6 * 1024)).await.unwrap();
    assert_eq!(origin.ranges.lock()[0], 5 * 1024..7 * 1024);
    // Chunks 4 and 7 are missing, 5 and 6 are stored.
    let bytes = read(&cache, range(4 * 1024, 8 * 1024 - 1)).await.unwrap();
    assert_eq!(bytes, pattern(20 * 1024).slice(4 * 1024..8 * 1024));
    assert_eq!(
        origin.ranges.lock()[1..],
        [4096..5 * 1024, 7 * 1024..8 * 1024]
    );
    origin.ranges.lock().clear();
    read(&cache, range(8 * 1024, 20 * 1024)).await.unwrap();
    // Four chunks of 1 KiB at a time.
    let fetched = [8192..12 * 1024, 12 * 1024..16 * 1024, 16 * 1024..20 * 1024];
    assert_eq!(*origin.ranges.lock(), fetched);
}

#[tokio::test]
async fn a_slow_reader_neither_stalls_others_nor_holds_memory() {
    let big = pattern(400 * 1024);
    let origin = GatedOrigin::with(&key(), big.clone());
    let config = ObjectConfig {
        chunk_size: ByteSize::kib(400),
        reader_timeout_ms: 20,
        fetch_memory: ByteSize::kib(64),
        ..config(Consistency::Immutable)
    };
    let cache = cache(&Arc::new(origin.clone()), config).await;
    let mut slow = cache.get(&key(), None).await.unwrap();
    let first = slow.body.next().await.unwrap().unwrap();
    // The second reader runs to the end although the first one stands still.
    assert_eq!(read(&cache, None).await.unwrap(), big);
    // The slow reader's window takes all memory; another fetch makes it release the bytes.
    let other = ObjectKey::new("bucket", "other");
    origin.set(&other, big.clone());
    let read = cache.get(&other, None).await.unwrap();
    assert_eq!(read.bytes().await.unwrap(), big);
    let mut rest = first.to_vec();
    while let Some(piece) = slow.body.next().await {
        rest.extend_from_slice(&piece.unwrap());
    }
    assert_eq!(rest, big);
    assert!(cache.stats().readers_detached >= 1);
}

#[tokio::test]
async fn a_fetch_completes_if_all_its_readers_stall() {
    let big = pattern(400 * 1024);
    let origin = GatedOrigin::with(&key(), big.clone());
    let config = ObjectConfig {
        chunk_size: ByteSize::kib(400),
        reader_timeout_ms: 1,
        ..config(Consistency::Immutable)
    };
    let cache = cache(&Arc::new(origin.clone()), config).await;
    let slow = cache.get(&key(), None).await.unwrap();
    while cache.fetches_in_flight() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(slow.bytes().await.unwrap(), big);
    assert_eq!(origin.gets(), 1, "the rest came from the store");
}
