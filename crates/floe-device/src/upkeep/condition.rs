//! Preconditioning: brings a drive into the state that a measurement needs.

use std::collections::VecDeque;

use floe_core::{Address, Tick, ZoneId};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::buffer::{IoBuf, IoData};
use crate::clock::Clock;
use crate::contract::{OpFuture, Placement, SharedDevice};
use crate::error::DeviceError;

/// The state of a drive before a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Empty, as after it was formatted.
    Fresh,
    /// Written from the start to the end.
    Sequential,
    /// Written completely, then overwritten at random until its speed is steady. Zones that
    /// take no writes in place are reset and filled in random order.
    Random,
}

floe_core::names! {
    Condition: "a state" {
        Fresh => "fresh",
        Sequential => "sequential",
        Random => "random",
    }
}

/// How a drive is preconditioned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditioning {
    /// The state to reach.
    pub condition: Condition,
    /// Most passes over the part that is written.
    pub passes: u32,
    /// The share of the drive that is written, from 0 to 1. The rest stays empty. Zones that the
    /// drive has withdrawn do not count.
    pub share: f64,
    /// Seed of random places and bytes.
    pub seed: u64,
}

/// A drive that was preconditioned.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Conditioned {
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Zones that the drive has withdrawn, which were left out.
    pub withdrawn_zones: usize,
    /// Seconds that it took.
    pub seconds: f64,
    /// Bytes per second of each round of random writes.
    pub rounds: Vec<f64>,
    /// The speed of the last rounds was steady. `None` without random writes.
    pub is_steady: Option<bool>,
}

/// Writes in flight.
const DEPTH: usize = 32;
/// Rounds of random writes in a pass.
const ROUNDS_PER_PASS: u64 = 10;
/// Rounds that must agree.
const STEADY_ROUNDS: usize = 5;
/// Largest range of steady rounds, as a share of their mean.
const STEADY_RANGE: f64 = 0.2;
/// Largest change over steady rounds by their fitted line, as a share of their mean.
const STEADY_DRIFT: f64 = 0.1;
/// Each so many bytes have a stamp of their own.
const STAMPED_BYTES: usize = 512;
/// Bytes of a random write, if blocks are no longer. Drives map no smaller unit.
const RANDOM_BYTES: u64 = 4096;

/// Preconditions an empty device. `progress` gets bytes written, and those of all passes.
///
/// # Errors
/// If a write or reset fails.
pub async fn condition(
    device: &SharedDevice,
    clock: &Clock,
    how: &Conditioning,
    progress: impl FnMut(u64, u64),
) -> Result<Conditioned, DeviceError> {
    let began = clock.now();
    let geometry = device.geometry();
    let all = device.report().await?;
    let writable = all.iter().filter(|zone| !zone.state.is_unwritable());
    let mut zones: Vec<_> = writable.map(|zone| zone.zone).collect();
    let withdrawn_zones = all.len() - zones.len();
    zones.truncate((zones.len() as f64 * how.share.clamp(0.0, 1.0)).ceil() as usize);
    let own = (zones.len() as u64).saturating_mul(geometry.zone_capacity);
    let passes = u64::from(how.passes);
    let mut writer = Writer {
        device,
        zones,
        random: Xoshiro256PlusPlus::seed_from_u64(how.seed),
        data: random_data(geometry.max_append_bytes as usize, how.seed),
        in_flight: VecDeque::new(),
        written: 0,
        planned: match how.condition {
            Condition::Fresh => 0,
            Condition::Sequential => own.saturating_mul(passes),
            Condition::Random => own.saturating_mul(passes.saturating_add(1)),
        },
        progress,
    };
    let mut done = Conditioned {
        withdrawn_zones,
        ..Conditioned::default()
    };
    match how.condition {
        Condition::Fresh => {}
        Condition::Sequential => {
            for _ in 0..passes {
                writer.fill().await?;
            }
        }
        Condition::Random => {
            writer.fill().await?;
            let round = (own / ROUNDS_PER_PASS).max(u64::from(geometry.block_size));
            // A round of zones that are written whole is longer than it should be.
            while !writer.zones.is_empty() && writer.written < writer.planned {
                let started = (clock.now(), writer.written);
                let left = writer.planned - writer.written;
                writer.overwrite(round.min(left)).await?;
                done.rounds
                    .push(rate(started, (clock.now(), writer.written)));
                if writer.written >= own.saturating_mul(2) && is_steady(&done.rounds) {
                    break;
                }
            }
            done.is_steady = Some(is_steady(&done.rounds));
        }
    }
    device.flush().await?;
    done.written_bytes = writer.written;
    done.seconds = clock.now().since(began).as_secs_f64();
    Ok(done)
}

/// Bytes that no drive compresses.
pub(super) fn random_data(bytes: usize, seed: u64) -> IoData {
    let mut data = IoBuf::zeroed(bytes);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for word in data.chunks_exact_mut(8) {
        word.copy_from_slice(&random.random::<u64>().to_le_bytes());
    }
    data.freeze()
}

fn rate(from: (Tick, u64), to: (Tick, u64)) -> f64 {
    (to.1 - from.1) as f64 / to.0.since(from.0).as_secs_f64().max(1e-9)
}

/// True if the last rounds agree, and neither rise nor fall.
fn is_steady(rounds: &[f64]) -> bool {
    let Some(last) = rounds.last_chunk::<STEADY_ROUNDS>() else {
        return false;
    };
    let mean = last.iter().sum::<f64>() / STEADY_ROUNDS as f64;
    let most = last.iter().copied().fold(f64::MIN, f64::max);
    let least = last.iter().copied().fold(f64::MAX, f64::min);
    // The slope of the line with the least squares, over all these rounds.
    let middle = (STEADY_ROUNDS - 1) as f64 / 2.0;
    let (mut rise, mut run) = (0.0, 0.0);
    for (round, speed) in last.iter().enumerate() {
        let from_middle = round as f64 - middle;
        rise += from_middle * (speed - mean);
        run += from_middle * from_middle;
    }
    let drift = rise / run * (STEADY_ROUNDS - 1) as f64;
    most - least <= STEADY_RANGE * mean && drift.abs() <= STEADY_DRIFT * mean
}

/// Writes with several in flight.
struct Writer<'a, P> {
    device: &'a SharedDevice,
    /// The zones that are written.
    zones: Vec<ZoneId>,
    random: Xoshiro256PlusPlus,
    data: IoData,
    in_flight: VecDeque<OpFuture<()>>,
    written: u64,
    planned: u64,
    progress: P,
}

impl<P: FnMut(u64, u64)> Writer<'_, P> {
    /// Fills the zones in order.
    async fn fill(&mut self) -> Result<(), DeviceError> {
        for index in 0..self.zones.len() {
            self.fill_zone(self.zones[index]).await?;
        }
        self.wait_below(1).await
    }

    async fn fill_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        let geometry = self.device.geometry();
        let (in_place, capacity) = (geometry.random_writes, geometry.zone_capacity);
        if !in_place {
            // A zone is reset after the appends to it.
            self.device.reset(zone).await?;
        }
        let mut offset = 0;
        while offset < capacity {
            let len = (self.data.len() as u64).min(capacity - offset);
            let data = self.stamped(Address::new(zone, offset), len);
            let write = match in_place {
                true => self
                    .device
                    .write(Address::new(zone, offset), data, Placement(0)),
                false => {
                    let append = self.device.append(zone, data, Placement(0));
                    OpFuture::new(async { append.await.map(drop) })
                }
            };
            self.start(write, len).await?;
            offset += len;
        }
        match in_place {
            true => Ok(()),
            // Zones left open would count against the drive's limit.
            false => self.wait_below(1).await,
        }
    }

    /// Overwrites `bytes` bytes at random.
    async fn overwrite(&mut self, bytes: u64) -> Result<(), DeviceError> {
        let geometry = self.device.geometry();
        let block = u64::from(geometry.block_size).max(RANDOM_BYTES.min(geometry.zone_capacity));
        let places = geometry.zone_capacity / block;
        let end = self.written + bytes;
        while self.written < end {
            let zone = self.zones[self.random.random_range(0..self.zones.len())];
            if !geometry.random_writes {
                self.fill_zone(zone).await?;
                continue;
            }
            let at = Address::new(zone, self.random.random_range(0..places) * block);
            let data = self.stamped(at, block);
            let write = self.device.write(at, data, Placement(0));
            self.start(write, block).await?;
        }
        self.wait_below(1).await
    }

    /// `len` bytes for a place. No two blocks of them are equal, nor equal to those of another
    /// time, because drives may keep equal blocks once.
    fn stamped(&self, at: Address, len: u64) -> IoData {
        let mut data = IoBuf::zeroed(len as usize);
        data.copy_from_slice(&self.data[..len as usize]);
        for (index, block) in (0..).zip(data.chunks_exact_mut(STAMPED_BYTES)) {
            for (part, number) in block.chunks_exact_mut(8).zip([
                u64::from(at.zone.0),
                at.offset + index * STAMPED_BYTES as u64,
                self.written,
            ]) {
                part.copy_from_slice(&number.to_le_bytes());
            }
        }
        data.freeze()
    }

    async fn start(&mut self, write: OpFuture<()>, len: u64) -> Result<(), DeviceError> {
        self.in_flight.push_back(write);
        self.written += len;
        self.wait_below(DEPTH).await?;
        (self.progress)(self.written, self.planned);
        Ok(())
    }

    /// Waits until fewer than `most` writes are in flight.
    async fn wait_below(&mut self, most: usize) -> Result<(), DeviceError> {
        while self.in_flight.len() >= most {
            let Some(oldest) = self.in_flight.pop_front() else {
                break;
            };
            oldest.await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use floe_core::ByteSize;

    use super::super::profile::{Load, ProfileOptions, profile};
    use super::*;
    use crate::config::DeviceConfig;
    use crate::contract::ZoneState;
    use crate::faulty::{Faults, Faulty};
    use crate::sim::{SimConfig, SimDevice};
    use crate::virtual_time;

    fn conditioned(zoned: bool, how: Conditioning) -> (Conditioned, usize, u64) {
        let config = DeviceConfig {
            zone_size: Some(ByteSize::mib(1)),
            sim: SimConfig {
                zoned,
                ..SimConfig::default()
            },
            ..DeviceConfig::sim(ByteSize::mib(16))
        };
        virtual_time::run(1, |clock| async move {
            let device: SharedDevice = Arc::new(SimDevice::open(&config, &clock).unwrap());
            let mut seen = 0;
            let progress = |done, planned| {
                assert!(seen < done && done <= planned, "{seen} {done} {planned}");
                seen = done;
            };
            let done = condition(&device, &clock, &how, progress).await.unwrap();
            let report = device.report().await.unwrap();
            let is_full = |zone: &&crate::contract::ZoneReport| zone.state == ZoneState::Full;
            let full = report.iter().filter(is_full).count();
            (done, full, device.counters().snapshot().written_bytes())
        })
    }

    #[test]
    fn a_share_of_a_zoned_drive_is_filled() {
        let how = Conditioning {
            condition: Condition::Sequential,
            passes: 2,
            share: 0.5,
            seed: 1,
        };
        let (done, full, written) = conditioned(true, how);
        assert_eq!((done.written_bytes, full, written), (16 << 20, 8, 16 << 20));
        assert_eq!(done.is_steady, None);
    }

    #[test]
    fn zones_that_the_drive_has_withdrawn_are_left_out() {
        let config = DeviceConfig {
            zone_size: Some(ByteSize::mib(1)),
            ..DeviceConfig::sim(ByteSize::mib(16))
        };
        for wanted in [Condition::Sequential, Condition::Random] {
            let config = config.clone();
            virtual_time::run(1, |clock| async move {
                let below: SharedDevice = Arc::new(SimDevice::open(&config, &clock).unwrap());
                let faulty = Faulty::new(below, clock.clone(), 1, Faults::default());
                faulty.fail_zone(ZoneId(3), ZoneState::ReadOnly);
                let device: SharedDevice = Arc::new(faulty);
                let how = Conditioning {
                    condition: wanted,
                    passes: 1,
                    share: 1.0,
                    seed: 1,
                };
                let done = condition(&device, &clock, &how, |_, _| {}).await.unwrap();
                assert_eq!(done.withdrawn_zones, 1);
                let options = ProfileOptions {
                    time: Duration::from_secs(1),
                    writes: true,
                    seed: 1,
                };
                let all = profile(&device, &clock, &options, |_| {}).await.unwrap();
                let appends = all.iter().filter(|one| one.load == Load::Append);
                assert!(appends.map(|one| one.bytes_per_s).all(|rate| rate > 0.0));
            });
        }
    }

    #[test]
    fn passes_bound_what_is_written() {
        for zoned in [false, true] {
            let how = Conditioning {
                condition: Condition::Random,
                passes: 1,
                share: 0.1,
                seed: 1,
            };
            let (done, _, written) = conditioned(zoned, how);
            // Two zones: filled once, overwritten once.
            assert_eq!(
                (done.written_bytes, written),
                (4 << 20, 4 << 20),
                "{done:?}"
            );
        }
    }

    #[test]
    fn random_writes_end_once_their_speed_is_steady() {
        for zoned in [false, true] {
            let how = Conditioning {
                condition: Condition::Random,
                passes: 4,
                share: 1.0,
                seed: 1,
            };
            let (done, _, written) = conditioned(zoned, how);
            assert_eq!(done.is_steady, Some(true), "{done:?}");
            assert!(done.rounds.len() < 40, "{done:?}");
            assert_eq!(done.written_bytes, written);
        }
        assert!(!is_steady(&[1.0; 4]));
        assert!(!is_steady(&[9.0, 1.0, 1.0, 1.0, 1.3]));
        assert!(is_steady(&[9.0, 1.0, 1.0, 1.0, 1.0, 1.1]));
        assert!(!is_steady(&[1.0, 1.04, 1.08, 1.12, 1.16]), "it rises");
    }
}
