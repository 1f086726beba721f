//! Requests in the kernel, and their submission entries.

use std::ptr::NonNull;
use std::sync::Arc;

use io_uring::{opcode, squeue, types};

use super::request::{Request, Transfer};
use crate::arena::Arena;
use crate::buffer::IoData;

/// Most bytes of one transfer in the kernel; the rest continues after it.
const TRANSFER_MAX: usize = 1 << 30;

/// Requests in the kernel, by token.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Option<Request>>,
    free: Vec<usize>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn insert(&mut self, request: Request) -> (u64, &mut Request) {
        let token = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        (token as u64, self.slots[token].insert(request))
    }

    pub(super) fn remove(&mut self, token: u64) -> Option<Request> {
        let token = usize::try_from(token).ok()?;
        let request = self.slots.get_mut(token)?.take();
        if request.is_some() {
            self.free.push(token);
        }
        request
    }
}

/// The submission entry of `request` for file 0. Its buffer may lie in the
/// arena that is `registered` as buffer 0.
pub(super) fn entry_for(request: &mut Request, registered: Option<usize>) -> squeue::Entry {
    let file = types::Fixed(0);
    let position = request.position + request.done as u64;
    let in_arena = |arena: Option<&Arc<Arena>>| {
        arena.is_some_and(|arena| Some(Arc::as_ptr(arena) as usize) == registered)
    };
    let write = |data: &IoData, done: usize, position, flags| {
        let fixed = in_arena(data.parts().0.arena());
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
            let fixed = in_arena(buf.arena());
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
        Transfer::Discard(_) => unreachable!("discards go to the threads"),
    }
}

fn fallocate(how: libc::c_int, position: u64, len: u64) -> squeue::Entry {
    opcode::Fallocate::new(types::Fixed(0), len)
        .offset(position)
        .mode(how | libc::FALLOC_FL_KEEP_SIZE)
        .build()
}
