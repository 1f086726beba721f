//! Tests in virtual time: expiry, latency, faulty flash and origins, thousands
//! of concurrent operations.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use bytes::Bytes;
use floe_device::{Faults, Faulty, virtual_time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::origin::GatedOrigin;
use super::*;
use crate::latency::{LatencyPreset, LatencyRule};
use crate::origin::emulated::{Content, EmulatedConfig, EmulatedOrigin, SizeRule};
use crate::origin::{OriginError, PutRequest, RequestConfig};
use futures::StreamExt;

const SEED: u64 = 3;

async fn virtual_store(clock: &Clock) -> Store {
    store_on(Arc::new(MemoryDevice::new(geometry())), clock.clone()).await
}

#[test]
fn metadata_is_used_for_its_lifetime_only() {
    virtual_time::run(SEED, |clock| async move {
        let origin = GatedOrigin::with(&key(), Bytes::from_static(b"old"));
        let config = ObjectConfig {
            ttl_seconds: 10,
            ..config(Consistency::Ttl)
        };
        let backend = Arc::new(origin.clone());
        let cache = cache_over(virtual_store(&clock).await, &backend, config);
        read(&cache, None).await.unwrap();
        origin.set(&key(), Bytes::from_static(b"new"));
        clock.sleep(Duration::from_secs(9)).await;
        assert_eq!(read(&cache, None).await.unwrap(), "old");
        clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(read(&cache, None).await.unwrap(), "new");
        assert_eq!(origin.heads.load(SeqCst), 1);
        clock.sleep(Duration::from_secs(10)).await;
        assert_eq!(read(&cache, None).await.unwrap(), "new");
        assert_eq!(cache.stats().revalidations_unchanged, 1);
    });
}

/// In `etag` mode readers share a request that is sent after they have begun, and no other.
#[test]
fn readers_share_validations_that_are_sent_after_them() {
    virtual_time::run(SEED, |clock| async move {
        let origin = GatedOrigin::with(&key(), Bytes::from_static(b"old"));
        let backend = Arc::new(origin.clone());
        let store = virtual_store(&clock).await;
        let cache = cache_over(store, &backend, config(Consistency::Etag));
        let readers = |count: usize| -> Vec<_> {
            let reader = || {
                let cache = cache.clone();
                tokio::spawn(async move { read(&cache, None).await.unwrap() })
            };
            std::iter::repeat_with(reader).take(count).collect()
        };
        let pause = Duration::from_secs(1);
        for misses in [true, false] {
            let asked = origin.gets() + origin.heads.load(SeqCst);
            for reader in readers(64) {
                assert_eq!(reader.await.unwrap(), "old");
            }
            let asked = origin.gets() + origin.heads.load(SeqCst) - asked;
            assert_eq!(asked, 1, "for 64 readers, misses: {misses}");
            clock.sleep(pause).await;
        }
        // Readers that begin while a request is under way share the next one.
        origin.responses.close();
        let early = readers(1);
        clock.sleep(pause).await;
        let asked = origin.heads.load(SeqCst);
        origin.set(&key(), Bytes::from_static(b"new"));
        let late = readers(10);
        settle().await;
        assert_eq!(origin.heads.load(SeqCst), asked, "they gather");
        origin.responses.reopen();
        for reader in late {
            assert_eq!(reader.await.unwrap(), "new");
        }
        assert_eq!(origin.heads.load(SeqCst), asked + 1);
        for reader in early {
            reader.await.unwrap();
        }
    });
}

/// A read must not join a request that was sent before what the mode still allows: its answer
/// may be as old.
#[test]
fn readers_join_no_request_that_is_older_than_the_ttl() {
    virtual_time::run(SEED, |clock| async move {
        let origin = GatedOrigin::with(&key(), Bytes::from_static(b"old"));
        let config = ObjectConfig {
            ttl_seconds: 5,
            ..config(Consistency::Ttl)
        };
        let backend = Arc::new(origin.clone());
        let cache = cache_over(virtual_store(&clock).await, &backend, config);
        let reader = || {
            let cache = cache.clone();
            tokio::spawn(async move { read(&cache, None).await.unwrap() })
        };
        origin.responses.close();
        let early = reader();
        clock.sleep(Duration::from_secs(1)).await;
        origin.set(&key(), Bytes::from_static(b"new"));
        clock.sleep(Duration::from_secs(3)).await;
        let young = reader();
        clock.sleep(Duration::from_secs(6)).await;
        let late = reader();
        clock.sleep(Duration::from_secs(1)).await;
        origin.responses.reopen();
        assert_eq!(late.await.unwrap(), "new");
        assert_eq!(young.await.unwrap(), "old");
        assert_eq!(early.await.unwrap(), "old");
    });
}

/// Flash is read while the origin is asked whether what it has is the newest.
#[test]
fn a_validation_overlaps_the_read_of_flash() {
    virtual_time::run(SEED, |clock| async move {
        let origin = GatedOrigin::with(&key(), pattern(1024));
        let backend = Arc::new(origin.clone());
        let memory = Arc::new(MemoryDevice::new(geometry()));
        let device = Arc::new(Faulty::new(memory, clock.clone(), SEED, Faults::default()));
        let mut store = StoreConfig::default();
        store.chunk.size = ByteSize::mib(1);
        store.chunk.write_buffer = ByteSize::mib(4);
        // The RAM tier takes the metadata record, and no chunk.
        store.ram.max_value_size = ByteSize(512);
        let store = Store::open(device.clone(), clock.clone(), &store);
        let store = store.await.unwrap();
        let cache = cache_over(store, &backend, config(Consistency::Etag));
        read(&cache, None).await.unwrap();
        cache.store().flush().await.unwrap();
        device.set(Faults {
            delays: 1.0,
            delay_max: Duration::from_secs(10),
            ..Faults::default()
        });
        let begun = clock.now();
        read(&cache, None).await.unwrap();
        assert_ne!(clock.now(), begun, "flash is slow");
        origin.responses.close();
        let reader = tokio::spawn({
            let cache = cache.clone();
            async move { read(&cache, None).await.unwrap() }
        });
        clock.sleep(Duration::from_secs(20)).await;
        assert!(!reader.is_finished());
        origin.responses.reopen();
        let asked = clock.now();
        assert_eq!(reader.await.unwrap(), pattern(1024));
        assert_eq!(clock.now(), asked);
        // A version that turns out to be old is not served.
        origin.set(&key(), pattern(1000));
        assert_eq!(read(&cache, None).await.unwrap(), pattern(1000));
    });
}

/// A cold read that waits for its turn at the origin was not sent before those who come meanwhile.
#[test]
fn readers_join_a_cold_read_that_waits_for_its_turn() {
    virtual_time::run(SEED, |clock| async move {
        let other = ObjectKey::new("bucket", "other");
        let origin = GatedOrigin::with(&key(), Bytes::from_static(b"bytes"));
        origin.set(&other, Bytes::from_static(b"other"));
        let one_at_a_time = RequestConfig {
            max_concurrent: 1,
            ..requests()
        };
        let guarded =
            Origin::from_backend(Arc::new(origin.clone()), one_at_a_time, clock.clone()).unwrap();
        let store = virtual_store(&clock).await;
        let config = config(Consistency::Etag);
        let cache = ObjectCache::new(store, guarded, clock.clone(), config).unwrap();
        let reader = |name: &ObjectKey| {
            let (cache, name) = (cache.clone(), name.clone());
            tokio::spawn(async move { cache.get(&name, None).await.unwrap().bytes().await })
        };
        let pause = Duration::from_secs(1);
        origin.responses.close();
        let holds_the_turn = reader(&other);
        clock.sleep(pause).await;
        let queued = reader(&key());
        clock.sleep(pause).await;
        let late: Vec<_> = (0..10).map(|_| reader(&key())).collect();
        clock.sleep(pause).await;
        origin.responses.reopen();
        holds_the_turn.await.unwrap().unwrap();
        for reader in late.into_iter().chain([queued]) {
            assert_eq!(reader.await.unwrap().unwrap(), "bytes");
        }
        assert_eq!((origin.gets(), origin.heads.load(SeqCst)), (2, 0));
    });
}

fn emulated(clock: &Clock, config: EmulatedConfig) -> Arc<EmulatedOrigin> {
    Arc::new(EmulatedOrigin::new(config, clock.clone()).unwrap())
}

#[test]
fn concurrent_cold_reads_share_one_request() {
    virtual_time::run(SEED, |clock| async move {
        let origin = emulated(
            &clock,
            EmulatedConfig {
                size: SizeRule::Fixed {
                    bytes: ByteSize(1024),
                },
                latency: LatencyRule::Measured {
                    preset: LatencyPreset::Kib64,
                    constant: true,
                },
                head_latency: true,
                ..EmulatedConfig::default()
            },
        );
        let cache = cache_over(
            virtual_store(&clock).await,
            &origin,
            config(Consistency::Immutable),
        );
        let begun = clock.now();
        let readers = (0..64).map(|_| read(&cache, None));
        for bytes in futures::future::join_all(readers).await {
            bytes.unwrap();
        }
        let took = Duration::from_nanos(clock.now().0 - begun.0);
        assert_eq!(took, Duration::from_secs_f64(0.040632));
        assert_eq!(cache.stats().fetches, 1);
        let begun = clock.now();
        read(&cache, None).await.unwrap();
        assert_eq!(clock.now(), begun, "a hit in RAM takes no time");
    });
}

/// An origin of objects of 64 KiB, which answers after 10 ms.
fn of_64_kib(clock: &Clock) -> Arc<EmulatedOrigin> {
    let size = SizeRule::Fixed {
        bytes: ByteSize::kib(64),
    };
    let config = EmulatedConfig {
        size,
        latency: LatencyRule::Constant { ms: 10.0 },
        ..EmulatedConfig::default()
    };
    emulated(clock, config)
}

#[test]
fn chunks_ahead_are_fetched_while_the_ones_before_are_read() {
    virtual_time::run(SEED, |clock| async move {
        let origin = of_64_kib(&clock);
        let cache = cache_over(
            virtual_store(&clock).await,
            &origin,
            config(Consistency::Immutable),
        );
        let begun = clock.now();
        read(&cache, None).await.unwrap();
        let took = Duration::from_nanos(clock.now().0 - begun.0);
        // 16 requests of 4 KiB: the first one alone, then soon four at a time.
        assert!(took <= Duration::from_millis(80), "{took:?}");
        assert_eq!(cache.stats().fetches, 16);
    });
}

/// A reader that never waits for the origin is not fetched further ahead.
#[test]
fn a_slow_reader_has_two_requests_under_way() {
    virtual_time::run(SEED, |clock| async move {
        let origin = of_64_kib(&clock);
        let store = virtual_store(&clock).await;
        let cache = cache_over(store, &origin, config(Consistency::Immutable));
        let mut body = cache.get(&key(), None).await.unwrap().body;
        let mut received = 0;
        while let Some(piece) = body.next().await {
            received += piece.unwrap().len() as u64;
            clock.sleep(Duration::from_millis(20)).await;
            let begun = received.div_ceil(4096);
            assert!(cache.stats().fetches <= begun + 2, "after {received} bytes");
        }
        assert_eq!((received, cache.stats().fetches), (64 * 1024, 16));
    });
}

/// Flash corrupts and fails; the origin fails, cuts bodies short and changes
/// objects at any moment. Every response has one version's bytes, whole, or is
/// an error.
#[test]
fn with_all_faults_a_response_is_right_or_an_error() {
    for (seed, validators) in [(1, true), (2, true), (3, true), (4, false)] {
        virtual_time::run(seed, |clock| async move {
            let faults = Faults {
                read_errors: 0.05,
                bit_flips: 0.05,
                append_errors: 0.01,
                delays: 0.1,
                delay_max: Duration::from_millis(5),
                ..Faults::default()
            };
            let memory = Arc::new(MemoryDevice::new(geometry()));
            let quiet = Faults::default();
            let faulty = Arc::new(Faulty::new(memory, clock.clone(), seed, quiet));
            let store = store_on(faulty.clone(), clock.clone()).await;
            faulty.set(faults);
            let origin = emulated(
                &clock,
                EmulatedConfig {
                    seed,
                    size: SizeRule::Uniform {
                        min: ByteSize(0),
                        max: ByteSize(200_000),
                    },
                    latency: LatencyRule::LogNormal {
                        mean_ms: 5.0,
                        sd_ms: 5.0,
                        min_ms: 1.0,
                        max_ms: None,
                    },
                    piece_size: ByteSize(10_000),
                    error_rate: 0.02,
                    short_body_rate: 0.02,
                    change_rate: if validators { 0.01 } else { 0.0 },
                    validators,
                    ..EmulatedConfig::default()
                },
            );
            let config = ObjectConfig {
                chunk_size: ByteSize(20_000),
                coalesce_size: ByteSize(80_000),
                fetch_window: ByteSize(200_000),
                fetch_memory: ByteSize(1_000_000),
                ttl_seconds: 1,
                ..config(Consistency::Ttl)
            };
            let cache = cache_over(store, &origin, config);
            let clients = (0..16).map(|id| ill_client(cache.clone(), origin.clone(), seed, id));
            let right: u32 = futures::future::join_all(clients).await.into_iter().sum();
            assert!(right > 1_000, "{right} right answers, {:?}", cache.stats());
            let stats = cache.stats();
            assert!(stats.read_repairs + stats.cache_errors < stats.chunks_missed);
            clock.sleep(Duration::from_secs(60)).await;
            assert_eq!(cache.fetches_in_flight(), 0);
            assert_eq!(cache.fetch_memory_used(), 0);
            assert_eq!(cache.origin().stats().in_flight, 0);
        });
    }
}

async fn ill_client(cache: ObjectCache, origin: Arc<EmulatedOrigin>, seed: u64, id: u64) -> u32 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed << 8 | id);
    let mut right = 0;
    for _ in 0..150 {
        let key = ObjectKey::new("b", format!("{}", random.random_range(0..400)));
        let first = random.random_range(0..200_000);
        let range = random.random::<bool>().then_some(ByteRange::Inclusive {
            first,
            last: first + random.random_range(0..60_000),
        });
        let Ok(read) = cache.get(&key, range).await else {
            continue;
        };
        // The entity tag ends in the generation of the expected bytes.
        let generation = match &read.meta.etag {
            Some(tag) => tag
                .trim_matches('"')
                .rsplit('-')
                .next()
                .unwrap()
                .parse()
                .unwrap(),
            None => 0,
        };
        let content = Content::new(seed, &key, generation);
        let range = read.range.clone();
        let Ok(bytes) = read.bytes().await else {
            continue;
        };
        assert_eq!(bytes.len() as u64, range.end - range.start);
        assert_eq!(content.mismatch(range.start, &bytes), None);
        right += 1;
    }
    drop(origin);
    right
}

#[test]
fn retries_back_off_with_jitter_and_stop() {
    virtual_time::run(SEED, |clock| async move {
        let origin = GatedOrigin::with(&key(), Bytes::from_static(b"x"));
        origin.outage.store(true, SeqCst);
        let requests = RequestConfig {
            max_attempts: 4,
            backoff_ms: 100,
            max_backoff_ms: 250,
            seed: Some(0),
            ..RequestConfig::default()
        };
        let origin = Origin::from_backend(Arc::new(origin), requests, clock.clone()).unwrap();
        let begun = clock.now();
        let error = origin
            .head(&key(), crate::origin::GetRequest::default())
            .await;
        assert!(matches!(error, Err(OriginError::Unreachable(_))));
        let took = Duration::from_nanos(clock.now().0 - begun.0);
        // 100 + 200 + 250 ms, each scaled by 0.5 to 1.
        let bounds = Duration::from_millis(275)..=Duration::from_millis(550);
        assert!(bounds.contains(&took), "{took:?}");
        let stats = origin.stats();
        let heads = stats.operation(crate::origin::OriginOperation::Head);
        assert_eq!((heads.failed, heads.retried), (4, 3));
    });
}

#[test]
fn the_queue_for_an_origin_is_bounded_in_length_and_in_time() {
    virtual_time::run(SEED, |clock| async move {
        let gated = GatedOrigin::with(&key(), Bytes::from_static(b"x"));
        gated.responses.close();
        let requests = RequestConfig {
            max_concurrent: 1,
            max_queued: 1,
            queue_timeout_ms: 1_000,
            response_timeout_ms: 5_000,
            max_attempts: 1,
            seed: Some(0),
            ..RequestConfig::default()
        };
        let backend = Arc::new(gated.clone());
        let origin = Origin::from_backend(backend, requests, clock.clone()).unwrap();
        let head = || {
            let origin = origin.clone();
            async move {
                origin
                    .head(&key(), crate::origin::GetRequest::default())
                    .await
            }
        };
        let begun = clock.now();
        let (first, second, third) = futures::join!(head(), head(), head());
        assert!(matches!(first, Err(OriginError::Timeout(_))));
        assert!(matches!(second, Err(OriginError::Overloaded(_))));
        assert!(matches!(third, Err(OriginError::Overloaded(_))));
        assert_eq!(clock.now().0 - begun.0, 5_000_000_000);
        let stats = origin.stats();
        assert_eq!((stats.overloaded, stats.in_flight, stats.queued), (2, 0, 0));
        gated.responses.reopen();
        assert!(head().await.is_ok());
    });
}

/// Uploads do not block readers, and a body that has barely begun takes no turn.
#[test]
fn uploads_have_their_own_queue() {
    virtual_time::run(SEED, |clock| async move {
        let gated = GatedOrigin::with(&key(), Bytes::from_static(b"x"));
        let requests = RequestConfig {
            max_concurrent: 1,
            max_uploads: 1,
            max_attempts: 1,
            seed: Some(0),
            ..RequestConfig::default()
        };
        let backend = Arc::new(gated.clone());
        let origin = Origin::from_backend(backend, requests, clock.clone()).unwrap();
        let upload = |first: usize| {
            let origin = origin.clone();
            let first = futures::stream::iter([Ok(Bytes::from(vec![b'x'; first]))]);
            let request = PutRequest {
                length: Some(100_000),
                body: first.chain(futures::stream::pending()).boxed(),
                ..PutRequest::from_bytes(Bytes::new())
            };
            async move { origin.put(&key(), request).await }
        };
        let head = async || {
            let begun = clock.now();
            let (key, request) = (key(), crate::origin::GetRequest::default());
            origin.head(&key, request).await.unwrap();
            assert_eq!(clock.now(), begun);
        };
        let (mut barely, mut sent) = (Box::pin(upload(1)), Box::pin(upload(50_000)));
        assert!(futures::poll!(&mut barely).is_pending());
        assert_eq!(origin.stats().uploads_in_flight, 0);
        assert!(futures::poll!(&mut sent).is_pending());
        let mut waits = Box::pin(upload(50_000));
        assert!(futures::poll!(&mut waits).is_pending());
        let stats = origin.stats();
        assert_eq!((stats.uploads_in_flight, stats.uploads_queued), (1, 1));
        head().await;
        drop(sent);
        assert!(futures::poll!(&mut waits).is_pending());
        let stats = origin.stats();
        assert_eq!((stats.uploads_in_flight, stats.uploads_queued), (1, 0));
        head().await;
    });
}

#[test]
fn a_body_that_stalls_is_given_up() {
    virtual_time::run(SEED, |clock| async move {
        let gated = GatedOrigin::with(&key(), vec![b'x'; 900].into());
        gated.pieces.close();
        let config = ObjectConfig {
            max_resumes: 0,
            ..config(Consistency::Immutable)
        };
        let backend = Arc::new(gated.clone());
        let cache = cache_over(virtual_store(&clock).await, &backend, config);
        let error = read(&cache, None).await.unwrap_err();
        assert!(matches!(
            error,
            ObjectError::Origin(OriginError::Timeout(_))
        ));
        gated.pieces.reopen();
        assert_eq!(read(&cache, None).await.unwrap().len(), 900);
    });
}

#[test]
fn cold_reads_count_as_misses_however_short_memory_is() {
    virtual_time::run(SEED, |clock| async move {
        let origin = emulated(
            &clock,
            EmulatedConfig {
                size: SizeRule::Fixed {
                    bytes: ByteSize(3000),
                },
                ..EmulatedConfig::default()
            },
        );
        let config = ObjectConfig {
            fetch_memory: ByteSize::kib(64),
            ..config(Consistency::Immutable)
        };
        let cache = cache_over(virtual_store(&clock).await, &origin, config);
        let readers = (0..200).map(|i| {
            let cache = cache.clone();
            async move {
                let read = cache
                    .get(&ObjectKey::new("b", format!("{i}")), None)
                    .await
                    .unwrap();
                assert_eq!(read.outcome.name(), "MISS");
                assert_eq!(read.bytes().await.unwrap().len(), 3000);
            }
        });
        futures::future::join_all(readers).await;
        let stats = cache.stats();
        assert_eq!((stats.reads_miss, stats.reads_hit), (200, 0), "{stats:?}");
        assert_eq!(stats.bytes_fetched, 600_000);
    });
}

#[test]
fn errors_name_invalid_settings() {
    let wrong = |change: fn(&mut ObjectConfig)| {
        let mut config = ObjectConfig::default();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    };
    for (error, part) in [
        (
            wrong(|c| c.chunk_size = ByteSize(0)),
            "object.chunk_size = 0 must be between",
        ),
        (
            wrong(|c| c.fetch_parallelism = 0),
            "object.fetch_parallelism = 0",
        ),
        (
            wrong(|c| c.fetch_memory = ByteSize::kib(512)),
            "object.fetch_memory = 512KiB must be between 1MiB",
        ),
    ] {
        assert!(error.contains(part), "{error}");
    }
    let unknown = serde_json::from_str::<ObjectConfig>("{\"chunks\": 1}");
    assert!(unknown.unwrap_err().to_string().contains("unknown field"));
    virtual_time::run(SEED, |clock| async move {
        let store = virtual_store(&clock).await;
        let too_big = ObjectConfig {
            chunk_size: ByteSize::gib(1),
            ..ObjectConfig::default()
        };
        let backend: Arc<dyn Backend> = Arc::new(GatedOrigin::with(&key(), Bytes::new()));
        let origin = Origin::from_backend(backend, requests(), clock.clone()).unwrap();
        let error = ObjectCache::new(store, origin, clock, too_big)
            .map(drop)
            .unwrap_err();
        assert!(error.to_string().contains("write at most"), "{error}");
    });
}
