//! The back end without io_uring: a bounded number of workers on tokio's
//! blocking pool. They take requests from a queue and end when it is empty. A
//! worker also executes what follows a request, so that it needs no ring.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rustix::fs::FallocateFlags;
use tokio::runtime::Handle;

use super::owner::Owner;
use super::request::{Answer, Passthrough, Request, Transfer, Verdict};
use super::space::{discard, punch};
use crate::error::DeviceErrorKind;
use crate::nvme::command::IOCTL_IO;
use crate::nvme::ioctl;
use crate::zoned::kernel as zoned;

/// Most workers.
const WORKERS_MAX: usize = 32;

/// The workers below the rings of a device.
pub(super) struct Threads {
    pub(super) owner: Arc<dyn Owner>,
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Request>,
    workers: usize,
}

impl Threads {
    pub(super) fn new(owner: Arc<dyn Owner>) -> Self {
        Threads {
            owner,
            state: Mutex::default(),
            idle: Condvar::new(),
        }
    }

    /// Starts `request`.
    pub(super) fn submit(self: &Arc<Self>, request: Request) {
        match Handle::try_current() {
            Ok(runtime) => self.start(&runtime, request),
            Err(_) => {
                let why = || io::Error::other("the device is used outside a tokio runtime");
                self.owner.fail(request, &|| DeviceErrorKind::Io(why()));
            }
        }
    }

    /// Starts a request that another one caused. A thread without a runtime, which drains
    /// a ring, executes it.
    pub(super) fn follow(self: &Arc<Self>, request: Request) {
        match Handle::try_current() {
            Ok(runtime) => self.start(&runtime, request),
            Err(_) => self.execute(request),
        }
    }

    fn start(self: &Arc<Self>, runtime: &Handle, request: Request) {
        {
            let mut state = self.state.lock();
            state.queue.push_back(request);
            if state.workers >= WORKERS_MAX {
                return;
            }
            state.workers += 1;
        }
        let worker = Worker {
            threads: Arc::clone(self),
            left: false,
        };
        runtime.spawn_blocking(move || worker.run());
    }

    /// Executes `request`, and what follows it.
    fn execute(&self, request: Request) {
        let mut next = Some(request);
        while let Some(mut request) = next {
            let result = carry_out(&self.owner.open_file().file, &mut request);
            next = self.owner.end(request, result);
        }
    }

    /// Waits until all workers have ended.
    pub(super) fn drain(&self) {
        let mut state = self.state.lock();
        while state.workers > 0 {
            self.idle.wait(&mut state);
        }
    }

    /// The next request, or `None` if the worker must end.
    fn next(&self) -> Option<Request> {
        let mut state = self.state.lock();
        let request = state.queue.pop_front();
        if request.is_none() {
            state.workers -= 1;
            self.idle.notify_all();
        }
        request
    }
}

struct Worker {
    threads: Arc<Threads>,
    left: bool,
}

impl Worker {
    fn run(mut self) {
        while let Some(request) = self.threads.next() {
            self.threads.execute(request);
        }
        self.left = true;
    }
}

impl Drop for Worker {
    /// A worker that never ran, because its runtime shut down, fails its
    /// requests.
    fn drop(&mut self) {
        while !self.left {
            match self.threads.next() {
                Some(request) => self.threads.owner.fail(request, &|| DeviceErrorKind::Gone),
                None => self.left = true,
            }
        }
    }
}

fn carry_out(file: &File, request: &mut Request) -> Result<(), DeviceErrorKind> {
    loop {
        let verdict = match &mut request.transfer {
            Transfer::Passthrough(passthrough) => {
                let answer = execute(file, passthrough);
                request.answered(answer)
            }
            _ => {
                let attempted = attempt(file, request);
                request.advance(attempted)
            }
        };
        if let Verdict::Over(result) = verdict {
            return result;
        }
    }
}

fn execute(file: &File, passthrough: &mut Passthrough) -> Answer {
    // SAFETY: the command's data is the passthrough's own, which outlives the call.
    let (code, value) = unsafe { ioctl::submit(file, IOCTL_IO, passthrough.for_kernel()) };
    Answer { code, value }
}

fn attempt(file: &File, request: &mut Request) -> io::Result<usize> {
    let (done, position) = (request.done, request.position + request.done as u64);
    match &mut request.transfer {
        Transfer::Read(buf) => file.read_at(&mut buf[done..], position),
        Transfer::Write(data) => file.write_at(&data[done..], position),
        Transfer::WriteDurably(data) => write_durably(file, &data[done..], position),
        Transfer::Sync => file.sync_data().map(|()| 0),
        Transfer::Punch(len) => punch(file, FallocateFlags::PUNCH_HOLE, position, *len).map(|()| 0),
        Transfer::Zero(len) => punch(file, FallocateFlags::ZERO_RANGE, position, *len).map(|()| 0),
        Transfer::Discard(len) => discard(file, position, *len).map(|()| 0),
        Transfer::ChangeZone(len, change) => {
            zoned::change(file, position, *len, *change).map(|()| 0)
        }
        Transfer::ReportZone(found) => {
            *found = Some(Box::new(zoned::report_one(file, position)?));
            Ok(0)
        }
        Transfer::Passthrough(_) => unreachable!("commands are executed on their own"),
    }
}

fn write_durably(file: &File, data: &[u8], position: u64) -> io::Result<usize> {
    let data = [IoSlice::new(data)];
    let flags = rustix::io::ReadWriteFlags::DSYNC;
    Ok(rustix::io::pwritev2(file, &data, position, flags)?)
}
