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

use parking_lot::Mutex;
use tokio::runtime::{self, Handle, RuntimeFlavor};

use super::Inner;
use super::request::Request;
use super::ring::Ring;
use crate::arena::Arena;
use crate::config::RingChoice;

/// Most rings that belong to one thread. Threads beyond use the shared one.
const OWN_MAX: usize = 256;

pub(super) struct Rings {
    /// Identifies the device in [`SEATS`]. Never reused.
    device: u64,
    choice: RingChoice,
    shared: Arc<Ring>,
    own: Mutex<Vec<OwnRing>>,
}

struct OwnRing {
    runtime: runtime::Id,
    ring: Arc<Ring>,
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
            shared: Arc::new(Ring::new(file, arena)?),
            own: Mutex::default(),
        })
    }

    /// Starts `request`.
    pub(super) fn submit(&self, inner: &Arc<Inner>, request: Request) {
        let caller = Handle::try_current().ok();
        match caller.as_ref().and_then(|caller| self.own(inner, caller)) {
            Some(ring) => ring.submit(inner, caller.as_ref(), request),
            None => self.shared.submit(inner, caller.as_ref(), request),
        }
    }

    /// The ring of the caller's requests, with a driver.
    pub(super) fn home(&self, inner: &Arc<Inner>) -> Weak<Ring> {
        let caller = Handle::try_current().ok();
        let own = caller.as_ref().and_then(|caller| self.own(inner, caller));
        let ring = own.as_ref().unwrap_or(&self.shared);
        ring.attend(inner, caller.as_ref());
        Arc::downgrade(ring)
    }

    /// The ring of `caller` itself, if it should have one.
    fn own(&self, inner: &Arc<Inner>, caller: &Handle) -> Option<Arc<Ring>> {
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
        let ring = self.find_or_make(inner, runtime, is_current_thread);
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

    /// The ring of a thread that uses the device for the first time. Other threads
    /// of a current_thread runtime share its ring. A thread that cannot have a
    /// ring of its own uses the shared one.
    fn find_or_make(
        &self,
        inner: &Arc<Inner>,
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
        match Ring::new(&inner.file, inner.arena.as_deref()) {
            Ok(ring) => {
                let ring = Arc::new(ring);
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

    /// Closes `ring`, whose runtime has ended, unless it is the shared one.
    pub(super) fn retire(&self, ring: &Arc<Ring>) {
        if !ring.is_abandoned() {
            return;
        }
        let mut own = self.own.lock();
        let before = own.len();
        own.retain(|own| !Arc::ptr_eq(&own.ring, ring));
        if own.len() < before {
            drop(own);
            ring.close();
        }
    }

    /// Blocks until no request is in flight on any ring.
    pub(super) fn drain(&self, inner: &Arc<Inner>) {
        for ring in self.all() {
            ring.drain(inner);
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

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rings")
            .field("choice", &self.choice)
            .field("own", &self.own.lock().len())
            .finish_non_exhaustive()
    }
}
