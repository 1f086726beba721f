//! A device in memory.

use std::fmt;
use std::sync::Arc;

use floe_core::{Address, Geometry, ZoneId};

use crate::buffer::{IoBuf, IoData};
use crate::config::{DeviceConfig, OpenDeviceError};
use crate::contract::{Device, OpFuture, Placement, SharedDevice, ZoneReport};
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::medium::Keeping;
use crate::platter::{Platter, WriteCache};
use crate::power::{PowerSwitch, Powered};
use crate::zones::{ResetTurn, check_append, check_range, check_zone};

/// A device in memory: every operation is over when its method returns. Space
/// is taken when written and given back by resets. Clones share the device.
#[derive(Clone)]
pub struct MemoryDevice(Arc<Platter>);

impl MemoryDevice {
    /// An empty device of this shape.
    pub fn new(geometry: Geometry) -> Self {
        MemoryDevice(Arc::new(Platter::new(
            geometry,
            WriteCache::None,
            Keeping::Whole,
        )))
    }

    /// An empty device of this shape that can lose its power. After a restart
    /// its zones are in state `Unknown` if the geometry has random writes.
    pub fn with_power(geometry: Geometry, cache: WriteCache) -> (SharedDevice, PowerSwitch) {
        let device = MemoryDevice(Arc::new(Platter::new(geometry, cache, Keeping::Whole)));
        let power = PowerSwitch::new(device.clone());
        (Arc::new(device), power)
    }

    /// An empty device as configured.
    ///
    /// # Errors
    /// When the size is missing or makes no sense.
    pub fn open(config: &DeviceConfig) -> Result<Self, OpenDeviceError> {
        Ok(MemoryDevice::new(config.geometry(config.required_size()?)?))
    }

    /// Carries out an operation, unless the power is off or fails during it.
    fn answer<T: Send + 'static>(
        &self,
        operation: Operation,
        zone: impl Into<Option<ZoneId>>,
        carry_out: impl FnOnce(&Platter) -> Result<T, DeviceErrorKind>,
    ) -> OpFuture<T> {
        let platter = &*self.0;
        let done = platter.while_on(carry_out);
        let result = match (done, platter.burn_fuse()) {
            (Some(result), None) => result,
            (None, None) => Err(DeviceErrorKind::Gone),
            (_, Some(seed)) => {
                self.crash(seed);
                Err(DeviceErrorKind::Gone)
            }
        };
        OpFuture::ready(result.map_err(|kind| {
            Counters::add(&platter.counters.errors, 1);
            DeviceError::new(operation, zone, kind)
        }))
    }
}

fn append(platter: &Platter, zone: ZoneId, data: &IoData) -> Result<Address, DeviceErrorKind> {
    check_append(&platter.geometry, zone, data.len())?;
    let _order = platter.keep_order();
    let offset = platter.zones.lock().reserve(zone, data.len() as u64)?;
    platter.store(zone, offset, data);
    writer_done(platter, zone);
    Counters::add(&platter.counters.appends, 1);
    Counters::add(&platter.counters.append_bytes, data.len() as u64);
    Ok(Address::new(zone, offset))
}

fn write(platter: &Platter, at: Address, data: &IoData) -> Result<(), DeviceErrorKind> {
    check_range(&platter.geometry, at.zone, at.offset, data.len())?;
    if !platter.geometry.random_writes {
        return Err(DeviceErrorKind::Unsupported("writes in place"));
    }
    platter.zones.lock().writer_started(at.zone)?;
    platter.store(at.zone, at.offset, data);
    writer_done(platter, at.zone);
    Counters::add(&platter.counters.writes, 1);
    Counters::add(&platter.counters.write_bytes, data.len() as u64);
    Ok(())
}

fn reset(platter: &Platter, zone: ZoneId) -> Result<(), DeviceErrorKind> {
    check_zone(&platter.geometry, zone)?;
    let turn = platter.zones.lock().reset_start(zone)?;
    match turn {
        ResetTurn::Now => clear(platter, zone),
        // Another thread is copying into the zone, and resets it on its way out.
        ResetTurn::Later => {
            while platter.zones.lock().is_being_reset(zone) {
                std::thread::yield_now();
            }
        }
    }
    Counters::add(&platter.counters.resets, 1);
    Ok(())
}

fn writer_done(platter: &Platter, zone: ZoneId) {
    if platter.zones.lock().writer_done(zone) {
        clear(platter, zone);
    }
}

fn clear(platter: &Platter, zone: ZoneId) {
    loop {
        platter.clear(zone);
        if !platter.zones.lock().reset_done(zone, true) {
            return;
        }
    }
}

impl Powered for MemoryDevice {
    fn platter(&self) -> &Platter {
        &self.0
    }

    fn crash(&self, seed: u64) {
        if self.0.turn_off() {
            self.0.lose_power(seed, Vec::new());
        }
    }

    fn restarted(&self) -> (Box<dyn Powered>, SharedDevice) {
        self.0.turn_off();
        let next = MemoryDevice(Arc::new(self.0.restarted()));
        (Box::new(next.clone()), Arc::new(next))
    }
}

impl Device for MemoryDevice {
    fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn read(&self, at: Address, mut buf: IoBuf) -> OpFuture<IoBuf> {
        self.answer(Operation::Read, at.zone, |platter| {
            check_range(&platter.geometry, at.zone, at.offset, buf.len())?;
            platter.load(at.zone, at.offset, &mut buf);
            Counters::add(&platter.counters.reads, 1);
            Counters::add(&platter.counters.read_bytes, buf.len() as u64);
            Ok(buf)
        })
    }

    fn append(&self, zone: ZoneId, data: IoData, _placement: Placement) -> OpFuture<Address> {
        self.answer(Operation::Append, zone, |platter| {
            append(platter, zone, &data)
        })
    }

    fn write(&self, at: Address, data: IoData, _placement: Placement) -> OpFuture<()> {
        self.answer(Operation::Write, at.zone, |platter| {
            write(platter, at, &data)
        })
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        self.answer(Operation::Reset, zone, |platter| reset(platter, zone))
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        self.answer(Operation::Finish, zone, |platter| {
            check_zone(&platter.geometry, zone)?;
            platter.zones.lock().finish(zone)?;
            Counters::add(&platter.counters.finishes, 1);
            Ok(())
        })
    }

    fn flush(&self) -> OpFuture<()> {
        self.answer(Operation::Flush, None, |platter| {
            platter.flush(platter.flush_mark());
            Counters::add(&platter.counters.flushes, 1);
            Ok(())
        })
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        self.answer(Operation::Report, None, |platter| {
            Ok(platter.zones.lock().report())
        })
    }

    fn counters(&self) -> &Counters {
        &self.0.counters
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryDevice({} zones)", self.0.geometry.zone_count)
    }
}
