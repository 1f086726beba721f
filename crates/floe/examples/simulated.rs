//! The same cache on a device in virtual time: an hour of TTL passes in
//! microseconds, deterministically. Test what you build on Floe like this.
//!
//! `cargo run -p floe --example simulated`

use std::time::Duration;

use floe::device::config::DeviceKind;
use floe::device::{DeviceConfig, virtual_time};
use floe::{ByteSize, Bytes, Cache, PutOptions, StoreConfig};

fn main() {
    virtual_time::run(42, |clock| async move {
        let device = DeviceConfig {
            kind: DeviceKind::Memory,
            size: Some(ByteSize::mib(256)),
            ..DeviceConfig::default()
        };
        let device = floe::device::open(&device, &clock).expect("memory devices open");
        let config = StoreConfig {
            seed: Some(42),
            ..StoreConfig::default()
        };
        let cache = Cache::open_on(device, clock.clone(), &config)
            .await
            .expect("a blank device is formatted");

        let hour = PutOptions::default().with_ttl(Duration::from_secs(3600));
        cache
            .put_with(b"session", Bytes::from_static(b"alice"), hour)
            .await
            .expect("it is admitted");
        clock.sleep(Duration::from_secs(3599)).await;
        assert!(cache.get(b"session").await.expect("open").is_some());
        clock.sleep(Duration::from_secs(2)).await;
        assert!(cache.get(b"session").await.expect("open").is_none());
        println!("expired at {} of virtual time", clock.now());
    });
}
