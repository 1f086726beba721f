//! Power loss on a simulated device, in virtual time: acknowledged overwrites
//! and deletes persist. Test programs on Floe like this.
//!
//! `cargo run -p floe --example power_loss`

use floe::device::{Clock, DeviceConfig, MemoryDevice, SharedDevice, WriteCache, virtual_time};
use floe::{ByteSize, Bytes, Cache, CacheConfig};

const KEYS: u32 = 100;

fn main() {
    let config = DeviceConfig {
        zone_size: Some(ByteSize::mib(1)),
        ..DeviceConfig::memory(ByteSize::mib(64))
    };
    let memory = MemoryDevice::open(&config).expect("the settings of the device work");
    let geometry = floe::device::Device::geometry(&memory).clone();
    // The device may lose unflushed writes, in any part and order.
    let volatile = WriteCache::Volatile { bytes_max: 8 << 20 };
    let (_, power) = MemoryDevice::with_power(geometry, volatile);
    for life in 1..=20u32 {
        let device = power.reopen();
        let power = &power;
        let warm = virtual_time::run(u64::from(life), async |clock| {
            let cache = open(device, clock).await;
            let warm = check(&cache, life - 1).await;
            for key in 0..KEYS {
                let value = Bytes::from(life.to_be_bytes().repeat(500));
                let put = cache.put(&key.to_be_bytes(), value).await;
                put.expect("the device works");
            }
            cache
                .delete(&0u32.to_be_bytes())
                .await
                .expect("it is durable");
            if life % 2 == 0 {
                cache.flush().await.expect("it is durable");
            }
            power.crash(u64::from(life));
            warm
        });
        println!("life {life}: {warm} of {KEYS} values survived the power loss");
    }
}

async fn open(device: SharedDevice, clock: Clock) -> Cache {
    let mut config = CacheConfig::default();
    config.store.ram.size = ByteSize::mib(1);
    config.store.chunk.write_buffer = ByteSize::mib(4);
    config.store.seed = Some(1);
    let cache = Cache::builder(&config).device(device).clock(clock);
    cache
        .open()
        .await
        .expect("a cache opens after a power loss")
}

/// Checks the law: each key has the last life's value or none. Returns how many have one.
async fn check(cache: &Cache, last_life: u32) -> u32 {
    let mut warm = 0;
    for key in 0..KEYS {
        let found = cache.get(&key.to_be_bytes()).await.expect("it is open");
        if let Some(value) = found {
            assert_eq!(value, last_life.to_be_bytes().repeat(500));
            assert_ne!(key, 0, "a deleted key came back");
            warm += 1;
        }
    }
    warm
}
