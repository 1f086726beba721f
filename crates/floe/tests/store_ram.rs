//! Lookups in memory only.

use bytes::Bytes;
use floe::device::{Clock, DeviceConfig, open, virtual_time};
use floe::{ByteSize, CacheError, ChunkConfig, InRam, PutOptions, RamConfig, Store, StoreConfig};
use floe::{Tier, Value};
use std::time::Duration;

async fn store(clock: Clock, ram: ByteSize) -> Store {
    let config = DeviceConfig {
        zone_size: Some(ByteSize::mib(4)),
        ..DeviceConfig::memory(ByteSize::mib(64))
    };
    let device = open(&config, &clock).unwrap();
    let config = StoreConfig {
        chunk: ChunkConfig {
            size: ByteSize::kib(64),
            ..ChunkConfig::default()
        },
        ram: RamConfig {
            size: ram,
            ..RamConfig::default()
        },
        ..StoreConfig::default()
    };
    Store::open(device, clock, &config).await.unwrap()
}

fn hit(bytes: &Bytes, tier: Tier) -> InRam {
    InRam::Hit(Value {
        bytes: bytes.clone(),
        tier,
    })
}

#[test]
fn a_value_is_found_in_memory_then_on_flash_then_in_ram() {
    virtual_time::run(1, |clock| async move {
        let store = store(clock, ByteSize::mib(1)).await;
        let value = Bytes::from(vec![5; 3000]);
        assert_eq!(store.get_ram(b"key").unwrap(), InRam::Miss);
        store
            .put(b"key", value.clone(), PutOptions::default())
            .await
            .unwrap();
        let InRam::Hit(found) = store.get_ram(b"key").unwrap() else {
            panic!("a value that was just put is in memory");
        };
        assert_eq!(found.bytes, value);
        store.flush().await.unwrap();
        let counts = store.stats().engine.counts;
        match store.get_ram(b"key").unwrap() {
            // The value stays in memory after its write.
            InRam::Hit(found) => assert_eq!(found.bytes, value),
            other => {
                assert!(matches!(other, InRam::OnFlash { .. }));
                assert_eq!(store.stats().engine.counts, counts, "the get counts");
            }
        }
        let read = store.get(b"key").await.unwrap().unwrap();
        assert_eq!(read.bytes, value);
        assert_eq!(store.get_ram(b"key").unwrap(), hit(&value, Tier::Ram));
        store.delete(b"key").await.unwrap();
        assert_eq!(store.get_ram(b"key").unwrap(), InRam::Miss);
    });
}

#[test]
fn a_large_value_that_is_streamed_whole_is_in_ram_afterwards() {
    virtual_time::run(4, |clock| async move {
        let store = store(clock, ByteSize::mib(32)).await;
        let value = Bytes::from(vec![5; 400_000]);
        let options = PutOptions::default();
        store.put(b"key", value.clone(), options).await.unwrap();
        let on_flash = InRam::OnFlash { len: 400_000 };
        assert_eq!(store.get_ram(b"key").unwrap(), on_flash);
        let mut part = store.read(b"key", 0..100_000).await.unwrap().unwrap();
        assert_eq!(part.next().await.unwrap().unwrap(), value[..100_000]);
        assert_eq!(
            store.get_ram(b"key").unwrap(),
            on_flash,
            "a part is no value"
        );
        let mut whole = store.read(b"key", 0..u64::MAX).await.unwrap().unwrap();
        assert_eq!(whole.next().await.unwrap().unwrap(), value);
        assert_eq!(store.get_ram(b"key").unwrap(), hit(&value, Tier::Ram));
        let newer = Bytes::from(vec![6; 400_000]);
        let mut old = store.read(b"key", 0..u64::MAX).await.unwrap().unwrap();
        store.put(b"key", newer.clone(), options).await.unwrap();
        assert_eq!(old.next().await.unwrap().unwrap(), value);
        let read = store.get(b"key").await.unwrap().unwrap();
        assert_eq!(read.bytes, newer, "an older reader promotes nothing");
    });
}

#[test]
fn values_in_ram_move_to_memory_that_sockets_send_from() {
    virtual_time::run(5, |clock| async move {
        let store = store(clock, ByteSize::mib(8)).await;
        let memory = store.sendable().unwrap();
        for (key, len) in [
            (&b"large"[..], 400_000),
            (b"small", 100_000),
            (b"tiny", 1_000),
        ] {
            let value = Bytes::from(vec![7; len]);
            let put = store.put(key, value.clone(), PutOptions::default());
            put.await.unwrap();
            store.flush().await.unwrap();
            for reads in 0..4 {
                let mut read = store.read(key, 0..u64::MAX).await.unwrap().unwrap();
                let bytes = read.next().await.unwrap().unwrap();
                assert_eq!(bytes, value);
                let is_sendable = reads > 1 && len > 50_000;
                assert!(memory.has(&bytes) || !is_sendable, "{len}, read {reads}");
            }
            let kept = if len > 50_000 { len } else { 0 };
            assert_eq!(memory.kept_bytes(), kept);
            store.delete(key).await.unwrap();
            assert_eq!(memory.kept_bytes(), 0, "a deleted value takes no memory");
        }
    });
}

#[test]
fn lookups_in_ram_are_counted_as_gets_are() {
    virtual_time::run(2, |clock| async move {
        let store = store(clock, ByteSize(0)).await;
        store
            .put(b"key", Bytes::from_static(b"value"), PutOptions::default())
            .await
            .unwrap();
        assert!(matches!(store.get_ram(b"key").unwrap(), InRam::Hit(_)));
        assert_eq!(store.get_ram(b"other").unwrap(), InRam::Miss);
        store.flush().await.unwrap();
        assert!(matches!(store.get_ram(b"key"), Ok(InRam::OnFlash { .. })));
        let counts = store.stats().engine.counts;
        assert_eq!((counts.buffer_hits, counts.misses), (1, 1));
        assert_eq!((counts.ram_hits, counts.flash_hits), (0, 0));
        store.close().await.unwrap();
        assert!(matches!(
            store.get_ram(b"key").unwrap_err(),
            CacheError::Closed
        ));
        let too_long = vec![0; 4000];
        assert!(store.get_ram(&too_long).is_err());
    });
}

#[test]
fn an_expired_value_is_not_found_in_memory() {
    virtual_time::run(3, |clock| async move {
        let store = store(clock.clone(), ByteSize::mib(1)).await;
        let options = PutOptions::default().with_ttl(Duration::from_secs(10));
        store
            .put(b"key", Bytes::from_static(b"value"), options)
            .await
            .unwrap();
        clock.sleep(Duration::from_secs(20)).await;
        assert!(!matches!(store.get_ram(b"key").unwrap(), InRam::Hit(_)));
        assert_eq!(store.get(b"key").await.unwrap(), None);
    });
}

#[test]
fn the_ram_tier_is_resized_while_the_store_runs() {
    virtual_time::run(9, |clock| async move {
        let store = store(clock.clone(), ByteSize::mib(4)).await;
        let value = Bytes::from(vec![7; 3000]);
        let fill = async || {
            for number in 0_u32..1000 {
                let key = number.to_le_bytes();
                let put = store.put(&key, value.clone(), PutOptions::default());
                put.await.unwrap();
                let read = store.get(&key).await.unwrap().unwrap();
                assert_eq!(read.bytes, value);
            }
            store.flush().await.unwrap();
            for number in 0_u32..1000 {
                let read = store.get(&number.to_le_bytes()).await.unwrap().unwrap();
                assert_eq!(read.bytes, value);
            }
            store.stats().engine.ram_bytes
        };
        assert!(fill().await > 2 << 20);
        assert!(store.resize_ram(ByteSize::mib(1)));
        assert!(store.stats().engine.ram_bytes <= 1 << 20);
        assert!(fill().await <= 1 << 20);
        assert!(store.resize_ram(ByteSize::mib(4)));
        assert!(fill().await > 2 << 20);
        assert!(!store.resize_ram(ByteSize(0)));
        let without = self::store(clock, ByteSize(0)).await;
        assert!(!without.resize_ram(ByteSize::mib(1)));
    });
}
