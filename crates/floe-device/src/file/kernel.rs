//! The kernel's side of a ring: its queues, and the requests in the kernel.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use io_uring::IoUring;
use parking_lot::Mutex;

use super::entries::{Commands, Entries, EntryKind, Transfers};
use super::intake::Intake;
use super::request::{Answer, Request};
use super::table::Table;
use crate::arena::Arena;

/// Entries of the submission queue.
const ENTRIES: u32 = 256;
/// Most operations in the kernel at once; later ones wait in the queue. Equal
/// to the completion queue's length, so that it cannot overflow.
const IN_KERNEL_MAX: usize = 2 * ENTRIES as usize;

/// State that only the holder of the ring's lock touches.
pub(super) trait Core: Send {
    /// Submits queued requests and reaps completions.
    fn step(&mut self, intake: &Mutex<Intake>, wait: Wait) -> Vec<Completion>;

    /// True if the submission queue has entries that the kernel has not taken.
    fn is_unsubmitted(&self) -> bool;

    /// True if the kernel rejected the ring itself, so that no request ends.
    fn is_broken(&self) -> bool;

    /// Releases the files at once, which the kernel would do some time after the
    /// ring is closed.
    fn release_files(&self);
}

/// The core of a ring with entries of one size.
struct SizedCore<E: Entries> {
    uring: Queues<E>,
    table: Table,
    /// Address of the arena that is registered as buffer 0; only compared.
    registered: Option<usize>,
    unsubmitted: bool,
    is_broken: bool,
}

impl<E: Entries> Core for SizedCore<E> {
    fn is_unsubmitted(&self) -> bool {
        self.unsubmitted
    }

    fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn release_files(&self) {
        if let Err(error) = self.uring.submitter().unregister_files() {
            tracing::warn!(%error, "cannot unregister the ring's files; the kernel releases them later");
        }
    }

    fn step(&mut self, intake: &Mutex<Intake>, wait: Wait) -> Vec<Completion> {
        let mut completions = Vec::new();
        loop {
            // Completions reaped here need no event.
            self.uring.completion().disable_eventfd();
            self.reap(&mut completions);
            let more = self.exchange(intake, wait, &mut completions);
            self.uring.completion().enable_eventfd();
            // Completions from before the line above raised no event, and may
            // have made room for queued requests.
            fence(Ordering::SeqCst);
            let reaped = self.reap(&mut completions);
            if !more || !reaped || self.unsubmitted {
                return completions;
            }
        }
    }
}

impl<E: Entries> SizedCore<E> {
    /// Submits and reaps until the queue is empty (false) or the kernel takes no
    /// more (true).
    fn exchange(
        &mut self,
        intake: &Mutex<Intake>,
        wait: Wait,
        completions: &mut Vec<Completion>,
    ) -> bool {
        loop {
            let more = self.fill(&mut intake.lock().queue);
            let waiting = wait == Wait::One && completions.is_empty() && !self.table.is_empty();
            if self.unsubmitted || waiting {
                self.enter(usize::from(waiting));
            }
            self.reap(completions);
            if !more || self.unsubmitted || self.table.len() == IN_KERNEL_MAX {
                return more;
            }
        }
    }

    /// Moves queued requests to the submission queue while there is room in
    /// it and in the table. True if some are left.
    fn fill(&mut self, queue: &mut VecDeque<Request>) -> bool {
        let mut entries = self.uring.submission();
        while self.table.len() < IN_KERNEL_MAX && !entries.is_full() {
            let Some(request) = queue.pop_front() else {
                return false;
            };
            let (token, request) = self.table.insert(request);
            let entry = E::submission(request, self.registered, token);
            // SAFETY: the table keeps the request, and with it the buffer, in
            // place until its completion is reaped; the file is registered.
            let pushed = unsafe { entries.push(&entry) };
            debug_assert!(pushed.is_ok(), "the queue was not full");
            self.unsubmitted = true;
        }
        !queue.is_empty()
    }

    fn enter(&mut self, wait: usize) {
        loop {
            match self.uring.submit_and_wait(wait) {
                Ok(_) => {
                    self.unsubmitted = !self.uring.submission().is_empty();
                    self.is_broken = false;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // The entries stay queued and go with the next call.
                    if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) {
                        tracing::error!(%error, "io_uring_enter failed");
                        self.is_broken = true;
                    }
                    return;
                }
            }
        }
    }

    /// Takes completions; true if there were any.
    fn reap(&mut self, completions: &mut Vec<Completion>) -> bool {
        let before = completions.len();
        for completion in self.uring.completion() {
            let (token, answer) = E::completion(&completion);
            let Some(request) = self.table.remove(token) else {
                debug_assert!(false, "every completion belongs to a request");
                continue;
            };
            completions.push((request, answer));
        }
        completions.len() > before
    }
}

impl<E: Entries> Drop for SizedCore<E> {
    fn drop(&mut self) {
        // Requests that could not be drained leak: the kernel may still use their
        // buffers.
        std::mem::forget(std::mem::take(&mut self.table));
    }
}

pub(super) type Completion = (Request, Answer);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    No,
    /// For one completion, if anything is in the kernel.
    One,
}

/// A ring of the kernel.
pub(super) struct Uring {
    pub(super) core: Box<dyn Core>,
    /// Signals completions.
    pub(super) eventfd: OwnedFd,
}

impl Uring {
    /// Creates a ring on the first of `files`, with `arena` registered if the kernel allows
    /// it. The kernel holds all `files` until the ring's requests have ended, even those of
    /// a process that was killed.
    pub(super) fn new(
        files: &[&File],
        arena: Option<&Arena>,
        entries: EntryKind,
    ) -> io::Result<Self> {
        match entries {
            EntryKind::Transfers => Uring::sized::<Transfers>(files, arena),
            EntryKind::Commands => Uring::sized::<Commands>(files, arena),
        }
    }

    fn sized<E: Entries>(files: &[&File], arena: Option<&Arena>) -> io::Result<Self> {
        let mut uring = build_uring::<E>()?;
        let files: Vec<_> = files.iter().map(|file| file.as_raw_fd()).collect();
        uring.submitter().register_files(&files)?;
        let registered = arena.and_then(|arena| register_arena::<E>(&uring, arena));
        let registered = match registered {
            Some(_) if !takes_registered::<E>(&mut uring)? => {
                uring.submitter().unregister_buffers()?;
                None
            }
            registered => registered,
        };
        let eventfd = rustix::event::eventfd(
            0,
            rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK,
        )?;
        uring.submitter().register_eventfd(eventfd.as_raw_fd())?;
        let core = SizedCore::<E> {
            uring,
            table: Table::default(),
            registered,
            unsubmitted: false,
            is_broken: false,
        };
        Ok(Uring {
            core: Box::new(core),
            eventfd,
        })
    }
}

type Queues<E> = IoUring<<E as Entries>::Submission, <E as Entries>::Completion>;

/// A ring with the best options that the running kernel supports.
fn build_uring<E: Entries>() -> io::Result<Queues<E>> {
    Queues::<E>::builder()
        .setup_coop_taskrun()
        .build(ENTRIES)
        .or_else(|_| Queues::<E>::builder().build(ENTRIES))
}

/// False if the kernel takes no registered buffers in entries of this size.
fn takes_registered<E: Entries>(uring: &mut Queues<E>) -> io::Result<bool> {
    let Some(probe) = E::probe() else {
        return Ok(true);
    };
    // SAFETY: the entry has no operation, so that no memory is used.
    let pushed = unsafe { uring.submission().push(&probe) };
    debug_assert!(pushed.is_ok(), "the queue is empty");
    loop {
        match uring.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => {
                let answer = uring.completion().next();
                let code = answer.map(|entry| E::completion(&entry).1.code);
                return Ok(code != Some(-libc::EINVAL));
            }
        }
    }
}

/// The arena's extent if the kernel accepted it as a registered buffer.
fn register_arena<E: Entries>(uring: &Queues<E>, arena: &Arena) -> Option<usize> {
    let (base, len) = arena.extent();
    let vector = libc::iovec {
        iov_base: base.as_ptr().cast(),
        iov_len: len,
    };
    // SAFETY: the arena outlives the ring (the device drops the ring first).
    match unsafe { uring.submitter().register_buffers(&[vector]) } {
        Ok(()) => Some(arena as *const Arena as usize),
        Err(error) => {
            tracing::warn!(
                %error,
                arena_bytes = len,
                "the kernel did not register the buffer arena (is the memlock limit too low?); \
                 reads and writes cost a little more CPU without it"
            );
            None
        }
    }
}
