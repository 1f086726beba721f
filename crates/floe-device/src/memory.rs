//! A device in memory.

use std::fmt;
use std::sync::Arc;

use floe_core::{Address, Geometry, ZoneId};

use crate::buffer::{IoBuf, IoData};
use crate::config::{DeviceConfig, OpenDeviceError};
use crate::contract::{Device, OpFuture, Placement, SharedDevice, ZonePeaks, ZoneReport};
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::medium::Keeping;
use crate::power::{PowerSwitch, Powered};
use crate::sim_media::{SimMedia, WriteCache};
use crate::zones::{Turn, check_append, check_range, check_zone};

/// A device in memory. Every operation has ended when its method returns.
/// Writes allocate space, resets free it. Clones share the device.
#[derive(Clone)]
pub struct MemoryDevice(Arc<SimMedia>);

impl MemoryDevice {
    /// An empty device of this geometry.
    pub fn new(geometry: Geometry) -> Self {
        MemoryDevice(Arc::new(SimMedia::new(
            geometry,
            WriteCache::None,
            Keeping::Whole,
        )))
    }

    /// An empty device of this geometry whose power can fail. After a restart
    /// its zones are in state `Unknown` if the geometry has random writes.
    pub fn with_power(geometry: Geometry, cache: WriteCache) -> (SharedDevice, PowerSwitch) {
        let device = MemoryDevice(Arc::new(SimMedia::new(geometry, cache, Keeping::Whole)));
        let power = PowerSwitch::new(device.clone());
        (Arc::new(device), power)
    }

    /// An empty device as configured.
    ///
    /// # Errors
    /// If the size is missing or invalid.
    pub fn open(config: &DeviceConfig) -> Result<Self, OpenDeviceError> {
        Ok(MemoryDevice::new(config.geometry(config.required_size()?)?))
    }

    fn append_so(&self, zone: ZoneId, data: &[u8], store: Store) -> OpFuture<Address> {
        self.answer(Operation::Append, zone, |media| {
            append(media, zone, data, store)
        })
    }

    /// Executes an operation, unless the power is off or fails during it.
    fn answer<T: Send + 'static>(
        &self,
        operation: Operation,
        zone: impl Into<Option<ZoneId>>,
        carry_out: impl FnOnce(&SimMedia) -> Result<T, DeviceErrorKind>,
    ) -> OpFuture<T> {
        let media = &*self.0;
        let crash = |seed| self.crash(seed);
        let result = media.power.operate(|_| carry_out(media), crash);
        OpFuture::ready(result.map_err(|kind| {
            Counters::add(&media.counters.errors, 1);
            DeviceError::new(operation, zone, kind)
        }))
    }
}

/// Stores the data of an append at an offset in its zone.
type Store = fn(&SimMedia, ZoneId, u64, &[u8]);

fn append(
    media: &SimMedia,
    zone: ZoneId,
    data: &[u8],
    store: Store,
) -> Result<Address, DeviceErrorKind> {
    check_append(&media.geometry, zone, data.len())?;
    let _order = media.keep_order();
    let offset = media.zones.lock().reserve(zone, data.len() as u64)?;
    store(media, zone, offset, data);
    writer_done(media, zone);
    Counters::add(&media.counters.appends, 1);
    Counters::add(&media.counters.append_bytes, data.len() as u64);
    Ok(Address::new(zone, offset))
}

fn write(media: &SimMedia, at: Address, data: &IoData) -> Result<(), DeviceErrorKind> {
    check_range(&media.geometry, at.zone, at.offset, data.len())?;
    if !media.geometry.random_writes {
        return Err(DeviceErrorKind::Unsupported("writes in place"));
    }
    media.zones.lock().writer_started(at.zone)?;
    media.store(at.zone, at.offset, data);
    writer_done(media, at.zone);
    Counters::add(&media.counters.writes, 1);
    Counters::add(&media.counters.write_bytes, data.len() as u64);
    Ok(())
}

fn reset(media: &SimMedia, zone: ZoneId) -> Result<(), DeviceErrorKind> {
    check_zone(&media.geometry, zone)?;
    let turn = media.zones.lock().reset_start(zone)?;
    match turn {
        Turn::Now => clear(media, zone),
        // Another thread is copying into the zone, and will reset it when it
        // has finished.
        Turn::Later => {
            while media.zones.lock().is_being_reset(zone) {
                std::thread::yield_now();
            }
        }
    }
    Counters::add(&media.counters.resets, 1);
    Ok(())
}

fn writer_done(media: &SimMedia, zone: ZoneId) {
    if media.zones.lock().writer_done(zone) {
        clear(media, zone);
    }
}

fn clear(media: &SimMedia, zone: ZoneId) {
    loop {
        media.clear(zone);
        if !media.zones.lock().reset_done(zone, true) {
            return;
        }
    }
}

impl Powered for MemoryDevice {
    fn media(&self) -> &SimMedia {
        &self.0
    }

    fn crash(&self, seed: u64) {
        if self.0.power.turn_off() {
            self.0.lose_power(seed, Vec::new());
        }
    }

    fn restarted(&self) -> (Box<dyn Powered>, SharedDevice) {
        self.0.power.turn_off();
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
        self.answer(Operation::Read, at.zone, |media| {
            check_range(&media.geometry, at.zone, at.offset, buf.len())?;
            media.load(at.zone, at.offset, &mut buf);
            Counters::add(&media.counters.reads, 1);
            Counters::add(&media.counters.read_bytes, buf.len() as u64);
            Ok(buf)
        })
    }

    fn append(&self, zone: ZoneId, data: IoData, _placement: Placement) -> OpFuture<Address> {
        self.append_so(zone, &data, SimMedia::store)
    }

    fn appends_durably(&self) -> bool {
        true
    }

    fn append_durably(&self, zone: ZoneId, data: IoData, _: Placement) -> OpFuture<Address> {
        self.append_so(zone, &data, SimMedia::store_durably)
    }

    fn write(&self, at: Address, data: IoData, _placement: Placement) -> OpFuture<()> {
        self.answer(Operation::Write, at.zone, |media| write(media, at, &data))
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        self.answer(Operation::Reset, zone, |media| reset(media, zone))
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        self.answer(Operation::Finish, zone, |media| {
            check_zone(&media.geometry, zone)?;
            media.zones.lock().finish(zone)?;
            Counters::add(&media.counters.finishes, 1);
            Ok(())
        })
    }

    fn flush(&self) -> OpFuture<()> {
        self.answer(Operation::Flush, None, |media| {
            media.flush(media.flush_mark());
            Counters::add(&media.counters.flushes, 1);
            Ok(())
        })
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        self.answer(Operation::Report, None, |media| {
            Ok(media.zones.lock().report())
        })
    }

    fn zone_peaks(&self) -> Option<ZonePeaks> {
        Some(self.0.zones.lock().peaks())
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
