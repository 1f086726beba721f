//! The driver against a sector oracle.

mod backing;
mod campaign;
mod crash;
mod faults;
mod oracle;

use std::sync::Arc;

use floe_core::ByteSize;
use floe_core::volume::Fill;
use floe_core::volume::mode::Mode;
use floe_device::MemoryBlocks;
use floe_device::{Clock, SharedBlockDevice};

use super::*;
use oracle::Oracle;

fn memory(mib: u64) -> SharedBlockDevice {
    let device = MemoryBlocks::new(ByteSize::mib(mib), 512);
    Arc::new(device.expect("the size is whole blocks"))
}

fn config(fill: Fill) -> VolumeCacheConfig {
    VolumeCacheConfig {
        sizes: "4KiB..64KiB".parse().expect("sizes"),
        read_miss: fill,
        write_miss: fill,
        shards: 2,
        ..VolumeCacheConfig::default()
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(test);
}

#[test]
fn every_mode_returns_the_newest_write() {
    run(async {
        for fill in [Fill::Fetch, Fill::Sector] {
            for mode in Mode::ALL {
                let cache = VolumeCache::open(memory(6), Clock::real(), &config(fill)).await;
                let cache = cache.expect("it opens");
                let backing = memory(24);
                let volume = VolumeConfig {
                    mode,
                    ..VolumeConfig::default()
                };
                let volume = cache.attach("disk", Arc::clone(&backing), &volume).await;
                let volume = volume.expect("it attaches");
                let mut oracle = Oracle::new(24 << 20, 7);
                oracle.run(&volume, 1500, 16).await;
                oracle.verify(&volume).await;
                volume.clean().await.expect("all can be written back");
                oracle.verify_backing(&backing).await;
                cache.close().await.expect("it closes");
            }
        }
    });
}

#[test]
fn a_clean_stop_keeps_blocks() {
    run(async {
        let (device, backing) = (memory(8), memory(16));
        let mut oracle = Oracle::new(16 << 20, 3);
        for round in 0..4 {
            let opened =
                VolumeCache::open(Arc::clone(&device), Clock::real(), &config(Fill::Sector)).await;
            let cache = opened.expect("it opens");
            let mode = [Mode::WriteBack, Mode::WriteThrough][round % 2];
            let config = VolumeConfig {
                mode,
                ..VolumeConfig::default()
            };
            let kept = cache.stats().occupancy;
            let volume = cache.attach("disk", Arc::clone(&backing), &config).await;
            let volume = volume.expect("it attaches");
            assert_eq!(kept.bytes > 0, round > 0, "{kept:?}");
            oracle.verify(&volume).await;
            oracle.run(&volume, 400, 8).await;
            cache.close().await.expect("it closes");
        }
    });
}
