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

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};
use std::task::Waker;

use parking_lot::{Mutex, MutexGuard};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{self, Handle, RuntimeFlavor};

use super::driver::{Driven, Driver, DriverLink};
use super::entries::EntryKind;
use super::intake::{Accepted, Intake, Resident};
use super::kernel::{Completion, Core, Uring, Wait};
use super::request::{Aftermath, Request, Verdict};
use super::threads::Threads;
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

pub(super) struct Ring {
    intake: Mutex<Intake>,
    core: Mutex<Box<dyn Core>>,
    /// Set by a thread that needs another pass over the ring but does not have
    /// the lock. The holder checks it after unlocking.
    wanted: AtomicBool,
    /// Requests that were accepted and have not ended.
    in_flight: AtomicUsize,
    eventfd: OwnedFd,
    family: Weak<Family>,
}

impl Ring {
    fn new(uring: Uring, family: &Weak<Family>) -> Arc<Self> {
        Arc::new(Ring {
            intake: Mutex::default(),
            core: Mutex::new(uring.core),
            wanted: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            eventfd: uring.eventfd,
            family: Weak::clone(family),
        })
    }

    /// Starts `request` on behalf of the runtime that the caller is in, if any.
    pub(super) fn submit(
        self: &Arc<Self>,
        threads: &Arc<Threads>,
        caller: Option<&Handle>,
        request: Request,
    ) {
        match self.accept(threads, caller, request) {
            Ok(Accepted::Inline) => self.turn(threads),
            Ok(Accepted::Waking(driver)) => driver.wake(),
            Ok(Accepted::Queued) => {}
            Err((request, error)) => {
                let again = || io::Error::other(error.to_string());
                threads
                    .owner
                    .fail(request, &|| DeviceErrorKind::Io(again()));
            }
        }
    }

    /// Queues `request`; returns who submits it.
    fn accept(
        self: &Arc<Self>,
        threads: &Arc<Threads>,
        caller: Option<&Handle>,
        request: Request,
    ) -> Result<Accepted, (Request, io::Error)> {
        let mut guard = match self.attended(threads, caller) {
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
        threads: &Arc<Threads>,
        caller: Option<&Handle>,
    ) -> io::Result<MutexGuard<'_, Intake>> {
        let mut intake = self.intake.lock();
        if intake.driver_for(caller).is_none() {
            drop(intake);
            // Unlocked: a runtime that shuts down drops the driver at once, and the
            // drop locks the intake.
            let resident = self.start_driver(threads, caller)?;
            intake = self.intake.lock();
            intake.residents.insert(0, resident);
        }
        Ok(intake)
    }

    /// Ensures that the caller's runtime has a driver, before another thread
    /// starts an operation here for it.
    pub(super) fn attend(self: &Arc<Self>, threads: &Arc<Threads>, caller: Option<&Handle>) {
        if let Err(error) = self.attended(threads, caller) {
            tracing::debug!(%error, "a ring has no driver; other rings run its requests");
        }
    }

    /// Submits queued requests and reaps completions. If another thread holds
    /// the lock, it makes another pass instead.
    pub(super) fn turn(&self, threads: &Arc<Threads>) {
        self.wanted.store(true, Ordering::SeqCst);
        loop {
            // Pairs with the fence below: either this thread gets the lock, or its
            // holder sees `wanted` after unlocking.
            fence(Ordering::SeqCst);
            let Some(mut core) = self.core.try_lock() else {
                return;
            };
            self.wanted.store(false, Ordering::SeqCst);
            let completions = core.step(&self.intake, Wait::No);
            let rejected = core.is_unsubmitted();
            drop(core);
            self.settle(threads, completions);
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

    fn settle(&self, threads: &Arc<Threads>, completions: Vec<Completion>) {
        if completions.is_empty() {
            return;
        }
        self.intake.lock().woken = completions.len();
        let mut wakers = Vec::with_capacity(completions.len());
        for (mut request, answer) in completions {
            match request.answered(answer) {
                Verdict::Again => self.go_on(request),
                Verdict::Over(result) => {
                    let Aftermath { waker, next } = threads.owner.finished(request, result);
                    wakers.extend(waker);
                    if let Some(next) = next {
                        self.follow(threads, next);
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
    fn follow(&self, threads: &Arc<Threads>, mut next: Request) {
        if !next.is_for_ring() {
            return threads.follow(next);
        }
        let home = next.home.take();
        let home = home.and_then(|runtime| Some(self.family.upgrade()?.ring_of(runtime)));
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

    /// True if any request is in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) > 0
    }

    /// Blocks until no request is in flight.
    pub(super) fn drain(&self, threads: &Arc<Threads>) {
        while self.is_busy() {
            let mut core = self.core.lock();
            let completions = core.step(&self.intake, Wait::One);
            if core.is_broken() {
                return;
            }
            drop(core);
            if completions.is_empty() {
                // Another thread has reaped the last completions and is
                // completing them.
                std::thread::yield_now();
            }
            self.settle(threads, completions);
        }
    }

    /// Starts a driver on the caller's runtime.
    fn start_driver(
        self: &Arc<Self>,
        threads: &Arc<Threads>,
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
        let driven = Attended {
            threads: Arc::downgrade(threads),
            ring: Arc::downgrade(self),
        };
        let always_runs = handle.runtime_flavor() == RuntimeFlavor::MultiThread;
        let driver = Driver::new(driven, events, Arc::clone(&link), always_runs);
        handle.spawn(driver);
        Ok(Resident {
            runtime: handle.id(),
            always_runs,
            link,
        })
    }

    /// Ends a driver that will not run again. Returns whether requests are in
    /// flight. The ring accepts no more requests for this driver.
    fn driver_ended(&self, link: &DriverLink) -> bool {
        // Under the lock: every request that relied on the driver is counted.
        let _intake = self.intake.lock();
        link.end();
        self.is_busy()
    }

    /// Closes a ring of a thread whose runtime has ended, once nothing is in flight.
    fn retire(self: &Arc<Self>) {
        if self.is_abandoned()
            && let Some(family) = self.family.upgrade()
            && family.remove(self)
        {
            self.close();
        }
    }

    /// True if the ring has neither a driver nor requests in flight.
    fn is_abandoned(&self) -> bool {
        let mut intake = self.intake.lock();
        intake.driver_for(None).is_none() && intake.residents.is_empty() && !self.is_busy()
    }

    fn notify_all(&self) {
        for resident in &self.intake.lock().residents {
            resident.link.notify();
        }
    }

    /// Releases the files, and lets the drivers end. Called when the device is
    /// dropped and no request is in flight.
    fn close(&self) {
        self.core.lock().release_files();
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

/// A ring and its device, for a driver, which keeps neither open.
struct Attended {
    threads: Weak<Threads>,
    ring: Weak<Ring>,
}

impl Attended {
    /// The ring is dropped before the device, whose arena is registered with it.
    fn upgrade(&self) -> Option<(Arc<Ring>, Arc<Threads>)> {
        let threads = self.threads.upgrade()?;
        Some((self.ring.upgrade()?, threads))
    }
}

impl Driven for Attended {
    fn turn(&self) -> bool {
        let attended = self.upgrade();
        if let Some((ring, threads)) = &attended {
            ring.turn(threads);
        }
        attended.is_some()
    }

    /// When a runtime shuts down, the next submission starts another driver.
    /// Operations in flight may have waiters on other runtimes, so a temporary
    /// thread waits for them.
    fn driver_ended(&self, link: &DriverLink) {
        let Some(attended) = self.upgrade() else {
            return link.end();
        };
        if !attended.0.driver_ended(link) {
            return attended.0.retire();
        }
        let drained = std::thread::Builder::new()
            .name("floe-drain".to_owned())
            .spawn(move || {
                // Captured whole, to be dropped in order.
                let attended = attended;
                let (ring, threads) = &attended;
                ring.drain(threads);
                ring.retire();
            });
        if let Err(error) = drained {
            tracing::error!(%error, "cannot start a thread to wait for device operations");
        }
    }
}

/// Most rings that belong to one thread. Threads beyond use the shared one.
const OWN_MAX: usize = 256;

/// All rings of a device.
pub(super) struct Family {
    pub(super) shared: Arc<Ring>,
    own: Mutex<Vec<OwnRing>>,
    entries: EntryKind,
}

struct OwnRing {
    runtime: runtime::Id,
    ring: Arc<Ring>,
}

impl Family {
    /// Creates the shared ring on the first of `files`, with `arena` registered if the kernel
    /// allows it. The others are created on demand.
    pub(super) fn new(
        files: &[&File],
        arena: Option<&Arena>,
        entries: EntryKind,
    ) -> io::Result<Arc<Self>> {
        let uring = Uring::new(files, arena, entries)?;
        Ok(Arc::new_cyclic(|family| Family {
            shared: Ring::new(uring, family),
            own: Mutex::default(),
            entries,
        }))
    }

    /// The ring of a thread that uses the device for the first time. Other threads
    /// of a current_thread runtime share its ring. A thread that cannot have a
    /// ring of its own uses the shared one.
    pub(super) fn find_or_make(
        self: &Arc<Self>,
        threads: &Threads,
        runtime: runtime::Id,
        is_current_thread: bool,
    ) -> Arc<Ring> {
        let mut own = self.own.lock();
        let found = own.iter().find(|own| own.runtime == runtime);
        if let Some(found) = found.filter(|_| is_current_thread) {
            return Arc::clone(&found.ring);
        }
        if own.len() >= OWN_MAX {
            return Arc::clone(&self.shared);
        }
        let open = threads.owner.open_file();
        match Uring::new(&open.files(), open.arena.as_deref(), self.entries) {
            Ok(uring) => {
                let ring = Ring::new(uring, &Arc::downgrade(self));
                own.push(OwnRing {
                    runtime,
                    ring: Arc::clone(&ring),
                });
                ring
            }
            Err(error) => {
                tracing::warn!(%error, "no io_uring for another thread; it uses the shared one");
                Arc::clone(&self.shared)
            }
        }
    }

    /// The ring of a runtime's requests.
    fn ring_of(&self, runtime: runtime::Id) -> Arc<Ring> {
        let own = self.own.lock();
        let found = own.iter().find(|own| own.runtime == runtime);
        Arc::clone(found.map_or(&self.shared, |own| &own.ring))
    }

    /// Removes a ring of a thread; false if it is none.
    fn remove(&self, ring: &Arc<Ring>) -> bool {
        let mut own = self.own.lock();
        let before = own.len();
        own.retain(|own| !Arc::ptr_eq(&own.ring, ring));
        own.len() < before
    }

    /// Submits and reaps on every ring.
    pub(super) fn turn(&self, threads: &Arc<Threads>) {
        for ring in self.all() {
            ring.turn(threads);
        }
    }

    /// Blocks until no request is in flight on any ring.
    pub(super) fn drain(&self, threads: &Arc<Threads>) {
        for ring in self.all() {
            ring.drain(threads);
        }
    }

    /// Called when the device is dropped and nothing is in flight.
    pub(super) fn close(&self) {
        for ring in self.all() {
            ring.close();
        }
    }

    fn all(&self) -> Vec<Arc<Ring>> {
        let own = self.own.lock();
        let own = own.iter().map(|own| &own.ring);
        own.chain([&self.shared]).map(Arc::clone).collect()
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family")
            .field("own", &self.own.lock().len())
            .finish_non_exhaustive()
    }
}
