//! Requests: their head, and the checks that need no I/O.

pub use floe::backing::nbd::wire::{Command, REQUEST_MAGIC as MAGIC, flag};

use super::options::Reader;
use super::{Errno, Rejection};

/// Bytes of a request's head.
pub const HEAD_BYTES: usize = 28;

/// The head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The command's flags.
    pub flags: u16,
    /// The command.
    pub command: Command,
    /// The client's name for the request; its reply has the same.
    pub cookie: u64,
    /// First byte of the range.
    pub at: u64,
    /// Bytes of the range.
    pub len: u32,
}

impl Head {
    /// `None` if the magic is wrong: the client speaks another protocol, or has
    /// lost its place in the stream.
    pub fn parse(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let magic = reader.u32()?;
        let head = Head {
            flags: reader.u16()?,
            command: Command::of(reader.u16()?),
            cookie: reader.u64()?,
            at: reader.u64()?,
            len: reader.u32()?,
        };
        (magic == MAGIC).then_some(head)
    }

    /// Bytes that follow the head, whether the request is valid or not.
    pub fn payload_bytes(&self) -> u32 {
        match self.command {
            Command::Write => self.len,
            _ => 0,
        }
    }
}

/// The facts that requests are checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Bytes of the export.
    pub size_bytes: u64,
    /// Offsets and lengths are multiples of this power of two.
    pub block_bytes: u32,
    /// Most bytes of a read or a write.
    pub payload_bytes_max: u32,
    /// The export rejects changes.
    pub is_read_only: bool,
    /// The export writes zeros faster than data.
    pub zeroes_fast: bool,
    /// Reads have structured replies.
    pub structured: bool,
    /// The client selected `base:allocation`.
    pub has_allocation: bool,
}

/// A valid request, to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads `len` bytes from `at`.
    Read {
        /// First byte.
        at: u64,
        /// Bytes.
        len: u32,
    },
    /// Writes the payload.
    Write {
        /// First byte.
        at: u64,
        /// It must be durable before its reply.
        durable: bool,
    },
    /// Makes all writes that have replies durable.
    Flush,
    /// Discards a range.
    Trim {
        /// First byte.
        at: u64,
        /// Bytes.
        len: u32,
        /// It must be durable before its reply.
        durable: bool,
    },
    /// Prefetches a range.
    Cache {
        /// First byte.
        at: u64,
        /// Bytes.
        len: u32,
    },
    /// Writes zeros.
    WriteZeroes {
        /// First byte.
        at: u64,
        /// Bytes.
        len: u32,
        /// They must be durable before the reply.
        durable: bool,
    },
    /// Describes the allocation of a range.
    BlockStatus {
        /// Bytes.
        len: u32,
    },
}

impl Operation {
    /// True if the operation changes the export.
    pub fn changes(&self) -> bool {
        use Operation::{Trim, Write, WriteZeroes};
        matches!(self, Write { .. } | Trim { .. } | WriteZeroes { .. })
    }
}

/// The operation of a request other than [`Command::Disconnect`].
///
/// # Errors
/// The request is invalid; its payload must be skipped.
pub fn check(head: &Head, terms: &Terms) -> Result<Operation, Rejection> {
    let (at, len) = (head.at, head.len);
    let durable = head.flags & flag::FUA != 0;
    if matches!(head.command, Command::Unknown | Command::Disconnect) {
        return Err(inval("unknown command"));
    }
    if head.flags & !head.command.flags() != 0 {
        return Err(inval("unknown flag of the command"));
    }
    if head.command == Command::Flush {
        return match (at, len) {
            (0, 0) => Ok(Operation::Flush),
            _ => Err(inval("a flush has no range")),
        };
    }
    if terms.is_read_only && head.command.changes() {
        return Err(Rejection::new(Errno::Perm, "the export is read-only"));
    }
    check_range(head, terms)?;
    Ok(match head.command {
        Command::Read => Operation::Read { at, len },
        Command::Write => Operation::Write { at, durable },
        Command::Trim => Operation::Trim { at, len, durable },
        Command::Cache => Operation::Cache { at, len },
        Command::WriteZeroes => Operation::WriteZeroes { at, len, durable },
        _ => Operation::BlockStatus { len },
    })
}

fn check_range(head: &Head, terms: &Terms) -> Result<(), Rejection> {
    let (command, len) = (head.command, head.len);
    if len == 0 {
        return Err(inval("the length is 0"));
    }
    let has_payload = matches!(command, Command::Read | Command::Write);
    if has_payload && len > terms.payload_bytes_max {
        let errno = match command {
            Command::Read if terms.structured => Errno::Overflow,
            _ => Errno::Inval,
        };
        return Err(Rejection::new(
            errno,
            "the length is beyond the largest one",
        ));
    }
    let end = head.at.checked_add(u64::from(len));
    if end.is_none_or(|end| end > terms.size_bytes) {
        let errno = match command {
            Command::Write | Command::WriteZeroes => Errno::NoSpace,
            _ => Errno::Inval,
        };
        return Err(Rejection::new(errno, "the range ends beyond the export"));
    }
    let block = u64::from(terms.block_bytes);
    if !head.at.is_multiple_of(block) || !u64::from(len).is_multiple_of(block) {
        return Err(inval("the range is not a multiple of the block size"));
    }
    if command == Command::Read && head.flags & flag::DF != 0 && !terms.structured {
        return Err(inval("DF needs structured replies"));
    }
    if command == Command::BlockStatus && !terms.has_allocation {
        return Err(inval("no context was selected"));
    }
    if head.flags & flag::FAST_ZERO != 0 && !terms.zeroes_fast {
        return Err(Rejection::new(
            Errno::NotSup,
            "zeros are not faster than data",
        ));
    }
    Ok(())
}

const fn inval(reason: &'static str) -> Rejection {
    Rejection::new(Errno::Inval, reason)
}
