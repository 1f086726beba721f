//! Crash images from a recording of block devices.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use floe_core::ByteSize;
use floe_device::block::history::{Choice, History, Image};
use floe_device::{Clock, Faults, Faulty, IoBuf, IoData, SharedBlockDevice, virtual_time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const SECTOR: usize = 512;
const SIZE: ByteSize = ByteSize::kib(512);

fn run<T>(main: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.build().unwrap().block_on(main)
}

fn filled(byte: u8, sectors: usize) -> IoData {
    let mut buf = IoBuf::zeroed(sectors * SECTOR);
    buf.fill(byte);
    buf.freeze()
}

/// The first byte of each of the first sectors.
async fn sectors(image: &Image, count: usize) -> Vec<u8> {
    let buf = IoBuf::zeroed((count * SECTOR).next_multiple_of(4096));
    let found = image.device().read(0, buf).await.unwrap();
    found
        .chunks(SECTOR)
        .take(count)
        .map(|sector| sector[0])
        .collect()
}

fn blank() -> Image {
    Image::blank(SIZE, 4096).unwrap()
}

fn recorded() -> (History, SharedBlockDevice) {
    let history = History::default();
    let device = history.record(blank().device(), &blank());
    (history, device)
}

/// All contents of the first sectors of a device at a point.
async fn outcomes(history: &History, point: usize, count: usize) -> BTreeSet<Vec<u8>> {
    let mut replay = history.replay();
    let mut choice = Choice::exhaustive(10);
    let mut outcomes = BTreeSet::new();
    loop {
        let images = replay.images(point, &mut choice);
        outcomes.insert(sectors(&images[0], count).await);
        if !choice.next_combination() {
            return outcomes;
        }
    }
}

#[test]
fn an_unflushed_write_tears_into_every_combination_of_sectors() {
    run(async {
        let (history, device) = recorded();
        device.write(0, filled(7, 8)).await.unwrap();
        for point in [1, 2] {
            let outcomes = outcomes(&history, point, 8).await;
            assert_eq!(outcomes.len(), 256, "in flight and completed alike");
            assert!(outcomes.contains(&vec![0; 8]) && outcomes.contains(&vec![7; 8]));
        }
        assert_eq!(outcomes(&history, 0, 8).await.len(), 1);
    });
}

#[test]
fn a_flushed_write_survives_and_an_unflushed_one_may_be_dropped() {
    run(async {
        let (history, device) = recorded();
        device.write(0, filled(1, 8)).await.unwrap();
        device.flush().await.unwrap();
        device.write(0, filled(2, 8)).await.unwrap();
        let mut replay = history.replay();
        let end = *replay.points().end();
        let lost = replay.images(end, &mut Choice::Nothing);
        assert_eq!(sectors(&lost[0], 9).await, [1, 1, 1, 1, 1, 1, 1, 1, 0]);
        let kept = replay.images(end, &mut Choice::All);
        assert_eq!(sectors(&kept[0], 8).await, [2; 8]);
        // Back to the time before the flush completed.
        let lost = replay.images(3, &mut Choice::Nothing);
        assert_eq!(sectors(&lost[0], 8).await, [0; 8]);
    });
}

/// A device whose operations stay in flight for a while.
fn slow(history: &History, clock: &Clock) -> SharedBlockDevice {
    let faults = Faults {
        delays: 1.0,
        delay_max: Duration::from_micros(100),
        ..Faults::default()
    };
    let slow = Faulty::new(blank().device(), clock.clone(), 1, faults);
    history.record(Arc::new(slow), &blank())
}

#[test]
fn a_flush_makes_stable_only_what_had_completed_when_it_started() {
    virtual_time::run(1, |clock| async move {
        let history = History::default();
        let device = slow(&history, &clock);
        device.write(0, filled(1, 8)).await.unwrap();
        let flush = device.flush();
        let late = device.write(4096, filled(2, 8));
        // The flush is in flight: nothing is stable.
        let mut replay = history.replay();
        assert_eq!(replay.undecided(4, 0), 2);
        let (flush, late) = tokio::join!(flush, late);
        flush.unwrap();
        late.unwrap();
        let mut replay = history.replay();
        assert_eq!(replay.undecided(6, 0), 1, "the later write may be lost");
        let lost = replay.images(6, &mut Choice::Nothing);
        assert_eq!(sectors(&lost[0], 9).await, [1, 1, 1, 1, 1, 1, 1, 1, 0]);
    });
}

#[test]
fn a_failed_or_abandoned_operation_may_happen_at_any_time() {
    run(async {
        let (history, device) = recorded();
        drop(device.write(0, filled(1, 8)));
        device.flush().await.unwrap();
        let mut replay = history.replay();
        let end = *replay.points().end();
        assert_eq!(replay.undecided(end, 0), 1);
    });
}

#[test]
fn zeros_and_discards_are_undecided_too() {
    run(async {
        let content = {
            let (history, device) = recorded();
            device.write(0, filled(5, 16)).await.unwrap();
            device.flush().await.unwrap();
            let mut replay = history.replay();
            let end = *replay.points().end();
            replay.images(end, &mut Choice::Nothing).remove(0)
        };
        let history = History::default();
        let device = history.record(content.device(), &content);
        device.write_zeroes(0..4096).await.unwrap();
        device.discard(4096..8192).await.unwrap();
        let mut replay = history.replay();
        let end = *replay.points().end();
        let lost = replay.images(end, &mut Choice::Nothing);
        assert_eq!(sectors(&lost[0], 16).await, [5; 16]);
        let kept = replay.images(end, &mut Choice::All);
        assert_eq!(sectors(&kept[0], 16).await, [0; 16]);
    });
}

#[test]
fn images_of_ascending_points_equal_images_built_afresh() {
    run(async {
        let (history, device) = recorded();
        let devices = [device, history.record(blank().device(), &blank())];
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for byte in 0..200_u32 {
            let device = &devices[random.random_range(0..2)];
            let blocks = random.random_range(1..=8);
            let at = random.random_range(0..=128 - blocks) * 4096;
            match random.random_range(0..10) {
                0 => device.flush().await.unwrap(),
                1 => device.write_zeroes(at..at + blocks * 4096).await.unwrap(),
                _ => {
                    let data = filled(byte as u8, blocks as usize * 8);
                    device.write(at, data).await.unwrap();
                }
            }
        }
        let mut ascending = history.replay();
        for point in ascending.points() {
            let images = ascending.images(point, &mut Choice::random(point as u64));
            if point % 10 == 0 {
                let afresh = history
                    .replay()
                    .images(point, &mut Choice::random(point as u64));
                for (image, afresh) in images.iter().zip(&afresh) {
                    assert_eq!(sectors(image, 1024).await, sectors(afresh, 1024).await);
                }
            }
        }
    });
}
