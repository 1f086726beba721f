//! Requests to a back end: one transfer, and the job that it belongs to.

use std::io;
use std::sync::Weak;
use std::task::Waker;

use floe_core::{Address, ZoneId};

use super::ring::Ring;
use crate::buffer::{IoBuf, IoData};
use crate::contract::Completer;
use crate::error::DeviceErrorKind;

/// One operation on its way through a back end. It owns its buffers until it
/// ends, even if its future is dropped.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) transfer: Transfer,
    /// Byte offset in the file of the transfer's start.
    pub(super) position: u64,
    /// Bytes moved so far.
    pub(super) done: usize,
    /// Times the kernel asked to try again without moving anything.
    pub(super) retries: u8,
    pub(super) job: Job,
    /// The ring of the original caller, if another request starts this one.
    pub(super) home: Option<Weak<Ring>>,
}

/// A transfer that the kernel carries out.
#[derive(Debug)]
pub(super) enum Transfer {
    Read(IoBuf),
    Write(IoData),
    Sync,
    /// Deallocates a range of a regular file; it then reads as zeros.
    Punch(u64),
    /// Discards a range of a block device; what it then reads as is unknown.
    Discard(u64),
}

/// The device operation that the transfer belongs to.
#[derive(Debug)]
pub(super) enum Job {
    Read(Completer<IoBuf>),
    Append(Address, Completer<Address>),
    Write(ZoneId, Completer<()>),
    Reset(ZoneId, Completer<()>),
    Flush(Completer<()>),
}

/// Work left when a request has ended.
#[must_use]
pub(super) struct Aftermath {
    /// Wakes the waiter.
    pub(super) waker: Option<Waker>,
    /// The next request: a reset that waited for it, or a reset's next step.
    pub(super) next: Option<Request>,
}

/// The next step of a request after the kernel answered.
pub(super) enum Verdict {
    Over(Result<(), DeviceErrorKind>),
    /// Some bytes are still to be moved.
    Again,
}

/// Answers such as `EAGAIN` in a row before a request fails with them.
const RETRIES_MAX: u8 = 100;

impl Request {
    pub(super) fn new(transfer: Transfer, position: u64, job: Job) -> Self {
        Request {
            transfer,
            position,
            done: 0,
            retries: 0,
            job,
            home: None,
        }
    }

    /// Whether a ring can carry it out: io_uring discards nothing.
    pub(super) fn is_for_ring(&self) -> bool {
        !matches!(self.transfer, Transfer::Discard(_))
    }

    /// Takes in the kernel's answer: bytes moved, or an error.
    pub(super) fn advance(&mut self, answer: io::Result<usize>) -> Verdict {
        let moved = match answer {
            Ok(moved) => moved,
            Err(error) if is_transient(&error) && self.retries < RETRIES_MAX => {
                self.retries += 1;
                return Verdict::Again;
            }
            Err(error) => return Verdict::Over(Err(DeviceErrorKind::from_io(error))),
        };
        let wanted = match &self.transfer {
            Transfer::Read(buf) => buf.len(),
            Transfer::Write(data) => data.len(),
            Transfer::Sync | Transfer::Punch(_) | Transfer::Discard(_) => {
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

/// Whether the kernel gave up for a reason that says nothing about the medium
/// (`ECANCELED`: the thread that submitted the request ended).
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::ECANCELED)
    )
}
