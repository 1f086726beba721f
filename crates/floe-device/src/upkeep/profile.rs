//! Measures the latencies and the bandwidth of a device.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use floe_core::{Address, Tick, ZoneId};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::condition::random_data;
use crate::buffer::IoData;
use crate::clock::Clock;
use crate::contract::{Placement, SharedDevice, ZoneState};
use crate::error::{DeviceError, DeviceErrorKind, Operation};

/// How a device is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileOptions {
    /// The time of all loads together.
    pub time: Duration,
    /// Write to the device too, which destroys what it holds. Without it, only what is written
    /// already is read.
    pub writes: bool,
    /// Seed of random places and bytes.
    pub seed: u64,
}

/// The operation of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Appends in order, to one zone or several.
    Append,
    /// Reads at random.
    Read,
    /// A flush after an append of one block.
    Flush,
    /// A finish of a zone with one block.
    Finish,
    /// A reset of a zone that the appends wrote.
    Reset,
}

floe_core::names! {
    Load {
        Append => "append",
        Read => "read",
        Flush => "flush",
        Finish => "finish",
        Reset => "reset",
    }
}

/// The figures of one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The operation.
    pub load: Load,
    /// Bytes of each operation; zero for those without data.
    pub bytes: u64,
    /// Operations in flight in each zone, or of reads in all.
    pub depth: u32,
    /// Zones that are appended to at once.
    pub zones: u32,
    /// Operations that were measured.
    pub operations: u64,
    /// Seconds that they took.
    pub seconds: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Their latencies.
    pub latency: Latency,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90 % were at most this.
    pub p90_us: f64,
    /// 99 % were at most this.
    pub p99_us: f64,
    /// 99.9 % were at most this.
    pub p999_us: f64,
    /// Maximum.
    pub max_us: f64,
}

impl Latency {
    fn of(mut all: Vec<u64>) -> Self {
        all.sort_unstable();
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |share: f64| {
            let rank = (share * all.len() as f64).ceil() as usize;
            all.get(rank.max(1) - 1).map_or(0.0, |ns| us(*ns))
        };
        let sum: u64 = all.iter().sum();
        Latency {
            mean_us: us(sum) / all.len().max(1) as f64,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: at(1.0),
        }
    }
}

/// Bytes of large appends, if the device takes them.
const APPEND_BYTES: u64 = 128 << 10;
/// Zones that are appended to at once.
const ZONES: u32 = 4;
/// Bytes in which appends and reads go around.
const AREA_BYTES: u64 = 16 << 30;
/// Most operations of a kind that changes zones, or flushes.
const MANAGEMENT_MAX: usize = 1000;
/// Most operations of a load, which bounds memory. The load ends early.
const OPERATIONS_MAX: usize = 1 << 22;
/// Operations after which time must have passed, in virtual time.
const TIMELESS_MAX: usize = 1000;
/// Loads that share the time: five of appends, six of reads, and one each of flush, finish and
/// reset.
const LOADS: u32 = 14;

/// Measures a device. `began` is told each load.
///
/// # Errors
/// If an operation fails.
pub async fn profile(
    device: &SharedDevice,
    clock: &Clock,
    options: &ProfileOptions,
    mut began: impl FnMut(Load),
) -> Result<Vec<Measured>, DeviceError> {
    let geometry = device.geometry();
    let writable = device.report().await?.into_iter();
    let writable = writable.filter(|zone| !zone.state.is_unwritable());
    let zones = AREA_BYTES.div_ceil(geometry.zone_size);
    let zones: Vec<_> = writable
        .map(|zone| zone.zone)
        .take(zones as usize)
        .collect();
    if options.writes && zones.is_empty() {
        let kind = DeviceErrorKind::Unsupported("writes, because no zone takes any");
        return Err(DeviceError::new(Operation::Append, None, kind));
    }
    let mut bench = Bench {
        device,
        clock,
        time: options.time / LOADS,
        seed: options.seed,
        zones: zones.into(),
        data: random_data(geometry.max_append_bytes as usize, options.seed),
        dirty: BTreeSet::new(),
        is_appending: false,
        resets: Vec::new(),
    };
    let mut all = Vec::new();
    let block = u64::from(geometry.block_size);
    let mut written = bench.written_before().await?;
    if options.writes {
        began(Load::Append);
        let large = APPEND_BYTES.min(geometry.max_append_bytes.into());
        // A zone may fill while the next one is open.
        let open = geometry.max_open_zones.unwrap_or(u32::MAX) / 2;
        let several = ZONES.min(open).min(bench.zones.len() as u32 / 2).max(1);
        for (bytes, depth, zones) in [
            (block, 1, 1),
            (large, 1, 1),
            (large, 4, 1),
            (large, 16, 1),
            (large, 4, several),
        ] {
            let (measured, filled) = bench.append(bytes, depth, zones).await?;
            all.push(measured);
            written = filled;
        }
    }
    began(Load::Read);
    for bytes in [block.max(4 << 10), 64 << 10] {
        for depth in [1, 8, 64] {
            all.extend(bench.read(&written, bytes, depth).await?);
        }
    }
    if options.writes {
        began(Load::Reset);
        all.push(bench.reset().await?);
        began(Load::Flush);
        all.push(bench.flush().await?);
        if !geometry.random_writes {
            began(Load::Finish);
            all.push(bench.finish().await?);
        }
        bench.clear().await?;
    }
    Ok(all)
}

struct Bench<'a> {
    device: &'a SharedDevice,
    clock: &'a Clock,
    /// Time of a load.
    time: Duration,
    seed: u64,
    /// The first zones that take writes, which are used.
    zones: Arc<[ZoneId]>,
    data: IoData,
    /// Zones that are not known to be empty.
    dirty: BTreeSet<ZoneId>,
    /// An append load has begun.
    is_appending: bool,
    /// Resets of zones that appends wrote.
    resets: Vec<(u64, u64)>,
}

/// Zones that are appended to one after the other.
struct Lane {
    zones: Arc<[ZoneId]>,
    /// Of [`zones`](Self::zones).
    index: usize,
    step: usize,
    offset: u64,
}

/// Written zones and their bytes.
type Written = Vec<(ZoneId, u64)>;

impl Bench<'_> {
    /// What the device holds. All of a device that tells no states may be read.
    async fn written_before(&mut self) -> Result<Written, DeviceError> {
        let geometry = self.device.geometry();
        let (mut written, all) = (Vec::new(), geometry.zone_capacity);
        for zone in self.device.report().await? {
            let bytes = match zone.state {
                ZoneState::Open | ZoneState::Closed => zone.write_pointer,
                ZoneState::Empty if geometry.random_writes => all,
                ZoneState::Full | ZoneState::Unknown => all,
                // What is written of a read-only zone is not known.
                ZoneState::Empty | ZoneState::ReadOnly | ZoneState::Offline => 0,
            };
            if bytes > 0 {
                written.push((zone.zone, bytes));
            }
            if self.zones.binary_search(&zone.zone).is_ok() && zone.state != ZoneState::Empty {
                self.dirty.insert(zone.zone);
            }
        }
        Ok(written)
    }

    /// Empties the zones that are used.
    async fn clear(&mut self) -> Result<Vec<(u64, u64)>, DeviceError> {
        let mut resets = Vec::new();
        for zone in std::mem::take(&mut self.dirty) {
            resets.push(self.timed(self.device.reset(zone)).await?);
        }
        Ok(resets)
    }

    /// Tells whether a worker of a load that began at `start`, and has done so many operations,
    /// goes on.
    fn continues(&self, start: Tick, workers: u32) -> impl Fn(usize) -> bool + Send + use<> {
        let (clock, until) = (self.clock.clone(), start + self.time);
        let most = OPERATIONS_MAX / workers as usize;
        move |done| {
            let now = clock.now();
            now < until && done < most && (now > start || done < TIMELESS_MAX)
        }
    }

    async fn append(
        &mut self,
        bytes: u64,
        depth: u32,
        zones: u32,
    ) -> Result<(Measured, Written), DeviceError> {
        let resets = self.clear().await?;
        if self.is_appending {
            self.resets.extend(resets);
        }
        self.is_appending = true;
        let capacity = self.device.geometry().zone_capacity;
        let (start, mut tasks, mut lanes) = (self.clock.now(), JoinSet::new(), Vec::new());
        for first in 0..zones {
            let lane = Arc::new(Mutex::new(Lane {
                zones: self.zones.clone(),
                index: first as usize,
                step: zones as usize,
                offset: 0,
            }));
            for _ in 0..depth {
                let (device, clock) = (self.device.clone(), self.clock.clone());
                let (lane, data) = (lane.clone(), self.data.clone());
                let continues = self.continues(start, depth * zones);
                tasks.spawn(async move {
                    let mut done = Vec::new();
                    while continues(done.len()) {
                        let Some(at) = lane.lock().take(bytes, capacity) else {
                            break;
                        };
                        let data = data.slice(0..at.1 as usize);
                        done.push(append(&device, &clock, at.0, data).await?);
                    }
                    Ok(done)
                });
            }
            lanes.push(lane);
        }
        let measured = self
            .collect(tasks, Load::Append, bytes, depth, start)
            .await?;
        let mut written = Vec::new();
        for lane in &lanes {
            let lane = lane.lock();
            let before = self
                .zones
                .iter()
                .take(lane.index)
                .skip(lane.index % lane.step);
            written.extend(before.step_by(lane.step).map(|zone| (*zone, capacity)));
            let last = lane.zones.get(lane.index).filter(|_| lane.offset > 0);
            written.extend(last.map(|zone| (*zone, lane.offset)));
        }
        self.dirty.extend(written.iter().map(|(zone, _)| *zone));
        Ok((Measured { zones, ..measured }, written))
    }

    /// Reads at random; `None` if too little is written.
    async fn read(
        &self,
        written: &Written,
        bytes: u64,
        depth: u32,
    ) -> Result<Option<Measured>, DeviceError> {
        let long = written.iter().filter(|(_, written)| *written >= bytes);
        let long: Arc<Written> = Arc::new(long.copied().collect());
        if long.is_empty() {
            return Ok(None);
        }
        let (start, mut tasks) = (self.clock.now(), JoinSet::new());
        for worker in 0..u64::from(depth) {
            let (device, clock) = (self.device.clone(), self.clock.clone());
            let long = long.clone();
            let continues = self.continues(start, depth);
            // Each load has places of its own, which no cache knows from the one before.
            let load = worker << 32 | u64::from(depth) << 20 | bytes;
            let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ load);
            tasks.spawn(async move {
                let mut buf = device.allocate(bytes as usize);
                let mut done = Vec::new();
                while continues(done.len()) {
                    let (zone, written) = long[random.random_range(0..long.len())];
                    let offset = random.random_range(0..written / bytes) * bytes;
                    let began = clock.now();
                    buf = device.read(Address::new(zone, offset), buf).await?;
                    done.push((clock.now().since(began).as_nanos() as u64, bytes));
                }
                Ok(done)
            });
        }
        let measured = self.collect(tasks, Load::Read, bytes, depth, start).await?;
        Ok(Some(measured))
    }

    async fn collect(
        &self,
        mut tasks: JoinSet<Result<Vec<(u64, u64)>, DeviceError>>,
        load: Load,
        bytes: u64,
        depth: u32,
        start: Tick,
    ) -> Result<Measured, DeviceError> {
        let mut all = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            // A task that panicked has said so.
            let gone = || DeviceError::new(Operation::Open, None, DeviceErrorKind::Gone);
            all.extend(ended.map_err(|_| gone())??);
        }
        let seconds = self.clock.now().since(start).as_secs_f64();
        Ok(measured(load, bytes, depth, seconds, &all))
    }

    async fn flush(&mut self) -> Result<Measured, DeviceError> {
        self.clear().await?;
        let mut lane = Lane {
            zones: self.zones.clone(),
            index: 0,
            step: 1,
            offset: 0,
        };
        let geometry = self.device.geometry();
        let (block, capacity) = (u64::from(geometry.block_size), geometry.zone_capacity);
        let (until, mut done) = (self.clock.now() + self.time, Vec::new());
        while self.clock.now() < until && done.len() < MANAGEMENT_MAX {
            let Some((zone, len)) = lane.take(block, capacity) else {
                break;
            };
            self.dirty.insert(zone);
            let data = self.data.slice(0..len as usize);
            self.device.append(zone, data, Placement(0)).await?;
            done.push(self.timed(self.device.flush()).await?);
        }
        Ok(managed(Load::Flush, &done))
    }

    async fn finish(&mut self) -> Result<Measured, DeviceError> {
        self.clear().await?;
        let block = self.device.geometry().block_size as usize;
        let (until, mut done) = (self.clock.now() + self.time, Vec::new());
        for zone in self.zones.clone().iter().copied().take(MANAGEMENT_MAX) {
            if self.clock.now() >= until {
                break;
            }
            self.dirty.insert(zone);
            let data = self.data.slice(0..block);
            self.device.append(zone, data, Placement(0)).await?;
            done.push(self.timed(self.device.finish(zone)).await?);
        }
        Ok(managed(Load::Finish, &done))
    }

    /// Resets the zones that the last appends wrote. The figures are those of the zones of all
    /// appends.
    async fn reset(&mut self) -> Result<Measured, DeviceError> {
        let resets = self.clear().await?;
        self.resets.extend(resets);
        Ok(managed(Load::Reset, &self.resets))
    }

    async fn timed(
        &self,
        operation: impl Future<Output = Result<(), DeviceError>>,
    ) -> Result<(u64, u64), DeviceError> {
        let began = self.clock.now();
        operation.await?;
        Ok((self.clock.now().since(began).as_nanos() as u64, 0))
    }
}

impl Lane {
    /// The zone and the length of the next append.
    fn take(&mut self, bytes: u64, capacity: u64) -> Option<(ZoneId, u64)> {
        if self.offset == capacity {
            self.index += self.step;
            self.offset = 0;
        }
        let zone = *self.zones.get(self.index)?;
        let len = bytes.min(capacity - self.offset);
        self.offset += len;
        Some((zone, len))
    }
}

/// Appends, and returns the latency and the bytes. Waits for an open zone, without counting
/// that, where the device allows few.
async fn append(
    device: &SharedDevice,
    clock: &Clock,
    zone: ZoneId,
    data: IoData,
) -> Result<(u64, u64), DeviceError> {
    const PAUSE: Duration = Duration::from_micros(10);
    loop {
        let began = clock.now();
        let appended = device.append(zone, data.clone(), Placement(0)).await;
        match appended.map_err(|error| {
            (
                matches!(error.kind, DeviceErrorKind::TooManyZones(_)),
                error,
            )
        }) {
            Ok(_) => {
                return Ok((
                    clock.now().since(began).as_nanos() as u64,
                    data.len() as u64,
                ));
            }
            Err((true, _)) => clock.sleep(PAUSE).await,
            Err((false, error)) => return Err(error),
        }
    }
}

fn managed(load: Load, done: &[(u64, u64)]) -> Measured {
    let sum_ns: u64 = done.iter().map(|(ns, _)| ns).sum();
    measured(load, 0, 1, sum_ns as f64 / 1e9, done)
}

fn measured(load: Load, bytes: u64, depth: u32, seconds: f64, done: &[(u64, u64)]) -> Measured {
    let moved: u64 = done.iter().map(|(_, bytes)| bytes).sum();
    Measured {
        load,
        bytes,
        depth,
        zones: 1,
        operations: done.len() as u64,
        seconds,
        bytes_per_s: moved as f64 / seconds.max(1e-9),
        latency: Latency::of(done.iter().map(|(ns, _)| *ns).collect()),
    }
}
