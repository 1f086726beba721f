//! The array as a device.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use floe_core::ssd::Statistics;
use floe_core::{Address, Geometry, ZoneId};
use tokio::runtime::Handle;

use super::drives::Drives;
use super::lane::Lane;
use super::shape::{MIRRORED_ZONES, Place, Shape};
use crate::buffer::{IoBuf, IoData};
use crate::contract::{
    Completer, Device, DriveStanding, DriveStatus, OpFuture, Placement, SharedDevice, ZonePeaks,
    ZoneReport, ZoneState,
};
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::file::request::ZonedJob;
use crate::file::states::{Waiting, ZoneStates};
use crate::zones::{check_append, check_range, check_zone};

/// [`Device::append`], or [`Device::append_durably`].
type Append = fn(&dyn Device, ZoneId, IoData, Placement) -> OpFuture<Address>;

/// Several drives as one device; see the [module](crate::array).
pub struct Array(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) shape: Shape,
    pub(super) drives: Drives,
    pub(super) zones: ZoneStates,
    /// One for each metadata zone.
    pub(super) lanes: [Arc<Lane>; MIRRORED_ZONES as usize],
    /// Runs what must end although its caller does not wait: the runtime that opened the
    /// array.
    pub(super) runtime: Handle,
    pub(super) counters: Counters,
}

impl Array {
    /// The standing of each drive, in the order of slots.
    pub fn drives(&self) -> Vec<DriveStatus> {
        self.0.drives.status()
    }
}

impl Inner {
    /// Takes a drive out of use, and records that.
    pub(super) fn drop_drive(self: &Arc<Self>, slot: usize, why: &DeviceError) {
        let standing = self.drives.withdraw(slot, why);
        if standing == DriveStanding::Dropped {
            return;
        }
        let inner = Arc::clone(self);
        self.runtime.spawn(async move {
            if standing == DriveStanding::Live {
                inner.drives.record().await;
            }
            inner.release_dropped();
        });
    }

    /// The zones of drives that were dropped hold no open or active places any more.
    pub(super) fn release_dropped(&self) {
        if !self.drives.take_dropped() {
            return;
        }
        for zone in self.shape.geometry.zones() {
            self.withdraw_if_dropped(zone);
        }
    }

    /// Takes note of the end of an operation on one drive.
    pub(super) fn noted<T>(
        self: &Arc<Self>,
        slot: usize,
        result: Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        if self.drives.note(slot, &result)
            && let Err(error) = &result
        {
            self.drop_drive(slot, error);
        }
        result
    }

    /// A zone of a dropped drive holds no open or active place.
    fn withdraw_if_dropped(&self, zone: ZoneId) {
        if let Place::On(slot, _) = self.shape.place(zone)
            && self.drives.usable(slot).is_none()
        {
            self.zones.lock().restore(zone, ZoneState::Offline, 0);
        }
    }

    /// Counts the end of an operation, and names the zone of the array in its error.
    fn count<T>(
        &self,
        operation: Operation,
        zone: impl Into<Option<ZoneId>>,
        counter: &AtomicU64,
        result: Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        match result {
            Ok(value) => {
                Counters::add(counter, 1);
                Ok(value)
            }
            Err(error) => Err(self.failed(operation, zone, error.kind)),
        }
    }

    fn failed(
        &self,
        operation: Operation,
        zone: impl Into<Option<ZoneId>>,
        kind: DeviceErrorKind,
    ) -> DeviceError {
        Counters::add(&self.counters.errors, 1);
        DeviceError::new(operation, zone, kind)
    }

    /// Copies of what is written to `zone`.
    fn copies(&self, zone: ZoneId) -> u64 {
        match self.shape.place(zone) {
            Place::Mirrored(_) => self.drives.all_usable().count() as u64,
            Place::On(..) => 1,
        }
    }

    /// Starts an operation on the drive of `zone`, or on all copies of a metadata zone one
    /// after another, and then ends it.
    fn start<T, All>(
        self: &Arc<Self>,
        (operation, zone): (Operation, ZoneId),
        completer: Completer<T>,
        on_drive: impl FnOnce(&SharedDevice, ZoneId) -> OpFuture<T>,
        on_all: impl FnOnce(Arc<Inner>, ZoneId) -> All + Send + 'static,
        end: impl FnOnce(&Arc<Inner>, Result<T, DeviceError>) -> Result<T, DeviceError> + Send + 'static,
    ) where
        T: Send + 'static,
        All: Future<Output = Result<T, DeviceError>> + Send,
    {
        let (inner, place) = (Arc::clone(self), self.shape.place(zone));
        let started = match place {
            Place::On(slot, at) => self.drives.usable(slot).map(|device| on_drive(device, at)),
            Place::Mirrored(_) => None,
        };
        let job = async move {
            let result = match (place, started) {
                (Place::Mirrored(at), _) => on_all(Arc::clone(&inner), at).await,
                (Place::On(slot, _), Some(started)) => inner.noted(slot, started.await),
                (Place::On(..), None) => Err(DeviceError::new(operation, zone, offline())),
            };
            completer.complete(end(&inner, result));
        };
        match place {
            Place::Mirrored(at) => self.lanes[copy_of(at)].push(&self.runtime, job),
            Place::On(..) => drop(self.runtime.spawn(job)),
        }
    }

    /// Ends a writer of `zone`.
    fn writer_done(self: &Arc<Self>, zone: ZoneId) {
        let next = self.zones.writer_done(zone);
        self.withdraw_if_dropped(zone);
        self.start_waiting(next);
    }

    /// Starts a reset that waited for the end of writers.
    fn start_waiting(self: &Arc<Self>, waiting: Option<Waiting>) {
        if let Some(Waiting { job, .. }) = waiting {
            self.start_job(job);
        }
    }

    fn start_job(self: &Arc<Self>, job: ZonedJob) {
        let ZonedJob::Reset(zone, completer) = job else {
            unreachable!("an array lets nothing wait but resets");
        };
        self.start_reset(zone, completer);
    }

    /// Starts the reset that `zone` counts as running.
    fn start_reset(self: &Arc<Self>, zone: ZoneId, completer: Completer<()>) {
        self.start(
            (Operation::Reset, zone),
            completer,
            |device, at| device.reset(at),
            |inner, at| async move { inner.reset_all(copy_of(at), at).await },
            move |inner, result| {
                let next = inner.zones.reset_done(zone, result.is_ok());
                inner.withdraw_if_dropped(zone);
                inner.start_waiting(next);
                inner.count(Operation::Reset, zone, &inner.counters.resets, result)
            },
        );
    }

    /// Checks that the array may change.
    fn check_writable(&self) -> Result<(), DeviceErrorKind> {
        match self.drives.is_read_only {
            true => Err(DeviceErrorKind::Unsupported(
                "writing, since it was opened to be read",
            )),
            false => Ok(()),
        }
    }

    /// Checks that the drive of a zone for values was not dropped.
    fn check_usable(&self, zone: ZoneId) -> Result<(), DeviceErrorKind> {
        match self.shape.place(zone) {
            Place::On(slot, _) if self.drives.usable(slot).is_none() => Err(offline()),
            _ => Ok(()),
        }
    }

    /// Appends, once the zone has reserved the place.
    fn start_append(
        self: &Arc<Self>,
        zone: ZoneId,
        data: IoData,
        placement: Placement,
        append: Append,
    ) -> OpFuture<Address> {
        let (completer, future) = OpFuture::pending();
        let (len, copy) = (data.len() as u64, data.clone());
        self.start(
            (Operation::Append, zone),
            completer,
            |device, at| append(&**device, at, data, placement),
            move |inner, at| async move {
                let append = |device: &SharedDevice| append(&**device, at, copy.clone(), placement);
                inner
                    .on_copies(copy_of(at), Operation::Append, append)
                    .await
            },
            move |inner, result| {
                inner.writer_done(zone);
                if result.is_ok() {
                    Counters::add(&inner.counters.append_bytes, len * inner.copies(zone));
                }
                let result = result.map(|at| Address::new(zone, at.offset));
                inner.count(Operation::Append, zone, &inner.counters.appends, result)
            },
        );
        future
    }

    /// Writes in place, once the zone has counted the writer.
    fn start_write(
        self: &Arc<Self>,
        Address { zone, offset }: Address,
        data: IoData,
        placement: Placement,
    ) -> OpFuture<()> {
        let (completer, future) = OpFuture::pending();
        let (len, copy) = (data.len() as u64, data.clone());
        self.start(
            (Operation::Write, zone),
            completer,
            |device, at| device.write(Address::new(at, offset), data, placement),
            move |inner, at| async move {
                let place = Address::new(at, offset);
                let write = |device: &SharedDevice| device.write(place, copy.clone(), placement);
                inner.on_copies(copy_of(at), Operation::Write, write).await
            },
            move |inner, result| {
                inner.writer_done(zone);
                if result.is_ok() {
                    Counters::add(&inner.counters.write_bytes, len * inner.copies(zone));
                }
                inner.count(Operation::Write, zone, &inner.counters.writes, result)
            },
        );
        future
    }

    fn start_finish(self: &Arc<Self>, zone: ZoneId) -> OpFuture<()> {
        let (completer, future) = OpFuture::pending();
        self.start(
            (Operation::Finish, zone),
            completer,
            |device, at| device.finish(at),
            |inner, at| async move {
                let finish = |device: &SharedDevice| device.finish(at);
                inner
                    .on_copies(copy_of(at), Operation::Finish, finish)
                    .await
            },
            move |inner, result| {
                inner.count(Operation::Finish, zone, &inner.counters.finishes, result)
            },
        );
        future
    }

    /// The zones of the array, from the reports of its drives.
    pub(super) async fn gather_reports(
        self: &Arc<Self>,
        started: Vec<(usize, OpFuture<Vec<ZoneReport>>)>,
    ) -> Vec<ZoneReport> {
        let mut reports = vec![Vec::new(); self.shape.drives as usize];
        for (slot, report) in started {
            if let Ok(report) = self.noted(slot, report.await) {
                reports[slot] = report;
            }
        }
        let zones = self.shape.geometry.zones();
        zones
            .map(|zone| {
                let (slot, at) = match self.shape.place(zone) {
                    Place::On(slot, at) => (slot, at),
                    Place::Mirrored(at) => {
                        let copy = copy_of(at);
                        let first = (0..reports.len())
                            .find(|slot| self.copy_in_sync(*slot, copy).is_some());
                        (first.unwrap_or(0), at)
                    }
                };
                let found = reports[slot].get(at.index());
                let (state, write_pointer) = match found {
                    Some(found) => (found.state, found.write_pointer),
                    None if self.drives.usable(slot).is_some() => (ZoneState::Unknown, 0),
                    None => (ZoneState::Offline, 0),
                };
                ZoneReport {
                    zone,
                    state,
                    write_pointer,
                }
            })
            .collect()
    }

    /// Starts a report of every drive.
    pub(super) fn start_reports(&self) -> Vec<(usize, OpFuture<Vec<ZoneReport>>)> {
        let usable = self.drives.all_usable();
        usable
            .map(|(slot, device)| (slot, device.report()))
            .collect()
    }
}

/// The number of the metadata zone that is `zone` of each drive.
fn copy_of(zone: ZoneId) -> usize {
    zone.index() - super::shape::LABEL_ZONES.len()
}

fn offline() -> DeviceErrorKind {
    DeviceErrorKind::ZoneUnwritable(ZoneState::Offline)
}

impl Array {
    fn append_so(
        &self,
        zone: ZoneId,
        data: IoData,
        placement: Placement,
        append: Append,
    ) -> OpFuture<Address> {
        let inner = &self.0;
        let reserved = check_append(&inner.shape.geometry, zone, data.len())
            .and_then(|()| inner.check_writable())
            .and_then(|()| inner.check_usable(zone))
            .and_then(|()| inner.zones.lock().reserve(zone, data.len() as u64));
        match reserved {
            Ok(_) => inner.start_append(zone, data, placement, append),
            Err(kind) => OpFuture::ready(Err(inner.failed(Operation::Append, zone, kind))),
        }
    }
}

impl Device for Array {
    fn geometry(&self) -> &Geometry {
        &self.0.shape.geometry
    }

    fn describe(&self) -> String {
        let names: Vec<_> = self.drives().into_iter().map(|drive| drive.name).collect();
        format!("an array of {} drives: {}", names.len(), names.join(", "))
    }

    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf> {
        let (inner, geometry) = (Arc::clone(&self.0), &self.0.shape.geometry);
        let len = buf.len();
        let checked = check_range(geometry, at.zone, at.offset, len)
            .and_then(|()| inner.check_usable(at.zone));
        if let Err(kind) = checked {
            return OpFuture::ready(Err(inner.failed(Operation::Read, at.zone, kind)));
        }
        let place = inner.shape.place(at.zone);
        let first = match place {
            Place::On(slot, zone) => Some((slot, zone)),
            Place::Mirrored(zone) => (0..inner.drives.slots().len())
                .find(|slot| inner.copy_in_sync(*slot, copy_of(zone)).is_some())
                // Another one has all that was acknowledged, and perhaps less than was written.
                .or_else(|| inner.drives.all_usable().next().map(|(slot, _)| slot))
                .map(|slot| (slot, zone)),
        };
        let started = first.and_then(|(slot, zone)| {
            let on_drive = Address::new(zone, at.offset);
            // It may have been dropped since: then the read fails, or is answered all the same.
            let device = inner.drives.slots()[slot].device.as_ref()?;
            Some((slot, on_drive, device.read(on_drive, buf)))
        });
        let Some((slot, on_drive, read)) = started else {
            let gone = DeviceErrorKind::Gone;
            return OpFuture::ready(Err(inner.failed(Operation::Read, at.zone, gone)));
        };
        OpFuture::new(async move {
            let result = match place {
                Place::On(..) => inner.noted(slot, read.await),
                Place::Mirrored(zone) => {
                    let copy = copy_of(zone);
                    inner.read_any(copy, on_drive, len, (slot, read)).await
                }
            };
            if result.is_ok() {
                Counters::add(&inner.counters.read_bytes, len as u64);
            }
            inner.count(Operation::Read, at.zone, &inner.counters.reads, result)
        })
    }

    fn append(&self, zone: ZoneId, data: IoData, placement: Placement) -> OpFuture<Address> {
        self.append_so(zone, data, placement, <dyn Device>::append)
    }

    /// True if all drives do.
    fn appends_durably(&self) -> bool {
        let mut usable = self.0.drives.all_usable();
        usable.all(|(_, device)| device.appends_durably())
    }

    fn append_durably(&self, zone: ZoneId, data: IoData, to: Placement) -> OpFuture<Address> {
        self.append_so(zone, data, to, <dyn Device>::append_durably)
    }

    fn write(&self, at: Address, data: IoData, placement: Placement) -> OpFuture<()> {
        let (inner, geometry) = (&self.0, &self.0.shape.geometry);
        let counted = check_range(geometry, at.zone, at.offset, data.len())
            .and_then(|()| inner.check_writable())
            .and_then(|()| inner.check_usable(at.zone))
            .and_then(|()| match geometry.random_writes {
                true => inner.zones.lock().writer_started(at.zone),
                false => Err(DeviceErrorKind::Unsupported("writes in place")),
            });
        match counted {
            Ok(()) => inner.start_write(at, data, placement),
            Err(kind) => OpFuture::ready(Err(inner.failed(Operation::Write, at.zone, kind))),
        }
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        let inner = &self.0;
        let requested = check_zone(&inner.shape.geometry, zone)
            .and_then(|()| inner.check_writable())
            .and_then(|()| inner.check_usable(zone))
            .and_then(|()| inner.zones.request_reset(zone, None));
        match requested {
            Ok((future, Some(reset))) => {
                inner.start_job(reset);
                future
            }
            Ok((future, None)) => future,
            Err(kind) => OpFuture::ready(Err(inner.failed(Operation::Reset, zone, kind))),
        }
    }

    fn reserve(&self, zone: ZoneId, bytes: u64) -> Result<(), DeviceError> {
        let inner = &self.0;
        check_zone(&inner.shape.geometry, zone)
            .and_then(|()| inner.check_usable(zone))
            .map_err(|kind| DeviceError::new(Operation::Open, zone, kind))?;
        match inner.shape.place(zone) {
            Place::On(slot, at) => match inner.drives.usable(slot) {
                Some(device) => device.reserve(at, bytes),
                None => Ok(()),
            },
            Place::Mirrored(at) => {
                let mut reserved = Ok(());
                for (_, device) in inner.drives.all_usable() {
                    reserved = reserved.and(device.reserve(at, bytes));
                }
                reserved
            }
        }
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        let inner = &self.0;
        let finished = check_zone(&inner.shape.geometry, zone)
            .and_then(|()| inner.check_writable())
            .and_then(|()| inner.check_usable(zone))
            .and_then(|()| inner.zones.lock().finish(zone));
        match finished {
            Ok(()) => inner.start_finish(zone),
            Err(kind) => OpFuture::ready(Err(inner.failed(Operation::Finish, zone, kind))),
        }
    }

    fn flush(&self) -> OpFuture<()> {
        let inner = Arc::clone(&self.0);
        let usable = inner.drives.all_usable();
        let started: Vec<_> = usable
            .map(|(slot, device)| (slot, device.flush()))
            .collect();
        let (completer, future) = OpFuture::pending();
        let runtime = inner.runtime.clone();
        runtime.spawn(async move {
            let flushed = inner.end_flush(started).await;
            let flushes = &inner.counters.flushes;
            completer.complete(inner.count(Operation::Flush, None, flushes, flushed));
        });
        future
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        let inner = Arc::clone(&self.0);
        let started = inner.start_reports();
        OpFuture::new(async move { Ok(inner.gather_reports(started).await) })
    }

    fn zone_peaks(&self) -> Option<ZonePeaks> {
        Some(self.0.zones.lock().peaks())
    }

    fn counters(&self) -> &Counters {
        &self.0.counters
    }

    fn media_statistics(&self) -> Option<Statistics> {
        let drives = self.0.drives.all_usable();
        let each = drives.map(|(_, device)| device.media_statistics());
        let each: Vec<_> = each.collect::<Option<_>>()?;
        (!each.is_empty()).then(|| each.iter().sum())
    }

    fn drives(&self) -> Vec<DriveStatus> {
        Array::drives(self)
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({} drives)", self.0.shape.drives)
    }
}
