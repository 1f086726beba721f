//! A simulated SSD: zoned or conventional, in virtual or real time, with real
//! data in memory and power losses.

mod timing;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use floe_core::{Address, Geometry, ZoneId};
use parking_lot::Mutex;

use crate::arena::Arena;
use crate::buffer::{IoBuf, IoData};
use crate::clock::Clock;
use crate::config::{DeviceConfig, OpenDeviceError};
use crate::contract::{Completer, Device, OpFuture, Placement, SharedDevice, ZoneReport};
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::platter::{Interrupted, Platter, WriteCache};
use crate::power::{PowerSwitch, Powered};
use crate::zones::{ResetTurn, check_append, check_range, check_zone};

pub use timing::SimConfig;
use timing::{Command, Timing};

/// Most bytes of buffers that are kept to be used again.
const BUFFER_BYTES: usize = 128 << 20;

/// A simulated SSD. Clones share the device.
///
/// With `native_append`, where an append lands is decided when its turn has
/// come, not when it was started. Placement handles are accepted and, until
/// there is a translation layer to simulate, make no difference.
#[derive(Clone)]
pub struct SimDevice(Arc<Inner>);

struct Inner {
    platter: Platter,
    clock: Clock,
    config: SimConfig,
    /// Buffers that are used again: getting pages from the system costs more
    /// than all the rest of a simulated read.
    arena: Option<Arc<Arena>>,
    controller: Mutex<Controller>,
}

/// What the device is busy with.
struct Controller {
    timing: Timing,
    /// By start.
    in_flight: BTreeMap<u64, Work>,
    started: u64,
    /// Resets that wait for the writes before them, oldest first.
    waiting_resets: Vec<WaitingReset>,
}

type WaitingReset = (ZoneId, Completer<()>);

enum Work {
    Read(Address, IoBuf, Completer<IoBuf>),
    /// The place is known where the driver, not the device, chose it.
    Append(ZoneId, Option<u64>, IoData, Completer<Address>),
    Write(Address, IoData, Completer<()>),
    Reset(ZoneId, Completer<()>),
    Finish(ZoneId, Completer<()>),
    /// Up to which change.
    Flush(u64, Completer<()>),
}

impl SimDevice {
    /// An empty device as configured.
    ///
    /// # Errors
    /// When a setting is missing or makes no sense.
    pub fn open(config: &DeviceConfig, clock: &Clock) -> Result<Self, OpenDeviceError> {
        if let Some(fault) = config.sim.fault() {
            return Err(OpenDeviceError::Sim(fault));
        }
        let sim = config.sim.clone();
        let mut geometry = config.geometry(config.required_size()?)?;
        geometry.random_writes = !sim.zoned;
        geometry.native_append = sim.native_append.unwrap_or(sim.zoned);
        geometry.placement_handles = sim.placement_handles;
        let cache = match sim.volatile_cache {
            true => WriteCache::Volatile {
                bytes_max: sim.volatile_cache_bytes.bytes(),
            },
            false => WriteCache::None,
        };
        Ok(SimDevice::over(
            Platter::new(geometry, cache, sim.data),
            sim,
            clock,
        ))
    }

    /// As [`SimDevice::open`], with the switch that cuts its power.
    ///
    /// # Errors
    /// When a setting is missing or makes no sense.
    pub fn with_power(
        config: &DeviceConfig,
        clock: &Clock,
    ) -> Result<(SharedDevice, PowerSwitch), OpenDeviceError> {
        let device = SimDevice::open(config, clock)?;
        let power = PowerSwitch::new(Powered::Sim(device.clone()));
        Ok((Arc::new(device), power))
    }

    fn over(platter: Platter, config: SimConfig, clock: &Clock) -> Self {
        let controller = Controller {
            timing: Timing::new(config.clone()),
            in_flight: BTreeMap::new(),
            started: 0,
            waiting_resets: Vec::new(),
        };
        SimDevice(Arc::new(Inner {
            platter,
            clock: clock.clone(),
            config,
            arena: Arena::new(BUFFER_BYTES).ok().map(Arc::new),
            controller: Mutex::new(controller),
        }))
    }

    pub(crate) fn platter(&self) -> &Platter {
        &self.0.platter
    }

    pub(crate) fn crash(&self, seed: u64) {
        self.0.crash(seed);
    }

    pub(crate) fn restarted(&self) -> SimDevice {
        // What is under way finds the power off and fails.
        if self.0.platter.turn_off() {
            drop(self.0.stop());
        }
        let Inner {
            platter,
            config,
            clock,
            ..
        } = &*self.0;
        SimDevice::over(platter.restarted(), config.clone(), clock)
    }

    /// Counts an append as one of its zone's writers, and chooses its place
    /// unless the device does that later.
    fn place(&self, zone: ZoneId, len: usize) -> Result<Option<u64>, DeviceErrorKind> {
        let platter = &self.0.platter;
        if platter.is_off() {
            return Err(DeviceErrorKind::Gone);
        }
        check_append(&platter.geometry, zone, len)?;
        let mut zones = platter.zones.lock();
        if platter.geometry.native_append {
            zones.writer_started(zone)?;
            return Ok(None);
        }
        zones.reserve(zone, len as u64).map(Some)
    }

    /// Starts what passed its checks; refuses the rest.
    fn start<T: Send + 'static>(
        &self,
        operation: Operation,
        zone: impl Into<Option<ZoneId>>,
        check: impl FnOnce(&Platter) -> Result<Command, DeviceErrorKind>,
        work: impl FnOnce(Completer<T>) -> Work,
    ) -> OpFuture<T> {
        let inner = &self.0;
        let checked = match inner.platter.is_off() {
            true => Err(DeviceErrorKind::Gone),
            false => check(&inner.platter),
        };
        let (completer, future) = OpFuture::pending();
        match checked {
            Ok(command) => inner.begin(command, work(completer)),
            Err(kind) => {
                Counters::add(&inner.platter.counters.errors, 1);
                completer.complete(Err(DeviceError::new(operation, zone, kind)));
            }
        }
        if let Some(seed) = inner.platter.burn_fuse() {
            inner.crash(seed);
        }
        future
    }
}

impl Device for SimDevice {
    fn geometry(&self) -> &Geometry {
        &self.0.platter.geometry
    }

    fn describe(&self) -> String {
        let kind = if self.0.config.zoned {
            "zoned"
        } else {
            "conventional"
        };
        format!("simulated {kind} SSD")
    }

    fn allocate(&self, len: usize) -> IoBuf {
        let arena = self.0.arena.as_ref();
        let reused = arena.and_then(|arena| IoBuf::from_arena(arena, len));
        reused.unwrap_or_else(|| IoBuf::zeroed(len))
    }

    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf> {
        let bytes = buf.len() as u64;
        let len = buf.len();
        let check = |platter: &Platter| {
            check_range(&platter.geometry, at.zone, at.offset, len)?;
            let offset = u64::from(at.zone.0) * platter.geometry.zone_size + at.offset;
            Ok(Command::Read { offset, bytes })
        };
        self.start(Operation::Read, at.zone, check, |completer| {
            Work::Read(at, buf, completer)
        })
    }

    fn append(&self, zone: ZoneId, data: IoData, _placement: Placement) -> OpFuture<Address> {
        let bytes = data.len() as u64;
        let placed = self.place(zone, data.len());
        let offset = placed.as_ref().ok().copied().flatten();
        let check = |_: &Platter| placed.map(|_| Command::Write { bytes });
        self.start(Operation::Append, zone, check, |completer| {
            Work::Append(zone, offset, data, completer)
        })
    }

    fn write(&self, at: Address, data: IoData, _placement: Placement) -> OpFuture<()> {
        let bytes = data.len() as u64;
        let len = data.len();
        let check = |platter: &Platter| {
            check_range(&platter.geometry, at.zone, at.offset, len)?;
            if !platter.geometry.random_writes {
                return Err(DeviceErrorKind::Unsupported("writes in place"));
            }
            platter.zones.lock().writer_started(at.zone)?;
            Ok(Command::Write { bytes })
        };
        self.start(Operation::Write, at.zone, check, |completer| {
            Work::Write(at, data, completer)
        })
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        let inner = &self.0;
        let platter = &inner.platter;
        let (completer, future) = OpFuture::pending();
        // The controller is locked over both steps, so that the writer that
        // ends last finds a reset that waits.
        let mut controller = inner.controller.lock();
        let turn = match platter.is_off() {
            true => Err(DeviceErrorKind::Gone),
            false => check_zone(&platter.geometry, zone)
                .and_then(|()| platter.zones.lock().reset_start(zone)),
        };
        match turn {
            Ok(ResetTurn::Later) => {
                controller.waiting_resets.push((zone, completer));
                drop(controller);
            }
            Ok(ResetTurn::Now) => {
                drop(controller);
                inner.begin(Command::Reset, Work::Reset(zone, completer));
            }
            Err(kind) => {
                drop(controller);
                Counters::add(&platter.counters.errors, 1);
                completer.complete(Err(DeviceError::new(Operation::Reset, zone, kind)));
            }
        }
        if let Some(seed) = platter.burn_fuse() {
            inner.crash(seed);
        }
        future
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        let check = |platter: &Platter| {
            check_zone(&platter.geometry, zone)?;
            Ok(Command::Finish)
        };
        self.start(Operation::Finish, zone, check, |completer| {
            Work::Finish(zone, completer)
        })
    }

    fn flush(&self) -> OpFuture<()> {
        let mark = self.0.platter.flush_mark();
        self.start(
            Operation::Flush,
            None,
            |_| Ok(Command::Flush),
            |completer| Work::Flush(mark, completer),
        )
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        let platter = &self.0.platter;
        OpFuture::ready(match platter.is_off() {
            true => Err(DeviceError::new(
                Operation::Report,
                None,
                DeviceErrorKind::Gone,
            )),
            false => Ok(platter.zones.lock().report()),
        })
    }

    fn counters(&self) -> &Counters {
        &self.0.platter.counters
    }
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDevice({})", self.describe())
    }
}

impl Inner {
    fn begin(self: &Arc<Self>, command: Command, work: Work) {
        let (number, end) = {
            let mut controller = self.controller.lock();
            // Once the power is off nothing may be begun: see `crash`.
            if self.platter.is_off() {
                return;
            }
            let number = controller.started;
            controller.started += 1;
            controller.in_flight.insert(number, work);
            let end = controller.timing.schedule(self.clock.now(), command);
            (number, end)
        };
        let inner = Arc::clone(self);
        self.clock.at(end, move || inner.end(number));
    }

    /// The turn of a command has come.
    fn end(self: &Arc<Self>, number: u64) {
        // One at a time, so that writes land in the order of their places.
        let mut controller = self.controller.lock();
        // It is not there if the power failed.
        let Some(work) = controller.in_flight.remove(&number) else {
            return;
        };
        let platter = &self.platter;
        let counters = &platter.counters;
        match work {
            Work::Read(at, mut buf, completer) => {
                platter.load(at.zone, at.offset, &mut buf);
                Counters::add(&counters.reads, 1);
                Counters::add(&counters.read_bytes, buf.len() as u64);
                drop(controller);
                completer.complete(Ok(buf));
            }
            Work::Append(zone, offset, data, completer) => {
                let landed = self.land(zone, offset, &data);
                self.writer_done(controller, zone);
                completer.complete(landed);
            }
            Work::Write(at, data, completer) => {
                platter.store(at.zone, at.offset, &data);
                Counters::add(&counters.writes, 1);
                Counters::add(&counters.write_bytes, data.len() as u64);
                self.writer_done(controller, at.zone);
                completer.complete(Ok(()));
            }
            Work::Reset(zone, completer) => {
                platter.clear(zone);
                Counters::add(&counters.resets, 1);
                let another = platter.zones.lock().reset_done(zone, true);
                self.run_waiting_reset(controller, zone, another);
                completer.complete(Ok(()));
            }
            Work::Finish(zone, completer) => {
                let finished = platter.zones.lock().finish(zone);
                drop(controller);
                completer.complete(self.count(
                    finished,
                    &counters.finishes,
                    Operation::Finish,
                    zone,
                ));
            }
            Work::Flush(mark, completer) => {
                platter.flush(mark);
                Counters::add(&counters.flushes, 1);
                drop(controller);
                completer.complete(Ok(()));
            }
        }
    }

    fn land(
        &self,
        zone: ZoneId,
        offset: Option<u64>,
        data: &IoData,
    ) -> Result<Address, DeviceError> {
        let platter = &self.platter;
        let landed = match offset {
            Some(offset) => Ok(offset),
            None => platter.zones.lock().land(zone, data.len() as u64),
        };
        if let Ok(offset) = landed {
            platter.store(zone, offset, data);
            Counters::add(&platter.counters.append_bytes, data.len() as u64);
        }
        let landed = landed.map(|offset| Address::new(zone, offset));
        self.count(landed, &platter.counters.appends, Operation::Append, zone)
    }

    fn count<T>(
        &self,
        result: Result<T, DeviceErrorKind>,
        counter: &std::sync::atomic::AtomicU64,
        operation: Operation,
        zone: ZoneId,
    ) -> Result<T, DeviceError> {
        let errors = &self.platter.counters.errors;
        Counters::add(if result.is_ok() { counter } else { errors }, 1);
        result.map_err(|kind| DeviceError::new(operation, zone, kind))
    }

    fn writer_done(
        self: &Arc<Self>,
        controller: parking_lot::MutexGuard<'_, Controller>,
        zone: ZoneId,
    ) {
        let start = self.platter.zones.lock().writer_done(zone);
        self.run_waiting_reset(controller, zone, start);
    }

    fn run_waiting_reset(
        self: &Arc<Self>,
        mut controller: parking_lot::MutexGuard<'_, Controller>,
        zone: ZoneId,
        start: bool,
    ) {
        let waiting = &mut controller.waiting_resets;
        let position = waiting
            .iter()
            .position(|(waiter, _)| start && *waiter == zone);
        let next = position.map(|position| waiting.remove(position).1);
        drop(controller);
        if let Some(completer) = next {
            self.begin(Command::Reset, Work::Reset(zone, completer));
        }
    }

    /// Takes everything that is under way or waits; what it holds is failed
    /// by dropping it.
    fn stop(&self) -> (BTreeMap<u64, Work>, Vec<WaitingReset>) {
        let mut controller = self.controller.lock();
        let in_flight = std::mem::take(&mut controller.in_flight);
        (in_flight, std::mem::take(&mut controller.waiting_resets))
    }

    fn crash(&self, seed: u64) {
        if !self.platter.turn_off() {
            return;
        }
        let (in_flight, waiting) = self.stop();
        let (interrupted, completers): (Vec<_>, Vec<_>) =
            in_flight.into_values().map(Work::interrupt).unzip();
        let interrupted = interrupted.into_iter().flatten().collect();
        self.platter.lose_power(seed, interrupted);
        // Dropping a completer fails its operation as gone.
        drop((completers, waiting));
    }
}

/// A completer of any kind, kept only to be dropped.
type Waiter = Box<dyn std::any::Any + Send>;

impl Work {
    /// What of this work a power loss may leave behind, and who waits for it.
    fn interrupt(self) -> (Option<Interrupted>, Waiter) {
        match self {
            Work::Read(_, _, completer) => (None, Box::new(completer)),
            Work::Append(zone, offset, data, completer) => {
                let change = match offset {
                    Some(offset) => Interrupted::Write { zone, offset, data },
                    None => Interrupted::Append { zone, data },
                };
                (Some(change), Box::new(completer))
            }
            Work::Write(at, data, completer) => {
                let (zone, offset) = (at.zone, at.offset);
                let change = Interrupted::Write { zone, offset, data };
                (Some(change), Box::new(completer))
            }
            Work::Reset(zone, completer) => {
                (Some(Interrupted::Reset { zone }), Box::new(completer))
            }
            Work::Finish(_, completer) | Work::Flush(_, completer) => (None, Box::new(completer)),
        }
    }
}
