//! A device with the faults of flash: a power cut that tears an append into
//! sectors, failed operations, lost appends, a failed flush after which the
//! data before it is lost, and one rotten block.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use floe_core::{Address, Geometry, ZoneId};
use floe_device::{
    Counters, Device, DeviceError, DeviceErrorKind, IoBuf, IoData, OpFuture, Operation, Placement,
    SharedDevice, ZoneReport,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// The unit in which a drive writes: a power cut tears a block between sectors.
const SECTOR: usize = 512;

/// Probabilities of faults, per operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    pub(super) appends: f64,
    pub(super) resets: f64,
    pub(super) flushes: f64,
}

/// Bytes of a zone that do not read back as they were written.
#[derive(Clone, Debug)]
struct Overlay {
    zone: ZoneId,
    bytes: Range<u64>,
    change: Change,
}

/// The change of the bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// One bit of the first byte is flipped.
    Flip,
    /// All are zeros.
    Zeros,
    /// All are garbage.
    Garbage,
}

/// The faults of a device, across restarts.
#[derive(Debug)]
pub(super) struct Faults {
    random: StdRng,
    pub(super) rates: Rates,
    /// Operations until the device fails for good.
    pub(super) cut_after: Option<u64>,
    /// Appends until one is acknowledged but lost.
    pub(super) lost_append: Option<u64>,
    is_off: bool,
    /// Operations that failed as one of `rates` says.
    failures: u64,
    /// Appended since the last flush.
    unflushed: Vec<(ZoneId, Range<u64>)>,
    /// Appends before a failed flush. They read well until the power is lost.
    doomed: Vec<(ZoneId, Range<u64>)>,
    overlays: Vec<Overlay>,
    /// The zone of the rotten block, until it is reset.
    rotten: Option<ZoneId>,
}

impl Faults {
    pub(super) fn new(seed: u64) -> Self {
        Faults {
            random: StdRng::seed_from_u64(seed),
            rates: Rates::default(),
            cut_after: None,
            lost_append: None,
            is_off: false,
            failures: 0,
            unflushed: Vec::new(),
            doomed: Vec::new(),
            overlays: Vec::new(),
            rotten: None,
        }
    }

    /// Opens the device again, after a power loss or without one.
    pub(super) fn restart(&mut self, power_loss: bool) {
        self.is_off = false;
        self.cut_after = None;
        self.lost_append = None;
        self.unflushed.clear();
        for (zone, bytes) in std::mem::take(&mut self.doomed) {
            if power_loss && self.random.random() {
                let change = Change::Zeros;
                self.overlays.push(Overlay {
                    zone,
                    bytes,
                    change,
                });
            }
        }
    }

    pub(super) fn rot(&mut self, at: Address, len: u64, change: Change) {
        let (zone, bytes) = (at.zone, at.offset..at.offset + len);
        self.overlays.push(Overlay {
            zone,
            bytes,
            change,
        });
        self.rotten = Some(zone);
    }

    /// True if a block that was written and flushed reads back wrong.
    pub(super) fn is_rotten(&self) -> bool {
        self.rotten.is_some()
    }

    pub(super) fn is_off(&self) -> bool {
        self.is_off
    }

    /// Counts an operation that changes the device. Returns true for the last one.
    fn count(&mut self) -> Result<bool, DeviceErrorKind> {
        if self.is_off {
            return Err(DeviceErrorKind::Gone);
        }
        if let Some(left) = &mut self.cut_after {
            *left -= 1;
            self.is_off = *left == 0;
        }
        Ok(self.is_off)
    }

    /// Operations that failed so far, and did not end the power.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    fn fails(&mut self, rate: f64) -> bool {
        let fails = self.random.random_bool(rate);
        self.failures += u64::from(fails);
        fails
    }

    /// Keeps some of the sectors: a prefix, or each at random.
    fn tear(&mut self, data: &IoData) -> IoData {
        let mut torn = IoBuf::copy_of(data, data.len());
        let is_prefix = self.random.random();
        let kept = self.random.random_range(0..=data.len() / SECTOR);
        for (number, sector) in torn.chunks_mut(SECTOR).enumerate() {
            let keeps = match is_prefix {
                true => number < kept,
                false => self.random.random(),
            };
            if !keeps {
                sector.fill(0);
            }
        }
        torn.freeze()
    }

    fn change(&self, at: Address, buf: &mut [u8]) {
        for overlay in &self.overlays {
            let start = overlay.bytes.start.max(at.offset);
            let end = overlay.bytes.end.min(at.offset + buf.len() as u64);
            if overlay.zone != at.zone || start >= end {
                continue;
            }
            let bytes = &mut buf[(start - at.offset) as usize..(end - at.offset) as usize];
            match overlay.change {
                Change::Flip if start == overlay.bytes.start => bytes[0] ^= 0x10,
                Change::Flip => {}
                Change::Zeros => bytes.fill(0),
                Change::Garbage => bytes.fill(0x5a),
            }
        }
    }

    fn forget(&mut self, zone: ZoneId) {
        self.overlays.retain(|overlay| overlay.zone != zone);
        self.unflushed.retain(|(of, _)| *of != zone);
        self.doomed.retain(|(of, _)| *of != zone);
        self.rotten = self.rotten.filter(|of| *of != zone);
    }
}

/// The device.
#[derive(Debug)]
pub(super) struct Flash {
    below: SharedDevice,
    faults: Arc<Mutex<Faults>>,
}

impl Flash {
    pub(super) fn over(below: SharedDevice, faults: &Arc<Mutex<Faults>>) -> SharedDevice {
        let faults = Arc::clone(faults);
        Arc::new(Flash { below, faults })
    }

    fn append_so(
        &self,
        zone: ZoneId,
        data: IoData,
        placement: Placement,
        is_durable: bool,
    ) -> OpFuture<Address> {
        let mut faults = self.faults.lock();
        let rate = faults.rates.appends;
        match faults.count() {
            Err(kind) => return failed(Operation::Append, zone, kind),
            Ok(true) => {
                let torn = faults.tear(&data);
                let below = self.below.append(zone, torn, placement);
                return gone_after(Operation::Append, below);
            }
            Ok(false) if faults.fails(rate) => {
                let torn = faults.tear(&data);
                let below = self.below.append(zone, torn, placement);
                return OpFuture::new(async move {
                    below.await?;
                    Err(DeviceError::new(Operation::Append, zone, injected()))
                });
            }
            Ok(false) => {}
        }
        let is_lost = faults.lost_append == Some(1);
        faults.lost_append = faults.lost_append.and_then(|left| left.checked_sub(1));
        drop(faults);
        let len = data.len() as u64;
        let below = match is_durable {
            true => self.below.append_durably(zone, data, placement),
            false => self.below.append(zone, data, placement),
        };
        let faults = Arc::clone(&self.faults);
        OpFuture::new(async move {
            let at = below.await?;
            let mut faults = faults.lock();
            if !is_durable {
                faults.unflushed.push((zone, at.offset..at.offset + len));
            }
            if is_lost {
                faults.rot(at, len, Change::Zeros);
            }
            Ok(at)
        })
    }
}

fn failed<T: Send + 'static>(
    operation: Operation,
    zone: impl Into<Option<ZoneId>>,
    kind: DeviceErrorKind,
) -> OpFuture<T> {
    OpFuture::ready(Err(DeviceError::new(operation, zone, kind)))
}

fn injected() -> DeviceErrorKind {
    DeviceErrorKind::Io(io::Error::other("injected fault"))
}

/// Fails as a device that is gone, once the operation below has completed.
fn gone_after<T: Send + 'static, U: Send + 'static>(
    operation: Operation,
    below: OpFuture<U>,
) -> OpFuture<T> {
    OpFuture::new(async move {
        below.await?;
        Err(DeviceError::new(operation, None, DeviceErrorKind::Gone))
    })
}

impl Device for Flash {
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }

    fn describe(&self) -> String {
        self.below.describe()
    }

    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf> {
        let below = self.below.read(at, buf);
        let faults = Arc::clone(&self.faults);
        OpFuture::new(async move {
            let mut buf = below.await?;
            faults.lock().change(at, &mut buf);
            Ok(buf)
        })
    }

    fn append(&self, zone: ZoneId, data: IoData, placement: Placement) -> OpFuture<Address> {
        self.append_so(zone, data, placement, false)
    }

    fn appends_durably(&self) -> bool {
        self.below.appends_durably()
    }

    fn append_durably(&self, zone: ZoneId, data: IoData, to: Placement) -> OpFuture<Address> {
        self.append_so(zone, data, to, true)
    }

    fn write(&self, at: Address, data: IoData, placement: Placement) -> OpFuture<()> {
        self.below.write(at, data, placement)
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        let mut faults = self.faults.lock();
        let rate = faults.rates.resets;
        match faults.count() {
            Err(kind) => failed(Operation::Reset, zone, kind),
            Ok(false) if faults.fails(rate) => failed(Operation::Reset, zone, injected()),
            Ok(true) if faults.random.random() => {
                failed(Operation::Reset, zone, DeviceErrorKind::Gone)
            }
            Ok(is_last) => {
                faults.forget(zone);
                let below = self.below.reset(zone);
                match is_last {
                    true => gone_after(Operation::Reset, below),
                    false => below,
                }
            }
        }
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        self.below.finish(zone)
    }

    fn flush(&self) -> OpFuture<()> {
        let mut faults = self.faults.lock();
        let rate = faults.rates.flushes;
        match faults.count() {
            Err(kind) => failed(Operation::Flush, None, kind),
            Ok(true) => failed(Operation::Flush, None, DeviceErrorKind::Gone),
            Ok(false) if faults.fails(rate) => {
                let unflushed = std::mem::take(&mut faults.unflushed);
                faults.doomed.extend(unflushed);
                failed(Operation::Flush, None, injected())
            }
            Ok(false) => {
                faults.unflushed.clear();
                self.below.flush()
            }
        }
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        self.below.report()
    }

    fn counters(&self) -> &Counters {
        self.below.counters()
    }
}
