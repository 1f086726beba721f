//! Threads, shards and the granularity of locks.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;

use super::*;

/// One thread; threads and one lock; threads and a lock for each shard.
const SETTINGS: [(usize, LockGranularity); 3] = [
    (1, LockGranularity::Fine),
    (2, LockGranularity::Coarse),
    (2, LockGranularity::Fine),
];

async fn open(locks: LockGranularity) -> VolumeCache {
    let settings = VolumeCacheConfig {
        locks,
        shards: 4,
        ..config(Fill::Sector)
    };
    let cache = VolumeCache::open(memory(6), Clock::real(), &settings).await;
    cache.expect("it opens")
}

/// Each of four volumes has requests on a task of its own.
async fn pass(locks: LockGranularity) {
    let cache = open(locks).await;
    let mut tasks = Vec::new();
    for number in 0..4 {
        let (cache, backing) = (cache.clone(), memory(6));
        let mode = [Mode::WriteBack, Mode::WriteThrough][number % 2];
        tasks.push(tokio::spawn(async move {
            let name = format!("disk-{number}");
            let volume = cache.attach(&name, backing, &of_mode(mode)).await;
            let volume = volume.expect("it attaches");
            let mut oracle = Oracle::new(6 << 20, number as u64);
            oracle.run(&volume, 500, 16).await;
            oracle.verify(&volume).await;
        }));
    }
    for task in tasks {
        task.await.expect("every read is right");
    }
    assert!(cache.stats().counts.turnover.evicted > 0);
    cache.close().await.expect("it closes");
}

#[test]
fn each_parallelism_returns_the_newest_write() {
    for (threads, locks) in SETTINGS {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(pass(locks));
    }
}

#[test]
fn fine_locks_let_threads_into_different_shards() {
    run(async {
        let cache = open(LockGranularity::Fine).await;
        let shards = &cache.shared.shards;
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            let _first = shards[0].lock();
            scope.spawn(move || sender.send(shards[1].lock().retired.len()));
            assert_eq!(receiver.recv(), Ok(0));
        });
        cache.close().await.expect("it closes");
    });
}

#[test]
fn coarse_locks_let_one_thread_into_all_shards() {
    run(async {
        let cache = open(LockGranularity::Coarse).await;
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for shard in &cache.shared.shards[..2] {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let _locked = shard.lock();
                        assert_eq!(inside.fetch_add(1, SeqCst), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, SeqCst);
                    }
                });
            }
        });
        cache.close().await.expect("it closes");
    });
}
