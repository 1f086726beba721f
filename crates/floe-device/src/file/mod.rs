//! A regular file or block device as zones.
//!
//! Zones are fixed regions. The medium does not record how far a zone is
//! written. After opening, every zone is
//! [`ZoneState::Unknown`](crate::ZoneState::Unknown) until it is reset; then
//! appends follow a write pointer in memory.

pub(crate) mod contents;
mod driver;
pub(crate) mod engine;
pub(crate) mod entries;
mod intake;
mod kernel;
pub(crate) mod open;
pub(crate) mod opening;
mod operations;
pub(crate) mod owner;
pub(crate) mod request;
mod ring;
pub(crate) mod rings;
mod signatures;
pub(crate) mod space;
pub(crate) mod states;
mod table;
mod threads;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::Arc;

use floe_core::{Address, Geometry, ZoneId};
use rustix::fs::FallocateFlags;

use crate::buffer::{IoBuf, IoData};
use crate::contract::{Device, OpFuture, Placement, ZonePeaks, ZoneReport};
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::zones::{check_append, check_range, check_zone};

use engine::Engine;
pub use engine::IoMethod;
use operations::Operations;
use request::{Job, Request, Transfer, ZonedJob, is_unsupported};
use rings::Rings;

/// A regular file or block device.
///
/// Operations must be started inside a tokio runtime with I/O enabled, which also
/// completes them; a current_thread runtime has to be running for that. If all
/// runtimes share a ring (see [`RingChoice`](crate::config::RingChoice)), a
/// multi_thread runtime that used the device before may complete them instead.
/// Operations may be awaited anywhere, and complete even if their runtime ends.
/// Dropping the device waits for operations in flight.
pub struct FileDevice {
    engine: Engine,
    operations: Arc<Operations>,
}

impl FileDevice {
    fn over(operations: Operations, rings: Option<Rings>) -> Self {
        let operations = Arc::new(operations);
        FileDevice {
            engine: Engine::new(Arc::<Operations>::clone(&operations), rings),
            operations,
        }
    }

    /// How operations reach the kernel.
    pub fn io_method(&self) -> IoMethod {
        self.engine.io_method()
    }

    /// True if the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.operations.open.is_direct
    }

    fn append_so(
        &self,
        zone: ZoneId,
        data: IoData,
        transfer: fn(IoData) -> Transfer,
    ) -> OpFuture<Address> {
        let operations = &*self.operations;
        let reserved = check_append(&operations.geometry, zone, data.len())
            .and_then(|()| operations.zones.lock().reserve(zone, data.len() as u64));
        let offset = match reserved {
            Ok(offset) => offset,
            Err(kind) => return operations.open.reject(Operation::Append, zone, kind),
        };
        let at = Address::new(zone, offset);
        let (completer, future) = OpFuture::pending();
        let job = ZonedJob::Append(at, completer);
        self.submit(transfer(data), operations.position(at), job);
        future
    }

    fn submit(&self, transfer: Transfer, position: u64, job: ZonedJob) {
        let request = Request::new(transfer, position, Job::Zoned(job));
        self.engine.submit(request);
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> &Geometry {
        &self.operations.geometry
    }

    fn describe(&self) -> String {
        self.engine.describe()
    }

    fn reap(&self) -> bool {
        self.engine.reap()
    }

    fn allocate(&self, len: usize) -> IoBuf {
        self.engine.allocate(len)
    }

    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf> {
        let operations = &*self.operations;
        if let Err(kind) = check_range(&operations.geometry, at.zone, at.offset, buf.len()) {
            return operations.open.reject(Operation::Read, at.zone, kind);
        }
        let (completer, future) = OpFuture::pending();
        let position = operations.position(at);
        self.submit(Transfer::Read(buf), position, ZonedJob::Read(completer));
        future
    }

    fn append(&self, zone: ZoneId, data: IoData, _placement: Placement) -> OpFuture<Address> {
        self.append_so(zone, data, Transfer::Write)
    }

    fn appends_durably(&self) -> bool {
        self.operations.open.writes_durably()
    }

    fn append_durably(&self, zone: ZoneId, data: IoData, _: Placement) -> OpFuture<Address> {
        if !self.appends_durably() {
            return self.operations.open.reject_durable(zone);
        }
        self.append_so(zone, data, Transfer::WriteDurably)
    }

    fn write(&self, at: Address, data: IoData, _placement: Placement) -> OpFuture<()> {
        let operations = &*self.operations;
        let started = check_range(&operations.geometry, at.zone, at.offset, data.len())
            .and_then(|()| operations.zones.lock().writer_started(at.zone));
        if let Err(kind) = started {
            return operations.open.reject(Operation::Write, at.zone, kind);
        }
        let (completer, future) = OpFuture::pending();
        let job = ZonedJob::Write(at.zone, completer);
        self.submit(Transfer::Write(data), operations.position(at), job);
        future
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        let operations = &*self.operations;
        let home = self.engine.home();
        let requested = check_zone(&operations.geometry, zone)
            .and_then(|()| operations.zones.request_reset(zone, home));
        match requested {
            Err(kind) => operations.open.reject(Operation::Reset, zone, kind),
            Ok((future, start)) => {
                if let Some(reset) = start {
                    let request = operations.start_of_reset(zone, reset);
                    self.engine.submit(request);
                }
                future
            }
        }
    }

    fn reserve(&self, zone: ZoneId, bytes: u64) -> Result<(), DeviceError> {
        let operations = &*self.operations;
        let fails = |kind| DeviceError::new(Operation::Open, zone, kind);
        check_zone(&operations.geometry, zone).map_err(fails)?;
        if operations.open.is_block_device {
            return Ok(());
        }
        let position = operations.position(Address::new(zone, 0));
        let len = bytes.min(operations.geometry.zone_size);
        let flags = FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&operations.open.file, flags, position, len) {
            Ok(()) => {
                operations.kept.lock().push(zone);
                Ok(())
            }
            Err(error) => match io::Error::from(error) {
                error if is_unsupported(&error) => Ok(()),
                error => Err(fails(DeviceErrorKind::from_io(error))),
            },
        }
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        let operations = &*self.operations;
        let finished = check_zone(&operations.geometry, zone)
            .and_then(|()| operations.zones.lock().finish(zone));
        match finished {
            Ok(()) => {
                Counters::add(&operations.open.counters.finishes, 1);
                OpFuture::ready(Ok(()))
            }
            Err(kind) => operations.open.reject(Operation::Finish, zone, kind),
        }
    }

    fn flush(&self) -> OpFuture<()> {
        let (completer, future) = OpFuture::pending();
        self.submit(Transfer::Sync, 0, ZonedJob::Flush(completer));
        future
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        OpFuture::ready(Ok(self.operations.zones.lock().report()))
    }

    fn zone_peaks(&self) -> Option<ZonePeaks> {
        Some(self.operations.zones.lock().peaks())
    }

    fn counters(&self) -> &Counters {
        &self.operations.open.counters
    }
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileDevice({})", self.describe())
    }
}
