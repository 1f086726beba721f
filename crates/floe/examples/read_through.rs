//! A read-through cache in front of an object store, emulated with the latency
//! of S3 and verifiable bytes.
//!
//! `cargo run -p floe --example read_through`

use std::time::Instant;

use floe::device::{Clock, DeviceConfig};
use floe::latency::LatencyRule;
use floe::origin::emulated::EmulatedConfig;
use floe::{
    ByteSize, ObjectCache, ObjectConfig, ObjectKey, Origin, OriginConfig, Store, StoreConfig,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = Clock::real();
    let path = std::env::temp_dir().join("floe-example-objects.floe");
    let device = floe::device::open(&DeviceConfig::file(path, ByteSize::gib(1)), &clock)?;
    let store = Store::open(device, clock.clone(), &StoreConfig::default()).await?;

    let latency = LatencyRule::Normal {
        mean_ms: 40.0,
        sd_ms: 10.0,
        min_ms: 28.0,
        max_ms: None,
    };
    let emulated = EmulatedConfig {
        latency,
        ..EmulatedConfig::default()
    };
    let origin = Origin::open(&OriginConfig::emulated(emulated), clock.clone())?;
    let objects = ObjectCache::new(store.clone(), origin, clock, ObjectConfig::default())?;

    let key = ObjectKey::new("bucket", "some/object");
    for turn in ["from the origin", "from the cache"] {
        let start = Instant::now();
        let read = objects.get(&key, None).await?;
        let bytes = read.bytes().await?;
        println!("{turn}: {} bytes in {:?}", bytes.len(), start.elapsed());
    }
    store.close().await?;
    Ok(())
}
