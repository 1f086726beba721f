//! Caches that ask each other. A read gives the origin's bytes, also if a peer fails, is old, or
//! announces what it does not send.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use floe_device::virtual_time;
use futures::StreamExt;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::origin::GatedOrigin;
use super::*;
use crate::object::{HeldBytes, ObjectMeta, Peers, Purge, WantedBytes};
use crate::origin::OriginError;

/// The faults of a peer.
#[derive(Default)]
struct Link {
    /// Says that it holds everything.
    boasts: AtomicBool,
    /// Breaks bodies off after one piece.
    cuts: AtomicBool,
    /// Sends more than it announces.
    adds: AtomicBool,
    /// Sends another range than the one asked for.
    shifts: AtomicBool,
    asked: AtomicUsize,
}

struct Neighbour {
    cache: ObjectCache,
    link: Arc<Link>,
}

#[async_trait]
impl Peers for Neighbour {
    async fn hold(&self, key: &ObjectKey, offset: u64) -> bool {
        self.link.asked.fetch_add(1, SeqCst);
        self.link.boasts.load(SeqCst) || self.cache.holds(key, offset).await
    }

    async fn read(&self, wanted: WantedBytes<'_>) -> Option<HeldBytes> {
        self.link.asked.fetch_add(1, SeqCst);
        let mut held = self.cache.held_bytes(wanted).await?;
        let pieces = held.body.flat_map(|piece| {
            let piece = piece.unwrap();
            let parts: Vec<_> = piece.chunks(300).map(Bytes::copy_from_slice).collect();
            futures::stream::iter(parts.into_iter().map(Ok))
        });
        held.body = pieces.boxed();
        if self.link.cuts.load(SeqCst) {
            // In the middle of a chunk.
            held.body = held.body.take(2).boxed();
        }
        if self.link.adds.load(SeqCst) {
            let all: Vec<_> = held.body.map(Result::unwrap).collect().await;
            let longer = [all.concat(), vec![0xff; 5000]].concat();
            held.body = futures::stream::iter([Ok(longer.into())]).boxed();
        }
        if self.link.shifts.load(SeqCst) {
            held.range.start += 1;
        }
        Some(held)
    }
}

/// Two caches of one origin, the second of which asks the first one.
async fn neighbours(
    origin: &Arc<GatedOrigin>,
    config: ObjectConfig,
) -> (ObjectCache, ObjectCache, Arc<Link>) {
    let backend = Arc::new(origin.clone());
    let old = cache(&backend, config.clone()).await;
    let new = cache(&backend, config).await;
    let link = Arc::new(Link::default());
    new.ask_peers(Arc::new(Neighbour {
        cache: old.clone(),
        link: Arc::clone(&link),
    }));
    (old, new, link)
}

/// The bytes of a version that `cache` holds.
async fn held(
    cache: &ObjectCache,
    key: &ObjectKey,
    meta: &ObjectMeta,
    range: Range<u64>,
) -> Option<HeldBytes> {
    cache.held_bytes(WantedBytes { key, meta, range }).await
}

/// The modes in which an object's version is known for some time, or never.
const MODES: [Consistency; 3] = [Consistency::Etag, Consistency::Immutable, Consistency::Ttl];

/// Two caches, and an object of `size` bytes that the first one has read.
async fn warm_and_empty(
    mode: Consistency,
    size: usize,
) -> (Arc<GatedOrigin>, ObjectCache, ObjectCache) {
    let origin = GatedOrigin::with(&key(), pattern(size));
    let (old, new, _) = neighbours(&origin, config(mode)).await;
    read(&old, None).await.unwrap();
    (origin, old, new)
}

fn purge(key: &ObjectKey) -> Purge {
    Purge::Object {
        bucket: key.bucket().into(),
        key: key.key().into(),
    }
}

#[tokio::test]
async fn a_new_cache_fills_from_a_warm_one() {
    for mode in MODES {
        let (origin, old, new) = warm_and_empty(mode, 10_000).await;
        let gets = origin.gets();
        let middle = ByteRange::Inclusive {
            first: 1500,
            last: 6000,
        };
        assert_eq!(
            read(&new, Some(middle)).await.unwrap(),
            pattern(10_000)[1500..=6000]
        );
        assert_eq!(read(&new, None).await.unwrap(), pattern(10_000));
        assert_eq!(
            origin.gets(),
            gets,
            "{mode:?}: no byte came from the origin"
        );
        let stats = new.stats();
        assert_eq!((stats.peer_bytes, stats.fetches), (10_000, 0));
        assert_eq!(old.stats().peer_bytes_sent, 10_000);
        // It needs no peer any more.
        let asked = stats.peer_lookups;
        assert_eq!(read(&new, None).await.unwrap(), pattern(10_000));
        assert_eq!(new.stats().peer_lookups, asked);
    }
}

#[tokio::test]
async fn a_peer_that_is_old_gives_nothing() {
    for mode in MODES {
        let (origin, _old, new) = warm_and_empty(mode, 5000).await;
        // Through the new cache, of which the old one does not learn.
        new.put(&key(), put(vec![7; 5000])).await.unwrap();
        assert_eq!(read(&new, None).await.unwrap(), vec![7; 5000]);
        assert_eq!(new.stats().peer_bytes, 0, "{mode:?}");
        // Past both.
        origin.remove(&key());
        new.invalidate(&key()).await.unwrap();
        assert!(read(&new, None).await.is_err_and(|gone| gone.is_negative()));
    }
}

#[tokio::test]
async fn what_a_peer_lacks_comes_from_the_origin() {
    let origin = GatedOrigin::with(&key(), pattern(10_000));
    let (old, new, _) = neighbours(&origin, config(Consistency::Etag)).await;
    let start = ByteRange::Inclusive {
        first: 0,
        last: 2000,
    };
    read(&old, Some(start)).await.unwrap();
    assert_eq!(read(&new, None).await.unwrap(), pattern(10_000));
    assert_eq!(new.stats().peer_bytes, 2048, "the peer has two chunks");
}

#[tokio::test]
async fn broken_and_false_answers_cost_time_only() {
    let faults: [fn(&Link) -> &AtomicBool; 4] = [
        |link| &link.boasts,
        |link| &link.cuts,
        |link| &link.adds,
        |link| &link.shifts,
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let origin = GatedOrigin::with(&key(), pattern(10_000));
        let (old, new, link) = neighbours(&origin, config(Consistency::Etag)).await;
        fault(&link).store(true, SeqCst);
        if number > 0 {
            read(&old, None).await.unwrap();
        }
        assert_eq!(read(&new, None).await.unwrap(), pattern(10_000), "{number}");
        // Of what it stored, too.
        assert_eq!(read(&new, None).await.unwrap(), pattern(10_000), "{number}");
        assert!(link.asked.load(SeqCst) > 0);
    }
}

#[tokio::test]
async fn uncertain_versions_are_not_asked_for() {
    // Without a validator.
    let mut gated = GatedOrigin::new();
    gated.validators = false;
    let origin = Arc::new(gated);
    origin.set(&key(), pattern(3000));
    let (old, new, link) = neighbours(&origin, config(Consistency::Immutable)).await;
    read(&old, None).await.unwrap();
    assert_eq!(read(&new, None).await.unwrap(), pattern(3000));
    assert_eq!(new.stats().peer_bytes, 0);
    // Purged: the operator trusts no copy from before.
    let origin = GatedOrigin::with(&key(), pattern(3000));
    let (old, new, purged) = neighbours(&origin, config(Consistency::Etag)).await;
    read(&old, None).await.unwrap();
    new.purge(&[purge(&key())]).await.unwrap();
    assert_eq!(read(&new, None).await.unwrap(), pattern(3000));
    assert_eq!((link.asked.load(SeqCst), purged.asked.load(SeqCst)), (1, 0));
    // A weak tag names bytes of more than one form, and a second has room for two versions.
    let meta = old.head(&key()).await.unwrap().meta;
    assert!(held(&old, &key(), &meta, 0..3000).await.is_some());
    for etag in [Some("W/\"0\"".to_owned()), None] {
        let meta = ObjectMeta {
            etag,
            ..meta.clone()
        };
        assert!(held(&old, &key(), &meta, 0..3000).await.is_none());
    }
}

#[tokio::test]
async fn questions_of_any_kind_are_answered() {
    let origin = GatedOrigin::with(&key(), pattern(3000));
    let (old, ..) = neighbours(&origin, config(Consistency::Etag)).await;
    read(&old, None).await.unwrap();
    let meta = old.head(&key()).await.unwrap().meta;
    let other = ObjectKey::new("bucket", "other");
    assert!(old.holds(&key(), 0).await && old.holds(&key(), 2999).await);
    assert!(!old.holds(&key(), 3000).await && !old.holds(&key(), u64::MAX).await);
    assert!(!old.holds(&other, 0).await);
    for (range, expected) in [
        (0..3000, Some(0..3000)),
        (2999..9000, Some(2999..3000)),
        (10..20, Some(10..20)),
        (3000..4000, None),
        (5..5, None),
        (u64::MAX - 1..u64::MAX, None),
    ] {
        let answer = held(&old, &key(), &meta, range.clone()).await;
        assert_eq!(answer.map(|held| held.range), expected, "{range:?}");
    }
    let larger = ObjectMeta {
        size: u64::MAX,
        ..meta.clone()
    };
    assert!(held(&old, &key(), &larger, 0..u64::MAX).await.is_none());
    assert!(held(&old, &other, &meta, 0..3000).await.is_none());
}

/// Three caches with chunks of different sizes that ask each other, while objects are written
/// through them and past them, and purged, and links fail: each read gives a value that was the
/// newest at some moment of the read.
#[test]
fn caches_that_ask_each_other_keep_the_law() {
    let mut from_peers = 0;
    for seed in 0..30 {
        from_peers += virtual_time::run(seed, |clock| async move {
            let origin = Arc::new(GatedOrigin::new());
            let backend = Arc::new(origin.clone());
            let mut nodes = Vec::new();
            for chunk_size in [1024, 1024, 700] {
                let device = Arc::new(MemoryDevice::new(geometry()));
                let store = store_on(device, clock.clone()).await;
                let config = ObjectConfig {
                    chunk_size: ByteSize(chunk_size),
                    ..config(Consistency::Etag)
                };
                nodes.push(cache_over(store, &backend, config));
            }
            let links: Vec<_> = (0..3).map(|_| Arc::new(Link::default())).collect();
            for (index, node) in nodes.iter().enumerate() {
                node.ask_peers(Arc::new(Neighbour {
                    cache: nodes[(index + 1) % 3].clone(),
                    link: Arc::clone(&links[index]),
                }));
            }
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut tasks = tokio::task::JoinSet::new();
            for step in 0..800_u32 {
                let node = nodes[random.random_range(0..3)].clone();
                let link = &links[random.random_range(0..3)];
                let key = ObjectKey::new("b", random.random_range(0..4_u32).to_string());
                let size = random.random_range(1..6_usize) * 1000;
                let fresh: Vec<u8> = step.to_le_bytes().into_iter().cycle().take(size).collect();
                let origin = Arc::clone(&origin);
                match random.random_range(0..20) {
                    0 => drop(tasks.spawn(async move {
                        node.put(&key, put(fresh)).await.unwrap();
                    })),
                    1 => origin.set(&key, fresh.into()),
                    2 => drop(tasks.spawn(async move {
                        node.purge(&[purge(&key)]).await.unwrap();
                    })),
                    3 => link.cuts.store(random.random(), SeqCst),
                    4 => link.boasts.store(random.random(), SeqCst),
                    5 => while tasks.join_next().await.is_some() {},
                    6 => clock.sleep(Duration::from_millis(5)).await,
                    _ => drop(tasks.spawn(async move {
                        let newest = origin.newest(&key);
                        match (node.get(&key, None).await, newest) {
                            (Ok(read), newest) => {
                                let (number, value) =
                                    origin.tagged(read.meta.etag.as_ref().unwrap());
                                assert!(newest <= Some(number), "{newest:?} {number}");
                                if let Ok(bytes) = read.bytes().await {
                                    assert_eq!(bytes, value, "seed {seed}, step {step}");
                                }
                            }
                            (Err(ObjectError::Origin(OriginError::NotFound(_))), None) => {}
                            // It kept changing.
                            (Err(ObjectError::Changed), _) => {}
                            (read, newest) => panic!("{read:?}, not {newest:?}"),
                        }
                    })),
                }
            }
            while let Some(ended) = tasks.join_next().await {
                ended.unwrap();
            }
            nodes
                .iter()
                .map(|node| node.stats().peer_bytes)
                .sum::<u64>()
        });
    }
    assert!(from_peers > 0);
}
