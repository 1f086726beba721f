//! A custom device in a test: it fails reads on command, and the cache responds
//! with misses, never with wrong bytes.
//!
//! `cargo run -p floe --example custom_device`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use floe::device::{
    Address, Counters, Device, DeviceConfig, DeviceError, DeviceErrorKind, Geometry, IoBuf, IoData,
    MemoryDevice, OpFuture, Operation, Placement, ZoneId, ZoneReport,
};
use floe::{ByteSize, Bytes, Cache, CacheConfig};

/// Forwards all operations, but fails reads while it is unreadable.
#[derive(Debug)]
struct Unreadable {
    below: MemoryDevice,
    is_unreadable: AtomicBool,
}

#[rustfmt::skip]
impl Device for Unreadable {
    fn geometry(&self) -> &Geometry { self.below.geometry() }
    fn describe(&self) -> String { format!("unreadable {}", self.below.describe()) }
    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf> {
        if self.is_unreadable.load(Relaxed) {
            let error = DeviceErrorKind::Io(std::io::Error::other("told to fail"));
            return OpFuture::ready(Err(DeviceError::new(Operation::Read, Some(at.zone), error)));
        }
        self.below.read(at, buf)
    }
    fn append(&self, zone: ZoneId, data: IoData, placement: Placement) -> OpFuture<Address> {
        self.below.append(zone, data, placement)
    }
    fn write(&self, at: Address, data: IoData, placement: Placement) -> OpFuture<()> {
        self.below.write(at, data, placement)
    }
    fn reset(&self, zone: ZoneId) -> OpFuture<()> { self.below.reset(zone) }
    fn finish(&self, zone: ZoneId) -> OpFuture<()> { self.below.finish(zone) }
    fn flush(&self) -> OpFuture<()> { self.below.flush() }
    fn report(&self) -> OpFuture<Vec<ZoneReport>> { self.below.report() }
    fn counters(&self) -> &Counters { self.below.counters() }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Arc::new(Unreadable {
        below: MemoryDevice::open(&DeviceConfig::memory(ByteSize::gib(1)))?,
        is_unreadable: AtomicBool::new(false),
    });
    let mut config = CacheConfig::default();
    // Without a RAM tier every get reads the device.
    config.store.ram.size = ByteSize(0);
    let cache = Cache::builder(&config)
        .device(device.clone())
        .open()
        .await?;

    for key in 0..100u8 {
        cache.put(&[key], Bytes::from(vec![key; 10_000])).await?;
    }
    cache.flush().await?;
    assert_eq!(cache.get(&[7]).await?, Some(Bytes::from(vec![7; 10_000])));

    device.is_unreadable.store(true, Relaxed);
    assert_eq!(cache.get(&[8]).await?, None);
    device.is_unreadable.store(false, Relaxed);
    // The failed range is quarantined, the rest is served.
    assert!(cache.get(&[9]).await?.is_some());
    println!("a read error is a miss");
    Ok(())
}
