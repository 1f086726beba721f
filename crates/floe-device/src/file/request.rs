//! A request to a back end: one transfer, and the operation that it belongs to.

use std::io;
use std::ops::Range;
use std::task::Waker;

use floe_core::{Address, ZoneId};
use tokio::runtime;

use crate::buffer::{IoBuf, IoData};
use crate::contract::Completer;
use crate::error::DeviceErrorKind;
use crate::nvme::Status;
use crate::nvme::command::{Command, URING_AREA_BYTES};
use crate::zoned::kernel::{Change, KernelZone};

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
    /// Changes the state of a zone of so many bytes.
    ChangeZone(u64, Change),
    /// Reports the zone that begins at the position.
    ReportZone(Option<Box<KernelZone>>),
    /// Executes an NVMe command. Boxed, since requests of files are smaller.
    Passthrough(Box<Passthrough>),
}

/// An NVMe command and its data.
#[derive(Debug)]
pub(crate) struct Passthrough {
    pub(crate) command: Command,
    pub(crate) data: PassthroughData,
    /// The part of the data that the command transfers.
    pub(crate) part: Range<usize>,
    /// The drive's result, once the command has ended.
    pub(crate) value: u64,
}

/// The data of an NVMe command.
#[derive(Debug)]
pub(crate) enum PassthroughData {
    None,
    Read(IoBuf),
    Write(IoData),
}

impl PassthroughData {
    pub(crate) fn len(&self) -> usize {
        match self {
            PassthroughData::None => 0,
            PassthroughData::Read(buf) => buf.len(),
            PassthroughData::Write(data) => data.len(),
        }
    }
}

impl Passthrough {
    pub(crate) fn new(command: Command, data: PassthroughData, part: Range<usize>) -> Self {
        Passthrough {
            command,
            data,
            part,
            value: 0,
        }
    }

    /// Bytes of the data that were transferred up to a command with this result.
    pub(crate) fn bytes(&self, result: &Result<(), DeviceErrorKind>) -> u64 {
        match result {
            Ok(()) => self.part.end as u64,
            Err(_) => self.part.start as u64,
        }
    }

    /// The command as the kernel takes it, with the address of its data. The kernel may
    /// use that memory until the command ends.
    pub(crate) fn for_kernel(&mut self) -> [u8; URING_AREA_BYTES] {
        let part = self.part.clone();
        let start = match &mut self.data {
            PassthroughData::None => 0,
            PassthroughData::Read(buf) => buf[part].as_mut_ptr() as u64,
            PassthroughData::Write(data) => data[part].as_ptr() as u64,
        };
        // No drive transfers 4 GiB at once.
        self.command.for_kernel(start, self.part.len() as u32)
    }

    /// Handles the kernel's answer: an error of its own, or the drive's status.
    fn advance(&mut self, answer: Answer) -> Result<(), DeviceErrorKind> {
        self.value = answer.value;
        match u32::try_from(answer.code) {
            Ok(result) => match Status::from_result(result) {
                None => Ok(()),
                Some(status) => Err(DeviceErrorKind::Nvme(status)),
            },
            // The command may have been executed, so it is not repeated.
            Err(_) if answer.code == -libc::EINTR => {
                let why = "the kernel cancelled the command, which took too long";
                let error = io::Error::new(io::ErrorKind::TimedOut, why);
                Err(DeviceErrorKind::Io(error))
            }
            Err(_) => {
                let error = io::Error::from_raw_os_error(-answer.code);
                Err(DeviceErrorKind::from_io(error))
            }
        }
    }
}

/// The kernel's answer to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// A negative error; else bytes transferred, or the status of an NVMe command.
    pub(crate) code: i32,
    /// The result of an NVMe command.
    pub(crate) value: u64,
}

impl Answer {
    /// Bytes transferred, or an error.
    fn moved(self) -> io::Result<usize> {
        usize::try_from(self.code).map_err(|_| io::Error::from_raw_os_error(-self.code))
    }

    /// True if the drive may execute the same NVMe command if it is repeated.
    fn is_transient(self) -> bool {
        const DO_NOT_RETRY: u32 = 0x4000;
        let status = u32::try_from(self.code).unwrap_or(0);
        let found = Status::from_result(status);
        status & DO_NOT_RETRY == 0 && found.is_some_and(|status| status.fault().is_transient())
    }

    /// True if the kernel did not pass an NVMe command to the drive.
    fn is_not_started(self) -> bool {
        matches!(-self.code, libc::EAGAIN | libc::ECANCELED)
    }
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
    Finish(ZoneId, Completer<()>),
    Flush(Completer<()>),
    /// Reads the state of a zone that is suspect.
    Inspect(ZoneId),
    /// Reads the state of the zone of an append that the kernel refused.
    Recheck(Box<RefusedAppend>),
    /// Resets the zone of an append that the kernel refused, which the drive reports as empty.
    Realign(Box<RefusedAppend>),
    /// An append, once more.
    Repeat(Address, Completer<Address>),
}

/// An append that failed without a byte written, as far as the kernel tells.
#[derive(Debug)]
pub(crate) struct RefusedAppend {
    pub(crate) at: Address,
    pub(crate) write: Transfer,
    pub(crate) error: DeviceErrorKind,
    pub(crate) completer: Completer<Address>,
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
/// Most times that an NVMe command is repeated because the drive could not execute it then.
const REPEATS_MAX: u8 = 3;

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

    /// True if a ring can execute it. io_uring has no discard, and knows no zones.
    pub(crate) fn is_for_ring(&self) -> bool {
        !matches!(
            self.transfer,
            Transfer::Discard(_) | Transfer::ChangeZone(..) | Transfer::ReportZone(_)
        )
    }

    /// Handles the kernel's answer.
    pub(crate) fn answered(&mut self, answer: Answer) -> Verdict {
        let Transfer::Passthrough(passthrough) = &mut self.transfer else {
            return self.advance(answer.moved());
        };
        let retries_max = match answer.is_transient() && passthrough.command.is_repeatable() {
            true => REPEATS_MAX,
            false if answer.is_not_started() => RETRIES_MAX,
            false => 0,
        };
        if self.retries < retries_max {
            self.retries += 1;
            return Verdict::Again;
        }
        Verdict::Over(passthrough.advance(answer))
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
            Transfer::Sync
            | Transfer::Punch(_)
            | Transfer::Zero(_)
            | Transfer::Discard(_)
            | Transfer::ChangeZone(..)
            | Transfer::ReportZone(_)
            | Transfer::Passthrough(_) => return Verdict::Over(Ok(())),
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
