//! Faults of the cache device and of the backing device.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use floe_device::block::BlockDevice;
use floe_device::nvme::Status;
use floe_device::{
    DeviceError, DeviceErrorKind, Faults, Faulty, IoBuf, IoData, OpFuture, Operation, virtual_time,
};
use parking_lot::Mutex;

use super::below::below;
use super::seeds::each_seed;
use super::*;
use crate::volume::table::Boot;

const BOOT: Boot = Boot([9; 16]);

/// The device that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Cache,
    Backing,
}

#[derive(Clone, Debug)]
struct Case {
    mode: Mode,
    fill: Fill,
    side: Side,
    faults: Faults,
    seed: u64,
}

pub(super) async fn open(device: &SharedBlockDevice, clock: &Clock, fill: Fill) -> VolumeCache {
    let opened = open_with(device, None, clock, fill);
    opened.await.expect("it opens")
}

async fn open_with(
    device: &SharedBlockDevice,
    witness: Option<&SharedBlockDevice>,
    clock: &Clock,
    fill: Fill,
) -> Result<VolumeCache, OpenVolumesError> {
    let (device, witness) = (Arc::clone(device), witness.map(Arc::clone));
    let (clock, identity) = (clock.clone(), ([1; 16], 1));
    VolumeCache::open_as(device, witness, clock, &config(fill), BOOT, identity).await
}

pub(super) async fn attach(cache: &VolumeCache, backing: &SharedBlockDevice, mode: Mode) -> Volume {
    let config = VolumeConfig {
        mode,
        allow_data_loss: true,
        ..VolumeConfig::default()
    };
    let volume = cache.attach("disk", Arc::clone(backing), &config).await;
    volume.expect("it attaches")
}

/// Runs requests before, during and after faults, and after a restart. Returns the
/// number of faults.
async fn fail(clock: Clock, case: Case) -> u64 {
    let Case {
        mode,
        fill,
        side,
        faults,
        seed,
    } = case.clone();
    let (below, backing_below) = (memory(4), memory(6));
    let faulty = |below: &SharedBlockDevice, of: Side| {
        let faults = match of == side {
            true => faults.clone(),
            false => Faults::default(),
        };
        let faulty = Faulty::new(Arc::clone(below), clock.clone(), seed, faults);
        faulty.enable(false);
        Arc::new(faulty)
    };
    let device = faulty(&below, Side::Cache);
    let backing = faulty(&backing_below, Side::Backing);
    let mut oracle = Oracle::new(6 << 20, seed).slowed_by(&clock);
    let of_cache: SharedBlockDevice = device.clone();
    let of_backing: SharedBlockDevice = backing.clone();
    let cache = open(&of_cache, &clock, fill).await;
    let volume = attach(&cache, &of_backing, mode).await;
    oracle.run(&volume, 200, 8).await;
    device.enable(true);
    backing.enable(true);
    let [of_reads, of_changes] = oracle.run_with_faults(&volume, 300, 8).await;
    device.enable(false);
    backing.enable(false);
    if side == Side::Cache && !mode.makes_dirty() {
        assert!(of_reads.is_empty(), "{case:?}: {of_reads:?}");
        let poisoned = volume.status().poisoned;
        let is_refused =
            |error: &VolumeError| poisoned.is_some() && !matches!(error, VolumeError::Backing(_));
        assert!(
            of_changes.iter().all(is_refused),
            "{case:?}: {of_changes:?}"
        );
    }
    oracle.verify(&volume).await;
    clock.sleep(Duration::from_secs(10)).await;
    oracle.verify(&volume).await;
    if volume.status().poisoned.is_some() {
        let data = IoBuf::zeroed(512).freeze();
        let written = volume.write_at(0, data, false).await;
        assert!(written.is_err(), "{case:?}");
        cache.abandon();
    } else {
        cache.close().await.expect("it closes");
    }
    let cache = open(&below, &clock, fill).await;
    go_on(&cache, &backing_below, mode, &mut oracle).await;
    device.injected() + backing.injected()
}

/// Checks what a cache that was opened again has, and that it works.
async fn go_on(cache: &VolumeCache, backing: &SharedBlockDevice, mode: Mode, oracle: &mut Oracle) {
    let volume = attach(cache, backing, mode).await;
    oracle.verify(&volume).await;
    oracle.run(&volume, 100, 8).await;
    volume.clean().await.expect("all can be written back");
    oracle.verify_backing(backing).await;
    cache.close().await.expect("it closes");
}

/// A device whose writes fail.
pub(super) fn failing(below: &SharedBlockDevice, clock: &Clock) -> Arc<Faulty<dyn BlockDevice>> {
    let faults = Faults {
        write_errors: 1.0,
        ..Faults::default()
    };
    Arc::new(Faulty::new(Arc::clone(below), clock.clone(), 1, faults))
}

fn each_seed_and_mode(run: impl Fn(u64, Mode) + Sync) {
    each_seed(2, 200, |seed| {
        Mode::ALL.into_iter().for_each(|mode| run(seed, mode));
    });
}

#[test]
fn faults_of_a_device_give_no_wrong_answer() {
    let rate = 0.05;
    let none = Faults::default;
    let kinds = [
        Faults {
            read_errors: rate,
            ..none()
        },
        Faults {
            write_errors: rate,
            ..none()
        },
        Faults {
            torn_writes: rate,
            ..none()
        },
        Faults {
            flush_errors: 0.3,
            ..none()
        },
        Faults {
            write_errors: 1.0,
            ..none()
        },
        Faults {
            fail_after: Some(200),
            ..none()
        },
    ];
    let injected = AtomicU64::new(0);
    each_seed(1, 100, |seed| {
        for mode in Mode::ALL {
            for (fill, side) in [Fill::Fetch, Fill::Sector]
                .into_iter()
                .flat_map(|fill| [(fill, Side::Cache), (fill, Side::Backing)])
            {
                for faults in &kinds {
                    let case = Case {
                        mode,
                        fill,
                        side,
                        faults: faults.clone(),
                        seed,
                    };
                    let run = || virtual_time::run(seed, |clock| fail(clock, case.clone()));
                    match std::panic::catch_unwind(run) {
                        Ok(more) => drop(injected.fetch_add(more, SeqCst)),
                        Err(panic) => {
                            eprintln!("{case:?}");
                            std::panic::resume_unwind(panic);
                        }
                    }
                }
            }
        }
    });
    let injected = injected.into_inner();
    assert!(injected > 1000, "{injected} faults");
}

/// Dirty data is written back, zeros follow it to the backing device while the cache device
/// fails, and the process dies: the dirty data does not come back.
#[test]
fn a_change_that_passes_a_failing_cache_outlives_the_process() {
    let case = Case {
        mode: Mode::WriteOnly,
        fill: Fill::Fetch,
        side: Side::Cache,
        faults: Faults {
            write_errors: 1.0,
            ..Faults::default()
        },
        seed: 15,
    };
    virtual_time::run(15, |clock| fail(clock, case));
}

/// Every NVMe status, on either side.
#[test]
fn no_status_of_a_drive_gives_a_wrong_answer() {
    let modes = Mode::ALL.into_iter().cycle();
    let sides = [Side::Cache, Side::Backing, Side::Backing]
        .into_iter()
        .cycle();
    for ((status, mode), side) in Status::named().zip(modes).zip(sides) {
        let case = Case {
            mode,
            fill: Fill::Sector,
            side,
            faults: Faults {
                read_errors: 0.05,
                write_errors: 0.02,
                flush_errors: 0.1,
                status: Some(status),
                ..Faults::default()
            },
            seed: u64::from(status.code()),
        };
        let injected = virtual_time::run(case.seed, |clock| fail(clock, case.clone()));
        assert!(injected > 0, "{case:?}");
    }
}

/// A cache device that cannot be written when it is opened still answers reads, with
/// the only copy of dirty data.
#[test]
fn a_cache_that_cannot_be_written_at_start_is_read() {
    virtual_time::run(1, |clock| async move {
        for mode in Mode::ALL {
            let (below, backing) = (memory(4), memory(6));
            let mut oracle = Oracle::new(6 << 20, 5).slowed_by(&clock);
            let cache = open(&below, &clock, Fill::Sector).await;
            oracle
                .run(&attach(&cache, &backing, mode).await, 300, 8)
                .await;
            cache.abandon();
            let failing: SharedBlockDevice = failing(&below, &clock);
            let cache = open(&failing, &clock, Fill::Sector).await;
            let volume = attach(&cache, &backing, mode).await;
            assert!(volume.status().poisoned.is_some());
            oracle.verify(&volume).await;
            let written = volume.write_at(0, sectors(1, 1), false).await;
            assert!(matches!(written, Err(VolumeError::Poisoned(_))));
            cache.abandon();
            let cache = open(&below, &clock, Fill::Sector).await;
            let volume = attach(&cache, &backing, mode).await;
            oracle.verify(&volume).await;
            oracle.run(&volume, 100, 8).await;
            oracle.verify(&volume).await;
            cache.close().await.expect("it closes");
        }
    });
}

/// A sparse cache device without room: only pages that have been written can be. Zeros
/// leave holes.
#[derive(Debug)]
struct Full {
    below: SharedBlockDevice,
    pages: Mutex<BTreeSet<u64>>,
    is_full: AtomicBool,
}

impl Full {
    fn takes(&self, range: std::ops::Range<u64>) -> Result<(), DeviceError> {
        let mut pages = self.pages.lock();
        let mut touched = range.start / 4096..range.end.div_ceil(4096);
        if !self.is_full.load(SeqCst) {
            pages.extend(touched);
        } else if !touched.all(|page| pages.contains(&page)) {
            return Err(DeviceError::new(
                Operation::Write,
                None,
                DeviceErrorKind::NoSpace,
            ));
        }
        Ok(())
    }
}

impl BlockDevice for Full {
    below!(read, write_zeroes, discard, flush);

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        match self.takes(at..at + data.len() as u64) {
            Ok(()) => self.below.write(at, data),
            Err(error) => OpFuture::ready(Err(error)),
        }
    }
}

/// A cache device that has no room for new data: every read goes on, a write is refused
/// with the reason or kept, and a restart finds all that was acknowledged.
#[test]
fn a_full_cache_device_loses_nothing() {
    each_seed_and_mode(|seed, mode| {
        virtual_time::run(seed, |clock| async move {
            let full = Arc::new(Full {
                below: memory(4),
                pages: Mutex::default(),
                is_full: AtomicBool::new(false),
            });
            let (device, backing): (SharedBlockDevice, _) = (full.clone(), memory(6));
            let fill = [Fill::Fetch, Fill::Sector][seed as usize % 2];
            let cache = open(&device, &clock, fill).await;
            let volume = attach(&cache, &backing, mode).await;
            let mut oracle = Oracle::new(6 << 20, seed).slowed_by(&clock);
            oracle.run(&volume, 60, 8).await;
            full.is_full.store(true, SeqCst);
            let [of_reads, of_changes] = oracle.run_with_faults(&volume, 300, 8).await;
            assert!(of_reads.is_empty(), "{mode}: {of_reads:?}");
            let is_poisoned = volume.status().poisoned.is_some();
            let is_explained = |error: &VolumeError| match error {
                VolumeError::Cache(error) => error.is_no_space(),
                VolumeError::Table(_) | VolumeError::Poisoned(_) => is_poisoned,
                _ => false,
            };
            assert!(
                of_changes.iter().all(is_explained),
                "{mode}: {of_changes:?}"
            );
            assert!(
                is_poisoned || mode.makes_dirty() || of_changes.is_empty(),
                "{mode}"
            );
            oracle.verify(&volume).await;
            cache.abandon();
            full.is_full.store(false, SeqCst);
            let cache = open(&device, &clock, fill).await;
            go_on(&cache, &backing, mode, &mut oracle).await;
        });
    });
}

/// A cache device that fails at some moment, in front of a volume, and their witness.
struct Losing {
    below: SharedBlockDevice,
    device: Arc<Faulty<dyn BlockDevice>>,
    witness: SharedBlockDevice,
    backing: SharedBlockDevice,
    oracle: Oracle,
}

impl Losing {
    fn new(clock: &Clock, seed: u64) -> Self {
        let below = memory(4);
        let device = failing(&below, clock);
        device.enable(false);
        Losing {
            below,
            device,
            witness: memory(1),
            backing: memory(6),
            oracle: Oracle::new(6 << 20, seed).slowed_by(clock),
        }
    }

    async fn open(&self, clock: &Clock) -> VolumeCache {
        let device: SharedBlockDevice = self.device.clone();
        let opened = open_with(&device, Some(&self.witness), clock, Fill::Sector).await;
        opened.expect("it opens")
    }
}

/// With a witness, volumes without dirty data go on without a cache device that has
/// failed, and what it has of them is never served again.
#[test]
fn a_volume_goes_on_without_its_cache_device() {
    each_seed_and_mode(|seed, mode| {
        virtual_time::run(seed, |clock| async move {
            let mut losing = Losing::new(&clock, seed);
            let cache = losing.open(&clock).await;
            let volume = attach(&cache, &losing.backing, mode).await;
            losing.oracle.run(&volume, 200, 8).await;
            if mode.makes_dirty() {
                volume.clean().await.expect("it cleans");
            }
            losing.device.enable(true);
            losing.oracle.run_with_faults(&volume, 200, 8).await;
            losing.oracle.verify(&volume).await;
            let status = volume.status();
            if !mode.makes_dirty() {
                assert_eq!(status.poisoned, None, "{mode}");
                losing.oracle.run(&volume, 100, 8).await;
                losing.oracle.verify(&volume).await;
                volume.flush().await.expect("it flushes");
                losing.oracle.verify_backing(&losing.backing).await;
            }
            if seed % 2 == 0 && status.cache_lost.is_some() {
                cache
                    .close()
                    .await
                    .expect("nothing relies on the cache device");
            }
            cache.abandon();
            losing.device.enable(false);
            for _ in 0..2 {
                let cache = losing.open(&clock).await;
                let volume = attach(&cache, &losing.backing, mode).await;
                assert_eq!(volume.status().cache_lost, None);
                losing.oracle.verify(&volume).await;
                losing.oracle.run(&volume, 100, 8).await;
                losing.oracle.verify(&volume).await;
                cache.abandon();
            }
        });
    });
}

/// Dirty data can be given up though the cache device cannot be written, and never comes
/// back with it. That of another volume does.
#[test]
fn dirty_data_on_a_failed_cache_device_can_be_discarded() {
    virtual_time::run(1, |clock| async move {
        let losing = Losing::new(&clock, 1);
        let cache = losing.open(&clock).await;
        let given_up = attach(&cache, &losing.backing, Mode::WriteBack).await;
        let write_back = of_mode(Mode::WriteBack);
        let other_backing = memory(6);
        let other = cache.attach("other", Arc::clone(&other_backing), &write_back);
        let other = other.await.expect("it attaches");
        for volume in [&given_up, &other] {
            put(volume, 0, sectors(1, 8), true).await;
        }
        losing.device.enable(true);
        for volume in [&given_up, &other] {
            let written = volume.write_at(4 << 20, sectors(2, 8), true).await;
            written.expect_err("the cache device fails");
            assert!(volume.status().poisoned.is_some());
        }
        for dirty in [DirtyData::WriteBack, DirtyData::Keep] {
            let detached = cache.detach("disk", dirty).await;
            detached.expect_err("the volume is poisoned");
        }
        let discarded = cache.detach("disk", DirtyData::Discard).await;
        discarded.expect("it is detached");
        // It is served again, past the cache.
        let volume = attach(&cache, &losing.backing, Mode::WriteBack).await;
        assert!(volume.status().cache_lost.is_some());
        let first =
            |volume: Volume| async move { volume.read_at(0, 512).await.expect("it reads")[0] };
        assert_eq!(first(volume.clone()).await, 0);
        put(&volume, 0, sectors(3, 8), true).await;
        cache.abandon();
        losing.device.enable(false);
        let cache = losing.open(&clock).await;
        let volume = attach(&cache, &losing.backing, Mode::WriteBack).await;
        assert_eq!(first(volume).await, 3);
        let other = cache.attach("other", other_backing, &write_back).await;
        assert_eq!(first(other.expect("it attaches")).await, 1);
        cache.close().await.expect("it closes");
    });
}

/// After an unclean stop the witness is needed: what the cache has may be stale.
#[test]
fn a_cache_without_its_witness_is_not_trusted() {
    virtual_time::run(1, |clock| async move {
        for mode in [Mode::WriteBack, Mode::WriteThrough] {
            let mut losing = Losing::new(&clock, 1);
            let cache = losing.open(&clock).await;
            let volume = attach(&cache, &losing.backing, mode).await;
            losing.oracle.run(&volume, 200, 8).await;
            cache.abandon();
            for witness in [None, Some(&memory(1))] {
                let opened = open_with(&losing.below, witness, &clock, Fill::Sector).await;
                match opened {
                    Err(error) => {
                        assert!(matches!(error, OpenVolumesError::OtherWitness));
                        assert_eq!(mode, Mode::WriteBack);
                    }
                    Ok(cache) => {
                        assert_eq!(cache.stats().occupancy.bytes, 0);
                        assert_eq!(mode, Mode::WriteThrough);
                        cache.abandon();
                    }
                }
            }
            let cache = losing.open(&clock).await;
            let volume = attach(&cache, &losing.backing, mode).await;
            losing.oracle.verify(&volume).await;
            cache.close().await.expect("it closes");
            // A clean stop needs none.
            let cache = open(&losing.below, &clock, Fill::Sector).await;
            let volume = attach(&cache, &losing.backing, mode).await;
            losing.oracle.verify(&volume).await;
            cache.close().await.expect("it closes");
        }
    });
}

/// A device whose writes to a part of it, and whose flushes, take long.
#[derive(Debug)]
struct Slow {
    below: SharedBlockDevice,
    clock: Clock,
    writes_below: u64,
    flushes: bool,
}

/// A device whose writes below this byte take long, or its flushes if there are none.
pub(super) fn slow(
    below: SharedBlockDevice,
    clock: &Clock,
    writes_below: u64,
) -> SharedBlockDevice {
    Arc::new(Slow {
        below,
        clock: clock.clone(),
        writes_below,
        flushes: writes_below == 0,
    })
}

impl Slow {
    fn after<T: Send + 'static>(&self, is_slow: bool, operation: OpFuture<T>) -> OpFuture<T> {
        if !is_slow {
            return operation;
        }
        let sleep = self.clock.sleep(SLOW);
        OpFuture::new(async move {
            sleep.await;
            operation.await
        })
    }
}

pub(super) const SLOW: Duration = Duration::from_millis(10);

impl BlockDevice for Slow {
    below!(read, write_zeroes, discard);

    fn flush(&self) -> OpFuture<()> {
        self.after(self.flushes, self.below.flush())
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        self.after(at < self.writes_below, self.below.write(at, data))
    }
}

pub(super) async fn put(volume: &Volume, at: u64, data: IoData, is_durable: bool) {
    let written = volume.write_at(at, data, is_durable).await;
    written.expect("it writes");
}

pub(super) fn sectors(byte: u8, count: usize) -> IoData {
    IoBuf::copy_of(&vec![byte; count * 512], count * 512).freeze()
}

/// A volume with a write, in front of a device whose flushes take a while.
async fn written_before_slow_flushes(clock: &Clock, mode: Mode) -> (VolumeCache, Volume) {
    let backing = slow(memory(6), clock, 0);
    let cache = open(&memory(4), clock, Fill::Sector).await;
    let volume = attach(&cache, &backing, mode).await;
    let written = volume.write_at(0, sectors(1, 8), false).await;
    written.expect("it writes");
    (cache, volume)
}

/// An overwrite of dirty sectors writes no record. It must not be acknowledged before
/// the record of the first write is in the log.
#[test]
fn an_overwrite_waits_for_the_record_of_the_first_write() {
    virtual_time::run(1, |clock| async move {
        let device = slow(memory(4), &clock, 1 << 20);
        let cache = open(&device, &clock, Fill::Sector).await;
        let volume = attach(&cache, &memory(6), Mode::WriteBack).await;
        put(&volume, 1 << 20, sectors(1, 1), true).await;
        let (first, began) = (volume.clone(), clock.now());
        tokio::spawn(async move { first.write_at(0, sectors(2, 1), false).await });
        clock.sleep(SLOW / 2).await;
        put(&volume, 0, sectors(3, 1), false).await;
        assert!(clock.now().0 - began.0 >= SLOW.as_nanos() as u64);
        cache.abandon();
    });
}

/// A block that is dirty again while it is being cleaned is not cleaned a second time
/// before the first one has ended: the first would call the second's sectors clean.
#[test]
fn a_block_is_cleaned_once_at_a_time() {
    virtual_time::run(1, |clock| async move {
        let (cache, volume) = written_before_slow_flushes(&clock, Mode::WriteBack).await;
        let began = clock.now();
        let cleaned = volume.clone();
        let first = tokio::spawn(async move { cleaned.clean().await });
        clock.sleep(SLOW / 2).await;
        put(&volume, 0, sectors(2, 8), false).await;
        volume.clean().await.expect("it cleans");
        first.await.expect("it ends").expect("it cleans");
        let took = clock.now().0 - began.0;
        assert!(
            took >= 2 * SLOW.as_nanos() as u64,
            "two flushes, one after the other"
        );
        cache.abandon();
    });
}

/// A flush must not be acknowledged while an earlier one, which covers its writes, runs.
#[test]
fn a_flush_waits_for_one_that_runs() {
    virtual_time::run(1, |clock| async move {
        let (cache, volume) = written_before_slow_flushes(&clock, Mode::WriteThrough).await;
        let (first, began) = (volume.clone(), clock.now());
        tokio::spawn(async move { first.flush().await });
        clock.sleep(SLOW / 2).await;
        volume.flush().await.expect("it flushes");
        assert!(clock.now().0 - began.0 >= SLOW.as_nanos() as u64);
        cache.abandon();
    });
}

/// Without maps of sectors the first write to a clean block makes all of it dirty: a
/// write to other sectors relies on its record.
#[test]
fn a_write_waits_for_the_one_that_makes_its_block_dirty() {
    virtual_time::run(1, |clock| async move {
        let device = memory(4);
        let slow = slow(device, &clock, u64::MAX);
        let cache = open(&slow, &clock, Fill::Fetch).await;
        let volume = attach(&cache, &memory(6), Mode::WriteBack).await;
        put(&volume, 1 << 20, sectors(1, 1), true).await;
        volume.read_at(0, 8 * 512).await.expect("it reads");
        clock.sleep(SLOW * 3).await;
        let (first, began) = (volume.clone(), clock.now());
        tokio::spawn(async move { first.write_at(0, sectors(2, 1), false).await });
        clock.sleep(SLOW / 2).await;
        put(&volume, 512, sectors(3, 1), false).await;
        assert!(clock.now().0 - began.0 >= 2 * SLOW.as_nanos() as u64);
        cache.abandon();
    });
}
