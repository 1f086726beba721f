//! The embedded cache through its public API.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use floe::device::{Clock, virtual_time};
use floe::items::{Expiry, ItemBuffer, ItemState, NewItem, PutNow};
use floe::{
    ByteSize, Bytes, Cache, CacheConfig, CacheError, FetchError, ItemCache, ItemConfig, PutOptions,
};

fn config(dir: &tempfile::TempDir) -> CacheConfig {
    let mut config = CacheConfig::file(dir.path().join("cache.floe"), ByteSize::mib(64));
    config.device.zone_size = Some(ByteSize::mib(4));
    config.store.chunk.size = ByteSize::mib(1);
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_survive_closing_and_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let small = Bytes::from(vec![7; 5000]);
    let large = Bytes::from(
        (0..1_000_000u32)
            .map(|i| (i * 31) as u8)
            .collect::<Vec<_>>(),
    );
    {
        let cache = Cache::open(&config(&dir)).await.unwrap();
        assert!(cache.recovery().store.formatted);
        cache.put(b"small", small.clone()).await.unwrap();
        cache.put(b"large", large.clone()).await.unwrap();
        cache.put(b"empty", Bytes::new()).await.unwrap();
        cache.put(b"gone", small.clone()).await.unwrap();
        assert!(cache.remove(b"gone").await.unwrap());
        cache.close().await.unwrap();
        assert!(matches!(cache.get(b"small").await, Err(CacheError::Closed)));
    }
    let cache = Cache::open(&config(&dir)).await.unwrap();
    assert!(!cache.recovery().store.formatted);
    assert_eq!(cache.get(b"small").await.unwrap(), Some(small));
    assert_eq!(
        cache.get_range(b"large", 300_000..700_001).await.unwrap(),
        Some(large.slice(300_000..700_001))
    );
    assert_eq!(cache.get(b"large").await.unwrap(), Some(large));
    assert_eq!(cache.get(b"empty").await.unwrap(), Some(Bytes::new()));
    assert_eq!(cache.get(b"gone").await.unwrap(), None);
    assert_eq!(
        cache
            .get_range(b"small", 4990..1 << 40)
            .await
            .unwrap()
            .map(|b| b.len()),
        Some(10)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_misses_of_one_key_are_one_fetch() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(&config(&dir)).await.unwrap();
    let fetches = Arc::new(AtomicU32::new(0));
    let gate = Arc::new(tokio::sync::Notify::new());
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let (cache, fetches, gate) = (cache.clone(), Arc::clone(&fetches), Arc::clone(&gate));
            tokio::spawn(async move {
                let fetch = || async move {
                    fetches.fetch_add(1, Ordering::SeqCst);
                    gate.notified().await;
                    Ok::<_, std::io::Error>(Bytes::from_static(b"value"))
                };
                cache.get_or_fetch(b"key", fetch).await
            })
        })
        .collect();
    gate.notify_one();
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap(), Bytes::from_static(b"value"));
    }
    assert_eq!(fetches.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_failed_fetch_reaches_its_callers_and_is_not_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(&config(&dir)).await.unwrap();
    let failed = cache
        .get_or_fetch(b"key", || async {
            Err::<Bytes, _>(std::io::Error::other("origin is down"))
        })
        .await;
    assert!(
        matches!(&failed, Err(FetchError::Fetch(e)) if e.to_string() == "origin is down"),
        "{failed:?}"
    );
    let fetched = cache.get_or_fetch(b"key", || async {
        Ok::<_, std::io::Error>(Bytes::from_static(b"1"))
    });
    assert_eq!(fetched.await.unwrap(), Bytes::from_static(b"1"));
}

#[tokio::test]
async fn a_fetch_overtaken_by_a_write_is_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(&config(&dir)).await.unwrap();
    let during = cache.clone();
    let fetched = cache
        .get_or_fetch(b"key", || async move {
            during
                .put(b"key", Bytes::from_static(b"newer"))
                .await
                .unwrap();
            Ok::<_, std::io::Error>(Bytes::from_static(b"older"))
        })
        .await
        .unwrap();
    assert_eq!(fetched, Bytes::from_static(b"older"));
    assert_eq!(
        cache.get(b"key").await.unwrap(),
        Some(Bytes::from_static(b"newer"))
    );
}

#[tokio::test]
async fn when_the_fetcher_is_dropped_a_waiter_fetches() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(&config(&dir)).await.unwrap();
    let stuck = tokio::spawn({
        let cache = cache.clone();
        async move {
            cache
                .get_or_fetch(
                    b"key",
                    std::future::pending::<Result<Bytes, std::io::Error>>,
                )
                .await
        }
    });
    tokio::task::yield_now().await;
    let waiter = tokio::spawn({
        let cache = cache.clone();
        async move {
            cache
                .get_or_fetch(b"key", || async {
                    Ok::<_, std::io::Error>(Bytes::from_static(b"2"))
                })
                .await
        }
    });
    tokio::task::yield_now().await;
    stuck.abort();
    assert_eq!(waiter.await.unwrap().unwrap(), Bytes::from_static(b"2"));
}

#[test]
fn values_expire() {
    virtual_time::run(1, |clock: Clock| async move {
        let mut config = CacheConfig::default();
        config.device.kind = floe::device::config::DeviceKind::Memory;
        config.device.size = Some(ByteSize::mib(64));
        config.device.zone_size = Some(ByteSize::mib(4));
        let device = floe::device::open(&config.device, &clock).unwrap();
        let builder = Cache::builder(&config).device(device);
        let cache = builder.clock(clock.clone()).open().await.unwrap();
        let ttl = PutOptions::default().with_ttl(Duration::from_secs(10));
        cache
            .put_with(b"key", Bytes::from_static(b"1"), ttl)
            .await
            .unwrap();
        clock.sleep(Duration::from_secs(9)).await;
        assert!(cache.get(b"key").await.unwrap().is_some());
        clock.sleep(Duration::from_secs(2)).await;
        assert_eq!(cache.get(b"key").await.unwrap(), None);
        cache.put(b"key", Bytes::from_static(b"2")).await.unwrap();
        assert_eq!(
            cache.get(b"key").await.unwrap(),
            Some(Bytes::from_static(b"2"))
        );
    });
}

/// More overwrites than a journal zone has room for: zones with many tombstones
/// are evicted, and no write is rejected.
#[test]
fn overwrites_never_fill_the_journal() {
    virtual_time::run(1, |clock: Clock| async move {
        let device = floe::device::DeviceConfig {
            zone_size: Some(ByteSize::mib(1)),
            ..floe::device::DeviceConfig::memory(ByteSize::mib(400))
        };
        let device = floe::device::open(&device, &clock).unwrap();
        let mut config = CacheConfig::default();
        config.store.ram.size = ByteSize(0);
        config.store.chunk.flush_delay_ms = 0;
        let builder = Cache::builder(&config).device(device);
        let cache = builder.clock(clock).open().await.unwrap();
        let value = |n: u32| Bytes::from(n.to_le_bytes().repeat(64));
        for n in 0..60_000u32 {
            cache.put(&(n % 500).to_le_bytes(), value(n)).await.unwrap();
            if n.is_multiple_of(500) {
                // The values must be on flash, so that an overwrite needs a tombstone.
                cache.flush().await.unwrap();
            }
        }
        let stats = cache.stats().store.engine;
        assert!(stats.counts.journal_moves > 0, "{stats:?}");
        assert_eq!(stats.counts.puts_dropped, 0);
        let mut hits = 0;
        for n in 59_500..60_000u32 {
            if let Some(found) = cache.get(&(n % 500).to_le_bytes()).await.unwrap() {
                assert_eq!(found, value(n));
                hits += 1;
            }
        }
        assert!(hits > 400, "{hits} of 500");
    });
}

/// A get counts as a miss only if neither engine has the key.
#[test]
fn keys_of_the_tiny_engine_are_no_misses() {
    virtual_time::run(1, |clock: Clock| async move {
        let memory = |size| floe::device::DeviceConfig {
            zone_size: Some(ByteSize::mib(1)),
            ..floe::device::DeviceConfig::memory(size)
        };
        let open = |size| floe::device::open(&memory(size), &clock).unwrap();
        let builder = Cache::builder(&CacheConfig::default())
            .device(open(ByteSize::mib(64)))
            .tiny_device(open(ByteSize::mib(32)));
        let cache = builder.clock(clock.clone()).open().await.unwrap();
        let large = Bytes::from(vec![1; 10_000]);
        cache.put(b"tiny", Bytes::from_static(b"1")).await.unwrap();
        cache.put(b"large", large.clone()).await.unwrap();
        for flushed in [false, true] {
            for _ in 0..5 {
                cache.get_ram(b"tiny").unwrap();
                cache.get_ram(b"large").unwrap();
                assert!(cache.get(b"tiny").await.unwrap().is_some());
                assert!(cache.get(b"large").await.unwrap().is_some());
                let part = cache.get_range(b"tiny", 0..9).await.unwrap();
                assert_eq!(part, Some(Bytes::from_static(b"1")));
                let part = cache.get_range(b"large", 0..9).await.unwrap();
                assert_eq!(part, Some(large.slice(..9)));
            }
            let misses = cache.stats().store.engine.counts.misses;
            assert_eq!(misses, 0, "flushed: {flushed}");
            cache.flush().await.unwrap();
        }
        assert!(cache.get(b"absent").await.unwrap().is_none());
        assert!(cache.get_range(b"absent", 0..9).await.unwrap().is_none());
        assert_eq!(cache.stats().store.engine.counts.misses, 2);
    });
}

/// A device in memory with zones of 1 MiB.
fn memory(size: ByteSize) -> floe::device::SharedDevice {
    let config = floe::device::DeviceConfig {
        zone_size: Some(ByteSize::mib(1)),
        ..floe::device::DeviceConfig::memory(size)
    };
    floe::device::open(&config, &Clock::real()).unwrap()
}

/// Values that were replaced while the tiny engine was left out, or was another
/// one, do not return with it.
#[tokio::test]
async fn tiny_objects_are_forgotten_if_their_engine_missed_a_write() {
    let (chunks, tiny) = (memory(ByteSize::mib(64)), memory(ByteSize::mib(32)));
    let other = memory(ByteSize::mib(32));
    let config = CacheConfig::default();
    let open = async |tiny: Option<&floe::device::SharedDevice>| {
        let mut builder = Cache::builder(&config).device(chunks.clone());
        if let Some(tiny) = tiny {
            builder = builder.tiny_device(tiny.clone());
        }
        builder.open().await.unwrap()
    };
    for between in [None, Some(&other)] {
        let cache = open(Some(&tiny)).await;
        for key in [b"gone", b"kept"] {
            cache.put(key, Bytes::from_static(b"old")).await.unwrap();
        }
        cache.close().await.unwrap();
        let cache = open(Some(&tiny)).await;
        assert!(cache.get(b"gone").await.unwrap().is_some(), "it is warm");
        cache.close().await.unwrap();

        let cache = open(between).await;
        cache
            .put(b"gone", Bytes::from(vec![1; 5_000]))
            .await
            .unwrap();
        cache.delete(b"gone").await.unwrap();
        cache.close().await.unwrap();

        let cache = open(Some(&tiny)).await;
        for key in [b"gone", b"kept"] {
            assert_eq!(cache.get(key).await.unwrap(), None);
        }
        cache.close().await.unwrap();
    }
}

/// The notes that pair the store with its tiny engine are rewritten before they are evicted,
/// however little each run writes.
#[test]
fn tiny_objects_outlive_many_short_runs() {
    virtual_time::run(1, |clock: Clock| async move {
        let memory = |size| {
            let config = floe::device::DeviceConfig {
                zone_size: Some(ByteSize::mib(1)),
                ..floe::device::DeviceConfig::memory(size)
            };
            floe::device::open(&config, &clock).unwrap()
        };
        let (chunks, tiny) = (memory(ByteSize::mib(64)), memory(ByteSize::mib(32)));
        let open = async || {
            Cache::builder(&CacheConfig::default())
                .device(chunks.clone())
                .tiny_device(tiny.clone())
                .clock(clock.clone())
                .open()
                .await
                .unwrap()
        };
        let cache = open().await;
        cache.put(b"tiny", Bytes::from_static(b"1")).await.unwrap();
        cache.close().await.unwrap();
        for run in 0..60u32 {
            let cache = open().await;
            for part in 0..3u32 {
                let key = [run.to_le_bytes(), part.to_le_bytes()].concat();
                cache.put(&key, vec![1; 1_000_000].into()).await.unwrap();
                clock.sleep(Duration::from_millis(50)).await;
            }
            let found = cache.get(b"tiny").await.unwrap();
            assert!(found.is_some(), "in run {run}");
            cache.close().await.unwrap();
        }
    });
}

/// Hits in memory consume tokio's cooperative budget, so that tasks with only
/// hits do not starve timers and other tasks.
#[test]
fn tasks_that_loop_over_hits_starve_nobody() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let cache = runtime.block_on(Cache::open(&config(&dir))).unwrap();
    let value = Bytes::from_static(b"hot");
    runtime.block_on(cache.put(b"key", value.clone())).unwrap();
    for _ in 0..4 {
        let (cache, value) = (cache.clone(), value.clone());
        runtime
            .spawn(async move { while cache.get(b"key").await.unwrap() == Some(value.clone()) {} });
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    runtime.spawn(async move {
        Clock::real().sleep(Duration::from_millis(10)).await;
        sender.send(()).unwrap();
    });
    let received = receiver.recv_timeout(Duration::from_secs(20));
    runtime.shutdown_background();
    received.expect("a timer fires while tasks loop");
}

/// Items of both engines are put at once, and the newest one is found.
#[tokio::test]
async fn items_of_either_engine_are_put_at_once() {
    let cache_config = CacheConfig::default();
    let builder = Cache::builder(&cache_config)
        .device(memory(ByteSize::mib(64)))
        .tiny_device(memory(ByteSize::mib(32)));
    let cache = builder.open().await.unwrap();
    let config = ItemConfig {
        max_value: ByteSize::kib(512),
    };
    let items = ItemCache::open(cache, &config).await.unwrap();
    let found = async || items.get(b"key").await.unwrap().unwrap().value.len();
    fn item(value: &[u8]) -> NewItem<&[u8]> {
        NewItem {
            flags: 0,
            expiry: Expiry::Never,
            state: ItemState::default(),
            value,
        }
    }
    for (number, len) in [100, 5_000, 200, 60_000, 6_000, 300]
        .into_iter()
        .enumerate()
    {
        let value = vec![number as u8; len];
        match items.put_now(b"key", &item(&value)).unwrap() {
            PutNow::Stored(_) => {}
            PutNow::Begun(_, end) => end.await.unwrap(),
            // The tiny engine notes in the store that it is used, once.
            PutNow::WouldWait if number == 0 => {
                let value = NewItem::new(ItemBuffer::from(&value[..]));
                items.put(b"key", value).await.unwrap();
            }
            PutNow::WouldWait => panic!("{len} bytes would wait"),
        }
        assert_eq!(found().await, len);
    }
    // A value of several pieces is not put at once.
    let large = vec![1; 300_000];
    let put = items.put_now(b"key", &item(&large)).unwrap();
    assert!(matches!(put, PutNow::WouldWait));
    assert_eq!(found().await, 300);
}
