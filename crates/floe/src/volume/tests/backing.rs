//! Backing devices and cache devices that are not the ones that a cache had.

use floe_device::IoBuf;

use super::*;

const LEN: usize = 64 << 10;

async fn open(device: &SharedBlockDevice) -> VolumeCache {
    let opened = VolumeCache::open(Arc::clone(device), Clock::real(), &config(Fill::Fetch)).await;
    opened.expect("it opens")
}

async fn attach(
    cache: &VolumeCache,
    backing: &SharedBlockDevice,
    mode: Mode,
) -> Result<Volume, OpenVolumesError> {
    let config = VolumeConfig {
        mode,
        allow_data_loss: true,
        ..VolumeConfig::default()
    };
    cache.attach("disk", Arc::clone(backing), &config).await
}

async fn fill(backing: &SharedBlockDevice, byte: u8) {
    let data = IoBuf::copy_of(&vec![byte; 1 << 20], 1 << 20).freeze();
    for at in (0..backing.size_bytes()).step_by(1 << 20) {
        let written = backing.write(at, data.clone()).await;
        written.expect("memory takes it");
    }
}

async fn filled(mib: u64, byte: u8) -> SharedBlockDevice {
    let backing = memory(mib);
    fill(&backing, byte).await;
    backing
}

async fn first(volume: &Volume) -> u8 {
    let read = volume.read_at(0, LEN).await.expect("it reads");
    assert!(read.iter().all(|byte| *byte == read[0]));
    read[0]
}

/// A cache device that was closed with the first blocks of `backing`.
async fn cached(backing: &SharedBlockDevice, mode: Mode) -> SharedBlockDevice {
    let device = memory(8);
    let cache = open(&device).await;
    let volume = attach(&cache, backing, mode).await.expect("it attaches");
    if mode.makes_dirty() {
        let data = IoBuf::copy_of(&[9; LEN], LEN).freeze();
        let written = volume.write_at(0, data, false).await;
        written.expect("it writes");
    }
    first(&volume).await;
    cache.close().await.expect("it closes");
    device
}

async fn blocks(cache: &VolumeCache) -> u64 {
    cache.loaded().await.expect("it reads");
    cache.stats().occupancy.bytes
}

#[test]
fn the_same_backing_device_keeps_its_blocks() {
    run(async {
        let backing = filled(16, 1).await;
        let device = cached(&backing, Mode::WriteThrough).await;
        for _ in 0..2 {
            let cache = open(&device).await;
            let volume = attach(&cache, &backing, Mode::WriteThrough).await;
            assert!(blocks(&cache).await > 0);
            assert_eq!(first(&volume.expect("it attaches")).await, 1);
            cache.close().await.expect("it closes");
        }
    });
}

#[test]
fn clean_blocks_of_another_backing_device_are_forgotten_durably() {
    run(async {
        for mib in [16, 20] {
            let device = cached(&filled(16, 1).await, Mode::WriteThrough).await;
            let other = filled(mib, 2).await;
            // The process dies before the volume is attached, and right after.
            open(&device).await.abandon();
            let cache = open(&device).await;
            let volume = attach(&cache, &other, Mode::WriteThrough).await;
            volume.expect("it attaches");
            assert_eq!(blocks(&cache).await, 0);
            cache.abandon();
            let cache = open(&device).await;
            let volume = attach(&cache, &other, Mode::WriteThrough).await;
            assert_eq!(first(&volume.expect("it attaches")).await, 2);
            cache.close().await.expect("it closes");
            let cache = open(&device).await;
            let volume = attach(&cache, &other, Mode::WriteThrough).await;
            assert!(blocks(&cache).await > 0, "the new stamp was taken");
            assert_eq!(first(&volume.expect("it attaches")).await, 2);
        }
    });
}

#[test]
fn dirty_blocks_need_their_backing_device() {
    run(async {
        let backing = filled(16, 1).await;
        let device = cached(&backing, Mode::WriteBack).await;
        for other in [filled(16, 2).await, filled(20, 2).await] {
            let cache = open(&device).await;
            let error = attach(&cache, &other, Mode::WriteBack).await;
            let error = error.expect_err("it is another one");
            let is_other = matches!(error, OpenVolumesError::OtherBacking { .. });
            assert!(is_other && error.to_string().contains("attach that one"));
            cache.close().await.expect("it closes");
        }
        let cache = open(&device).await;
        let volume = attach(&cache, &backing, Mode::WriteBack).await;
        let volume = volume.expect("it attaches");
        assert_eq!(first(&volume).await, 9);
    });
}

#[test]
fn after_an_unclean_stop_only_the_size_counts() {
    run(async {
        let backing = filled(16, 1).await;
        let device = cached(&backing, Mode::WriteThrough).await;
        let cache = open(&device).await;
        let volume = attach(&cache, &backing, Mode::WriteThrough).await;
        let volume = volume.expect("it attaches");
        let data = IoBuf::copy_of(&[3; LEN], LEN).freeze();
        let written = volume.write_at(8 << 20, data, true).await;
        written.expect("it writes");
        cache.abandon();
        // What the cache wrote may be in a sample.
        let cache = open(&device).await;
        attach(&cache, &backing, Mode::WriteThrough)
            .await
            .expect("it attaches");
        assert!(blocks(&cache).await > 0);
    });
}

#[test]
fn a_name_is_short_and_used_once() {
    run(async {
        let (cache, backing) = (open(&memory(8)).await, memory(16));
        let _volume = attach(&cache, &backing, Mode::WriteThrough).await;
        let again = attach(&cache, &backing, Mode::WriteThrough).await;
        assert!(matches!(again, Err(OpenVolumesError::InUse(_))));
        let config = VolumeConfig::default();
        let long = cache.attach(&"x".repeat(113), backing, &config).await;
        assert!(matches!(long, Err(OpenVolumesError::NameTooLong(..))));
    });
}

#[test]
fn a_smaller_cache_device_is_refused() {
    run(async {
        let device = cached(&filled(16, 1).await, Mode::WriteThrough).await;
        let bytes = device.read(0, IoBuf::zeroed(4 << 20)).await;
        let smaller = memory(4);
        let copied = smaller.write(0, bytes.expect("it reads").freeze()).await;
        copied.expect("memory takes it");
        let opened = VolumeCache::open(smaller, Clock::real(), &config(Fill::Fetch)).await;
        assert!(matches!(opened, Err(OpenVolumesError::OtherDevice { .. })));
    });
}
