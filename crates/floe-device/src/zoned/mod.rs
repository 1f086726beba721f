//! A zoned block device: a host-managed drive, ZNS or SMR, through the kernel's block
//! layer.
//!
//! The drive knows its zones' states, so a device that is opened reports them. An append
//! becomes a write at the write pointer, one in flight for each zone, in order.

pub(crate) mod kernel;
mod lanes;
pub(crate) mod open;
mod operations;

use std::fmt;
use std::sync::Arc;

use floe_core::{Address, Geometry, ZoneId};

use crate::buffer::{IoBuf, IoData};
use crate::contract::{Device, OpFuture, Placement, ZonePeaks, ZoneReport, ZoneState};
use crate::counters::Counters;
use crate::error::{DeviceErrorKind, Operation};
use crate::file::engine::{Engine, IoMethod};
use crate::file::request::{Job, Request, Transfer, ZonedJob};
use crate::zones::{check_append, check_range, check_zone};

pub(crate) use open::is_host_managed;
use operations::Operations;

/// A zoned block device. Its operations run as those of a
/// [`FileDevice`](crate::FileDevice), on its engine. Dropping the device waits for
/// operations in flight.
pub struct ZonedDevice {
    engine: Engine,
    operations: Arc<Operations>,
}

impl ZonedDevice {
    /// How reads and writes reach the kernel. Zones are always managed by threads.
    pub fn io_method(&self) -> IoMethod {
        self.engine.io_method()
    }

    fn submit(&self, request: Option<Request>) {
        if let Some(request) = request {
            self.engine.submit(request);
        }
    }

    /// Appends `len` bytes by a transfer that writes them.
    fn append_by(&self, zone: ZoneId, len: usize, write: Transfer) -> OpFuture<Address> {
        let operations = &*self.operations;
        let (completer, future) = OpFuture::pending();
        let started = check_append(&operations.geometry, zone, len).and_then(|()| {
            // Places are given in the order of the lane.
            let mut lanes = operations.lanes.lock();
            let offset = operations.zones.lock().reserve(zone, len as u64)?;
            let at = Address::new(zone, offset);
            let request = operations.write(at, write, ZonedJob::Append(at, completer));
            Ok(lanes.add(zone, request))
        });
        match started {
            Ok(request) => self.submit(request),
            Err(kind) => return self.reject(Operation::Append, zone, kind),
        }
        future
    }

    fn reject<T: Send + 'static>(
        &self,
        operation: Operation,
        zone: ZoneId,
        kind: DeviceErrorKind,
    ) -> OpFuture<T> {
        self.operations.open.reject(operation, zone, kind)
    }
}

impl Device for ZonedDevice {
    fn geometry(&self) -> &Geometry {
        &self.operations.geometry
    }

    fn zone_peaks(&self) -> Option<ZonePeaks> {
        Some(self.operations.zones.lock().peaks())
    }

    fn counters(&self) -> &Counters {
        &self.operations.open.counters
    }

    fn describe(&self) -> String {
        format!("zoned {}", self.engine.describe())
    }

    fn reap(&self) -> bool {
        self.engine.reap()
    }

    fn allocate(&self, len: usize) -> IoBuf {
        self.engine.allocate(len)
    }

    fn read(&self, at: Address, mut buf: IoBuf) -> OpFuture<IoBuf> {
        let operations = &*self.operations;
        if let Err(kind) = check_range(&operations.geometry, at.zone, at.offset, buf.len()) {
            return self.reject(Operation::Read, at.zone, kind);
        }
        let (state, pointer) = operations.zones.lock().state(at.zone);
        let is_written_below = matches!(
            state,
            ZoneState::Empty | ZoneState::Open | ZoneState::Closed
        );
        let (completer, future) = OpFuture::pending();
        if is_written_below && at.offset >= pointer {
            // Some drives fail such reads.
            buf.fill(0);
            let (bytes, open) = (buf.len() as u64, &operations.open);
            open.end_transfer(Operation::Read, at.zone, bytes, Ok(buf), completer);
            return future;
        }
        let job = Job::Zoned(ZonedJob::Read(completer));
        let request = Request::new(Transfer::Read(buf), operations.position(at), job);
        self.submit(Some(request));
        future
    }

    fn append(&self, zone: ZoneId, data: IoData, _placement: Placement) -> OpFuture<Address> {
        self.append_by(zone, data.len(), Transfer::Write(data))
    }

    fn appends_durably(&self) -> bool {
        self.operations.open.writes_durably()
    }

    fn append_durably(&self, zone: ZoneId, data: IoData, _: Placement) -> OpFuture<Address> {
        match self.appends_durably() {
            true => self.append_by(zone, data.len(), Transfer::WriteDurably(data)),
            false => self.operations.open.reject_durable(zone),
        }
    }

    fn write(&self, at: Address, _data: IoData, _placement: Placement) -> OpFuture<()> {
        let kind = DeviceErrorKind::Unsupported("writes in place");
        self.reject(Operation::Write, at.zone, kind)
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        let operations = &*self.operations;
        let request = |()| operations.zones.request_reset(zone, self.engine.home());
        match check_zone(&operations.geometry, zone).and_then(request) {
            Ok((future, reset)) => {
                self.submit(reset.map(|reset| operations.change(zone, reset)));
                future
            }
            Err(kind) => self.reject(Operation::Reset, zone, kind),
        }
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        let operations = &*self.operations;
        let request = |()| operations.zones.request_finish(zone, self.engine.home());
        match check_zone(&operations.geometry, zone).and_then(request) {
            Ok(Some((future, finish))) => {
                self.submit(finish.map(|finish| operations.change(zone, finish)));
                future
            }
            Ok(None) => {
                Counters::add(&operations.open.counters.finishes, 1);
                OpFuture::ready(Ok(()))
            }
            Err(kind) => self.reject(Operation::Finish, zone, kind),
        }
    }

    fn flush(&self) -> OpFuture<()> {
        let (completer, future) = OpFuture::pending();
        let job = Job::Zoned(ZonedJob::Flush(completer));
        self.submit(Some(Request::new(Transfer::Sync, 0, job)));
        future
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        OpFuture::ready(Ok(self.operations.zones.lock().report()))
    }
}

impl fmt::Debug for ZonedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ZonedDevice")
            .field(&self.describe())
            .finish()
    }
}
