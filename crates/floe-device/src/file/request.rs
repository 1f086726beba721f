//! A request to a back end: one transfer, and the operation that it belongs to.

use std::io;
use std::ops::Range;
use std::task::Waker;

use floe_core::{Address, ZoneId};
use tokio::runtime;

use crate::buffer::{IoBuf, IoData};
use crate::contract::Completer;
use crate::error::DeviceErrorKind;

/// A request to a back end. It owns its buffers until it ends, even if its
/// future is dropped.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) transfer: Transfer,
    /// Byte offset in the file of the transfer's start.
    pub(crate) position: u64,
    /// Bytes transferred so far.
    pub(crate) done: usize,
    /// Number of retries that the kernel requested without a transfer.
    pub(crate) retries: u8,
    pub(crate) job: Job,
    /// The original caller's runtime, if another request starts this one.
    pub(crate) home: Option<runtime::Id>,
}

/// A transfer that the kernel executes.
#[derive(Debug)]
pub(crate) enum Transfer {
    Read(IoBuf),
    Write(IoData),
    /// A write that ends once its data is on stable media.
    WriteDurably(IoData),
    Sync,
    /// Deallocates a range of a regular file, which then reads as zeros.
    Punch(u64),
    /// Makes a range read as zeros, and keeps its space.
    Zero(u64),
    /// Discards a range of a block device, whose content is then unknown.
    Discard(u64),
}

/// The device operation that the transfer belongs to.
#[derive(Debug)]
pub(crate) enum Job {
    Zoned(ZonedJob),
    Blocks(BlockJob),
}

/// An operation of a device with zones.
#[derive(Debug)]
pub(crate) enum ZonedJob {
    Read(Completer<IoBuf>),
    Append(Address, Completer<Address>),
    Write(ZoneId, Completer<()>),
    Reset(ZoneId, Completer<()>),
    Flush(Completer<()>),
}

/// An operation of a block device.
#[derive(Debug)]
pub(crate) enum BlockJob {
    Read(Completer<IoBuf>),
    Write(Completer<()>),
    /// Writes zeros to a range, of which the transfer is the first part.
    WriteZeroes(Range<u64>, Completer<()>),
    Discard(Completer<()>),
    Flush(Completer<()>),
}

/// Work left after the end of a request.
#[must_use]
pub(crate) struct Aftermath {
    /// Wakes the waiter.
    pub(crate) waker: Option<Waker>,
    /// The next request: a reset that waited for this one, or the next step of
    /// a reset.
    pub(crate) next: Option<Request>,
}

/// The next step of a request after the kernel's result.
pub(crate) enum Verdict {
    Over(Result<(), DeviceErrorKind>),
    /// Some bytes remain to be transferred.
    Again,
}

/// Consecutive results such as `EAGAIN` after which a request fails.
const RETRIES_MAX: u8 = 100;

impl Request {
    pub(crate) fn new(transfer: Transfer, position: u64, job: Job) -> Self {
        Request {
            transfer,
            position,
            done: 0,
            retries: 0,
            job,
            home: None,
        }
    }

    /// True if a ring can execute it. io_uring has no discard.
    pub(crate) fn is_for_ring(&self) -> bool {
        !matches!(self.transfer, Transfer::Discard(_))
    }

    /// Handles the kernel's result: bytes transferred, or an error.
    pub(crate) fn advance(&mut self, result: io::Result<usize>) -> Verdict {
        let moved = match result {
            Ok(moved) => moved,
            Err(error) if is_transient(&error) && self.retries < RETRIES_MAX => {
                self.retries += 1;
                return Verdict::Again;
            }
            Err(error) => return Verdict::Over(Err(DeviceErrorKind::from_io(error))),
        };
        let wanted = match &self.transfer {
            Transfer::Read(buf) => buf.len(),
            Transfer::Write(data) | Transfer::WriteDurably(data) => data.len(),
            Transfer::Sync | Transfer::Punch(_) | Transfer::Zero(_) | Transfer::Discard(_) => {
                return Verdict::Over(Ok(()));
            }
        };
        self.done += moved;
        self.retries = 0;
        if self.done >= wanted {
            Verdict::Over(Ok(()))
        } else if moved == 0 {
            Verdict::Over(Err(DeviceErrorKind::Short {
                done: self.done as u64,
                wanted: wanted as u64,
            }))
        } else {
            Verdict::Again
        }
    }
}

/// True if the error is unrelated to the medium (`ECANCELED`: the thread that
/// submitted the request ended).
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::ECANCELED)
    )
}

/// True if the medium cannot do the operation at all.
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EINVAL)
    )
}
