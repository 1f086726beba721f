//! A regular file or block device as zones.
//!
//! Zones are fixed regions. The medium does not record how far a zone is
//! written. After opening, every zone is
//! [`ZoneState::Unknown`](crate::ZoneState::Unknown) until it is reset; then
//! appends follow a write pointer in memory.

mod contents;
mod driver;
mod open;
mod request;
mod ring;
mod rings;
mod signatures;
mod table;
mod threads;

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use floe_core::{Address, Geometry, ZoneId};
use parking_lot::Mutex;
use rustix::fs::FallocateFlags;

use crate::arena::Arena;
use crate::buffer::{IoBuf, IoData};
use crate::contract::{Completer, Device, OpFuture, Placement, ZoneReport};
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::zones::{ResetTurn, ZoneTable, check_append, check_range, check_zone};

use request::{Aftermath, Job, Request, Transfer};
use ring::Ring;
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
    inner: Arc<Inner>,
}

/// How operations reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMethod {
    /// io_uring.
    Uring,
    /// `pread` and `pwrite` on tokio's blocking pool.
    Threads,
}

struct Inner {
    geometry: Geometry,
    path: PathBuf,
    is_block_device: bool,
    is_direct: bool,
    /// Whether resets deallocate; cleared if the medium cannot.
    discard: AtomicBool,
    /// Zones whose space stays allocated when they are reset.
    kept: Mutex<Vec<ZoneId>>,
    /// One block of zeros.
    zeros: IoData,
    zones: Mutex<ZoneTable>,
    /// Resets that wait for earlier writes, oldest first.
    waiting_resets: Mutex<Vec<WaitingReset>>,
    counters: Counters,
    /// `None` without io_uring. Dropped before `arena` and `file`, which are
    /// registered with it.
    rings: Option<Rings>,
    threads: Threads,
    arena: Option<Arc<Arena>>,
    file: File,
}

struct WaitingReset {
    zone: ZoneId,
    completer: Completer<()>,
    /// The ring of the caller.
    home: Weak<Ring>,
}

impl FileDevice {
    /// How operations reach the kernel.
    pub fn io_method(&self) -> IoMethod {
        match self.inner.rings {
            Some(_) => IoMethod::Uring,
            None => IoMethod::Threads,
        }
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.inner.is_direct
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> &Geometry {
        &self.inner.geometry
    }

    fn describe(&self) -> String {
        let inner = &self.inner;
        format!(
            "{} {} ({}, {})",
            if inner.is_block_device {
                "block device"
            } else {
                "file"
            },
            inner.path.display(),
            if inner.is_direct {
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
        self.inner
            .arena
            .as_ref()
            .and_then(|arena| IoBuf::from_arena(arena, len))
            .unwrap_or_else(|| IoBuf::zeroed(len))
    }

    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf> {
        let inner = &self.inner;
        if let Err(kind) = check_range(&inner.geometry, at.zone, at.offset, buf.len()) {
            return inner.reject(Operation::Read, at.zone, kind);
        }
        let (completer, future) = OpFuture::pending();
        let position = inner.position(at);
        inner.submit(Request::new(
            Transfer::Read(buf),
            position,
            Job::Read(completer),
        ));
        future
    }

    fn append(&self, zone: ZoneId, data: IoData, _placement: Placement) -> OpFuture<Address> {
        let inner = &self.inner;
        let reserved = check_append(&inner.geometry, zone, data.len())
            .and_then(|()| inner.zones.lock().reserve(zone, data.len() as u64));
        let offset = match reserved {
            Ok(offset) => offset,
            Err(kind) => return inner.reject(Operation::Append, zone, kind),
        };
        let at = Address::new(zone, offset);
        let (completer, future) = OpFuture::pending();
        let job = Job::Append(at, completer);
        inner.submit(Request::new(Transfer::Write(data), inner.position(at), job));
        future
    }

    fn write(&self, at: Address, data: IoData, _placement: Placement) -> OpFuture<()> {
        let inner = &self.inner;
        let started = check_range(&inner.geometry, at.zone, at.offset, data.len())
            .and_then(|()| inner.zones.lock().writer_started(at.zone));
        if let Err(kind) = started {
            return inner.reject(Operation::Write, at.zone, kind);
        }
        let (completer, future) = OpFuture::pending();
        let job = Job::Write(at.zone, completer);
        inner.submit(Request::new(Transfer::Write(data), inner.position(at), job));
        future
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        let inner = &self.inner;
        let (completer, future) = OpFuture::pending();
        let home = inner.home();
        let turn = check_zone(&inner.geometry, zone).and_then(|()| {
            let mut zones = inner.zones.lock();
            let turn = zones.reset_start(zone)?;
            Ok((turn, zones))
        });
        match turn {
            Err(kind) => return inner.reject(Operation::Reset, zone, kind),
            Ok((ResetTurn::Later, zones)) => {
                // Under the zones' lock, so that the last writer to end finds
                // this reset.
                inner.waiting_resets.lock().push(WaitingReset {
                    zone,
                    completer,
                    home,
                });
                drop(zones);
            }
            Ok((ResetTurn::Now, zones)) => {
                drop(zones);
                inner.submit(inner.start_of_reset(zone, completer));
            }
        }
        future
    }

    fn reserve(&self, zone: ZoneId, bytes: u64) -> Result<(), DeviceError> {
        let inner = &self.inner;
        let fails = |kind| DeviceError::new(Operation::Open, zone, kind);
        check_zone(&inner.geometry, zone).map_err(fails)?;
        if inner.is_block_device {
            return Ok(());
        }
        let position = inner.position(Address::new(zone, 0));
        let len = bytes.min(inner.geometry.zone_size);
        let flags = FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&inner.file, flags, position, len) {
            Ok(()) => {
                inner.kept.lock().push(zone);
                Ok(())
            }
            Err(error) => match io::Error::from(error) {
                error if is_unsupported(&error) => Ok(()),
                error => Err(fails(DeviceErrorKind::from_io(error))),
            },
        }
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        let inner = &self.inner;
        let finished =
            check_zone(&inner.geometry, zone).and_then(|()| inner.zones.lock().finish(zone));
        match finished {
            Ok(()) => {
                Counters::add(&inner.counters.finishes, 1);
                OpFuture::ready(Ok(()))
            }
            Err(kind) => inner.reject(Operation::Finish, zone, kind),
        }
    }

    fn flush(&self) -> OpFuture<()> {
        let (completer, future) = OpFuture::pending();
        let job = Job::Flush(completer);
        self.inner.submit(Request::new(Transfer::Sync, 0, job));
        future
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        OpFuture::ready(Ok(self.inner.zones.lock().report()))
    }

    fn counters(&self) -> &Counters {
        &self.inner.counters
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        if let Some(rings) = &self.inner.rings {
            rings.drain(&self.inner);
            rings.close();
        }
        self.inner.threads.drain();
        // A driver may keep the file open for a moment. Unlocking lets the next
        // owner open it at once.
        let unlocked = rustix::fs::flock(&self.inner.file, rustix::fs::FlockOperation::Unlock);
        debug_assert!(unlocked.is_ok(), "the lock was taken when opening");
    }
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileDevice({})", self.describe())
    }
}

impl Inner {
    fn position(&self, at: Address) -> u64 {
        u64::from(at.zone.0) * self.geometry.zone_size + at.offset
    }

    fn zone_at(&self, position: u64) -> ZoneId {
        // The position lies inside the device, whose zones count in 32 bits.
        ZoneId((position / self.geometry.zone_size) as u32)
    }

    fn reject<T: Send + 'static>(
        &self,
        operation: Operation,
        zone: ZoneId,
        kind: DeviceErrorKind,
    ) -> OpFuture<T> {
        Counters::add(&self.counters.errors, 1);
        OpFuture::ready(Err(DeviceError::new(operation, zone, kind)))
    }

    fn submit(self: &Arc<Self>, request: Request) {
        match &self.rings {
            Some(rings) if request.is_for_ring() => rings.submit(self, request),
            _ => self.threads.submit(self, request),
        }
    }

    /// The ring that the caller's operations use.
    fn home(self: &Arc<Self>) -> Weak<Ring> {
        let rings = self.rings.as_ref();
        rings.map_or_else(Weak::new, |rings| rings.home(self))
    }

    /// Closes a ring whose runtime has ended and that has nothing in flight.
    fn retire(&self, ring: &Arc<Ring>) {
        if let Some(rings) = &self.rings {
            rings.retire(ring);
        }
    }

    /// Fails `request` and its successors because no back end can run them.
    fn fail(&self, request: Request, why: impl Fn() -> DeviceErrorKind) {
        let mut next = Some(request);
        while let Some(request) = next {
            next = self.end(request, Err(why()));
        }
    }

    /// Completes a request that has ended and wakes its waiter; returns the
    /// next request.
    fn end(&self, request: Request, result: Result<(), DeviceErrorKind>) -> Option<Request> {
        let Aftermath { waker, next } = self.finished(request, result);
        if let Some(waker) = waker {
            waker.wake();
        }
        next
    }

    /// Completes a request that has ended: zone states, counters, and result.
    fn finished(&self, request: Request, result: Result<(), DeviceErrorKind>) -> Aftermath {
        let (bytes, transfer) = (request.done as u64, request.transfer);
        let counters = &self.counters;
        match request.job {
            Job::Read(completer) => {
                let zone = self.zone_at(request.position);
                let result = self.count(result, &counters.reads, Operation::Read, zone);
                Counters::add(&counters.read_bytes, bytes);
                let result = result.map(|()| match transfer {
                    Transfer::Read(buf) => buf,
                    _ => unreachable!("a read's transfer is a read"),
                });
                let waker = completer.complete_quietly(result);
                Aftermath { waker, next: None }
            }
            Job::Append(at, completer) => {
                let result = self.count(result, &counters.appends, Operation::Append, at.zone);
                Counters::add(&counters.append_bytes, bytes);
                let next = self.writer_done(at.zone);
                let waker = completer.complete_quietly(result.map(|()| at));
                Aftermath { waker, next }
            }
            Job::Write(zone, completer) => {
                let result = self.count(result, &counters.writes, Operation::Write, zone);
                Counters::add(&counters.write_bytes, bytes);
                let next = self.writer_done(zone);
                let waker = completer.complete_quietly(result);
                Aftermath { waker, next }
            }
            Job::Reset(zone, completer) => self.reset_step(zone, &transfer, result, completer),
            Job::Flush(completer) => {
                let result = self.count(result, &counters.flushes, Operation::Flush, None);
                let waker = completer.complete_quietly(result);
                Aftermath { waker, next: None }
            }
        }
    }

    fn count(
        &self,
        result: Result<(), DeviceErrorKind>,
        counter: &std::sync::atomic::AtomicU64,
        operation: Operation,
        zone: impl Into<Option<ZoneId>>,
    ) -> Result<(), DeviceError> {
        let counter = if result.is_ok() {
            counter
        } else {
            &self.counters.errors
        };
        Counters::add(counter, 1);
        result.map_err(|kind| DeviceError::new(operation, zone, kind))
    }

    fn writer_done(&self, zone: ZoneId) -> Option<Request> {
        let start = self.zones.lock().writer_done(zone);
        start.then(|| self.waiting_reset(zone))
    }

    fn waiting_reset(&self, zone: ZoneId) -> Request {
        let reset = {
            let mut waiting = self.waiting_resets.lock();
            let position = waiting.iter().position(|waiter| waiter.zone == zone);
            position.map(|position| waiting.remove(position))
        };
        let reset = reset.expect("every reset that the zone counts as waiting is listed");
        Request {
            home: Some(reset.home),
            ..self.start_of_reset(zone, reset.completer)
        }
    }

    /// Deallocates the zone if configured and possible, otherwise overwrites
    /// its first block.
    fn start_of_reset(&self, zone: ZoneId, completer: Completer<()>) -> Request {
        let position = self.position(Address::new(zone, 0));
        let len = self.geometry.zone_size;
        let discards = self.discard.load(Relaxed) && !self.kept.lock().contains(&zone);
        let transfer = match (discards, self.is_block_device) {
            (false, _) => Transfer::Write(self.zeros.clone()),
            (true, false) => Transfer::Punch(len),
            (true, true) => Transfer::Discard(len),
        };
        Request::new(transfer, position, Job::Reset(zone, completer))
    }

    /// Continues a reset after `transfer`. Only a punched hole is known to read
    /// as zeros; after any other transfer the first block is overwritten.
    fn reset_step(
        &self,
        zone: ZoneId,
        transfer: &Transfer,
        result: Result<(), DeviceErrorKind>,
        completer: Completer<()>,
    ) -> Aftermath {
        let write_block = match (transfer, &result) {
            (Transfer::Discard(_), Ok(())) => true,
            (Transfer::Discard(_) | Transfer::Punch(_), Err(DeviceErrorKind::Io(error)))
                if is_unsupported(error) =>
            {
                tracing::warn!(
                    device = %self.path.display(), %error,
                    "discard is not supported here; zones are reset without it"
                );
                self.discard.store(false, Relaxed);
                true
            }
            _ => false,
        };
        if write_block {
            let position = self.position(Address::new(zone, 0));
            let transfer = Transfer::Write(self.zeros.clone());
            let job = Job::Reset(zone, completer);
            let next = Some(Request::new(transfer, position, job));
            return Aftermath { waker: None, next };
        }
        let result = self.count(result, &self.counters.resets, Operation::Reset, zone);
        let another = self.zones.lock().reset_done(zone, result.is_ok());
        let waker = completer.complete_quietly(result);
        let next = another.then(|| self.waiting_reset(zone));
        Aftermath { waker, next }
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EINVAL)
    )
}
