//! A device in memory.

use std::fmt;

use floe_core::{Address, Geometry, ZoneId};
use parking_lot::Mutex;

use crate::buffer::{IoBuf, IoData};
use crate::config::{DeviceConfig, OpenDeviceError};
use crate::contract::{Device, OpFuture, Placement, ZoneReport, ZoneState};
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::medium::Medium;
use crate::zones::{ResetTurn, ZoneTable, check_append, check_range, check_zone};

/// A device in memory: every operation is over when its method returns. Space
/// is taken when written and given back by resets.
pub struct MemoryDevice {
    geometry: Geometry,
    zones: Mutex<ZoneTable>,
    medium: Medium,
    counters: Counters,
}

impl MemoryDevice {
    /// An empty device of this shape.
    pub fn new(geometry: Geometry) -> Self {
        MemoryDevice {
            zones: Mutex::new(ZoneTable::new(&geometry, ZoneState::Empty)),
            medium: Medium::new(&geometry),
            counters: Counters::default(),
            geometry,
        }
    }

    /// An empty device as configured.
    ///
    /// # Errors
    /// When the size is missing or makes no sense.
    pub fn open(config: &DeviceConfig) -> Result<Self, OpenDeviceError> {
        Ok(MemoryDevice::new(config.geometry(config.required_size()?)?))
    }

    fn answer<T: Send + 'static>(
        &self,
        operation: Operation,
        zone: ZoneId,
        result: Result<T, DeviceErrorKind>,
    ) -> OpFuture<T> {
        OpFuture::ready(result.map_err(|kind| {
            Counters::add(&self.counters.errors, 1);
            DeviceError::new(operation, zone, kind)
        }))
    }

    fn append_now(&self, zone: ZoneId, data: &IoData) -> Result<Address, DeviceErrorKind> {
        check_append(&self.geometry, zone, data.len())?;
        let offset = self.zones.lock().reserve(zone, data.len() as u64)?;
        self.medium.write(zone, offset, data);
        self.writer_done(zone);
        Counters::add(&self.counters.appends, 1);
        Counters::add(&self.counters.append_bytes, data.len() as u64);
        Ok(Address::new(zone, offset))
    }

    fn write_now(&self, at: Address, data: &IoData) -> Result<(), DeviceErrorKind> {
        check_range(&self.geometry, at.zone, at.offset, data.len())?;
        if !self.geometry.random_writes {
            return Err(DeviceErrorKind::Unsupported("writes in place"));
        }
        self.zones.lock().writer_started(at.zone)?;
        self.medium.write(at.zone, at.offset, data);
        self.writer_done(at.zone);
        Counters::add(&self.counters.writes, 1);
        Counters::add(&self.counters.write_bytes, data.len() as u64);
        Ok(())
    }

    fn reset_now(&self, zone: ZoneId) -> Result<(), DeviceErrorKind> {
        check_zone(&self.geometry, zone)?;
        let turn = self.zones.lock().reset_start(zone)?;
        match turn {
            ResetTurn::Now => self.clear(zone),
            // Another thread is copying into the zone, and resets it on its way out.
            ResetTurn::Later => {
                while self.zones.lock().is_being_reset(zone) {
                    std::thread::yield_now();
                }
            }
        }
        Counters::add(&self.counters.resets, 1);
        Ok(())
    }

    fn writer_done(&self, zone: ZoneId) {
        if self.zones.lock().writer_done(zone) {
            self.clear(zone);
        }
    }

    fn clear(&self, zone: ZoneId) {
        loop {
            self.medium.clear(zone);
            if !self.zones.lock().reset_done(zone, true) {
                return;
            }
        }
    }
}

impl Device for MemoryDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn read(&self, at: Address, mut buf: IoBuf) -> OpFuture<IoBuf> {
        let checked = check_range(&self.geometry, at.zone, at.offset, buf.len());
        let result = checked.map(|()| {
            self.medium.read(at.zone, at.offset, &mut buf);
            Counters::add(&self.counters.reads, 1);
            Counters::add(&self.counters.read_bytes, buf.len() as u64);
            buf
        });
        self.answer(Operation::Read, at.zone, result)
    }

    fn append(&self, zone: ZoneId, data: IoData, _placement: Placement) -> OpFuture<Address> {
        self.answer(Operation::Append, zone, self.append_now(zone, &data))
    }

    fn write(&self, at: Address, data: IoData, _placement: Placement) -> OpFuture<()> {
        self.answer(Operation::Write, at.zone, self.write_now(at, &data))
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        self.answer(Operation::Reset, zone, self.reset_now(zone))
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        let result = check_zone(&self.geometry, zone)
            .and_then(|()| self.zones.lock().finish(zone))
            .inspect(|()| Counters::add(&self.counters.finishes, 1));
        self.answer(Operation::Finish, zone, result)
    }

    fn flush(&self) -> OpFuture<()> {
        Counters::add(&self.counters.flushes, 1);
        OpFuture::ready(Ok(()))
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        OpFuture::ready(Ok(self.zones.lock().report()))
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryDevice({} zones)", self.geometry.zone_count)
    }
}
