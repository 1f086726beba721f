//! Arrays of several drives: which drives belong to one, before and after failures.

use std::sync::Arc;
use std::time::Duration;

use floe_core::Geometry;
use floe_device::array::{ArrayError, ArrayOptions, Candidate, DriveStanding};
use floe_device::conformance::{self, pattern};
use floe_device::{
    Address, Array, Clock, Device, DeviceErrorKind, Faults, Faulty, IoBuf, MemoryDevice,
    OpenDeviceError, Placement, PowerSwitch, SharedDevice, WriteCache, ZoneId, ZoneState,
    virtual_time,
};

const BLOCK: usize = 4096;
const HERE: Placement = Placement(0);

fn geometry(zoned: bool) -> Geometry {
    Geometry {
        block_size: BLOCK as u32,
        zone_size: 1 << 20,
        zone_capacity: 768 << 10,
        zone_count: 9,
        max_open_zones: zoned.then_some(6),
        max_active_zones: zoned.then_some(7),
        max_append_bytes: 64 << 10,
        random_writes: !zoned,
        native_append: zoned,
        placement_handles: 0,
    }
}

/// A drive that can fail, lose power and be restarted.
struct Drive {
    power: PowerSwitch,
    faulty: Arc<Faulty>,
}

impl Drive {
    fn new(clock: &Clock) -> Self {
        let cache = WriteCache::Volatile {
            bytes_max: 16 << 20,
        };
        let (device, power) = MemoryDevice::with_power(geometry(false), cache);
        Drive {
            power,
            faulty: wrapped(device, clock),
        }
    }

    /// It fails every operation from now on.
    fn break_down(&self) {
        self.faulty.set(Faults {
            fail_after: Some(0),
            ..Faults::default()
        });
    }

    /// A restart, after which the drive works.
    fn restart(&mut self, clock: &Clock) {
        self.faulty = wrapped(self.power.reopen(), clock);
    }

    fn candidate(&self, name: usize) -> Candidate {
        Candidate {
            name: name.to_string(),
            opened: Ok(self.faulty.clone()),
        }
    }
}

fn wrapped(device: SharedDevice, clock: &Clock) -> Arc<Faulty> {
    Arc::new(Faulty::new(device, clock.clone(), 1, Faults::default()))
}

/// Drives of one machine.
struct Shelf(Vec<Drive>, Clock);

impl Shelf {
    fn new(drives: usize, clock: &Clock) -> Self {
        let drives = (0..drives).map(|_| Drive::new(clock)).collect();
        Shelf(drives, clock.clone())
    }

    async fn open(&self, numbers: &[usize]) -> Result<Array, OpenDeviceError> {
        self.open_as(numbers, ArrayOptions::default()).await
    }

    async fn open_as(
        &self,
        numbers: &[usize],
        options: ArrayOptions,
    ) -> Result<Array, OpenDeviceError> {
        let missing = |number: usize| Candidate {
            name: number.to_string(),
            opened: Err(OpenDeviceError::NotFound(number.to_string().into())),
        };
        // Drives that are not named are missing.
        let candidates = (0..self.0.len()).map(|number| match numbers.contains(&number) {
            true => self.0[number].candidate(number),
            false => missing(number),
        });
        let options = ArrayOptions {
            seed: Some(self.1.now().0),
            ..options
        };
        Array::open(candidates.collect(), options, &self.1).await
    }

    fn restart(&mut self) {
        for drive in &mut self.0 {
            drive.restart(&self.1);
        }
    }
}

/// New drives with an array.
async fn begun(drives: usize, clock: &Clock) -> (Shelf, Array) {
    let shelf = Shelf::new(drives, clock);
    let all: Vec<_> = (0..drives).collect();
    let array = shelf.open(&all).await.unwrap();
    begin(&array, 1).await;
    (shelf, array)
}

/// Begins both metadata zones anew, as every engine does when it opens.
async fn begin(array: &Array, tag: u64) {
    for zone in [ZoneId(0), ZoneId(1)] {
        array.reset(zone).await.unwrap();
        array.append(zone, pattern(tag, BLOCK), HERE).await.unwrap();
        array.flush().await.unwrap();
    }
}

async fn read(array: &Array, zone: u32) -> IoBuf {
    let at = Address::new(ZoneId(zone), 0);
    array.read(at, array.allocate(BLOCK)).await.unwrap()
}

fn standings(array: &Array) -> Vec<DriveStanding> {
    array.drives().iter().map(|drive| drive.standing).collect()
}

use DriveStanding::{Dropped, Joining, Live};

#[test]
fn arrays_conform() {
    for (drives, zoned) in [(1, true), (2, false), (3, true), (4, false)] {
        let runtimes = [
            tokio::runtime::Builder::new_current_thread(),
            tokio::runtime::Builder::new_multi_thread(),
        ];
        for mut runtime in runtimes {
            runtime.enable_all().build().unwrap().block_on(async {
                let candidate = |number: usize| Candidate {
                    name: number.to_string(),
                    opened: Ok(Arc::new(MemoryDevice::new(geometry(zoned)))),
                };
                let candidates = (0..drives).map(candidate).collect();
                let options = ArrayOptions::default();
                let array = Array::open(candidates, options, &Clock::real()).await;
                let array: SharedDevice = Arc::new(array.unwrap());
                assert_eq!(array.geometry().zone_count as usize, 2 + 5 * drives);
                conformance::check(&array).await;
            });
        }
    }
}

#[test]
fn every_drive_has_the_metadata_and_its_own_values() {
    virtual_time::run(1, |clock| async move {
        let (mut shelf, array) = begun(3, &clock).await;
        for zone in 2..8 {
            array.reset(ZoneId(zone)).await.unwrap();
            let value = pattern(zone.into(), BLOCK);
            array.append(ZoneId(zone), value, HERE).await.unwrap();
        }
        array.flush().await.unwrap();
        // Each block of metadata counts once for each drive.
        let written = array.counters().snapshot().append_bytes as usize;
        assert_eq!(written, (2 * 3 + 6) * BLOCK);
        drop(array);
        shelf.restart();
        // The order of the paths does not matter.
        shelf.0.swap(0, 2);
        let array = shelf.open(&[0, 1, 2]).await.unwrap();
        for zone in 2..8 {
            assert!(*read(&array, zone).await == *pattern(zone.into(), BLOCK));
        }
        for drive in 0..3 {
            drop(read(&array, 0).await);
            let alone = &shelf.0[drive].faulty;
            for copy in [ZoneId(2), ZoneId(3)] {
                let at = Address::new(copy, 0);
                let bytes = alone.read(at, IoBuf::zeroed(BLOCK)).await.unwrap();
                assert!(*bytes == *pattern(1, BLOCK));
            }
        }
    });
}

#[test]
fn a_drive_that_fails_is_dropped_and_stays_dropped() {
    virtual_time::run(1, |clock| async move {
        let (mut shelf, array) = begun(3, &clock).await;
        shelf.0[1].break_down();
        begin(&array, 3).await;
        assert_eq!(standings(&array), [Live, Dropped, Live]);
        // Its zones are offline, the others work.
        let report = array.report().await.unwrap();
        for zone in 2..array.geometry().zone_count {
            let is_offline = report[zone as usize].state == ZoneState::Offline;
            assert_eq!(is_offline, (zone - 2) % 3 == 1, "zone {zone}");
            let reset = array.reset(ZoneId(zone)).await;
            assert_eq!(reset.is_err(), is_offline, "zone {zone}");
        }
        drop(array);
        // The drive works again, but its content is old.
        shelf.restart();
        let array = shelf.open(&[0, 1, 2]).await.unwrap();
        assert_eq!(standings(&array), [Live, Dropped, Live]);
        assert!(*read(&array, 0).await == *pattern(3, BLOCK));
        drop(array);
        // Without one of the two that are left, nothing opens.
        for few in [&[1][..], &[1, 0][..], &[0][..]] {
            shelf.restart();
            let refused = shelf.open(few).await.unwrap_err();
            assert!(
                matches!(
                    refused,
                    OpenDeviceError::Array(ArrayError::Incomplete { .. })
                ),
                "{refused}"
            );
        }
        // The one that was dropped is not needed.
        shelf.restart();
        let array = shelf.open(&[0, 2]).await.unwrap();
        assert_eq!(standings(&array), [Live, Dropped, Live]);
    });
}

#[test]
fn a_failure_that_may_pass_drops_a_drive_when_it_does_not() {
    virtual_time::run(1, |clock| async move {
        let (shelf, array) = begun(2, &clock).await;
        shelf.0[1].power.crash(1);
        let append = || array.append(ZoneId(0), pattern(2, BLOCK), HERE);
        append().await.unwrap_err();
        assert_eq!(standings(&array), [Live; 2]);
        // The copies differ now, so the zone takes nothing more.
        let kind = append().await.unwrap_err().kind;
        assert!(matches!(kind, DeviceErrorKind::Invalid(_)), "{kind}");
        assert!(*read(&array, 0).await == *pattern(1, BLOCK));
        array.reset(ZoneId(0)).await.unwrap_err();
        clock.sleep(Duration::from_secs(31)).await;
        begin(&array, 3).await;
        assert_eq!(standings(&array), [Live, Dropped]);
    });
}

#[test]
fn all_drives_but_one_may_fail() {
    virtual_time::run(1, |clock| async move {
        let (mut shelf, array) = begun(2, &clock).await;
        shelf.0[0].break_down();
        array.flush().await.unwrap();
        begin(&array, 2).await;
        assert_eq!(standings(&array), [Dropped, Live]);
        drop(array);
        shelf.restart();
        // The one that failed does not know, so it must not open alone.
        shelf.open(&[0]).await.unwrap_err();
        shelf.restart();
        let array = shelf.open(&[1]).await.unwrap();
        assert!(*read(&array, 0).await == *pattern(2, BLOCK));
        shelf.0[1].break_down();
        array.flush().await.unwrap_err();
        array.flush().await.unwrap_err();
        drop(array);

        // Two of three fail at the same time: the one that is left goes on.
        let (mut shelf, array) = begun(3, &clock).await;
        for number in [0, 2] {
            shelf.0[number].break_down();
        }
        begin(&array, 2).await;
        assert_eq!(standings(&array), [Dropped, Live, Dropped]);
        drop(array);
        shelf.restart();
        // The others do not know.
        assert!(shelf.open(&[0, 2]).await.is_err());
        let array = shelf.open(&[0, 1, 2]).await.unwrap();
        assert!(*read(&array, 0).await == *pattern(2, BLOCK));
        shelf.0[1].break_down();
        array.flush().await.unwrap_err();
    });
}

#[test]
fn a_blank_drive_takes_the_place_of_a_dropped_one() {
    virtual_time::run(1, |clock| async move {
        let (mut shelf, array) = begun(3, &clock).await;
        array
            .append(ZoneId(2), pattern(9, BLOCK), HERE)
            .await
            .unwrap();
        shelf.0[2].break_down();
        array.flush().await.unwrap();
        drop(array);
        shelf.restart();
        shelf.0[2] = Drive::new(&clock);
        let array = shelf.open(&[0, 1, 2]).await.unwrap();
        assert_eq!(standings(&array), [Live, Live, Joining]);
        // Its zones for values are usable at once.
        array
            .append(ZoneId(4), pattern(9, BLOCK), HERE)
            .await
            .unwrap();
        array.reset(ZoneId(0)).await.unwrap();
        array
            .append(ZoneId(0), pattern(2, BLOCK), HERE)
            .await
            .unwrap();
        array.flush().await.unwrap();
        assert_eq!(
            standings(&array),
            [Live, Live, Joining],
            "zone 1 is not copied"
        );
        begin(&array, 3).await;
        assert_eq!(standings(&array), [Live; 3]);
        drop(array);
        shelf.restart();
        let array = shelf.open(&[0, 1, 2]).await.unwrap();
        shelf.0[0].break_down();
        shelf.0[1].break_down();
        begin(&array, 4).await;
        assert_eq!(standings(&array), [Dropped, Dropped, Live]);
        drop(array);
        // A drive that did not become live is blank again.
        shelf.restart();
        shelf.0[1] = Drive::new(&clock);
        for _ in 0..2 {
            let array = shelf.open(&[0, 1, 2]).await.unwrap();
            assert_eq!(standings(&array), [Joining, Dropped, Live]);
            assert!(*read(&array, 0).await == *pattern(4, BLOCK));
            drop(array);
            shelf.restart();
        }
    });
}

#[test]
fn other_drives_are_refused() {
    virtual_time::run(1, |clock| async move {
        let mut shelf = Shelf::new(2, &clock);
        begin(&shelf.open(&[0, 1]).await.unwrap(), 1).await;
        shelf.restart();
        // Of another array.
        let mut other = Shelf::new(2, &clock);
        let options = ArrayOptions {
            seed: Some(8),
            ..ArrayOptions::default()
        };
        let candidates = (0..2).map(|number| other.0[number].candidate(number));
        drop(
            Array::open(candidates.collect(), options, &clock)
                .await
                .unwrap(),
        );
        other.restart();
        std::mem::swap(&mut shelf.0[1], &mut other.0[1]);
        let mixed = shelf.open(&[0, 1]).await.unwrap_err();
        assert!(
            matches!(mixed, OpenDeviceError::Array(ArrayError::Mixed { .. })),
            "{mixed}"
        );
        // With foreign data.
        let foreign = Shelf::new(1, &clock);
        let device = &foreign.0[0].faulty;
        device.reset(ZoneId(0)).await.unwrap();
        device
            .append(ZoneId(0), pattern(1, BLOCK), HERE)
            .await
            .unwrap();
        let refused = foreign.open(&[0]).await.unwrap_err();
        assert!(
            matches!(refused, OpenDeviceError::Array(ArrayError::NotBlank { .. })),
            "{refused}"
        );
        // With consent, either becomes an array.
        let format = ArrayOptions {
            format: true,
            ..ArrayOptions::default()
        };
        for shelf in [shelf, foreign] {
            let all: Vec<_> = (0..shelf.0.len()).collect();
            let array = shelf.open_as(&all, format).await.unwrap();
            assert!(read(&array, 0).await.iter().all(|byte| *byte == 0));
        }
        // Whose labels were written with other zones, even with consent.
        let at = Address::new(ZoneId(0), 0);
        let label = other.0[0].faulty.read(at, IoBuf::zeroed(BLOCK)).await;
        let device = MemoryDevice::new(Geometry {
            zone_size: 2 << 20,
            ..geometry(false)
        });
        let label = label.unwrap().freeze();
        device.append(ZoneId(0), label, HERE).await.unwrap();
        let candidate = Candidate {
            name: "larger".to_owned(),
            opened: Ok(Arc::new(device)),
        };
        let opened = Array::open(vec![candidate], format, &clock).await;
        assert!(matches!(
            opened.unwrap_err(),
            OpenDeviceError::Array(ArrayError::OtherZones { .. })
        ));
        // Another number of drives.
        let shelf = Shelf::new(2, &clock);
        begin(&shelf.open(&[0, 1]).await.unwrap(), 1).await;
        let one = vec![shelf.0[0].candidate(0)];
        let opened = Array::open(one, ArrayOptions::default(), &clock).await;
        assert!(matches!(
            opened.unwrap_err(),
            OpenDeviceError::Array(ArrayError::OtherCount { of: 2, named: 1 })
        ));
    });
}

/// Of two drives, one was dropped, came back blank, and stayed when the other was dropped. So
/// the dropped one has an older label by which it was the array alone.
async fn alone_one_after_the_other(clock: &Clock) -> Shelf {
    let (mut shelf, array) = begun(2, clock).await;
    shelf.0[1].break_down();
    begin(&array, 2).await;
    drop(array);
    shelf.restart();
    shelf.0[1] = Drive::new(clock);
    let array = shelf.open(&[0, 1]).await.unwrap();
    begin(&array, 3).await;
    shelf.0[0].break_down();
    begin(&array, 4).await;
    assert_eq!(standings(&array), [Dropped, Live]);
    drop(array);
    shelf.restart();
    shelf
}

/// Wherever a drive loses power while an array is made anew, what opens is the last state or
/// nothing.
#[test]
fn an_interrupted_format_brings_nothing_old_back() {
    let (mut last, mut blank, mut refused) = (0, 0, 0);
    for case in 0..12 {
        let (failing, is_swapped, seed) = (case % 2, case / 2 % 2 == 1, case as u64 / 4);
        // To read the labels of a drive takes 128 operations.
        for operations in 128.. {
            let (has_ended, outcome) = virtual_time::run(seed, move |clock| async move {
                let mut shelf = alone_one_after_the_other(&clock).await;
                if is_swapped {
                    shelf.0.swap(0, 1);
                }
                shelf.0[failing].power.crash_after(operations, seed);
                clock.sleep(Duration::from_secs(1)).await;
                let options = ArrayOptions {
                    format: true,
                    ..ArrayOptions::default()
                };
                let has_ended = shelf.open_as(&[0, 1], options).await.is_ok()
                    && !shelf.0[failing].power.is_off();
                shelf.0.iter().for_each(|drive| drive.power.crash(seed));
                shelf.restart();
                let opened = shelf.open(&[0, 1]).await;
                if let Err(OpenDeviceError::Array(ArrayError::Incomplete { .. })) = opened {
                    return (has_ended, None);
                }
                let array = opened.unwrap();
                let zones = [read(&array, 0).await, read(&array, 1).await];
                let is_last = zones.iter().all(|zone| **zone == *pattern(4, BLOCK));
                let is_blank = zones.iter().all(|zone| zone.iter().all(|byte| *byte == 0));
                assert!(
                    is_last || is_blank,
                    "case {case}, after {operations} operations"
                );
                (has_ended, Some(is_last))
            });
            match outcome {
                Some(true) => last += 1,
                Some(false) => blank += 1,
                None => refused += 1,
            }
            if has_ended {
                break;
            }
        }
    }
    assert!(
        last > 10 && blank > 10 && refused > 10,
        "{last}, {blank}, {refused}"
    );
}

/// An array that opens has the metadata of the last acknowledged write, or of a later one.
#[test]
fn power_losses_and_failures_never_bring_old_metadata_back() {
    let mut acknowledged = 0;
    for seed in 0..400 {
        acknowledged += virtual_time::run(seed, move |clock| one_life_after_another(seed, clock));
    }
    assert!(acknowledged > 1000, "{acknowledged} writes");
}

/// Returns how often metadata was acknowledged.
async fn one_life_after_another(seed: u64, clock: Clock) -> u64 {
    use rand::{RngExt as _, SeedableRng as _};
    let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
    let count = random.random_range(1..=4);
    let mut shelf = Shelf::new(count, &clock);
    // The newest content of zone 0 that was acknowledged, and that was requested.
    let (mut acknowledged, mut requested) = (0, 0);
    let mut times = 0;
    for _ in 0..12 {
        let there: Vec<_> = (0..count).filter(|_| random.random_bool(0.93)).collect();
        let by = random.random_range(0..count);
        shelf.0.rotate_left(by);
        // To read the labels of a drive takes 128 operations.
        let cut = random.random_range(100..260);
        for (number, drive) in shelf.0.iter().enumerate() {
            // All lose power at about the same time, some fail before.
            drive.power.crash_after(cut + number as u64 % 2, seed);
            if random.random_bool(0.15) {
                drive.faulty.set(Faults {
                    fail_after: Some(random.random_range(0..260)),
                    ..Faults::default()
                });
            }
        }
        clock.sleep(Duration::from_secs(1)).await;
        if let Ok(array) = shelf.open(&there).await {
            if let Ok(found) = array
                .read(Address::new(ZoneId(0), 0), IoBuf::zeroed(BLOCK))
                .await
            {
                let is = |tag: u64| match tag {
                    0 => found.iter().all(|byte| *byte == 0),
                    tag => *found == *pattern(tag, BLOCK),
                };
                // Zeros: a reset whose append was not acknowledged.
                let is_sound =
                    (acknowledged..=requested).any(is) || requested > acknowledged && is(0);
                assert!(is_sound, "seed {seed}: older than {acknowledged}");
            }
            for _ in 0..random.random_range(0..6) {
                requested += 1;
                let reset = array.reset(ZoneId(0)).await;
                let data = pattern(requested, BLOCK);
                let appended = match reset {
                    Ok(()) => array.append(ZoneId(0), data, HERE).await.is_ok(),
                    Err(_) => false,
                };
                // As an engine that opens: the other zone too.
                let other = array.reset(ZoneId(1)).await.is_ok();
                if appended && other && array.flush().await.is_ok() {
                    acknowledged = requested;
                    times += 1;
                }
            }
        }
        for drive in &shelf.0 {
            drive.power.crash(seed);
        }
        shelf.restart();
    }
    times
}
