//! Two caches and direct writers at one origin: what each consistency mode promises of the
//! changes that pass by a cache.

use std::time::Duration;

use bytes::Bytes;
use floe_device::virtual_time;
use futures::future::{join, join_all};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::origin::GatedOrigin;
use super::*;

const TTL_SECONDS: u64 = 5;

/// The bytes of a version: one letter, and a length of its own.
fn version(number: usize) -> Bytes {
    vec![b'a' + (number % 26) as u8; 1500 + number].into()
}

/// The number of the version that `bytes` are, whole.
fn number(bytes: &Bytes) -> usize {
    let number = bytes.len() - 1500;
    assert!(*bytes == version(number), "a mixture of versions");
    number
}

/// The versions of one object, each with the time of its acknowledgement.
struct History {
    acknowledged: Vec<Duration>,
    /// Per cache, the newest version that was written through it.
    own: [usize; 2],
}

impl History {
    fn newest(&self) -> usize {
        self.acknowledged.len() - 1
    }

    /// The oldest version that a read through `cache` may return if it begins at `now`.
    fn floor(&self, mode: Consistency, cache: usize, now: Duration) -> usize {
        match mode {
            Consistency::Etag => self.newest(),
            // The lifetime is the same, and a notification that was taken counts as an own write.
            Consistency::Ttl | Consistency::Events => {
                let is_due = |at: &&Duration| **at + Duration::from_secs(TTL_SECONDS) <= now;
                let due = self.acknowledged.iter().filter(is_due).count();
                self.own[cache].max(due.saturating_sub(1))
            }
            Consistency::Immutable => self.own[cache],
        }
    }
}

fn neighbours(mode: Consistency, seed: u64) {
    virtual_time::run(seed, move |clock| async move {
        let start = clock.now();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let origin = GatedOrigin::with(&key(), version(0));
        let backend = Arc::new(origin.clone());
        let config = ObjectConfig {
            ttl_seconds: TTL_SECONDS,
            events_timeout_seconds: 3,
            events_max_age_seconds: TTL_SECONDS,
            ..config(mode)
        };
        let mut caches = Vec::new();
        for _ in 0..2 {
            let device = Arc::new(MemoryDevice::new(geometry()));
            let store = store_on(device, clock.clone()).await;
            caches.push(cache_over(store, &backend, config.clone()));
        }
        let mut history = History {
            acknowledged: vec![Duration::ZERO],
            own: [0; 2],
        };
        let mut is_behind = false;
        for _ in 0..300 {
            let pause = Duration::from_millis(rng.random_range(0..2_500));
            clock.sleep(pause).await;
            let now = clock.now().since(start);
            let next = history.newest() + 1;
            let writer = [None, Some(0), Some(1), Some(2)][rng.random_range(0..4)];
            let write = async {
                match writer {
                    Some(cache @ 0..2) => drop(caches[cache].put(&key(), put(version(next))).await),
                    Some(_) => origin.set(&key(), version(next)),
                    None => {}
                }
            };
            let reads = (0..4).map(|_| {
                let cache = rng.random_range(0..2);
                let bytes = read(&caches[cache], None);
                async move { (cache, bytes.await) }
            });
            let ((), read) = join(write, join_all(reads)).await;
            for (cache, bytes) in read {
                // A read that met a change between two of its requests may fail.
                let Ok(bytes) = bytes else { continue };
                let (number, floor) = (number(&bytes), history.floor(mode, cache, now));
                assert!(number >= floor, "{mode:?}: {number} after {floor}");
                is_behind |= number < history.newest();
            }
            if let Some(writer) = writer {
                history.acknowledged.push(clock.now().since(start));
                if let Some(own) = history.own.get_mut(writer) {
                    *own = next;
                }
            }
            if mode == Consistency::Events {
                for (cache, own) in caches.iter().zip(&mut history.own) {
                    // Some notifications are lost, and some are of nothing.
                    match rng.random_range(0..4) {
                        0 => {
                            cache.notify(vec![key()]).await.unwrap();
                            *own = history.acknowledged.len() - 1;
                        }
                        1 | 2 => cache.notify(Vec::new()).await.unwrap(),
                        _ => {}
                    }
                }
            }
        }
        assert_eq!(
            is_behind,
            mode != Consistency::Etag,
            "{mode:?} is what it says"
        );
        clock.sleep(Duration::from_secs(TTL_SECONDS)).await;
        for (cache, objects) in caches.iter().enumerate() {
            let floor = history.floor(mode, cache, clock.now().since(start));
            let last = number(&read(objects, None).await.unwrap());
            match mode {
                Consistency::Immutable => assert!(last >= floor),
                _ => assert_eq!(last, history.newest(), "{mode:?}"),
            }
        }
    });
}

#[test]
fn each_mode_keeps_its_promise_beside_another_cache_and_direct_writers() {
    for mode in [
        Consistency::Etag,
        Consistency::Ttl,
        Consistency::Events,
        Consistency::Immutable,
    ] {
        for seed in 0..10 {
            neighbours(mode, seed);
        }
    }
}
