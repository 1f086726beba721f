//! A wrapper that injects faults by seed.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use floe_core::{Address, ZoneId};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::buffer::{IoBuf, IoData};
use crate::clock::Clock;
use crate::contract::{Device, OpFuture, Placement, ZoneReport, ZoneState, answered_below};
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::nvme::Status;

/// Kinds of faults and their rates. A rate is a probability per operation from
/// 0 to 1, and applies to every operation of the kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Reads that fail.
    pub read_errors: f64,
    /// Appends that fail before anything is written.
    pub append_errors: f64,
    /// Writes in place that fail before anything is written.
    pub write_errors: f64,
    /// Resets that fail without effect.
    pub reset_errors: f64,
    /// Finishes that fail.
    pub finish_errors: f64,
    /// Flushes that fail.
    pub flush_errors: f64,
    /// Appends and writes that fail after writing only the first blocks of
    /// their data. The remaining blocks are zeros (append) or unchanged
    /// (write).
    pub torn_writes: f64,
    /// Appends and writes that succeed without writing their data: an append
    /// leaves zeros, a write leaves the range unchanged.
    pub lost_writes: f64,
    /// Reads that succeed with one bit flipped.
    pub bit_flips: f64,
    /// Operations that are delayed.
    pub delays: f64,
    /// The longest delay.
    pub delay_max: Duration,
    /// Number of operations after which every operation fails.
    pub fail_after: Option<u64>,
    /// The status of injected failures; an I/O error by default. One that makes a zone unwritable
    /// does so for good, as [`Faulty::fail_zone`].
    pub status: Option<Status>,
    /// Operations that fail, counted by kind from the call of [`Faulty::set`] on.
    pub script: Vec<Script>,
    /// Every operation on these zones fails.
    pub bad_zones: Vec<ZoneId>,
    /// The next operation of this kind is carried out, and then its future panics.
    pub panic_after: Option<Operation>,
    /// Operations on these zones get no random faults, and the script does not count them.
    pub spared_zones: Vec<ZoneId>,
    /// Space of all zones together, as for a sparse file on a full disk. An
    /// append beyond it fails, and a reset frees the bytes appended to its
    /// zone. Counted from the first operation; writes in place do not count.
    pub space_bytes: Option<u64>,
}

/// The status of the operation of this kind with this number, counted from zero.
pub type Script = (Operation, u64, Status);

/// A device or block device with [`Faults`], which may change during use. The same seed and
/// order of operations give the same faults.
#[derive(Debug)]
pub struct Faulty<D: ?Sized = dyn Device> {
    pub(crate) below: Arc<D>,
    clock: Clock,
    faults: Mutex<Faults>,
    random: Mutex<Xoshiro256PlusPlus>,
    enabled: AtomicBool,
    started: AtomicU64,
    /// Operations of each kind that the script counts.
    of_kind: Mutex<HashMap<Operation, u64>>,
    /// Zones that are read-only or offline.
    failed_zones: Mutex<HashMap<ZoneId, ZoneState>>,
    injected: AtomicU64,
    /// The space that each zone takes.
    taken: Mutex<HashMap<ZoneId, Taken>>,
}

/// Bytes appended to a zone since its reset, and bytes reserved for it.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    appended: u64,
    reserved: u64,
}

/// The faults of one operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fate {
    delay: Option<Duration>,
    fails: bool,
    /// The status of the failure.
    status: Option<Status>,
    /// For writes: the write is not executed.
    pub(crate) is_lost: bool,
    /// For writes: the share of blocks that are written before the write fails.
    /// For reads: the position of the flipped bit.
    pub(crate) spoils: Option<f64>,
}

impl<D: ?Sized> Faulty<D> {
    /// Wraps the device `below`.
    pub fn new(below: Arc<D>, clock: Clock, seed: u64, faults: Faults) -> Self {
        Faulty {
            below,
            clock,
            faults: Mutex::new(faults),
            random: Mutex::new(Xoshiro256PlusPlus::seed_from_u64(seed)),
            enabled: AtomicBool::new(true),
            started: AtomicU64::new(0),
            of_kind: Mutex::default(),
            failed_zones: Mutex::default(),
            injected: AtomicU64::new(0),
            taken: Mutex::default(),
        }
    }

    /// Replaces the faults, and restarts the count of operations.
    pub fn set(&self, faults: Faults) {
        *self.faults.lock() = faults;
        self.started.store(0, Relaxed);
        self.of_kind.lock().clear();
    }

    /// Turns all faults on or off.
    pub fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Relaxed);
    }

    /// Number of faults injected so far, without delays.
    pub fn injected(&self) -> u64 {
        self.injected.load(Relaxed)
    }

    pub(crate) fn fate(&self, operation: Operation, zone: Option<ZoneId>) -> Fate {
        if !self.enabled.load(Relaxed) {
            return Fate::default();
        }
        let started = self.started.fetch_add(1, Relaxed);
        let faults = self.faults.lock();
        let mut random = self.random.lock();
        let (errors, spoils) = match operation {
            Operation::Read => (faults.read_errors, faults.bit_flips),
            Operation::Append => (faults.append_errors, faults.torn_writes),
            Operation::Write | Operation::WriteZeroes => (faults.write_errors, faults.torn_writes),
            Operation::Discard => (faults.write_errors, 0.0),
            Operation::Reset => (faults.reset_errors, 0.0),
            Operation::Finish => (faults.finish_errors, 0.0),
            Operation::Flush => (faults.flush_errors, 0.0),
            Operation::Open | Operation::Report | Operation::Resize | Operation::Reserve => {
                (0.0, 0.0)
            }
        };
        let doomed = faults.fail_after.is_some_and(|n| started >= n)
            || zone.is_some_and(|zone| faults.bad_zones.contains(&zone));
        // Every operation draws the same numbers, so that one rate does not
        // change the outcomes of the others.
        let draws: [f64; 5] = std::array::from_fn(|_| random.random());
        let is_spared = zone.is_some_and(|zone| faults.spared_zones.contains(&zone));
        let scripted = match is_spared {
            true => None,
            false => self.scripted(operation, &faults.script),
        };
        let (errors, spoils, lost) = match is_spared {
            true => (0.0, 0.0, 0.0),
            false => (errors, spoils, faults.lost_writes),
        };
        let writes = matches!(
            operation,
            Operation::Append | Operation::Write | Operation::WriteZeroes
        );
        let fate = Fate {
            is_lost: writes && (errors..errors + lost).contains(&draws[2]),
            delay: (draws[0] < faults.delays).then(|| faults.delay_max.mul_f64(draws[1])),
            fails: doomed || draws[2] < errors || scripted.is_some(),
            status: scripted.or(faults.status),
            spoils: (draws[3] < spoils).then_some(draws[4]),
        };
        if fate.fails || fate.is_lost || fate.spoils.is_some() {
            self.injected.fetch_add(1, Relaxed);
        }
        fate
    }

    /// The status that the script has for the next operation of this kind.
    fn scripted(&self, operation: Operation, script: &[Script]) -> Option<Status> {
        let mut counts = self.of_kind.lock();
        let count = counts.entry(operation).or_default();
        let nth = std::mem::replace(count, *count + 1);
        let mut script = script.iter();
        let found = script.find(|(kind, at, _)| (*kind, *at) == (operation, nth))?;
        Some(found.2)
    }

    /// Takes space for an append of `bytes`; false if there is too little.
    fn take_space(&self, zone: ZoneId, bytes: u64) -> bool {
        let limit = match self.enabled.load(Relaxed) {
            true => self.faults.lock().space_bytes,
            false => None,
        };
        let mut taken = self.taken.lock();
        let entry = taken.entry(zone).or_default();
        entry.appended += bytes;
        if entry.appended <= entry.reserved {
            return true;
        }
        let all: u64 = taken
            .values()
            .map(|zone| zone.appended.max(zone.reserved))
            .sum();
        let fits = limit.is_none_or(|limit| all <= limit);
        if !fits {
            taken.entry(zone).or_default().appended -= bytes;
            self.injected.fetch_add(1, Relaxed);
        }
        fits
    }

    /// Starts an operation that may be delayed or fail, with no other faults. An injected
    /// failure is counted in `counters`.
    pub(crate) fn start_counting<T: Send + 'static>(
        &self,
        operation: Operation,
        zone: Option<ZoneId>,
        fate: Fate,
        counters: &Counters,
        start: impl FnOnce() -> OpFuture<T>,
    ) -> OpFuture<T> {
        let future = if fate.fails {
            Counters::add(&counters.errors, 1);
            OpFuture::ready(Err(injected(operation, zone, fate.status)))
        } else {
            start()
        };
        let panics = self.takes_panic(operation);
        if fate.delay.is_none() && !panics {
            return future;
        }
        let sleep = fate.delay.map(|delay| self.clock.sleep(delay));
        OpFuture::new(async move {
            if let Some(sleep) = sleep {
                sleep.await;
            }
            let result = future.await;
            assert!(!panics, "injected panic");
            result
        })
    }

    fn takes_panic(&self, operation: Operation) -> bool {
        let panic_after = &mut self.faults.lock().panic_after;
        let is_next = self.enabled.load(Relaxed) && *panic_after == Some(operation);
        is_next && panic_after.take().is_some()
    }
}

/// Bytes of `len` that a torn write writes: whole blocks.
pub(crate) fn torn(len: usize, block_bytes: u32, share: f64) -> usize {
    let block = block_bytes as usize;
    ((len / block) as f64 * share) as usize * block
}

pub(crate) fn injected(
    operation: Operation,
    zone: Option<ZoneId>,
    status: Option<Status>,
) -> DeviceError {
    let io = || DeviceErrorKind::Io(io::Error::other("injected fault"));
    let kind = status.map_or_else(io, DeviceErrorKind::Nvme);
    DeviceError::new(operation, zone, kind)
}

/// Waits for the partial operation, then fails.
pub(crate) fn fail_after<T: Send + 'static, U: Send + 'static>(
    half: OpFuture<U>,
    operation: Operation,
    zone: Option<ZoneId>,
) -> OpFuture<T> {
    OpFuture::new(async move {
        half.await?;
        Err(injected(operation, zone, None))
    })
}

/// Flips the bit at a `place` from 0 to 1 of the data that is read.
pub(crate) fn flip_bit(read: OpFuture<IoBuf>, place: Option<f64>) -> OpFuture<IoBuf> {
    let Some(place) = place else {
        return read;
    };
    OpFuture::new(async move {
        let mut buf = read.await?;
        let bit = (buf.len() as f64 * 8.0 * place) as usize;
        buf[bit / 8] ^= 1 << (bit % 8);
        Ok(buf)
    })
}

impl<D: Device + ?Sized> Faulty<D> {
    /// Makes a zone read-only or offline for good, as a worn drive does: from now on it
    /// takes no append, write, reset or finish, and an offline one no read.
    pub fn fail_zone(&self, zone: ZoneId, state: ZoneState) {
        self.failed_zones.lock().insert(zone, state);
        // Such a zone is not active. Whether the finish succeeds does not matter.
        drop(self.below.finish(zone));
    }

    /// The opposite of [`fail_zone`](Self::fail_zone): the drive is back.
    pub fn restore_zone(&self, zone: ZoneId) {
        self.failed_zones.lock().remove(&zone);
    }

    /// The failure of an operation on such a zone.
    fn zone_failure(&self, operation: Operation, zone: Option<ZoneId>) -> Option<DeviceError> {
        let state = *self.failed_zones.lock().get(&zone?)?;
        let fails = operation != Operation::Read || state == ZoneState::Offline;
        fails.then(|| DeviceError::new(operation, zone, DeviceErrorKind::ZoneUnwritable(state)))
    }

    fn start<T: Send + 'static>(
        &self,
        operation: Operation,
        zone: Option<ZoneId>,
        fate: Fate,
        start: impl FnOnce() -> OpFuture<T>,
    ) -> OpFuture<T> {
        let counters = self.below.counters();
        if let Some(error) = self.zone_failure(operation, zone) {
            Counters::add(&counters.errors, 1);
            return OpFuture::ready(Err(error));
        }
        let state = fate.status.and_then(|status| status.fault().unwritable());
        if fate.fails
            && let (Some(zone), Some(state)) = (zone, state)
        {
            self.fail_zone(zone, state);
        }
        self.start_counting(operation, zone, fate, counters, start)
    }

    fn append_so(
        &self,
        zone: ZoneId,
        data: IoData,
        placement: Placement,
        append: impl FnOnce(&D, IoData) -> OpFuture<Address>,
    ) -> OpFuture<Address> {
        let fate = self.fate(Operation::Append, Some(zone));
        self.start(Operation::Append, Some(zone), fate, || match fate.spoils {
            _ if !self.take_space(zone, data.len() as u64) => {
                let none = DeviceErrorKind::NoSpace;
                OpFuture::ready(Err(DeviceError::new(Operation::Append, zone, none)))
            }
            _ if fate.is_lost => {
                let nothing = IoBuf::zeroed(data.len()).freeze();
                self.below.append(zone, nothing, placement)
            }
            None => append(&self.below, data),
            Some(share) => {
                let block = self.below.geometry().block_size;
                let kept = torn(data.len(), block, share);
                let torn = IoBuf::copy_of(&data[..kept], data.len()).freeze();
                let half = self.below.append(zone, torn, placement);
                fail_after(half, Operation::Append, Some(zone))
            }
        })
    }
}

impl<D: Device + ?Sized> Device for Faulty<D> {
    answered_below!("faulty");

    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf> {
        let fate = self.fate(Operation::Read, Some(at.zone));
        self.start(Operation::Read, Some(at.zone), fate, || {
            flip_bit(self.below.read(at, buf), fate.spoils)
        })
    }

    fn append(&self, zone: ZoneId, data: IoData, placement: Placement) -> OpFuture<Address> {
        self.append_so(zone, data, placement, |below, data| {
            below.append(zone, data, placement)
        })
    }

    fn appends_durably(&self) -> bool {
        self.below.appends_durably()
    }

    /// An append that fails or is lost is not durable.
    fn append_durably(&self, zone: ZoneId, data: IoData, to: Placement) -> OpFuture<Address> {
        self.append_so(zone, data, to, |below, data| {
            below.append_durably(zone, data, to)
        })
    }

    fn write(&self, at: Address, data: IoData, placement: Placement) -> OpFuture<()> {
        let fate = self.fate(Operation::Write, Some(at.zone));
        self.start(Operation::Write, Some(at.zone), fate, || {
            match fate.spoils {
                _ if fate.is_lost => OpFuture::ready(Ok(())),
                None => self.below.write(at, data, placement),
                Some(share) => match torn(data.len(), self.below.geometry().block_size, share) {
                    0 => OpFuture::ready(Err(injected(Operation::Write, Some(at.zone), None))),
                    kept => {
                        let half = self.below.write(at, data.slice(0..kept), placement);
                        fail_after(half, Operation::Write, Some(at.zone))
                    }
                },
            }
        })
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        let fate = self.fate(Operation::Reset, Some(zone));
        self.start(Operation::Reset, Some(zone), fate, || {
            self.taken.lock().entry(zone).or_default().appended = 0;
            self.below.reset(zone)
        })
    }

    fn reserve(&self, zone: ZoneId, bytes: u64) -> Result<(), DeviceError> {
        self.taken.lock().entry(zone).or_default().reserved = bytes;
        self.below.reserve(zone, bytes)
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        let fate = self.fate(Operation::Finish, Some(zone));
        self.start(Operation::Finish, Some(zone), fate, || {
            self.below.finish(zone)
        })
    }

    fn flush(&self) -> OpFuture<()> {
        let fate = self.fate(Operation::Flush, None);
        self.start(Operation::Flush, None, fate, || self.below.flush())
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        let (report, failed) = (self.below.report(), self.failed_zones.lock().clone());
        OpFuture::new(async move {
            let mut report = report.await?;
            for zone in &mut report {
                zone.state = *failed.get(&zone.zone).unwrap_or(&zone.state);
            }
            Ok(report)
        })
    }
}
