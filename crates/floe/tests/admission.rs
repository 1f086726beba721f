//! Declined values: served from memory or not at all, and never a reason for an
//! older value to return.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{in_place, memory, zoned};
use floe::admission::{
    AdmissionConfig, AdmissionStatistics, ProbabilisticConfig, RejectFirstConfig, WriteBudgetConfig,
};
use floe::device::{Clock, DeviceConfig, SharedDevice, open, virtual_time};
use floe::items::{ItemBuffer, NewItem};
use floe::object::{Consistency, ObjectCache, ObjectConfig};
use floe::origin::emulated::EmulatedConfig;
use floe::{
    ByteSize, Cache, ChunkConfig, Eviction, ItemCache, ItemConfig, ObjectKey, Origin, OriginConfig,
    PutOptions, PutOutcome, RamConfig, Store, StoreConfig,
};

fn reject_first() -> AdmissionConfig {
    AdmissionConfig::RejectFirst(RejectFirstConfig::default())
}

fn config(admission: AdmissionConfig) -> StoreConfig {
    StoreConfig {
        admission,
        ram: RamConfig {
            size: ByteSize::mib(4),
            ..RamConfig::default()
        },
        seed: Some(1),
        ..StoreConfig::default()
    }
}

async fn store(device: &SharedDevice, clock: &Clock, config: &StoreConfig) -> Store {
    Store::open(device.clone(), clock.clone(), config)
        .await
        .expect("opens")
}

fn value(of: u8, len: usize) -> Bytes {
    Bytes::from(vec![of; len])
}

async fn put(store: &Store, key: &[u8], value: Bytes) -> PutOutcome {
    store
        .put(key, value, PutOptions::default())
        .await
        .expect("put")
}

/// The value of `key`: its repeated byte and its length.
async fn get(store: &Store, key: &[u8]) -> Option<(u8, usize)> {
    let bytes = store.get(key).await.expect("get")?.bytes;
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    Some((bytes[0], bytes.len()))
}

/// A log, a log on a zoned drive, and slots; small and large values.
fn every_layout() -> Vec<(SharedDevice, Eviction, usize)> {
    let layouts = [
        (in_place(14, 4 << 20), Eviction::Zplru),
        (zoned(14, 4 << 20), Eviction::Clru),
        (in_place(24, 4 << 20), Eviction::Clru),
    ];
    let cases = layouts.iter().flat_map(|(geometry, eviction)| {
        [3_000, 700_000].map(|len| (memory(geometry.clone()), *eviction, len))
    });
    cases.collect()
}

#[test]
fn a_declined_value_is_served_from_memory_and_invalidates_flash() {
    for (device, eviction, len) in every_layout() {
        virtual_time::run(1, |clock: Clock| async move {
            let chunk = ChunkConfig {
                size: ByteSize::mib(1),
                eviction,
                ..ChunkConfig::default()
            };
            let with = |admission| StoreConfig {
                chunk: chunk.clone(),
                ..config(admission)
            };
            let before = store(&device, &clock, &with(AdmissionConfig::default())).await;
            assert_eq!(
                put(&before, b"key", value(1, len)).await,
                PutOutcome::Stored
            );
            before.close().await.expect("closes");

            let warm = store(&device, &clock, &with(reject_first())).await;
            assert_eq!(get(&warm, b"key").await, Some((1, len)));
            assert_eq!(put(&warm, b"new", value(2, len)).await, PutOutcome::RamOnly);
            assert!(warm.contains(b"new").expect("contains"));
            assert_eq!(get(&warm, b"new").await, Some((2, len)));
            assert!(warm.remove(b"new").await.expect("delete"));
            assert!(!warm.contains(b"new").expect("contains"));
            // The get counted as a sighting, so the first put is the second one.
            assert_eq!(put(&warm, b"key", value(3, len)).await, PutOutcome::Stored);
            warm.close().await.expect("closes");

            let warm = store(&device, &clock, &with(reject_first())).await;
            assert_eq!(put(&warm, b"key", value(4, len)).await, PutOutcome::RamOnly);
            assert_eq!(get(&warm, b"key").await, Some((4, len)));
            // A crash: nothing is closed.
            drop(warm);
            let cold = store(&device, &clock, &with(reject_first())).await;
            assert_eq!(get(&cold, b"key").await, None, "{eviction:?}, {len} bytes");
        });
    }
}

#[test]
fn a_declined_value_expires() {
    virtual_time::run(2, |clock: Clock| async move {
        let device = memory(in_place(14, 4 << 20));
        let store = store(&device, &clock, &config(reject_first())).await;
        let options = PutOptions::default().with_ttl(Duration::from_secs(10));
        let declined = store.put(b"brief", value(1, 100), options).await;
        assert_eq!(declined.expect("put"), PutOutcome::RamOnly);
        assert!(store.contains(b"brief").expect("contains"));
        clock.sleep(Duration::from_secs(11)).await;
        assert!(!store.contains(b"brief").expect("contains"));
        assert_eq!(get(&store, b"brief").await, None);
    });
}

#[test]
fn a_declined_stream_is_not_kept() {
    virtual_time::run(3, |clock: Clock| async move {
        let device = memory(in_place(14, 4 << 20));
        let store = store(&device, &clock, &config(reject_first())).await;
        for (key, len, kept) in [(b"small", 3_000, true), (b"large", 700_000, false)] {
            let bytes = value(1, len);
            let mut writer = store
                .writer(key, len as u64, PutOptions::default())
                .await
                .expect("starts");
            writer.write(bytes.slice(..1_000)).await.expect("writes");
            writer.write(bytes.slice(1_000..)).await.expect("writes");
            assert!(writer.write(value(1, 1)).await.is_err(), "one too many");
            assert_eq!(writer.finish().await.expect("ends"), PutOutcome::RamOnly);
            let kept = kept.then_some((1, len));
            assert_eq!(get(&store, key).await, kept, "{len} bytes");
        }
        let short = store.writer(b"short", 700_000, PutOptions::default()).await;
        assert!(short.expect("starts").finish().await.is_err(), "no bytes");
        assert_eq!(store.stats().engine.counts.puts, 0);
        assert_eq!(store.stats().engine.admission.rejected, 3);
    });
}

/// A large value is published when its descriptor is on flash. A value that was
/// declined meanwhile is in memory only. Either may supersede the other, but
/// the choice must stay.
#[test]
fn a_value_written_late_does_not_replace_a_declined_one() {
    virtual_time::run(4, |clock: Clock| async move {
        let sim = DeviceConfig {
            zone_size: Some(ByteSize::mib(4)),
            ..DeviceConfig::sim(ByteSize::gib(1))
        };
        let device = open(&sim, &clock).expect("opens");
        // Values larger than the burst are never admitted; smaller ones mostly are.
        let budget = WriteBudgetConfig {
            burst: Some(ByteSize::kib(600)),
            ..WriteBudgetConfig::new(ByteSize(1 << 60))
        };
        let mut config = config(AdmissionConfig::WriteBudget(budget));
        // Memory has room for four values.
        config.chunk.shards = Some(1);
        let store = store(&device, &clock, &config).await;
        let (mut late, mut first) = (0, 0);
        for offset_us in 0..800 {
            let key = format!("key {offset_us}").into_bytes();
            let writing = {
                let (store, key) = (store.clone(), key.clone());
                tokio::spawn(async move { put(&store, &key, value(1, 300_000)).await })
            };
            clock.sleep(Duration::from_micros(offset_us)).await;
            let declined = put(&store, &key, value(2, 900_000)).await;
            assert_eq!(declined, PutOutcome::RamOnly);
            if writing.await.expect("ends") == PutOutcome::RamOnly {
                // By chance.
                continue;
            }
            let seen = get(&store, &key).await;
            for other in 0..8 {
                let other = format!("other {offset_us} {other}").into_bytes();
                put(&store, &other, value(3, 900_000)).await;
            }
            let then = get(&store, &key).await;
            let is_late = seen == Some((1, 300_000));
            late += u32::from(is_late);
            first += u32::from(!is_late);
            assert!(then.is_none() || then == seen, "at {offset_us} µs");
        }
        assert!(late > 10 && first > 10, "{late} late, {first} first");
    });
}

#[test]
fn chunks_are_stored_when_they_are_fetched_again() {
    virtual_time::run(5, |clock: Clock| async move {
        let device = memory(in_place(14, 4 << 20));
        let mut config = config(reject_first());
        config.ram.size = ByteSize(0);
        let store = store(&device, &clock, &config).await;
        let origin = OriginConfig::emulated(EmulatedConfig::default());
        let origin = Origin::open(&origin, clock.clone()).expect("opens");
        let objects = ObjectConfig {
            chunk_size: ByteSize::mib(1),
            consistency: Consistency::Immutable,
            ..ObjectConfig::default()
        };
        let cache = ObjectCache::new(store, origin, clock.clone(), objects).expect("opens");
        let mut seen = Vec::new();
        for _ in 0..3 {
            let key = ObjectKey::new("bucket", "object");
            let read = cache.get(&key, None).await.expect("gets");
            read.bytes().await.expect("reads");
            // Readers are served before their chunk is stored.
            clock.sleep(Duration::from_secs(1)).await;
            let stats = cache.stats();
            seen.push((
                stats.chunks_declined > 0,
                stats.chunks_stored > 0,
                stats.reads_hit,
            ));
        }
        let expected = [(true, false, 0), (true, true, 0), (true, true, 1)];
        assert_eq!(seen, expected);
        // Metadata records bypass the policy, because every read needs them.
        assert_eq!(cache.stats().metadata_misses, 1);
    });
}

#[test]
fn items_that_are_declined_are_stored_in_memory() {
    virtual_time::run(6, |clock: Clock| async move {
        let device = memory(in_place(14, 4 << 20));
        let store = store(&device, &clock, &config(reject_first())).await;
        let items = ItemCache::open(Cache::over(store.clone()), &ItemConfig::default())
            .await
            .expect("opens");
        let item = NewItem::new(ItemBuffer::from(&b"value"[..]));
        items.put(b"item", item).await.expect("is stored");
        let found = items.get(b"item").await.expect("get").expect("is there");
        assert_eq!(found.value, Bytes::from_static(b"value"));
        let admission = store.stats().engine.admission;
        assert_eq!((admission.admitted, admission.rejected), (0, 1));
    });
}

#[test]
fn a_budget_bounds_writes_to_flash() {
    virtual_time::run(7, |clock: Clock| async move {
        let device = memory(in_place(40, 4 << 20));
        let budget = ByteSize::mib(960);
        let mut config = config(AdmissionConfig::WriteBudget(WriteBudgetConfig::new(budget)));
        config.ram.size = ByteSize(0);
        let store = store(&device, &clock, &config).await;
        let before = store.stats().device.written_bytes();
        // Offers four times the budget, in values of 5 and 300 KB.
        let hours = 2;
        for n in 0..hours * 3_600 {
            let len = if n % 10 == 0 { 300_000 } else { 5_000 };
            put(&store, format!("key {n}").as_bytes(), value(1, len)).await;
            clock.sleep(Duration::from_secs(1)).await;
        }
        store.flush().await.expect("flush");
        let AdmissionStatistics {
            admitted_bytes,
            rejected,
            ..
        } = store.stats().engine.admission;
        let allowed = ByteSize::mib(40 * (hours + 1)).bytes();
        assert!(
            rejected > 0 && admitted_bytes <= allowed,
            "{admitted_bytes}"
        );
        assert!(admitted_bytes > allowed / 2, "{admitted_bytes}");
        // The policy does not count summaries, headers and the journal, whose blocks
        // have two copies here.
        let written = store.stats().device.written_bytes() - before;
        assert!(
            written < admitted_bytes / 100 * 111,
            "{written} {admitted_bytes}"
        );
    });
}

#[test]
fn an_invalid_policy_is_rejected_with_the_nearest_valid_one() {
    virtual_time::run(8, |clock: Clock| async move {
        let policy = AdmissionConfig::Probabilistic(ProbabilisticConfig { probability: 7.0 });
        let device = memory(in_place(14, 4 << 20));
        let error = Store::open(device, clock, &config(policy))
            .await
            .expect_err("cannot work");
        let message = error.to_string();
        assert!(message.contains("probability = 7 cannot work"), "{message}");
        assert!(
            message.contains("nearest value that works is 1"),
            "{message}"
        );
    });
}
