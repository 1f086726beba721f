//! One io_uring without a thread of its own: any thread may submit to it, and
//! completions wake the waiting tasks.
//!
//! Submissions go to a queue. The thread that gets the ring's lock with
//! `try_lock` passes the whole queue to the kernel and reaps completions. With
//! few operations in flight, the submitter does that itself. Above
//! [`INLINE_MAX`] it leaves that to the *driver*, a task that runs once per
//! scheduling round and submits all queued operations in one system call. At
//! [`GATHERED_MAX`] queued operations, the submitter does not wait for the
//! driver. The driver also reaps completions when the ring's eventfd is ready.
//!
//! A device that completes many operations together keeps doing so only if they
//! are also submitted together. Operations whose waiters were just woken
//! therefore count as in flight, since most waiters start another operation.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::task::Waker;

use io_uring::IoUring;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{self, Handle, RuntimeFlavor};

use super::Inner;
use super::driver::{Driver, DriverLink};
use super::request::{Aftermath, Request, Verdict};
use super::table::{Table, entry_for};
use crate::arena::Arena;
use crate::error::DeviceErrorKind;

/// Up to this many operations in flight, each is submitted where it starts.
///
/// Measured at depth 8: 16 costs 10 % more CPU per read than 4 on a
/// current_thread runtime, 15 % on a multi_thread one.
const INLINE_MAX: usize = 4;
/// This many gathered operations are submitted before the end of the scheduling
/// round. More would save hardly any CPU, and the device would idle while
/// submitters are still running.
const GATHERED_MAX: usize = 16;
/// Entries of the submission queue.
const ENTRIES: u32 = 256;
/// Most operations in the kernel at once; later ones wait in the queue. Equal
/// to the completion queue's length, so that it cannot overflow.
const IN_KERNEL_MAX: usize = 2 * ENTRIES as usize;

pub(super) struct Ring {
    intake: Mutex<Intake>,
    core: Mutex<Core>,
    /// Set by a thread that needs another pass over the ring but does not have
    /// the lock. The holder checks it after unlocking.
    wanted: AtomicBool,
    /// Requests that were accepted and have not ended.
    in_flight: AtomicUsize,
    eventfd: OwnedFd,
}

/// State of submitters, behind one lock.
#[derive(Default)]
struct Intake {
    queue: VecDeque<Request>,
    residents: Vec<Resident>,
    /// Waiters that were woken together and have not started another operation.
    woken: usize,
}

impl Ring {
    /// Creates a ring on `file`, with `arena` registered if the kernel allows
    /// it.
    pub(super) fn new(file: &impl AsRawFd, arena: Option<&Arena>) -> io::Result<Self> {
        let uring = build_uring()?;
        let submitter = uring.submitter();
        submitter.register_files(&[file.as_raw_fd()])?;
        let eventfd = rustix::event::eventfd(
            0,
            rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK,
        )?;
        submitter.register_eventfd(eventfd.as_raw_fd())?;
        let registered = arena.and_then(|arena| register_arena(&uring, arena));
        Ok(Ring {
            intake: Mutex::default(),
            core: Mutex::new(Core {
                uring,
                table: Table::default(),
                registered,
                unsubmitted: false,
                is_broken: false,
            }),
            wanted: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            eventfd,
        })
    }

    /// Starts `request` on behalf of the runtime that the caller is in, if any.
    pub(super) fn submit(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        caller: Option<&Handle>,
        request: Request,
    ) {
        match self.accept(inner, caller, request) {
            Ok(Accepted::Inline) => self.turn(inner),
            Ok(Accepted::Waking(driver)) => driver.wake(),
            Ok(Accepted::Queued) => {}
            Err((request, error)) => {
                let again = || io::Error::other(error.to_string());
                inner.fail(request, || DeviceErrorKind::Io(again()));
            }
        }
    }

    /// Queues `request`; returns who submits it.
    fn accept(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        caller: Option<&Handle>,
        request: Request,
    ) -> Result<Accepted, (Request, io::Error)> {
        let mut guard = match self.attended(inner, caller) {
            Ok(guard) => guard,
            Err(error) => return Err((request, error)),
        };
        let intake = &mut *guard;
        intake.woken = intake.woken.saturating_sub(1);
        let busy = intake.woken + self.in_flight.load(Ordering::Relaxed);
        let gathered = intake.queue.len() + 1 >= GATHERED_MAX;
        let Some(driver) = intake.driver_for(caller) else {
            let error = io::Error::other("the tokio runtime is shutting down");
            return Err((request, error));
        };
        let accepted = if busy < INLINE_MAX || gathered {
            Accepted::Inline
        } else if driver.claim_notice() {
            // Cloned so that the caller wakes it outside the lock.
            Accepted::Waking(Arc::clone(driver))
        } else {
            Accepted::Queued
        };
        // Counted under the lock, so that a driver that ends sees it.
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        intake.queue.push_back(request);
        Ok(accepted)
    }

    /// The intake of a ring that has a driver for `caller`.
    fn attended(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        caller: Option<&Handle>,
    ) -> io::Result<MutexGuard<'_, Intake>> {
        let mut intake = self.intake.lock();
        if intake.driver_for(caller).is_none() {
            drop(intake);
            // Unlocked: a runtime that shuts down drops the driver at once, and the
            // drop locks the intake.
            let resident = self.start_driver(inner, caller)?;
            intake = self.intake.lock();
            intake.residents.insert(0, resident);
        }
        Ok(intake)
    }

    /// Ensures that the caller's runtime has a driver, before another thread
    /// starts an operation here for it.
    pub(super) fn attend(self: &Arc<Self>, inner: &Arc<Inner>, caller: Option<&Handle>) {
        if let Err(error) = self.attended(inner, caller) {
            tracing::debug!(%error, "a ring has no driver; other rings run its requests");
        }
    }

    /// Submits queued requests and reaps completions. If another thread holds
    /// the lock, it makes another pass instead.
    pub(super) fn turn(&self, inner: &Arc<Inner>) {
        self.wanted.store(true, Ordering::SeqCst);
        loop {
            // Pairs with the fence below: either this thread gets the lock, or its
            // holder sees `wanted` after unlocking.
            fence(Ordering::SeqCst);
            let Some(mut core) = self.core.try_lock() else {
                return;
            };
            self.wanted.store(false, Ordering::SeqCst);
            let answers = core.step(&self.intake, Wait::No);
            let rejected = core.unsubmitted;
            drop(core);
            self.settle(inner, answers);
            if rejected {
                // The kernel lacks resources. Try again in the next round.
                self.notify_all();
            }
            fence(Ordering::SeqCst);
            if !self.wanted.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    fn settle(&self, inner: &Arc<Inner>, answers: Vec<Answer>) {
        if answers.is_empty() {
            return;
        }
        self.intake.lock().woken = answers.len();
        let mut wakers = Vec::with_capacity(answers.len());
        for (mut request, answer) in answers {
            match request.advance(answer) {
                Verdict::Again => self.go_on(request),
                Verdict::Over(result) => {
                    let Aftermath { waker, next } = inner.finished(request, result);
                    wakers.extend(waker);
                    if let Some(next) = next {
                        self.follow(inner, next);
                    }
                    // Decremented last, so that the next step does not find an
                    // idle ring.
                    self.in_flight.fetch_sub(1, Ordering::Release);
                }
            }
        }
        // Wakes all waiters together. At the first one, a multi_thread runtime
        // wakes another worker, which sleeps again if it finds no more tasks.
        // Each such wake-up costs more than a read.
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Starts the successor of a request: on the ring of its caller, so that it
    /// does not depend on this runtime, otherwise on this ring.
    fn follow(&self, inner: &Arc<Inner>, mut next: Request) {
        if !next.is_for_ring() {
            return inner.threads.submit(inner, next);
        }
        let home = next.home.take().and_then(|home| home.upgrade());
        let mut left = Some(next);
        if let Some(home) = home.filter(|home| !std::ptr::eq(&**home, self)) {
            left = left.and_then(|next| home.adopt(next).err());
        }
        if let Some(next) = left {
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            self.go_on(next);
        }
    }

    /// Takes a request from another ring, unless this one has no driver.
    fn adopt(&self, request: Request) -> Result<(), Request> {
        let mut intake = self.intake.lock();
        intake
            .residents
            .retain(|resident| resident.link.is_running());
        if intake.residents.is_empty() {
            return Err(request);
        }
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        intake.queue.push_back(request);
        for resident in &intake.residents {
            resident.link.notify();
        }
        Ok(())
    }

    fn go_on(&self, request: Request) {
        self.intake.lock().queue.push_back(request);
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Whether any request is in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) > 0
    }

    /// Blocks until no request is in flight.
    pub(super) fn drain(&self, inner: &Arc<Inner>) {
        while self.is_busy() {
            let mut core = self.core.lock();
            let answers = core.step(&self.intake, Wait::One);
            if core.is_broken {
                return;
            }
            drop(core);
            if answers.is_empty() {
                // Another thread has reaped the last completions and is
                // completing them.
                std::thread::yield_now();
            }
            self.settle(inner, answers);
        }
    }

    /// Starts a driver on the caller's runtime.
    fn start_driver(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        caller: Option<&Handle>,
    ) -> io::Result<Resident> {
        let handle =
            caller.ok_or_else(|| io::Error::other("the device is used outside a tokio runtime"))?;
        let eventfd = self.eventfd.try_clone()?;
        // Tokio panics here on a runtime that was built without I/O.
        let registered = std::panic::catch_unwind(|| {
            // SAFETY: the descriptor is owned by the AsyncFd and open until it is dropped.
            unsafe { AsyncFd::register_with_interest(eventfd, Interest::READABLE) }
        });
        let events = registered
            .map_err(|_| {
                io::Error::other("the tokio runtime has no I/O driver; build it with enable_io")
            })?
            .map_err(io::Error::from)?;
        let link = Arc::new(DriverLink::default());
        let always_runs = handle.runtime_flavor() == RuntimeFlavor::MultiThread;
        let driver = Driver::new(inner, self, events, Arc::clone(&link), always_runs);
        handle.spawn(driver);
        Ok(Resident {
            runtime: handle.id(),
            always_runs,
            link,
        })
    }

    /// Ends a driver that will not run again. Returns whether requests are in
    /// flight. The ring accepts no more requests for this driver.
    pub(super) fn driver_ended(&self, link: &DriverLink) -> bool {
        // Under the lock: every request that relied on the driver is counted.
        let _intake = self.intake.lock();
        link.end();
        self.is_busy()
    }

    /// Whether the ring has neither a driver nor requests in flight.
    pub(super) fn is_abandoned(&self) -> bool {
        let mut intake = self.intake.lock();
        intake.driver_for(None).is_none() && intake.residents.is_empty() && !self.is_busy()
    }

    fn notify_all(&self) {
        for resident in &self.intake.lock().residents {
            resident.link.notify();
        }
    }

    /// Releases the file at once, which the kernel would do some time after the
    /// ring is closed, and lets the drivers end. Called when the device is
    /// dropped and no request is in flight.
    pub(super) fn close(&self) {
        if let Err(error) = self.core.lock().uring.submitter().unregister_files() {
            tracing::warn!(%error, "cannot unregister the ring's file; the kernel releases it later");
        }
        self.notify_all();
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

/// A ring with the best options that the running kernel supports.
fn build_uring() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_coop_taskrun()
        .build(ENTRIES)
        .or_else(|_| IoUring::builder().build(ENTRIES))
}

/// The arena's extent if the kernel accepted it as a registered buffer.
fn register_arena(uring: &IoUring, arena: &Arena) -> Option<usize> {
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

type Answer = (Request, io::Result<usize>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    No,
    /// For one completion, if anything is in the kernel.
    One,
}

/// State that only the holder of the ring's lock touches.
struct Core {
    uring: IoUring,
    table: Table,
    /// Address of the arena that is registered as buffer 0; only compared.
    registered: Option<usize>,
    /// Whether the submission queue has entries that the kernel has not taken.
    unsubmitted: bool,
    /// Whether the kernel rejected the ring itself, so that no request ends.
    is_broken: bool,
}

impl Core {
    fn step(&mut self, intake: &Mutex<Intake>, wait: Wait) -> Vec<Answer> {
        let mut answers = Vec::new();
        loop {
            // Completions reaped here need no event.
            self.uring.completion().disable_eventfd();
            self.reap(&mut answers);
            let more = self.exchange(intake, wait, &mut answers);
            self.uring.completion().enable_eventfd();
            // Completions from before the line above raised no event, and may
            // have made room for queued requests.
            fence(Ordering::SeqCst);
            let reaped = self.reap(&mut answers);
            if !more || !reaped || self.unsubmitted {
                return answers;
            }
        }
    }

    /// Submits and reaps until the queue is empty (false) or the kernel takes no
    /// more (true).
    fn exchange(&mut self, intake: &Mutex<Intake>, wait: Wait, answers: &mut Vec<Answer>) -> bool {
        loop {
            let more = self.fill(&mut intake.lock().queue);
            let waiting = wait == Wait::One && answers.is_empty() && !self.table.is_empty();
            if self.unsubmitted || waiting {
                self.enter(usize::from(waiting));
            }
            self.reap(answers);
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
            let entry = entry_for(request, self.registered).user_data(token);
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
    fn reap(&mut self, answers: &mut Vec<Answer>) -> bool {
        let before = answers.len();
        for completion in self.uring.completion() {
            let Some(request) = self.table.remove(completion.user_data()) else {
                debug_assert!(false, "every completion belongs to a request");
                continue;
            };
            let code = completion.result();
            let answer = match usize::try_from(code) {
                Ok(moved) => Ok(moved),
                Err(_) => Err(io::Error::from_raw_os_error(-code)),
            };
            answers.push((request, answer));
        }
        answers.len() > before
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Requests that could not be drained leak: the kernel may still use their
        // buffers.
        std::mem::forget(std::mem::take(&mut self.table));
    }
}

/// The submitter of an accepted request.
enum Accepted {
    /// The caller submits it.
    Inline,
    /// The driver submits it, once the caller wakes it.
    Waking(Arc<DriverLink>),
    /// The driver submits it, and is awake.
    Queued,
}

impl Intake {
    /// A driver that will run: one on a multi_thread runtime, else one on the
    /// runtime of the caller, which is running now.
    fn driver_for(&mut self, caller: Option<&Handle>) -> Option<&Arc<DriverLink>> {
        self.residents.retain(|resident| resident.link.is_running());
        let runtime = caller.map(Handle::id);
        let found = self
            .residents
            .iter()
            .find(|resident| resident.always_runs || Some(resident.runtime) == runtime)?;
        Some(&found.link)
    }
}

/// A driver and its runtime.
struct Resident {
    runtime: runtime::Id,
    /// Whether its runtime has worker threads and so runs outside `block_on`.
    always_runs: bool,
    link: Arc<DriverLink>,
}
