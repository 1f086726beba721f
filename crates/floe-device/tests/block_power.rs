//! Power losses of block devices in memory: flushed data survives on all devices of a
//! group, and other data survives or not in units of 512 bytes.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use floe_core::ByteSize;
use floe_device::{DeviceErrorKind, IoBuf, PowerGroup, SharedBlockDevice};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const SECTOR: u64 = 512;
/// Two regions of the sparse memory, so that operations span both.
const SIZE: ByteSize = ByteSize::kib(512);

fn run<T>(main: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.build().unwrap().block_on(main)
}

/// Data in which each sector has its own number at both ends.
fn numbered(sectors: u64, number: &mut u64) -> IoBuf {
    let mut buf = IoBuf::zeroed((sectors * SECTOR) as usize);
    for sector in buf.chunks_mut(SECTOR as usize) {
        *number += 1;
        sector[..8].copy_from_slice(&number.to_le_bytes());
        sector[504..].copy_from_slice(&number.to_le_bytes());
    }
    buf
}

async fn numbers(device: &SharedBlockDevice) -> Vec<u64> {
    let buf = IoBuf::zeroed(SIZE.bytes() as usize);
    let all = device.read(0, buf).await.unwrap();
    let number = |sector: &[u8]| {
        assert_eq!(sector[..8], sector[504..], "sectors are whole");
        u64::from_le_bytes(sector[..8].try_into().unwrap())
    };
    all.chunks(SECTOR as usize).map(number).collect()
}

/// The numbers that each sector of a device may have, the stable one first.
#[derive(Default)]
struct Oracle(HashMap<u64, Vec<u64>>);

impl Oracle {
    fn allow(&mut self, sector: u64, number: u64) {
        self.0.entry(sector).or_insert(vec![0]).push(number);
    }

    fn flushed(&mut self) {
        for numbers in self.0.values_mut() {
            numbers.drain(..numbers.len() - 1);
        }
    }

    async fn check(&mut self, device: &SharedBlockDevice) {
        for (sector, number) in (0..).zip(numbers(device).await) {
            let allowed = self.0.entry(sector).or_insert(vec![0]);
            assert!(
                allowed.contains(&number),
                "{sector}: {number} of {allowed:?}"
            );
            *allowed = vec![number];
        }
    }

    async fn step(
        &mut self,
        device: &SharedBlockDevice,
        random: &mut Xoshiro256PlusPlus,
        number: &mut u64,
    ) {
        let block = u64::from(device.block_bytes());
        let blocks = random.random_range(1..=32 * 4096 / block);
        let at = random.random_range(0..=(SIZE.bytes() / block - blocks)) * block;
        let range = at..at + blocks * block;
        let sectors = range.start / SECTOR..range.end / SECTOR;
        match random.random_range(0..20) {
            0 => {
                device.flush().await.unwrap();
                self.flushed();
            }
            4 => {
                let data = numbered(sectors.end - sectors.start, number);
                let first = *number + 1 - (sectors.end - sectors.start);
                let written = device.write_durably(range.start, data.freeze());
                written.expect("memory has stable writes").await.unwrap();
                for (sector, number) in sectors.zip(first..) {
                    self.0.insert(sector, vec![number]);
                }
            }
            kind @ 1..=3 => {
                match kind {
                    1 => device.discard(range).await.unwrap(),
                    _ => device.write_zeroes(range).await.unwrap(),
                }
                sectors.for_each(|sector| self.allow(sector, 0));
            }
            _ => {
                let first = *number + 1;
                let data = numbered(sectors.end - sectors.start, number).freeze();
                device.write(at, data).await.unwrap();
                sectors
                    .zip(first..)
                    .for_each(|(sector, number)| self.allow(sector, number));
            }
        }
    }
}

#[test]
fn flushed_data_of_all_devices_survives() {
    for seed in 0..30 {
        run(async {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let group = PowerGroup::default();
            let mut devices = vec![
                group.add(SIZE, 4096).unwrap(),
                group.add(SIZE, 512).unwrap(),
                group.add(SIZE, 4096).unwrap(),
            ];
            let mut oracles: [Oracle; 3] = Default::default();
            let mut number = 0;
            for crash in 0..8 {
                for _ in 0..random.random_range(1..60) {
                    let chosen = random.random_range(0..3);
                    oracles[chosen]
                        .step(&devices[chosen], &mut random, &mut number)
                        .await;
                }
                group.crash(seed ^ crash);
                assert!(group.is_off());
                for device in &devices {
                    let gone = device.flush().await.unwrap_err();
                    assert!(matches!(gone.kind, DeviceErrorKind::Gone), "{gone}");
                }
                devices = group.restart();
                assert!(!group.is_off());
                for (oracle, device) in oracles.iter_mut().zip(&devices) {
                    oracle.check(device).await;
                }
            }
        });
    }
}

/// A device in a group of its own to which 32 KiB were written.
async fn written(block_bytes: u32) -> (PowerGroup, SharedBlockDevice) {
    let group = PowerGroup::default();
    let device = group.add(SIZE, block_bytes).unwrap();
    let data = numbered(64, &mut 0).freeze();
    device.write(0, data).await.unwrap();
    (group, device)
}

/// The numbers of the written sectors after a power loss.
async fn survivors(group: &PowerGroup, seed: u64) -> Vec<u64> {
    group.crash(seed);
    let mut left = numbers(&group.restart()[0]).await;
    left.truncate(64);
    left
}

#[test]
fn writes_tear_inside_of_blocks_by_seed() {
    let left = |seed| run(async move { survivors(&written(4096).await.0, seed).await });
    assert_eq!(left(1), left(1));
    let is_torn = |seed| {
        let blocks = left(seed);
        let is_torn = |block: &[u64]| block.contains(&0) && block.iter().any(|n| *n > 0);
        blocks.chunks(8).any(is_torn)
    };
    assert!((0..20).any(is_torn), "some block of 4 KiB is torn");
    assert!((0..20).any(|seed| left(seed) == [0; 64]), "some are lost");
    let survives = |seed| !left(seed).contains(&0);
    assert!((0..20).any(survives), "some survive");
}

#[test]
fn the_death_of_the_process_loses_nothing_but_makes_nothing_stable() {
    let survives = |is_flushed, seed| {
        run(async move {
            let (group, old) = written(512).await;
            let next = group.restart().remove(0);
            assert!(old.read(0, IoBuf::zeroed(512)).await.is_err());
            assert!(!numbers(&next).await[..64].contains(&0));
            if is_flushed {
                next.flush().await.unwrap();
            }
            !survivors(&group, seed).await.contains(&0)
        })
    };
    assert!((0..20).all(|seed| survives(true, seed)));
    assert!(!(0..20).all(|seed| survives(false, seed)));
}

#[test]
fn the_power_is_cut_at_the_chosen_operation_of_the_group() {
    run(async {
        let group = PowerGroup::default();
        let (a, b) = (group.add(SIZE, 512).unwrap(), group.add(SIZE, 512).unwrap());
        group.crash_after(4, 9);
        let data = || IoBuf::zeroed(512).freeze();
        a.write(0, data()).await.unwrap();
        b.write(0, data()).await.unwrap();
        a.flush().await.unwrap();
        assert!(b.write(0, data()).await.is_err());
        assert!(group.is_off());
        assert!(a.flush().await.is_err());
        assert_eq!(a.counters().errors.load(Relaxed), 1);
    });
}

#[test]
fn a_flush_during_which_the_power_fails_makes_nothing_stable() {
    let loses = |seed| {
        run(async move {
            let (group, device) = written(512).await;
            group.crash_after(1, seed);
            assert!(device.flush().await.is_err());
            survivors(&group, seed).await.contains(&0)
        })
    };
    assert!((0..20).any(loses));
}

/// Writes increasing numbers to every sector of a range in turn until the power fails.
/// Returns the number that was flushed last.
fn write_until_the_power_fails(device: &SharedBlockDevice, at: u64) -> u64 {
    run(async {
        let mut flushed = 0;
        for number in 1.. {
            let data = IoBuf::copy_of(&u64::to_le_bytes(number), SECTOR as usize);
            if device.write(at, data.freeze()).await.is_err() || device.flush().await.is_err() {
                break;
            }
            flushed = number;
        }
        flushed
    })
}

#[test]
fn the_power_fails_for_all_threads_at_once() {
    for seed in 0..20 {
        let group = PowerGroup::default();
        let devices = [512, 512].map(|block| group.add(SIZE, block).unwrap());
        group.crash_after(1000 + seed, seed);
        let flushed = std::thread::scope(|scope| {
            let threads = devices.each_ref().map(|device| {
                [0, SECTOR].map(|at| scope.spawn(move || write_until_the_power_fails(device, at)))
            });
            threads.map(|pair| pair.map(|thread| thread.join().unwrap()))
        });
        run(async {
            for (device, flushed) in group.restart().iter().zip(flushed) {
                for (at, flushed) in [0, SECTOR].into_iter().zip(flushed) {
                    let found = device.read(at, IoBuf::zeroed(SECTOR as usize)).await;
                    let found = u64::from_le_bytes(found.unwrap()[..8].try_into().unwrap());
                    assert!(
                        [flushed, flushed + 1].contains(&found),
                        "{found} of {flushed}"
                    );
                }
            }
        });
    }
}
