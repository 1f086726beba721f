//! The rings of one device: a shared one, and one per thread that needs its
//! own, so that cores do not contend for a lock.
//!
//! A thread's ring is the same [`Ring`] as the shared one. Its locks are
//! uncontended, except when another thread drains the ring after its runtime
//! has ended.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use tokio::runtime::{self, Handle, RuntimeFlavor};

use super::request::Request;
use super::ring::{Family, Ring};
use super::threads::Threads;
use crate::arena::Arena;
use crate::config::RingChoice;

pub(super) struct Rings {
    /// Identifies the device in [`SEATS`]. Never reused.
    device: u64,
    choice: RingChoice,
    family: Arc<Family>,
}

/// A ring that this thread uses.
struct Seat {
    device: u64,
    runtime: runtime::Id,
    ring: Weak<Ring>,
}

thread_local! {
    static SEATS: RefCell<Vec<Seat>> = const { RefCell::new(Vec::new()) };
}

impl Rings {
    /// Creates the shared ring. The others are created on demand.
    pub(super) fn new(
        file: &impl AsRawFd,
        arena: Option<&Arena>,
        choice: RingChoice,
    ) -> io::Result<Self> {
        static DEVICES: AtomicU64 = AtomicU64::new(0);
        Ok(Rings {
            device: DEVICES.fetch_add(1, Relaxed),
            choice,
            family: Family::new(file, arena)?,
        })
    }

    /// Starts `request`.
    pub(super) fn submit(&self, threads: &Arc<Threads>, request: Request) {
        let caller = Handle::try_current().ok();
        match caller.as_ref().and_then(|caller| self.own(threads, caller)) {
            Some(ring) => ring.submit(threads, caller.as_ref(), request),
            None => self.family.shared.submit(threads, caller.as_ref(), request),
        }
    }

    /// The caller's runtime, whose ring has a driver from now on.
    pub(super) fn home(&self, threads: &Arc<Threads>) -> Option<runtime::Id> {
        let caller = Handle::try_current().ok()?;
        let own = self.own(threads, &caller);
        let ring = own.as_ref().unwrap_or(&self.family.shared);
        ring.attend(threads, Some(&caller));
        Some(caller.id())
    }

    /// The ring of `caller` itself, if it should have one.
    fn own(&self, threads: &Arc<Threads>, caller: &Handle) -> Option<Arc<Ring>> {
        let is_current_thread = caller.runtime_flavor() == RuntimeFlavor::CurrentThread;
        let wants_own = match self.choice {
            RingChoice::Shared => false,
            RingChoice::Auto => is_current_thread,
            RingChoice::PerThread => true,
        };
        if !wants_own {
            return None;
        }
        let runtime = caller.id();
        if let Some(ring) = self.seat(runtime) {
            return Some(ring);
        }
        let ring = self
            .family
            .find_or_make(threads, runtime, is_current_thread);
        self.sit_down(runtime, &ring);
        Some(ring)
    }

    fn seat(&self, runtime: runtime::Id) -> Option<Arc<Ring>> {
        let find = |seats: &RefCell<Vec<Seat>>| {
            let seats = seats.borrow();
            let is_it = |seat: &&Seat| seat.runtime == runtime && seat.device == self.device;
            seats.iter().find(is_it)?.ring.upgrade()
        };
        // A thread that is ending may have dropped its seats.
        SEATS.try_with(find).ok().flatten()
    }

    fn sit_down(&self, runtime: runtime::Id, ring: &Arc<Ring>) {
        let seat = Seat {
            device: self.device,
            runtime,
            ring: Arc::downgrade(ring),
        };
        // Without a seat the thread looks up its ring again next time.
        let _ = SEATS.try_with(|seats| {
            let mut seats = seats.borrow_mut();
            seats.retain(|seat| seat.ring.strong_count() > 0);
            seats.push(seat);
        });
    }

    /// Blocks until no request is in flight on any ring.
    pub(super) fn drain(&self, threads: &Arc<Threads>) {
        self.family.drain(threads);
    }

    /// Called when the device is dropped and nothing is in flight.
    pub(super) fn close(&self) {
        self.family.close();
    }
}
