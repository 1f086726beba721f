//! Clients that share an origin: the misses of one do not hold up those of another.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use floe_device::virtual_time;
use tokio::task::JoinHandle;

use super::origin::GatedOrigin;
use super::*;
use crate::latency::LatencyRule;
use crate::origin::emulated::{EmulatedConfig, EmulatedOrigin, SizeRule};
use crate::origin::{Client, OriginError};

const SEED: u64 = 5;

fn client(number: u8) -> Client {
    Client::at(Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))))
}

type Reading = JoinHandle<Result<Bytes, ObjectError>>;

/// Reads an object for a client.
fn reading(cache: &ObjectCache, of: Client, name: &str) -> Reading {
    let (cache, key) = (cache.clone(), ObjectKey::new("bucket", name));
    tokio::spawn(of.scope(async move { cache.get(&key, None).await?.bytes().await }))
}

/// Begins reads of different objects for the first client, one after the other.
async fn many(cache: &ObjectCache, count: usize, clock: &Clock) -> Vec<Reading> {
    let mut reads = Vec::new();
    for number in 0..count {
        reads.push(reading(cache, client(1), &format!("many/{number}")));
        clock.sleep(Duration::from_millis(1)).await;
    }
    reads
}

async fn cache_with(
    backend: Arc<dyn Backend>,
    requests: RequestConfig,
    config: ObjectConfig,
    clock: &Clock,
) -> ObjectCache {
    let store = store_on(Arc::new(MemoryDevice::new(geometry())), clock.clone()).await;
    let origin = Origin::from_backend(backend, requests, clock.clone()).unwrap();
    ObjectCache::new(store, origin, clock.clone(), config).unwrap()
}

/// Each request takes a second. The first client's take many; the second one comes later, and
/// waits for one answer and one turn of the first.
async fn expect_prompt_answer(clock: Clock, requests: RequestConfig, config: ObjectConfig) {
    let emulated = EmulatedConfig {
        size: SizeRule::Fixed {
            bytes: ByteSize(1024),
        },
        latency: LatencyRule::Constant { ms: 1_000.0 },
        ..EmulatedConfig::default()
    };
    let origin = EmulatedOrigin::new(emulated, clock.clone()).unwrap();
    let cache = cache_with(Arc::new(origin), requests, config, &clock).await;
    let begun = clock.now();
    let slow = many(&cache, 300, &clock).await;
    clock.sleep(Duration::from_millis(500)).await;
    let prompt = reading(&cache, client(2), "prompt").await.unwrap();
    prompt.unwrap();
    let took = clock.now().since(begun);
    assert!(took < Duration::from_secs(4), "{took:?}");
    for read in slow {
        read.await.unwrap().unwrap();
    }
    let took = clock.now().since(begun);
    assert!(took > Duration::from_secs(10), "{took:?}");
}

#[test]
fn clients_take_turns_at_the_origin() {
    virtual_time::run(SEED, |clock| async move {
        let requests = RequestConfig {
            max_concurrent: 2,
            queue_timeout_ms: 1_000_000,
            ..requests()
        };
        expect_prompt_answer(clock, requests, config(Consistency::Etag)).await;
    });
}

#[test]
fn clients_take_turns_for_the_memory_of_fetches() {
    virtual_time::run(SEED, |clock| async move {
        // A fetch takes 4 KiB.
        let config = ObjectConfig {
            fetch_memory: ByteSize::kib(64),
            ..config(Consistency::Etag)
        };
        expect_prompt_answer(clock, requests(), config).await;
    });
}

/// A queue that one client has filled takes those of another, and a reader that has joined a
/// fetch that is refused for that gets its bytes all the same.
#[test]
fn a_full_queue_refuses_those_of_the_client_that_filled_it() {
    virtual_time::run(SEED, |clock| async move {
        let origin = GatedOrigin::with(&key(), Bytes::from_static(b"bytes"));
        for number in 0..12 {
            let many = ObjectKey::new("bucket", format!("many/{number}"));
            origin.set(&many, Bytes::from_static(b"many"));
        }
        for name in ["first", "second", "third"] {
            origin.set(
                &ObjectKey::new("bucket", name),
                Bytes::from_static(b"bytes"),
            );
        }
        let requests = RequestConfig {
            max_concurrent: 1,
            max_queued: 8,
            ..requests()
        };
        let config = config(Consistency::Etag);
        let cache = cache_with(Arc::new(origin.clone()), requests, config, &clock).await;
        let pause = Duration::from_secs(1);
        origin.responses.close();
        // One holds the turn, 8 wait, 3 are refused.
        let filling = many(&cache, 12, &clock).await;
        let stats = cache.origin().stats();
        assert_eq!((stats.in_flight, stats.queued, stats.overloaded), (1, 8, 3));
        // It joins the newest fetch that waits.
        let joined = reading(&cache, client(3), "many/8");
        clock.sleep(pause).await;
        let served = ["first", "second", "third"].map(|name| reading(&cache, client(2), name));
        clock.sleep(pause).await;
        let stats = cache.origin().stats();
        assert_eq!((stats.queued, stats.overloaded), (8, 7));
        origin.responses.reopen();
        for read in served {
            assert_eq!(read.await.unwrap().unwrap(), "bytes");
        }
        assert_eq!(joined.await.unwrap().unwrap(), "many");
        let mut refused = Vec::new();
        for (number, read) in filling.into_iter().enumerate() {
            match read.await.unwrap() {
                Ok(bytes) => assert_eq!(bytes, "many"),
                Err(ObjectError::Origin(OriginError::Overloaded(_))) => refused.push(number),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(refused, [5, 6, 7, 8, 9, 10, 11]);
    });
}
