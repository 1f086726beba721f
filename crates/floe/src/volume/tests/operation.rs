//! Operation of volumes while requests run: modes, detaching, limits of cleaning, idle
//! areas.

use std::time::Duration;

use floe_core::policy::cleaning::{AlruConfig, CleaningConfig};
use floe_device::{Faults, Faulty, IoBuf, IoData, PowerGroup, virtual_time};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::faults::{SLOW, slow};
use super::*;
use crate::volume::table::Boot;

const BOOT: Boot = Boot([9; 16]);
const MIB: usize = 1 << 20;

async fn open_with(
    device: &SharedBlockDevice,
    clock: &Clock,
    settings: &VolumeCacheConfig,
    boot: Boot,
) -> VolumeCache {
    let identity = ([1; 16], 1);
    let opened = VolumeCache::open_as(
        Arc::clone(device),
        None,
        clock.clone(),
        settings,
        boot,
        identity,
    );
    opened.await.expect("it opens")
}

async fn open(device: &SharedBlockDevice, clock: &Clock) -> VolumeCache {
    open_with(device, clock, &config(Fill::Sector), BOOT).await
}

async fn attach(cache: &VolumeCache, backing: &SharedBlockDevice, mode: Mode) -> Volume {
    let config = of_mode(mode);
    let attached = cache.attach("disk", Arc::clone(backing), &config).await;
    attached.expect("it attaches")
}

fn filled(byte: u8, len: usize) -> IoData {
    IoBuf::copy_of(&vec![byte; len], len).freeze()
}

async fn put(volume: &Volume, at: u64, byte: u8, len: usize) {
    let written = volume.write_at(at, filled(byte, len), false).await;
    written.expect("it writes");
}

async fn byte_at(device: &SharedBlockDevice, at: u64) -> u8 {
    let read = device.read(at, IoBuf::zeroed(512)).await;
    read.expect("it reads")[0]
}

/// A cache device, and a backing device of so many MiB, that lose their power together.
fn devices(mib: u64) -> (PowerGroup, [SharedBlockDevice; 2]) {
    let power = PowerGroup::default();
    let devices = [4, mib].map(|mib| power.add(ByteSize::mib(mib), 512).expect("a device"));
    (power, devices)
}

/// Changes the mode again and again while requests run, until the power fails or the
/// process dies; then goes on in a mode that makes nothing dirty.
async fn switch_modes(clock: Clock, seed: u64, loses_power: bool) {
    let (power, [mut device, mut backing]) = devices(8);
    let mut oracle = Oracle::with_power_loss(8 << 20, seed).slowed_by(&clock);
    for round in 0..4_u8 {
        let boot = Boot([if loses_power { round } else { 0 }; 16]);
        let fill = [Fill::Sector, Fill::Fetch][seed as usize % 2];
        let cache = open_with(&device, &clock, &config(fill), boot).await;
        let after = [Mode::PassThrough, Mode::WriteThrough][usize::from(round) % 2];
        let volume = attach(&cache, &backing, after).await;
        oracle.verify(&volume).await;
        oracle.verify_backing(&backing).await;
        let (switched, now) = (volume.clone(), clock.clone());
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ u64::from(round));
        let switching = tokio::spawn(async move {
            loop {
                let mode = match random.random_range(0..2) {
                    0 => Mode::WriteBack,
                    _ => Mode::ALL[random.random_range(0..Mode::ALL.len())],
                };
                if switched.set_mode(mode).await.is_err() {
                    return;
                }
                let millis = random.random_range(0..2_000);
                now.sleep(Duration::from_millis(millis)).await;
            }
        });
        match loses_power {
            true => {
                power.crash_after(1500 + seed * 377 % 5000, seed);
                assert!(oracle.run(&volume, 100_000, 8).await);
            }
            false => oracle.run_and_leave(&volume, 500, 8).await,
        }
        oracle.crash(loses_power);
        switching.abort();
        cache.abandon();
        [device, backing] = power.restart().try_into().expect("two devices");
    }
}

#[test]
fn dirty_data_of_an_earlier_mode_is_served_or_written_back() {
    for seed in 0..6 {
        for loses_power in [false, true] {
            virtual_time::run(seed, |clock| switch_modes(clock, seed, loses_power));
        }
    }
}

/// A change of mode returns once a batch that runs has been written back, too.
#[test]
fn a_mode_that_makes_nothing_dirty_leaves_nothing_dirty() {
    virtual_time::run(1, |clock| async move {
        let cache = open(&memory(4), &clock).await;
        let (volume, backing) = {
            let backing = memory(8);
            (attach(&cache, &backing, Mode::WriteBack).await, backing)
        };
        for round in 0..8 {
            volume.set_mode(Mode::WriteBack).await.expect("it changes");
            put(&volume, 0, round, 64 * 1024).await;
            let cleaned = volume.clone();
            let cleaning = tokio::spawn(async move { cleaned.clean().await });
            tokio::task::yield_now().await;
            volume
                .set_mode(Mode::PassThrough)
                .await
                .expect("it changes");
            assert_eq!(volume.usage().dirty_bytes, 0);
            assert_eq!(byte_at(&backing, 0).await, round);
            cleaning.await.expect("it ends").expect("it cleans");
        }
        cache.close().await.expect("it closes");
    });
}

#[test]
fn detaching_waits_for_requests_and_writes_dirty_data_back() {
    run(async {
        let (device, backing) = (memory(6), memory(16));
        let cache = open(&device, &Clock::real()).await;
        for round in 0..3 {
            let volume = attach(&cache, &backing, Mode::WriteBack).await;
            let mut oracle = Oracle::new(16 << 20, round);
            if round > 0 {
                assert!(volume.usage().blocks > 0, "clean blocks are kept");
                volume.discard(0, 16 << 20).await.expect("it discards");
                let zeroed = volume.write_zeroes(0, 16 << 20, false).await;
                zeroed.expect("it zeroes");
            }
            oracle.run(&volume, 300, 8).await;
            // Requests whose callers have gone.
            let late: Vec<_> = (0..16)
                .map(|at| volume.write_at(at * 65_536, filled(7, 65_536), false))
                .collect();
            for mut request in late.into_iter().map(Box::pin) {
                let _ = futures::poll!(request.as_mut());
            }
            cache
                .detach("disk", DirtyData::WriteBack)
                .await
                .expect("it detaches");
            assert!(matches!(
                volume.read_at(0, 512).await,
                Err(VolumeError::Closed)
            ));
            assert!(matches!(volume.clean().await, Err(VolumeError::Closed)));
            assert!(cache.volumes().is_empty());
            assert_eq!(cache.stats().occupancy.dirty_bytes, 0);
            assert_eq!(byte_at(&backing, 15 * 65_536).await, 7);
        }
        let again = cache.detach("disk", DirtyData::WriteBack).await;
        assert!(matches!(again, Err(DetachError::NotAttached(_))));
        cache.close().await.expect("it closes");
    });
}

#[test]
fn dirty_data_is_kept_or_discarded_as_asked() {
    run(async {
        let cache = open(&memory(6), &Clock::real()).await;
        let backing = memory(16);
        let volume = attach(&cache, &backing, Mode::WriteBack).await;
        put(&volume, 0, 5, MIB).await;
        cache
            .detach("disk", DirtyData::Keep)
            .await
            .expect("it detaches");
        assert_eq!(byte_at(&backing, 0).await, 0);
        let volume = attach(&cache, &backing, Mode::WriteBack).await;
        assert_eq!(volume.read_at(0, 512).await.expect("it reads")[0], 5);
        cache
            .detach("disk", DirtyData::Discard)
            .await
            .expect("it detaches");
        assert_eq!(cache.stats().occupancy.bytes, 0);
        let volume = attach(&cache, &backing, Mode::WriteBack).await;
        assert_eq!(volume.read_at(0, 512).await.expect("it reads")[0], 0);
        cache.close().await.expect("it closes");
    });
}

/// A number is given to another volume only if no block of the first can come back.
#[test]
fn another_volume_never_gets_the_blocks_of_a_detached_one() {
    for loses_power in [false, true] {
        virtual_time::run(1, |clock| async move {
            let power = PowerGroup::default();
            let device = power.add(ByteSize::mib(4), 512).expect("a device");
            let cache = open(&device, &clock).await;
            let volume = attach(&cache, &memory(8), Mode::WriteBack).await;
            put(&volume, 0, 5, MIB).await;
            volume.flush().await.expect("it flushes");
            cache
                .detach("disk", DirtyData::Discard)
                .await
                .expect("it detaches");
            let other = memory(8);
            let config = of_mode(Mode::WriteBack);
            let attached = cache.attach("other", Arc::clone(&other), &config).await;
            let volume = attached.expect("it attaches");
            put(&volume, 4 << 20, 6, MIB).await;
            cache.abandon();
            let boot = if loses_power { Boot([1; 16]) } else { BOOT };
            power.crash(1);
            let device = power.restart().pop().expect("a device");
            let cache = open_with(&device, &clock, &super::config(Fill::Sector), boot).await;
            let attached = cache.attach("other", other, &config).await;
            let volume = attached.expect("it attaches");
            assert_eq!(volume.read_at(0, 512).await.expect("it reads")[0], 0);
            cache.close().await.expect("it closes");
        });
    }
}

/// A cache can have more volumes in its life than at one time.
#[test]
fn numbers_of_volumes_without_blocks_are_used_again() {
    run(async {
        let cache = open(&memory(6), &Clock::real()).await;
        let config = of_mode(Mode::PassThrough);
        for number in 0..70 {
            let name = format!("volume{number}");
            let attached = cache.attach(&name, memory(8), &config).await;
            attached.expect("it attaches");
            cache
                .detach(&name, DirtyData::WriteBack)
                .await
                .expect("it detaches");
        }
        cache.close().await.expect("it closes");
    });
}

#[test]
fn a_volume_that_cannot_be_written_back_stays_attached() {
    virtual_time::run(1, |clock| async move {
        let cache = open(&memory(6), &clock).await;
        let faults = Faults {
            write_errors: 1.0,
            ..Faults::default()
        };
        let below = memory(16);
        let faulty = Arc::new(Faulty::new(Arc::clone(&below), clock.clone(), 1, faults));
        let backing: SharedBlockDevice = faulty.clone();
        let volume = attach(&cache, &backing, Mode::WriteBack).await;
        put(&volume, 0, 5, MIB).await;
        let detached = cache.detach("disk", DirtyData::WriteBack).await;
        assert!(matches!(
            detached,
            Err(DetachError::Volume(VolumeError::Backing(_)))
        ));
        assert_eq!(volume.read_at(0, 512).await.expect("it reads")[0], 5);
        faulty.enable(false);
        cache
            .detach("disk", DirtyData::WriteBack)
            .await
            .expect("it detaches");
        assert_eq!(byte_at(&below, 0).await, 5);
        cache.close().await.expect("it closes");
    });
}

#[test]
fn data_that_a_power_loss_erases_must_be_allowed() {
    run(async {
        let cache = open(&memory(6), &Clock::real()).await;
        let config = VolumeConfig {
            mode: Mode::WriteBack,
            ..VolumeConfig::default()
        };
        let attached = cache.attach("disk", memory(8), &config).await;
        let is_refused = matches!(
            &attached,
            Err(OpenVolumesError::Volume(VolumeError::Volatile { .. }))
        );
        assert!(is_refused, "{attached:?}");
        let through = VolumeConfig::default();
        let volume = cache.attach("disk", memory(8), &through).await;
        let volume = volume.expect("it attaches");
        let changed = volume.set_mode(Mode::WriteOnly).await;
        assert!(matches!(changed, Err(VolumeError::Volatile { .. })));
        assert_eq!(volume.mode(), Mode::WriteThrough);
        cache.close().await.expect("it closes");
    });
}

/// The cleaning policy keeps to its rate, and a change of mode does not wait for it.
#[test]
fn the_policy_writes_back_no_faster_than_its_rate() {
    virtual_time::run(1, |clock| async move {
        let settings = VolumeCacheConfig {
            cleaning: CleaningConfig::Alru(AlruConfig {
                wake_up_seconds: 1,
                staleness_seconds: 1,
                activity_threshold_ms: 0,
                ..AlruConfig::default()
            }),
            cleaning_rate: ByteSize::kib(256),
            cleaning_blocks_max: 2,
            ..config(Fill::Sector)
        };
        let cache = open_with(&memory(8), &clock, &settings, BOOT).await;
        let volume = attach(&cache, &memory(8), Mode::WriteBack).await;
        put(&volume, 0, 5, 2 * MIB).await;
        let dirty = || volume.usage().dirty_bytes;
        while dirty() == 2 * MIB as u64 {
            clock.sleep(Duration::from_millis(10)).await;
        }
        let began = dirty();
        clock.sleep(Duration::from_secs(3)).await;
        let cleaned = began - dirty();
        // A batch more or less.
        let batch = 2 * 64 * 1024;
        let expected = 3 * 256 * 1024;
        assert!(
            cleaned.abs_diff(expected) <= batch,
            "{cleaned} bytes in 3 s"
        );
        let now = clock.now();
        volume.clean().await.expect("it cleans");
        assert!(clock.now().0 - now.0 < 1_000_000_000);
        assert_eq!(dirty(), 0);
        cache.close().await.expect("it closes");
    });
}

/// Only the block that a write changes must be on the backing device before.
#[test]
fn a_write_does_not_wait_for_other_blocks_that_are_written_back() {
    virtual_time::run(1, |clock| async move {
        let backing = slow(memory(8), &clock, 64 << 10);
        let cache = open(&memory(8), &clock).await;
        let volume = attach(&cache, &backing, Mode::WriteBack).await;
        // In two blocks.
        let (first, other) = (0, 64 << 10);
        put(&volume, first, 5, 4096).await;
        put(&volume, other, 5, 4096).await;
        let clean = tokio::spawn({
            let volume = volume.clone();
            async move { volume.clean().await }
        });
        clock.sleep(SLOW / 10).await;
        for (at, is_slow) in [(other, false), (first, true)] {
            let before = clock.now();
            put(&volume, at, 6, 4096).await;
            let waited = Duration::from_nanos(clock.now().0 - before.0);
            assert_eq!(waited > SLOW / 2, is_slow, "{waited:?}");
        }
        clean.await.expect("it ends").expect("it cleans");
        cache.close().await.expect("it closes");
    });
}

/// After an unclean stop, blocks of areas that were written long ago are still there.
#[test]
fn idle_areas_keep_their_blocks_over_an_unclean_stop() {
    for (wait, is_kept) in [(Duration::from_secs(70), true), (Duration::ZERO, false)] {
        virtual_time::run(1, |clock| async move {
            let (device, backing) = (memory(8), memory(16));
            let cache = open(&device, &clock).await;
            let volume = attach(&cache, &backing, Mode::WriteThrough).await;
            put(&volume, 0, 5, MIB).await;
            clock.sleep(wait).await;
            put(&volume, 8 << 20, 6, MIB).await;
            volume.flush().await.expect("it flushes");
            cache.abandon();
            let cache = open(&device, &clock).await;
            cache.loaded().await.expect("it reads");
            let expected = if is_kept { MIB as u64 } else { 0 };
            assert_eq!(cache.stats().occupancy.bytes, expected);
            cache.close().await.expect("it closes");
        });
    }
}

/// Requests with pauses, so that areas become idle and are written again.
#[test]
fn areas_that_become_idle_lose_nothing_in_a_crash() {
    for seed in 0..8 {
        virtual_time::run(seed, |clock| async move {
            let loses_power = seed % 2 == 0;
            let (power, [mut device, mut backing]) = devices(24);
            let mut oracle = Oracle::with_power_loss(24 << 20, seed).slowed_by(&clock);
            for round in 0..4_u8 {
                let boot = Boot([if loses_power { round } else { 0 }; 16]);
                let settings = VolumeCacheConfig {
                    checksums: seed / 2 % 2 == 1,
                    ..config(Fill::Sector)
                };
                let cache = open_with(&device, &clock, &settings, boot).await;
                let mode = Mode::ALL[(seed as usize / 2 + usize::from(round)) % Mode::ALL.len()];
                let volume = attach(&cache, &backing, mode).await;
                oracle.verify(&volume).await;
                let mut is_gone = false;
                if loses_power {
                    power.crash_after(1500 + (seed * 7 + u64::from(round)) * 377 % 2500, seed);
                }
                while !is_gone {
                    is_gone = oracle.run(&volume, 40, 8).await;
                    let seconds = oracle_pause(&clock, seed);
                    clock.sleep(Duration::from_secs(seconds)).await;
                    if !loses_power && seconds.is_multiple_of(5) {
                        oracle.run_and_leave(&volume, 40, 8).await;
                        is_gone = true;
                    }
                }
                oracle.crash(loses_power);
                cache.abandon();
                assert_eq!(cache.stats().checksum_errors, 0);
                [device, backing] = power.restart().try_into().expect("two devices");
            }
        });
    }
}

/// Seconds of a pause, between none and more than an area needs to become idle.
fn oracle_pause(clock: &Clock, seed: u64) -> u64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(clock.now().0 ^ seed);
    random.random_range(0..50)
}
