//! The driver against a sector oracle.

mod backing;
mod below;
mod campaign;
mod checksums;
mod crash;
mod faults;
mod hostile;
mod load;
mod matrix;
mod operation;
mod oracle;
mod parallelism;
mod reservation;
mod resize;
mod seeds;
mod workload;

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

/// A volume in this mode, on a cache device in memory.
fn of_mode(mode: Mode) -> VolumeConfig {
    VolumeConfig {
        mode,
        allow_data_loss: true,
        ..VolumeConfig::default()
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
                let settings = of_mode(mode);
                let volume = cache.attach("disk", Arc::clone(&backing), &settings);
                let volume = volume.await;
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
                allow_data_loss: true,
                ..VolumeConfig::default()
            };
            cache.loaded().await.expect("it reads");
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

/// Dirty blocks of a volume that is not attached stay, and another volume is cached.
#[test]
fn a_volume_that_is_not_attached_keeps_its_dirty_blocks() {
    run(async {
        let (device, first, second) = (memory(6), memory(8), memory(24));
        let write_back = VolumeConfig {
            mode: Mode::WriteBack,
            allow_data_loss: true,
            ..VolumeConfig::default()
        };
        let settings = config(Fill::Sector);
        let open = async || {
            let cache = VolumeCache::open(Arc::clone(&device), Clock::real(), &settings).await;
            cache.expect("it opens")
        };
        let mut oracles = [Oracle::new(8 << 20, 1), Oracle::new(24 << 20, 2)];
        let cache = open().await;
        let volume = cache.attach("first", Arc::clone(&first), &write_back).await;
        oracles[0].run(&volume.expect("it attaches"), 100, 4).await;
        cache.close().await.expect("it closes");
        let cache = open().await;
        cache.loaded().await.expect("it reads");
        let dirty = cache.stats().occupancy.dirty_bytes;
        assert!(dirty > 0);
        let volume = cache
            .attach("second", Arc::clone(&second), &write_back)
            .await;
        let volume = volume.expect("it attaches");
        oracles[1].run(&volume, 1500, 8).await;
        oracles[1].verify(&volume).await;
        volume.clean().await.expect("all can be written back");
        assert_eq!(cache.stats().occupancy.dirty_bytes, dirty);
        assert!(cache.stats().counts.reads.hits > 0);
        let volume = cache.attach("first", first, &write_back).await;
        oracles[0].verify(&volume.expect("it attaches")).await;
        cache.close().await.expect("it closes");
    });
}

/// A client's flush costs one flush of the cache device and one durable write, and
/// nothing if there is nothing new.
#[test]
fn a_flush_costs_one_flush_of_the_device_and_one_batch() {
    run(async {
        let (device, backing) = (memory(6), memory(8));
        let settings = config(Fill::Sector);
        let cache = VolumeCache::open(Arc::clone(&device), Clock::real(), &settings).await;
        let cache = cache.expect("it opens");
        let write_back = VolumeConfig {
            mode: Mode::WriteBack,
            allow_data_loss: true,
            ..VolumeConfig::default()
        };
        let volume = cache.attach("disk", backing, &write_back).await;
        let volume = volume.expect("it attaches");
        let data = floe_device::IoBuf::zeroed(4096).freeze();
        let write = async |at| {
            let written = volume.write_at(at, data.clone(), false).await;
            written.expect("it writes");
        };
        let counts = || {
            let counts = device.counters().snapshot();
            (counts.flushes, counts.writes)
        };
        // The first write of an area makes its intent durable.
        write(0).await;
        for at in 1..20 {
            write(at * 4096).await;
            let before = counts();
            volume.flush().await.expect("it flushes");
            assert_eq!(counts(), (before.0 + 1, before.1 + 1));
            volume.flush().await.expect("it flushes");
            assert_eq!(counts(), (before.0 + 1, before.1 + 1));
            // In place: there is no record.
            write(at * 4096).await;
            volume.flush().await.expect("it flushes");
            assert_eq!(counts(), (before.0 + 2, before.1 + 2));
        }
        cache.close().await.expect("it closes");
    });
}
