//! A regular file or block device as zones.
//!
//! Zones are fixed regions. The medium does not record how far a zone is
//! written. After opening, every zone is
//! [`ZoneState::Unknown`](crate::ZoneState::Unknown) until it is reset; then
//! appends follow a write pointer in memory.

mod contents;
mod driver;
mod intake;
mod kernel;
mod open;
mod operations;
mod request;
mod ring;
mod rings;
mod signatures;
mod table;
mod threads;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::Arc;

use floe_core::{Address, Geometry, ZoneId};
use rustix::fs::FallocateFlags;
use tokio::runtime;

use crate::buffer::{IoBuf, IoData};
use crate::contract::{Device, OpFuture, Placement, ZoneReport};
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::zones::{ResetTurn, check_append, check_range, check_zone};

use operations::{Operations, WaitingReset, is_unsupported};
use request::{Job, Request, Transfer};
use rings::Rings;
use threads::Threads;

/// A regular file or block device.
///
/// Operations must be started inside a tokio runtime with I/O enabled, which also
/// completes them; a current_thread runtime has to be running for that. If all
/// runtimes share a ring (see [`RingChoice`](crate::config::RingChoice)), a
/// multi_thread runtime that used the device before may complete them instead.
/// Operations may be awaited anywhere, and complete even if their runtime ends.
/// Dropping the device waits for operations in flight.
pub struct FileDevice {
    /// `None` without io_uring. Dropped before the arena and the file, which are
    /// registered with it.
    rings: Option<Rings>,
    threads: Arc<Threads>,
}

/// How operations reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMethod {
    /// io_uring.
    Uring,
    /// `pread` and `pwrite` on tokio's blocking pool.
    Threads,
}

impl FileDevice {
    /// How operations reach the kernel.
    pub fn io_method(&self) -> IoMethod {
        match self.rings {
            Some(_) => IoMethod::Uring,
            None => IoMethod::Threads,
        }
    }

    /// True if the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.operations().is_direct
    }

    fn operations(&self) -> &Operations {
        &self.threads.operations
    }

    fn submit(&self, request: Request) {
        match &self.rings {
            Some(rings) if request.is_for_ring() => rings.submit(&self.threads, request),
            _ => self.threads.submit(request),
        }
    }

    /// The runtime of the caller, whose ring has a driver from now on.
    fn home(&self) -> Option<runtime::Id> {
        self.rings.as_ref()?.home(&self.threads)
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> &Geometry {
        &self.operations().geometry
    }

    fn describe(&self) -> String {
        let operations = self.operations();
        format!(
            "{} {} ({}, {})",
            if operations.is_block_device {
                "block device"
            } else {
                "file"
            },
            operations.path.display(),
            if operations.is_direct {
                "direct"
            } else {
                "buffered"
            },
            match self.io_method() {
                IoMethod::Uring => "io_uring",
                IoMethod::Threads => "threads",
            }
        )
    }

    fn allocate(&self, len: usize) -> IoBuf {
        self.operations()
            .arena
            .as_ref()
            .and_then(|arena| IoBuf::from_arena(arena, len))
            .unwrap_or_else(|| IoBuf::zeroed(len))
    }

    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf> {
        let operations = self.operations();
        if let Err(kind) = check_range(&operations.geometry, at.zone, at.offset, buf.len()) {
            return operations.reject(Operation::Read, at.zone, kind);
        }
        let (completer, future) = OpFuture::pending();
        let position = operations.position(at);
        self.submit(Request::new(
            Transfer::Read(buf),
            position,
            Job::Read(completer),
        ));
        future
    }

    fn append(&self, zone: ZoneId, data: IoData, _placement: Placement) -> OpFuture<Address> {
        let operations = self.operations();
        let reserved = check_append(&operations.geometry, zone, data.len())
            .and_then(|()| operations.zones.lock().reserve(zone, data.len() as u64));
        let offset = match reserved {
            Ok(offset) => offset,
            Err(kind) => return operations.reject(Operation::Append, zone, kind),
        };
        let at = Address::new(zone, offset);
        let (completer, future) = OpFuture::pending();
        let job = Job::Append(at, completer);
        self.submit(Request::new(
            Transfer::Write(data),
            operations.position(at),
            job,
        ));
        future
    }

    fn write(&self, at: Address, data: IoData, _placement: Placement) -> OpFuture<()> {
        let operations = self.operations();
        let started = check_range(&operations.geometry, at.zone, at.offset, data.len())
            .and_then(|()| operations.zones.lock().writer_started(at.zone));
        if let Err(kind) = started {
            return operations.reject(Operation::Write, at.zone, kind);
        }
        let (completer, future) = OpFuture::pending();
        let job = Job::Write(at.zone, completer);
        self.submit(Request::new(
            Transfer::Write(data),
            operations.position(at),
            job,
        ));
        future
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        let operations = self.operations();
        let (completer, future) = OpFuture::pending();
        let home = self.home();
        let turn = check_zone(&operations.geometry, zone).and_then(|()| {
            let mut zones = operations.zones.lock();
            let turn = zones.reset_start(zone)?;
            Ok((turn, zones))
        });
        match turn {
            Err(kind) => return operations.reject(Operation::Reset, zone, kind),
            Ok((ResetTurn::Later, zones)) => {
                // Under the zones' lock, so that the last writer to end finds
                // this reset.
                operations.waiting_resets.lock().push(WaitingReset {
                    zone,
                    completer,
                    home,
                });
                drop(zones);
            }
            Ok((ResetTurn::Now, zones)) => {
                drop(zones);
                self.submit(operations.start_of_reset(zone, completer));
            }
        }
        future
    }

    fn reserve(&self, zone: ZoneId, bytes: u64) -> Result<(), DeviceError> {
        let operations = self.operations();
        let fails = |kind| DeviceError::new(Operation::Open, zone, kind);
        check_zone(&operations.geometry, zone).map_err(fails)?;
        if operations.is_block_device {
            return Ok(());
        }
        let position = operations.position(Address::new(zone, 0));
        let len = bytes.min(operations.geometry.zone_size);
        let flags = FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&operations.file, flags, position, len) {
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
        let operations = self.operations();
        let finished = check_zone(&operations.geometry, zone)
            .and_then(|()| operations.zones.lock().finish(zone));
        match finished {
            Ok(()) => {
                Counters::add(&operations.counters.finishes, 1);
                OpFuture::ready(Ok(()))
            }
            Err(kind) => operations.reject(Operation::Finish, zone, kind),
        }
    }

    fn flush(&self) -> OpFuture<()> {
        let (completer, future) = OpFuture::pending();
        let job = Job::Flush(completer);
        self.submit(Request::new(Transfer::Sync, 0, job));
        future
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        OpFuture::ready(Ok(self.operations().zones.lock().report()))
    }

    fn counters(&self) -> &Counters {
        &self.operations().counters
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        if let Some(rings) = &self.rings {
            rings.drain(&self.threads);
            rings.close();
        }
        self.threads.drain();
        // A driver may keep the file open for a moment. Unlocking lets the next
        // owner open it at once.
        let unlocked =
            rustix::fs::flock(&self.operations().file, rustix::fs::FlockOperation::Unlock);
        debug_assert!(unlocked.is_ok(), "the lock was taken when opening");
    }
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileDevice({})", self.describe())
    }
}
