//! Devices that become larger or smaller, and crashes meanwhile.

use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use floe_device::{
    BlockDevice, Counters, DeviceError, DeviceErrorKind, IoBuf, IoData, OpFuture, Operation,
    PowerGroup, virtual_time,
};
use futures::future::{join, join3};

use super::faults::{SLOW, slow};
use super::seeds::is_full;
use super::*;
use crate::volume::table::Boot;

const MIB: u64 = 1 << 20;

/// Bytes that a device has when it is asked. Clones share them.
type Size = Arc<AtomicU64>;

/// The first bytes of a device.
#[derive(Debug)]
struct Part {
    below: SharedBlockDevice,
    /// Of the medium, and of the device.
    medium: Size,
    size: AtomicU64,
}

impl Part {
    fn of(below: &SharedBlockDevice, medium: &Size) -> SharedBlockDevice {
        Arc::new(Part {
            below: Arc::clone(below),
            medium: Arc::clone(medium),
            size: AtomicU64::new(medium.load(SeqCst)),
        })
    }

    fn has(&self, end: u64) -> bool {
        end <= self.medium.load(SeqCst)
    }
}

fn past_end<T: Send + 'static>(operation: Operation) -> OpFuture<T> {
    let kind = DeviceErrorKind::Invalid("past the end of the medium".to_owned());
    OpFuture::ready(Err(DeviceError::new(operation, None, kind)))
}

impl BlockDevice for Part {
    fn size_bytes(&self) -> u64 {
        self.size.load(SeqCst)
    }

    fn refresh_size(&self) -> OpFuture<u64> {
        let size = self.medium.load(SeqCst);
        self.size.store(size, SeqCst);
        OpFuture::ready(Ok(size))
    }

    fn set_size(&self, size: u64, _: bool) -> OpFuture<()> {
        self.medium.store(size, SeqCst);
        self.size.store(size, SeqCst);
        OpFuture::ready(Ok(()))
    }

    fn block_bytes(&self) -> u32 {
        self.below.block_bytes()
    }

    fn describe(&self) -> String {
        "a part".to_owned()
    }

    fn read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf> {
        match self.has(at + buf.len() as u64) {
            true => self.below.read(at, buf),
            false => past_end(Operation::Read),
        }
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        match self.has(at + data.len() as u64) {
            true => self.below.write(at, data),
            false => past_end(Operation::Write),
        }
    }

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        match self.has(range.end) {
            true => self.below.write_zeroes(range),
            false => past_end(Operation::WriteZeroes),
        }
    }

    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        self.below.discard(range)
    }

    fn flush(&self) -> OpFuture<()> {
        self.below.flush()
    }

    fn counters(&self) -> &Counters {
        self.below.counters()
    }
}

/// A cache and its volume, on devices whose power can fail.
struct Rig {
    clock: Clock,
    power: PowerGroup,
    devices: Vec<SharedBlockDevice>,
    cache_size: Size,
    backing_size: Size,
    fill: Fill,
    mode: Mode,
    checksums: bool,
    boot: u8,
}

impl Rig {
    fn new(clock: &Clock, fill: Fill, mode: Mode) -> Self {
        let power = PowerGroup::default();
        let add = |mib| power.add(ByteSize::mib(mib), 512).expect("a device");
        Rig {
            clock: clock.clone(),
            devices: vec![add(16), add(24)],
            power,
            cache_size: Arc::new(AtomicU64::new(5 * MIB)),
            backing_size: Arc::new(AtomicU64::new(16 * MIB)),
            fill,
            mode,
            checksums: false,
            boot: 0,
        }
    }

    async fn open(&self) -> (VolumeCache, Volume) {
        let (cache, volume) = self.try_open().await;
        (cache, volume.expect("it attaches"))
    }

    async fn try_open(&self) -> (VolumeCache, Result<Volume, OpenVolumesError>) {
        let device = Part::of(&self.devices[0], &self.cache_size);
        let clock = self.clock.clone();
        let settings = VolumeCacheConfig {
            checksums: self.checksums,
            ..config(self.fill)
        };
        let (boot, identity) = (Boot([self.boot; 16]), ([7; 16], 7));
        let opened = VolumeCache::open_as(device, None, clock, &settings, boot, identity).await;
        let cache = opened.expect("it opens");
        let config = VolumeConfig {
            mode: self.mode,
            ..VolumeConfig::default()
        };
        let backing = Part::of(&self.devices[1], &self.backing_size);
        let volume = cache.attach("disk", backing, &config).await;
        (cache, volume)
    }

    /// Fills bytes of the backing device that no volume has, durably.
    async fn fill_below(&self, range: Range<u64>, byte: u8) {
        let backing = &self.devices[1];
        let written = backing.write(range.start, bytes(&range, byte)).await;
        written.expect("the power is on");
        backing.flush().await.expect("the power is on");
    }

    /// Cuts the power if it is on, and restarts the devices.
    fn restart(&mut self, cache: &VolumeCache, oracle: &mut Oracle, seed: u64) {
        self.power.crash(seed);
        oracle.crash(true);
        cache.abandon();
        self.devices = self.power.restart();
        self.boot += 1;
    }
}

fn bytes(range: &Range<u64>, byte: u8) -> IoData {
    let mut buf = IoBuf::zeroed((range.end - range.start) as usize);
    buf.fill(byte);
    buf.freeze()
}

async fn write(volume: &Volume, range: Range<u64>, byte: u8) {
    let written = volume.write_at(range.start, bytes(&range, byte), false);
    written.await.expect("it writes");
}

/// Writes to `range` until it lies past the end.
async fn write_until_refused(volume: &Volume, range: Range<u64>) {
    loop {
        let written = volume.write_at(range.start, bytes(&range, 5), false).await;
        match written {
            Err(VolumeError::OutOfRange { .. }) => return,
            // The device may be smaller already.
            Ok(()) | Err(VolumeError::Backing(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Checks the last `len` bytes before `at`, and the first ones from there.
async fn check_around(volume: &Volume, at: u64, len: u64, (before, after): (u8, u8)) {
    let read = volume.read_at(at - len, 2 * len as usize).await;
    let read = read.expect("it reads");
    let (left, right) = read.split_at(len as usize);
    assert!(
        left.iter().all(|byte| *byte == before),
        "before {at}: {left:?}"
    );
    assert!(
        right.iter().all(|byte| *byte == after),
        "after {at}: {right:?}"
    );
}

/// Sizes within a block, and its end.
const SMALL: u64 = 14 * MIB + 7 * 512;
const MIDDLE: u64 = 15 * MIB + 9 * 512;
const LARGE: u64 = 20 * MIB;

#[test]
fn a_volume_grows_and_shrinks_while_it_serves() {
    let modes = [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround];
    for (seed, (mode, fill)) in (0..).zip(
        modes
            .into_iter()
            .flat_map(|mode| [Fill::Fetch, Fill::Sector].map(|fill| (mode, fill))),
    ) {
        virtual_time::run(seed, |clock| async move {
            let mut rig = Rig::new(&clock, fill, mode);
            rig.backing_size.store(MIDDLE, SeqCst);
            let (cache, volume) = rig.open().await;
            let mut oracle = Oracle::with_power_loss(12 * MIB, seed).slowed_by(&clock);
            oracle.run(&volume, 300, 8).await;
            write(&volume, MIDDLE - 1024..MIDDLE, 1).await;
            volume
                .prefetch(MIDDLE - 1024, 1024)
                .await
                .expect("it reads");
            rig.fill_below(MIDDLE..LARGE, 2).await;
            rig.backing_size.store(LARGE, SeqCst);
            let resize = cache.resize_volume("disk", None, false);
            let (size, _) = join(resize, oracle.run(&volume, 300, 8)).await;
            let grown = size.expect("it grows");
            assert_eq!(
                (grown.before, grown.now),
                (ByteSize(MIDDLE), ByteSize(LARGE))
            );
            assert_eq!(volume.size_bytes(), LARGE);
            check_around(&volume, MIDDLE, 1024, (1, 2)).await;

            write(&volume, SMALL - 1024..SMALL + 2048, 3).await;
            write(&volume, 18 * MIB..18 * MIB + 4096, 3).await;
            rig.backing_size.store(SMALL, SeqCst);
            if mode.makes_dirty() {
                let refused = cache.resize_volume("disk", None, false).await;
                assert!(matches!(refused, Err(ResizeError::DirtyPastEnd { .. })));
                assert_eq!(volume.size_bytes(), LARGE);
            }
            let resize = cache.resize_volume("disk", None, true);
            let past_end = write_until_refused(&volume, 18 * MIB..18 * MIB + 4096);
            let (size, ..) = join3(resize, oracle.run(&volume, 300, 8), past_end).await;
            assert_eq!(size.expect("it shrinks").now, ByteSize(SMALL));
            let past = volume.read_at(SMALL, 512).await;
            assert!(matches!(past, Err(VolumeError::OutOfRange { .. })));

            rig.fill_below(SMALL..LARGE, 4).await;
            rig.backing_size.store(LARGE, SeqCst);
            cache
                .resize_volume("disk", None, false)
                .await
                .expect("it grows");
            check_around(&volume, SMALL, 1024, (3, 4)).await;
            check_around(&volume, 18 * MIB, 4096, (4, 4)).await;
            oracle.verify(&volume).await;
            cache.close().await.expect("it closes");
            rig.boot += 1;
            let (_cache, volume) = rig.open().await;
            check_around(&volume, SMALL, 1024, (3, 4)).await;
            oracle.verify(&volume).await;
        });
    }
}

/// Requests that have begun end before the volume gets smaller.
#[test]
fn a_resizing_waits_for_requests() {
    virtual_time::run(1, |clock| async move {
        let device = slow(memory(6), &clock, u64::MAX);
        let cache = faults::open(&device, &clock, Fill::Fetch).await;
        let volume = faults::attach(&cache, &memory(8), Mode::WriteBack).await;
        let write = write(&volume, 6 * MIB..6 * MIB + 4096, 1);
        let resize = cache.resize_volume("disk", Some(ByteSize::mib(4)), true);
        let mut both = pin!(join(write, resize));
        tokio::select! {
            biased;
            _ = &mut both => panic!("the device is slow"),
            () = clock.sleep(SLOW / 2) => assert_eq!(volume.size_bytes(), 8 * MIB),
        }
        let ((), resized) = both.await;
        assert_eq!(resized.expect("it shrinks").now, ByteSize::mib(4));
        cache
            .resize_volume("disk", None, false)
            .await
            .expect("it grows");
        check_around(&volume, 6 * MIB, 4096, (0, 0)).await;
    });
}

#[test]
fn a_size_that_has_changed_since_is_found_when_a_volume_is_attached() {
    for (seed, is_clean) in [(0, true), (1, false)] {
        virtual_time::run(seed, |clock| async move {
            let mut rig = Rig::new(&clock, Fill::Fetch, Mode::WriteBack);
            rig.backing_size.store(MIDDLE, SeqCst);
            let (cache, volume) = rig.open().await;
            let mut oracle = Oracle::with_power_loss(12 * MIB, seed);
            oracle.run(&volume, 300, 8).await;
            write(&volume, MIDDLE - 1024..MIDDLE, 1).await;
            volume.flush().await.expect("it flushes");
            match is_clean {
                true => cache.close().await.expect("it closes"),
                false => rig.restart(&cache, &mut oracle, seed),
            }
            rig.fill_below(MIDDLE..LARGE, 2).await;
            rig.backing_size.store(LARGE, SeqCst);
            let (cache, volume) = rig.open().await;
            check_around(&volume, MIDDLE, 1024, (1, 2)).await;
            oracle.verify(&volume).await;
            cache.close().await.expect("it closes");
        });
    }
}

/// How a volume gets another size.
#[derive(Clone, Copy, Debug)]
struct Resizing {
    grows: bool,
    /// Floe changes the size of a file, which has changed otherwise.
    is_file: bool,
    /// Requests run meanwhile.
    requests: usize,
}

/// Cuts the power at the `operations`-th operation of a volume's resizing. Returns whether
/// that had not ended.
async fn resize_and_crash(clock: Clock, operations: u64, resizing: Resizing) -> bool {
    let Resizing { grows, is_file, .. } = resizing;
    let mut rig = Rig::new(&clock, Fill::Sector, Mode::WriteBack);
    let (from, to) = if grows {
        (MIDDLE, LARGE)
    } else {
        (LARGE, MIDDLE)
    };
    rig.backing_size.store(from, SeqCst);
    let (cache, volume) = rig.open().await;
    let mut oracle = Oracle::with_power_loss(12 * MIB, operations);
    oracle.run(&volume, 100, 8).await;
    write(&volume, MIDDLE - 1024..MIDDLE, 1).await;
    match grows {
        true => rig.fill_below(MIDDLE..LARGE, 2).await,
        false => write(&volume, MIDDLE..MIDDLE + 8192, 3).await,
    }
    volume.flush().await.expect("the power is on");
    let size = is_file.then_some(ByteSize(to));
    if !is_file {
        rig.backing_size.store(to, SeqCst);
    }
    rig.power.crash_after(operations, operations);
    let resize = cache.resize_volume("disk", size, true);
    let (resized, _) = join(resize, oracle.run(&volume, resizing.requests, 6)).await;
    rig.restart(&cache, &mut oracle, operations);
    if resized.is_ok() {
        assert_eq!(rig.backing_size.load(SeqCst), to, "the file has its size");
    }
    let (cache, volume) = match rig.try_open().await {
        (cache, Ok(volume)) => (cache, volume),
        // Dirty data was not dropped yet: the device gets its bytes back.
        (cache, Err(error)) => {
            assert!(!grows && matches!(error, OpenVolumesError::OtherBacking { .. }));
            cache.abandon();
            rig.backing_size.store(from, SeqCst);
            rig.open().await
        }
    };
    oracle.verify(&volume).await;
    let again = cache.resize_volume("disk", Some(ByteSize(to)), true).await;
    assert_eq!(again.expect("it is resized").now, ByteSize(to));
    assert_eq!(volume.size_bytes(), to);
    oracle.verify(&volume).await;
    if !grows {
        rig.fill_below(MIDDLE..LARGE, 2).await;
        rig.backing_size.store(LARGE, SeqCst);
        let grown = cache.resize_volume("disk", None, false).await;
        grown.expect("it grows");
    }
    check_around(&volume, MIDDLE, 1024, (1, 2)).await;
    resized.is_err()
}

#[test]
fn a_power_loss_at_any_operation_of_a_resizing_is_harmless() {
    for (grows, is_file) in [(true, false), (true, true), (false, false), (false, true)] {
        let crash = |operations, requests| {
            let resizing = Resizing {
                grows,
                is_file,
                requests,
            };
            virtual_time::run(operations, |clock| {
                resize_and_crash(clock, operations, resizing)
            })
        };
        let interrupted = (1..).take_while(|operations| crash(*operations, 0));
        let interrupted = interrupted.count();
        assert!(interrupted >= 4, "{interrupted} operations");
        for operations in (1..200).step_by(step(7)) {
            crash(operations, 200);
        }
    }
}

/// `sparse`, or 1 in a run of all points.
fn step(sparse: usize) -> usize {
    if is_full() { 1 } else { sparse }
}

/// A size that is given resizes a file, which loses data only if that is allowed.
#[test]
fn a_file_gets_the_size_of_its_volume() {
    virtual_time::run(1, |clock| async move {
        let rig = Rig::new(&clock, Fill::Fetch, Mode::WriteThrough);
        rig.backing_size.store(MIDDLE, SeqCst);
        let (cache, volume) = rig.open().await;
        let resize = |size, allow_loss| cache.resize_volume("disk", size, allow_loss);
        let wrong = resize(Some(ByteSize(MIDDLE + 1)), true).await;
        assert!(matches!(wrong, Err(ResizeError::NotWholeBlocks { .. })));
        let shrinks = resize(Some(ByteSize(SMALL)), false).await;
        assert!(matches!(shrinks, Err(ResizeError::Shrinks { .. })));
        let absent = cache.resize_volume("other", None, true).await;
        assert!(matches!(absent, Err(ResizeError::NotAttached(_))));
        for (size, allow_loss) in [(LARGE, false), (SMALL, true)] {
            let resized = resize(Some(ByteSize(size)), allow_loss).await;
            assert_eq!(resized.expect("it is resized").now, ByteSize(size));
            assert_eq!(volume.size_bytes(), size);
            assert_eq!(rig.backing_size.load(SeqCst), size);
        }
        let kept = resize(None, false).await.expect("it keeps its size");
        assert_eq!(kept.before, kept.now);
    });
}

/// Memory keeps its size: the volume can be smaller.
#[test]
fn a_volume_is_made_smaller_before_its_device() {
    run(async {
        let cache = VolumeCache::open(memory(6), Clock::real(), &config(Fill::Fetch)).await;
        let cache = cache.expect("it opens");
        let write_back = of_mode(Mode::WriteBack);
        let attached = cache.attach("disk", memory(8), &write_back);
        let volume = attached.await.expect("it attaches");
        let resize = |size| cache.resize_volume("disk", size, true);
        resize(Some(ByteSize::mib(4))).await.expect("it shrinks");
        assert_eq!(volume.size_bytes(), 4 * MIB);
        let larger = resize(Some(ByteSize::mib(9))).await;
        assert!(matches!(larger, Err(ResizeError::Fixed { .. })));
        let whole = resize(None).await.expect("it grows again");
        assert_eq!(whole.now, ByteSize::mib(8));
        let larger = cache.resize(Some(ByteSize::mib(9))).await;
        assert!(matches!(larger, Err(ResizeError::Fixed { .. })));
    });
}

#[test]
fn a_cache_grows_while_it_serves() {
    for (seed, mode) in (0..).zip([Mode::WriteBack, Mode::WriteThrough]) {
        virtual_time::run(seed, |clock| async move {
            let mut rig = Rig::new(&clock, Fill::Fetch, mode);
            rig.checksums = true;
            rig.backing_size.store(MIDDLE, SeqCst);
            let (cache, volume) = rig.open().await;
            let checksums = cache.stats().checksum_bytes;
            let mut oracle = Oracle::with_power_loss(MIDDLE, seed).slowed_by(&clock);
            oracle.run(&volume, 600, 8).await;
            let before = cache.stats().occupancy;
            for mib in [8, 9, 16] {
                rig.cache_size.store(mib * MIB, SeqCst);
                let (grown, _) = join(cache.resize(None), oracle.run(&volume, 300, 8)).await;
                let Resized { before, now } = grown.expect("it grows");
                assert!(before < now, "{before}, {now}");
                assert_eq!(cache.stats().occupancy.capacity_bytes, now.bytes());
                oracle.run(&volume, 600, 8).await;
                oracle.verify(&volume).await;
            }
            let scrubbed = cache.scrub(ByteSize(0)).await.expect("it is open");
            assert!(scrubbed.read_bytes > before.capacity_bytes, "{scrubbed:?}");
            assert_eq!(scrubbed.dropped_bytes + scrubbed.damaged_bytes, 0);
            assert!(cache.stats().checksum_bytes > 2 * checksums);
            let after = cache.stats().occupancy;
            assert!(after.bytes > 2 * before.bytes, "{before:?}, {after:?}");
            cache.close().await.expect("it closes");
            rig.boot += 1;
            let (cache, volume) = rig.open().await;
            cache.loaded().await.expect("it reads");
            assert_eq!(cache.stats().occupancy.bytes, after.bytes, "blocks stay");
            oracle.verify(&volume).await;
            // Nothing was added.
            let again = cache.resize(None).await.expect("it stays");
            assert_eq!(again.before, again.now);
            assert_eq!(again.now.bytes(), after.capacity_bytes);
        });
    }
}

#[test]
fn a_cache_does_not_shrink() {
    virtual_time::run(1, |clock| async move {
        let rig = Rig::new(&clock, Fill::Fetch, Mode::WriteBack);
        let (cache, volume) = rig.open().await;
        rig.cache_size.store(4 * MIB, SeqCst);
        let shrunk = cache.resize(None).await;
        assert!(matches!(
            shrunk,
            Err(ResizeError::CacheDoesNotShrink { .. })
        ));
        rig.cache_size.store(5 * MIB, SeqCst);
        let smaller = cache.resize(Some(ByteSize::mib(4))).await;
        assert!(matches!(
            smaller,
            Err(ResizeError::CacheDoesNotShrink { .. })
        ));
        cache.resize(None).await.expect("all is there");
        volume.flush().await.expect("it goes on");
    });
}

/// Cuts the power at the `operations`-th operation of a growth, alone or among requests.
/// Returns whether the growth had not ended.
async fn grow_and_crash(clock: Clock, operations: u64, is_alone: bool) -> bool {
    let mut rig = Rig::new(&clock, Fill::Sector, Mode::WriteBack);
    rig.checksums = operations.is_multiple_of(3);
    let (cache, volume) = rig.open().await;
    let mut oracle = Oracle::with_power_loss(16 * MIB, operations).slowed_by(&clock);
    oracle.run(&volume, 200, 8).await;
    // Now the table has the blocks, and not the log.
    cache.close().await.expect("it closes");
    let (cache, volume) = rig.open().await;
    oracle.run(&volume, 20, 8).await;
    if operations.is_multiple_of(2) {
        // The table is behind the places already.
        rig.cache_size.store(7 * MIB, SeqCst);
        cache.resize(None).await.expect("it grows");
        oracle.run(&volume, 200, 8).await;
    }
    rig.cache_size.store(12 * MIB, SeqCst);
    rig.power.crash_after(operations, operations);
    let requests = if is_alone { 0 } else { 300 };
    let (grown, _) = join(cache.resize(None), oracle.run(&volume, requests, 6)).await;
    rig.restart(&cache, &mut oracle, operations);
    let (cache, volume) = rig.open().await;
    oracle.verify(&volume).await;
    let grown_again = cache.resize(None).await.expect("it grows");
    assert!(grown_again.now > ByteSize::mib(9));
    oracle.run(&volume, 300, 8).await;
    oracle.verify(&volume).await;
    rig.restart(&cache, &mut oracle, operations);
    let (_cache, volume) = rig.open().await;
    oracle.verify(&volume).await;
    grown.is_err()
}

#[test]
fn a_power_loss_at_any_operation_of_a_growth_is_harmless() {
    let crash = |operations, is_alone| {
        virtual_time::run(operations, |clock| {
            grow_and_crash(clock, operations, is_alone)
        })
    };
    let interrupted = (1..).take_while(|operations| crash(*operations, true));
    assert!(interrupted.count() >= 6, "a growth has operations");
    for operations in (1..600).step_by(step(37)) {
        crash(operations, false);
    }
}
