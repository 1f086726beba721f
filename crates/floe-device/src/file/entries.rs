//! Submission entries of requests, and completion entries.

use std::ptr::NonNull;
use std::sync::Arc;

use io_uring::{cqueue, opcode, squeue, types};

use super::request::{Answer, Passthrough, PassthroughData, Request, Transfer};
use crate::arena::Arena;
use crate::buffer::IoData;
use crate::nvme::command::URING_IO;

/// Most bytes of one transfer in the kernel; the rest continues after it.
const TRANSFER_MAX: usize = 1 << 30;

/// The entries of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// Of 64 and 16 bytes, for reads and writes of a file.
    Transfers,
    /// Of 128 and 32 bytes, for NVMe commands.
    Commands,
}

/// The entries of a ring in one size.
pub(super) trait Entries: 'static {
    type Submission: squeue::EntryMarker;
    type Completion: cqueue::EntryMarker;

    /// The entry of a request that does nothing and names a registered buffer, if some
    /// kernels reject that for entries of this size.
    fn probe() -> Option<Self::Submission> {
        None
    }

    /// The entry of `request` for file 0. Its buffer may lie in the arena that is
    /// `registered` as buffer 0.
    fn submission(request: &mut Request, registered: Option<usize>, token: u64)
    -> Self::Submission;

    /// The request's token, and its answer.
    fn completion(entry: &Self::Completion) -> (u64, Answer);
}

/// Entries of [`EntryKind::Transfers`].
pub(super) struct Transfers;

impl Entries for Transfers {
    type Submission = squeue::Entry;
    type Completion = cqueue::Entry;

    fn submission(request: &mut Request, registered: Option<usize>, token: u64) -> squeue::Entry {
        transfer(request, registered).user_data(token)
    }

    fn completion(entry: &cqueue::Entry) -> (u64, Answer) {
        let answer = Answer {
            code: entry.result(),
            value: 0,
        };
        (entry.user_data(), answer)
    }
}

/// Entries of [`EntryKind::Commands`].
pub(super) struct Commands;

impl Entries for Commands {
    type Submission = squeue::Entry128;
    type Completion = cqueue::Entry32;

    /// Linux takes registered buffers since 6.1, and `URING_CMD` since 5.19.
    fn probe() -> Option<squeue::Entry128> {
        const NO_OPERATION: u32 = 0;
        let command = opcode::UringCmd80::new(types::Fixed(0), NO_OPERATION);
        Some(command.buf_index(Some(0)).build())
    }

    fn submission(
        request: &mut Request,
        registered: Option<usize>,
        token: u64,
    ) -> squeue::Entry128 {
        match &mut request.transfer {
            Transfer::Passthrough(passthrough) => command(passthrough, registered).user_data(token),
            _ => unreachable!("a namespace's requests are commands"),
        }
    }

    fn completion(entry: &cqueue::Entry32) -> (u64, Answer) {
        let answer = Answer {
            code: entry.result(),
            value: entry.big_cqe()[0],
        };
        (entry.user_data(), answer)
    }
}

fn command(passthrough: &mut Passthrough, registered: Option<usize>) -> squeue::Entry128 {
    let fixed = match &passthrough.data {
        PassthroughData::None => false,
        PassthroughData::Read(buf) => in_arena(buf.arena(), registered),
        PassthroughData::Write(data) => in_arena(data.parts().0.arena(), registered),
    };
    let bytes = passthrough.for_kernel();
    opcode::UringCmd80::new(types::Fixed(0), URING_IO)
        .cmd(bytes)
        .buf_index(fixed.then_some(0))
        .build()
}

fn in_arena(arena: Option<&Arc<Arena>>, registered: Option<usize>) -> bool {
    arena.is_some_and(|arena| Some(Arc::as_ptr(arena) as usize) == registered)
}

fn transfer(request: &mut Request, registered: Option<usize>) -> squeue::Entry {
    let file = types::Fixed(0);
    let position = request.position + request.done as u64;
    let write = |data: &IoData, done: usize, position, flags| {
        let fixed = in_arena(data.parts().0.arena(), registered);
        let rest = &data[done..];
        let len = rest.len().min(TRANSFER_MAX) as u32;
        if fixed {
            let entry = opcode::WriteFixed::new(file, rest.as_ptr(), len, 0);
            entry.offset(position).rw_flags(flags).build()
        } else {
            let entry = opcode::Write::new(file, rest.as_ptr(), len);
            entry.offset(position).rw_flags(flags).build()
        }
    };
    match &mut request.transfer {
        Transfer::Read(buf) => {
            let fixed = in_arena(buf.arena(), registered);
            let rest = &mut buf[request.done..];
            let len = rest.len().min(TRANSFER_MAX) as u32;
            let start = NonNull::from(rest).cast::<u8>().as_ptr();
            if fixed {
                opcode::ReadFixed::new(file, start, len, 0)
                    .offset(position)
                    .build()
            } else {
                opcode::Read::new(file, start, len).offset(position).build()
            }
        }
        Transfer::Write(data) => write(data, request.done, position, 0),
        Transfer::WriteDurably(data) => write(data, request.done, position, libc::RWF_DSYNC),
        Transfer::Sync => opcode::Fsync::new(file)
            .flags(types::FsyncFlags::DATASYNC)
            .build(),
        Transfer::Punch(len) => fallocate(libc::FALLOC_FL_PUNCH_HOLE, position, *len),
        Transfer::Zero(len) => fallocate(libc::FALLOC_FL_ZERO_RANGE, position, *len),
        Transfer::Discard(_) | Transfer::ChangeZone(..) | Transfer::ReportZone(_) => {
            unreachable!("the threads execute it")
        }
        Transfer::Passthrough(_) => unreachable!("commands go to rings with larger entries"),
    }
}

fn fallocate(how: libc::c_int, position: u64, len: u64) -> squeue::Entry {
    opcode::Fallocate::new(types::Fixed(0), len)
        .offset(position)
        .mode(how | libc::FALLOC_FL_KEEP_SIZE)
        .build()
}
