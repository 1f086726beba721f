//! A simulated SSD: zoned or conventional, in virtual or real time, with data
//! in memory and power losses.

mod build;
pub(crate) mod command;
mod controller;
mod model;
pub(crate) mod queues;
mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use floe_core::ssd::Statistics;
use floe_core::{Address, Geometry, ZoneId};
use parking_lot::Mutex;

use crate::arena::Arena;
use crate::buffer::{IoBuf, IoData};
use crate::clock::Clock;
use crate::config::{DeviceConfig, OpenDeviceError};
use crate::contract::{
    Completer, Device, OpFuture, Placement, SharedDevice, ZonePeaks, ZoneReport,
};
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::power::{PowerSwitch, Powered};
use crate::sim_media::SimMedia;
use crate::zones::{Turn, check_append, check_range, check_zone};

pub use crate::sim_config::{SimConfig, SimModel};
use command::Command;
use controller::{Controller, Inner, Work};
use model::Model;
pub use state::{StateFileError, kept_ssd};

/// Most bytes of buffers kept for reuse.
const BUFFER_BYTES: usize = 128 << 20;

/// A simulated SSD. Clones share the device.
///
/// Latencies come from queues or from the model of a whole SSD
/// ([`floe_core::ssd`]), which also provides [`Device::media_statistics`]. With
/// queues and `native_append`, an append gets its address when it ends, not
/// when it starts. Queues ignore placement handles.
#[derive(Clone)]
pub struct SimDevice(Arc<Inner>);

impl SimDevice {
    /// An empty device as configured.
    ///
    /// # Errors
    /// If a setting is missing or invalid.
    pub fn open(config: &DeviceConfig, clock: &Clock) -> Result<Self, OpenDeviceError> {
        let sim = config.sim.clone();
        let (geometry, ssd) = sim.build(config)?;
        let media = SimMedia::new(geometry, sim.write_cache(), sim.data);
        let controller = Controller {
            model: Model::new(&sim, ssd),
            in_flight: BTreeMap::new(),
            started: 0,
            waiting_resets: Vec::new(),
        };
        Ok(SimDevice::over(media, controller, sim, clock))
    }

    /// As [`SimDevice::open`], with the switch that cuts its power.
    ///
    /// # Errors
    /// If a setting is missing or invalid.
    pub fn with_power(
        config: &DeviceConfig,
        clock: &Clock,
    ) -> Result<(SharedDevice, PowerSwitch), OpenDeviceError> {
        let device = SimDevice::open(config, clock)?;
        let power = PowerSwitch::new(device.clone());
        Ok((Arc::new(device), power))
    }

    fn over(media: SimMedia, controller: Controller, config: SimConfig, clock: &Clock) -> Self {
        let is_zoned = !media.geometry.random_writes;
        let kind = if is_zoned { "zoned" } else { "conventional" };
        let description = match controller.model.name() {
            None => format!("simulated {kind} SSD"),
            Some(name) => format!("simulated {kind} SSD, {name}"),
        };
        SimDevice(Arc::new(Inner {
            places_late: media.geometry.native_append && !controller.model.is_ssd(),
            media,
            clock: clock.clone(),
            description,
            config,
            arena: Arena::new(BUFFER_BYTES).ok().map(Arc::new),
            controller: Mutex::new(controller),
        }))
    }

    /// Counts an append as a writer of its zone, and chooses its offset unless
    /// the device does that later.
    fn place(&self, zone: ZoneId, len: usize) -> Result<Option<u64>, DeviceErrorKind> {
        let media = &self.0.media;
        if media.power.is_off() {
            return Err(DeviceErrorKind::Gone);
        }
        check_append(&media.geometry, zone, len)?;
        let mut zones = media.zones.lock();
        if self.0.places_late {
            zones.writer_started(zone)?;
            return Ok(None);
        }
        zones.reserve(zone, len as u64).map(Some)
    }

    /// Starts a command that passed its checks, or rejects it.
    fn start<T: Send + 'static>(
        &self,
        operation: Operation,
        zone: impl Into<Option<ZoneId>>,
        check: impl FnOnce(&SimMedia) -> Result<Command, DeviceErrorKind>,
        work: impl FnOnce(Completer<T>) -> Work,
    ) -> OpFuture<T> {
        let inner = &self.0;
        let checked = match inner.media.power.is_off() {
            true => Err(DeviceErrorKind::Gone),
            false => check(&inner.media),
        };
        let (completer, future) = OpFuture::pending();
        match checked {
            Ok(command) => inner.begin(command, work(completer)),
            Err(kind) => {
                Counters::add(&inner.media.counters.errors, 1);
                completer.complete(Err(DeviceError::new(operation, zone, kind)));
            }
        }
        if let Some(seed) = inner.media.power.burn_fuse() {
            inner.crash(seed);
        }
        future
    }
}

impl Powered for SimDevice {
    fn media(&self) -> &SimMedia {
        &self.0.media
    }

    fn crash(&self, seed: u64) {
        self.0.crash(seed);
    }

    fn restarted(&self) -> (Box<dyn Powered>, SharedDevice) {
        // Operations in flight find the power off and fail.
        if self.0.media.power.turn_off() {
            drop(self.0.stop());
        }
        let Inner {
            media,
            config,
            clock,
            ..
        } = &*self.0;
        // The drive is the same. Numbering continues, because earlier commands
        // may still end in it.
        let controller = {
            let mut old = self.0.controller.lock();
            Controller {
                model: old.model.take(config),
                in_flight: BTreeMap::new(),
                started: old.started,
                waiting_resets: Vec::new(),
            }
        };
        let next = SimDevice::over(media.restarted(), controller, config.clone(), clock);
        (Box::new(next.clone()), Arc::new(next))
    }
}

impl Device for SimDevice {
    fn geometry(&self) -> &Geometry {
        &self.0.media.geometry
    }

    fn describe(&self) -> String {
        self.0.description.clone()
    }

    fn allocate(&self, len: usize) -> IoBuf {
        let arena = self.0.arena.as_ref();
        let reused = arena.and_then(|arena| IoBuf::from_arena(arena, len));
        reused.unwrap_or_else(|| IoBuf::zeroed(len))
    }

    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf> {
        let bytes = buf.len() as u64;
        let len = buf.len();
        let check = |media: &SimMedia| {
            check_range(&media.geometry, at.zone, at.offset, len)?;
            let offset = media.position(at.zone, at.offset);
            Ok(Command::Read { offset, bytes })
        };
        self.start(Operation::Read, at.zone, check, |completer| {
            Work::Read(at, buf, completer)
        })
    }

    fn append(&self, zone: ZoneId, data: IoData, placement: Placement) -> OpFuture<Address> {
        let bytes = data.len() as u64;
        let placed = self.place(zone, data.len());
        let offset = placed.as_ref().ok().copied().flatten();
        let check = |media: &SimMedia| {
            placed.map(|offset| Command::Append {
                zone,
                offset: media.position(zone, offset.unwrap_or(0)),
                bytes,
                handle: placement.0,
            })
        };
        self.start(Operation::Append, zone, check, |completer| {
            Work::Append(zone, offset, data, completer)
        })
    }

    fn write(&self, at: Address, data: IoData, placement: Placement) -> OpFuture<()> {
        let bytes = data.len() as u64;
        let len = data.len();
        let check = |media: &SimMedia| {
            check_range(&media.geometry, at.zone, at.offset, len)?;
            if !media.geometry.random_writes {
                return Err(DeviceErrorKind::Unsupported("writes in place"));
            }
            media.zones.lock().writer_started(at.zone)?;
            Ok(Command::Write {
                offset: media.position(at.zone, at.offset),
                bytes,
                handle: placement.0,
            })
        };
        self.start(Operation::Write, at.zone, check, |completer| {
            Work::Write(at, data, completer)
        })
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        let inner = &self.0;
        let media = &inner.media;
        let (completer, future) = OpFuture::pending();
        // The controller is locked over both steps, so that the last writer to
        // end finds a waiting reset.
        let mut controller = inner.controller.lock();
        let turn = match media.power.is_off() {
            true => Err(DeviceErrorKind::Gone),
            false => check_zone(&media.geometry, zone)
                .and_then(|()| media.zones.lock().reset_start(zone)),
        };
        match turn {
            Ok(Turn::Later) => {
                controller.waiting_resets.push((zone, completer));
                drop(controller);
            }
            Ok(Turn::Now) => {
                drop(controller);
                inner.begin(inner.reset_of(zone), Work::Reset(zone, completer));
            }
            Err(kind) => {
                drop(controller);
                Counters::add(&media.counters.errors, 1);
                completer.complete(Err(DeviceError::new(Operation::Reset, zone, kind)));
            }
        }
        if let Some(seed) = media.power.burn_fuse() {
            inner.crash(seed);
        }
        future
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        let check = |media: &SimMedia| {
            check_zone(&media.geometry, zone)?;
            Ok(Command::Finish { zone })
        };
        self.start(Operation::Finish, zone, check, |completer| {
            Work::Finish(zone, completer)
        })
    }

    fn flush(&self) -> OpFuture<()> {
        let mark = self.0.media.flush_mark();
        self.start(
            Operation::Flush,
            None,
            |_| Ok(Command::Flush),
            |completer| Work::Flush(mark, completer),
        )
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        let media = &self.0.media;
        OpFuture::ready(match media.power.is_off() {
            true => Err(DeviceError::new(
                Operation::Report,
                None,
                DeviceErrorKind::Gone,
            )),
            false => Ok(media.zones.lock().report()),
        })
    }

    fn zone_peaks(&self) -> Option<ZonePeaks> {
        Some(self.0.media.zones.lock().peaks())
    }

    fn counters(&self) -> &Counters {
        &self.0.media.counters
    }

    fn media_statistics(&self) -> Option<Statistics> {
        self.0.controller.lock().model.statistics()
    }
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDevice({})", self.describe())
    }
}
