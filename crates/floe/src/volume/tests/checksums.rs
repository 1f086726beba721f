//! Damage on the cache device that the device does not report.

use std::time::Duration;

use floe_device::{IoBuf, virtual_time};

use super::*;
use crate::volume::table::Boot;

const BOOT: Boot = Boot([3; 16]);
const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;

async fn open(device: &SharedBlockDevice, clock: &Clock) -> VolumeCache {
    let settings = VolumeCacheConfig {
        checksums: true,
        ..config(Fill::Fetch)
    };
    let (device, clock, identity) = (Arc::clone(device), clock.clone(), ([1; 16], 1));
    let opened = VolumeCache::open_as(device, None, clock, &settings, BOOT, identity);
    opened.await.expect("it opens")
}

async fn attach(cache: &VolumeCache, backing: &SharedBlockDevice, mode: Mode) -> Volume {
    let config = of_mode(mode);
    let attached = cache.attach("disk", Arc::clone(backing), &config);
    attached.await.expect("it attaches")
}

/// A new cache, and a volume of it.
async fn start(clock: &Clock, mode: Mode) -> ([SharedBlockDevice; 2], VolumeCache, Volume) {
    let (device, backing) = (memory(8), memory(16));
    let cache = open(&device, clock).await;
    let volume = attach(&cache, &backing, mode).await;
    ([device, backing], cache, volume)
}

async fn put(volume: &Volume, at: u64, value: u8, len: u64) {
    let mut data = IoBuf::zeroed(len as usize);
    data.fill(value);
    let written = volume.write_at(at, data.freeze(), false);
    written.await.expect("it writes");
}

/// The values of the blocks from `at` to `end`: those that can be read.
async fn values(volume: &Volume, at: u64, end: u64) -> Vec<Option<u8>> {
    let mut values = Vec::new();
    for at in (at..end).step_by(BLOCK as usize) {
        let read = volume.read_at(at, BLOCK as usize).await.ok();
        values.push(read.map(|data| {
            assert!(data.iter().all(|byte| *byte == data[0]));
            data[0]
        }));
    }
    values
}

/// Flips a bit of each block of 4 KiB that has this value.
async fn damage(device: &SharedBlockDevice, value: u8) -> usize {
    let mut damaged = 0;
    for at in (0..device.size_bytes()).step_by(BLOCK as usize) {
        let mut data = device.read(at, IoBuf::zeroed(BLOCK as usize)).await;
        let data = data.as_mut().expect("it reads");
        if data.iter().all(|byte| *byte == value) {
            data[1000] ^= 4;
            let damage = IoBuf::copy_of(data, data.len()).freeze();
            device.write(at, damage).await.expect("it writes");
            damaged += 1;
        }
    }
    damaged
}

/// Clean data comes from the backing device instead, and dirty data is an error until it
/// is written again. So it is after a restart.
#[test]
fn damaged_data_is_never_returned() {
    for restarts in [false, true] {
        virtual_time::run(1, |clock| async move {
            let ([device, backing], mut cache, mut volume) =
                start(&clock, Mode::WriteThrough).await;
            put(&volume, 0, 5, MIB).await;
            volume.set_mode(Mode::WriteBack).await.expect("it changes");
            put(&volume, 2 * MIB, 6, MIB).await;
            if restarts {
                cache.close().await.expect("it closes");
            }
            assert!(damage(&device, 5).await > 200);
            assert!(damage(&device, 6).await > 200);
            if restarts {
                cache = open(&device, &clock).await;
                volume = attach(&cache, &backing, Mode::WriteBack).await;
            }
            let clean = values(&volume, 0, MIB).await;
            assert!(clean.iter().all(|value| *value == Some(5)));
            let dirty = values(&volume, 2 * MIB, 3 * MIB).await;
            assert!(dirty.iter().all(Option::is_none));
            assert!(cache.stats().checksum_errors > 256);
            volume.clean().await.expect_err("it is not written back");
            let kept = backing.read(2 * MIB, IoBuf::zeroed(MIB as usize)).await;
            assert!(kept.expect("it reads").iter().all(|byte| *byte == 0));
            put(&volume, 2 * MIB, 7, MIB).await;
            let healed = values(&volume, 2 * MIB, 3 * MIB).await;
            assert!(healed.iter().all(|value| *value == Some(7)));
            volume.clean().await.expect("it is written back");
            cache.close().await.expect("it closes");
        });
    }
}

/// One block that cannot be read does not keep others dirty.
#[test]
fn data_beside_damaged_data_is_written_back() {
    virtual_time::run(1, |clock| async move {
        let ([device, _], _cache, volume) = start(&clock, Mode::WriteBack).await;
        put(&volume, 0, 5, 2 * MIB).await;
        put(&volume, MIB, 6, BLOCK).await;
        assert_eq!(damage(&device, 6).await, 1);
        volume.clean().await.expect_err("a block cannot be read");
        let left = volume.usage().dirty_bytes;
        assert!(left <= 64 << 10, "{left} bytes are dirty");
    });
}

/// A scrub drops damaged clean data, and reports dirty data that is damaged.
#[test]
fn a_scrub_finds_what_is_damaged() {
    virtual_time::run(1, |clock| async move {
        let ([device, _], cache, volume) = start(&clock, Mode::WriteThrough).await;
        put(&volume, 0, 5, MIB).await;
        put(&volume, MIB, 6, BLOCK).await;
        volume.set_mode(Mode::WriteBack).await.expect("it changes");
        put(&volume, 2 * MIB, 7, MIB).await;
        put(&volume, 3 * MIB, 8, BLOCK).await;
        let used = cache.stats().occupancy.bytes;
        let sound = cache.scrub(ByteSize(0)).await.expect("it is open");
        let valid = 2 * MIB + 2 * BLOCK;
        assert!(sound.read_bytes >= valid && sound.read_bytes <= used);
        assert_eq!((sound.dropped_bytes, sound.damaged_bytes), (0, 0));
        damage(&device, 6).await;
        damage(&device, 8).await;
        let before = clock.now();
        let report = cache.scrub(ByteSize::mib(1)).await.expect("it is open");
        let time = clock.now().0 - before.0;
        assert!((1_900_000_000..2_200_000_000).contains(&time), "{time} ns");
        assert!(
            (BLOCK..=64 << 10).contains(&report.dropped_bytes),
            "{report:?}"
        );
        // In blocks of the device.
        assert_eq!(report.damaged_bytes, 512);
        let again = cache.scrub(ByteSize(0)).await.expect("it is open");
        assert_eq!(again.dropped_bytes, 0);
        assert_eq!(values(&volume, MIB, MIB + BLOCK).await, [Some(6)]);
        volume.discard(3 * MIB, BLOCK).await.expect("it discards");
        let healed = cache.scrub(ByteSize(0)).await.expect("it is open");
        assert_eq!(healed.damaged_bytes, 0);
        cache.close().await.expect("it closes");
    });
}

/// After an unclean stop, checksums of areas that were idle are known, those of data that
/// was written in place included. Those of others are not, and sound data is served.
#[test]
fn checksums_of_idle_areas_survive_an_unclean_stop() {
    virtual_time::run(1, |clock| async move {
        let ([device, backing], cache, volume) = start(&clock, Mode::WriteBack).await;
        put(&volume, 0, 5, MIB).await;
        put(&volume, 0, 6, MIB).await;
        clock.sleep(Duration::from_secs(70)).await;
        put(&volume, 8 * MIB, 7, MIB).await;
        put(&volume, 8 * MIB, 8, MIB).await;
        volume.flush().await.expect("it flushes");
        cache.abandon();
        let cache = open(&device, &clock).await;
        let volume = attach(&cache, &backing, Mode::WriteBack).await;
        for (at, value) in [(0, 6), (8 * MIB, 8)] {
            let sound = values(&volume, at, at + MIB).await;
            assert!(sound.iter().all(|found| *found == Some(value)));
        }
        assert_eq!(cache.stats().checksum_errors, 0);
        damage(&device, 6).await;
        let damaged = values(&volume, 0, MIB).await;
        assert!(damaged.iter().all(Option::is_none));
        // Once more: the data is in place, and its area idle.
        for at in (0..MIB).step_by(BLOCK as usize) {
            put(&volume, at, 9, BLOCK).await;
        }
        volume.flush().await.expect("it flushes");
        cache.abandon();
        let cache = open(&device, &clock).await;
        let volume = attach(&cache, &backing, Mode::WriteBack).await;
        let sound = values(&volume, 0, MIB).await;
        assert!(sound.iter().all(|found| *found == Some(9)));
        assert_eq!(cache.stats().checksum_errors, 0);
        cache.close().await.expect("it closes");
    });
}

/// The setting belongs to the layout.
#[test]
fn checksums_cannot_change_without_a_new_layout() {
    virtual_time::run(1, |clock| async move {
        let device = memory(8);
        let cache = open(&device, &clock).await;
        cache.close().await.expect("it closes");
        let opened = VolumeCache::open(device, clock, &config(Fill::Fetch)).await;
        let differs = |error| {
            let is_field = |field| field == "checksums";
            matches!(error, OpenVolumesError::PlanDiffers { field, .. } if is_field(field))
        };
        assert!(opened.is_err_and(differs));
    });
}
