//! The rings of one device: a shared one, and one per thread that needs its
//! own, so that cores do not contend for a lock.
//!
//! A thread's ring is the same [`Ring`] as the shared one. Its locks are
//! uncontended, except when another thread drains the ring after its runtime
//! has ended.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use tokio::runtime::{self, Handle, RuntimeFlavor};

use super::entries::EntryKind;
use super::request::Request;
use super::ring::{Family, Ring};
use super::threads::Threads;
use crate::arena::Arena;
use crate::config::RingChoice;

pub(crate) struct Rings {
    /// Identifies the device in [`CACHED_RINGS`]. Never reused.
    device: u64,
    choice: RingChoice,
    family: Arc<Family>,
}

/// A ring that this thread uses.
struct CachedRing {
    device: u64,
    runtime: runtime::Id,
    ring: Weak<Ring>,
}

thread_local! {
    static CACHED_RINGS: RefCell<Vec<CachedRing>> = const { RefCell::new(Vec::new()) };
}

impl Rings {
    /// Creates the shared ring on the first of `files`. The others are created on demand.
    pub(crate) fn new(
        files: &[&File],
        arena: Option<&Arena>,
        choice: RingChoice,
        entries: EntryKind,
    ) -> io::Result<Self> {
        static DEVICES: AtomicU64 = AtomicU64::new(0);
        Ok(Rings {
            device: DEVICES.fetch_add(1, Relaxed),
            choice,
            family: Family::new(files, arena, entries)?,
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
        if let Some(ring) = self.cached(runtime) {
            return Some(ring);
        }
        let ring = self
            .family
            .find_or_make(threads, runtime, is_current_thread);
        self.cache(runtime, &ring);
        Some(ring)
    }

    fn cached(&self, runtime: runtime::Id) -> Option<Arc<Ring>> {
        let find = |rings: &RefCell<Vec<CachedRing>>| {
            let rings = rings.borrow();
            let is_it =
                |cached: &&CachedRing| cached.runtime == runtime && cached.device == self.device;
            rings.iter().find(is_it)?.ring.upgrade()
        };
        // An ending thread may have dropped its cache.
        CACHED_RINGS.try_with(find).ok().flatten()
    }

    fn cache(&self, runtime: runtime::Id, ring: &Arc<Ring>) {
        let cached = CachedRing {
            device: self.device,
            runtime,
            ring: Arc::downgrade(ring),
        };
        // Without an entry the thread looks up its ring again next time.
        let _ = CACHED_RINGS.try_with(|rings| {
            let mut rings = rings.borrow_mut();
            rings.retain(|cached| cached.ring.strong_count() > 0);
            rings.push(cached);
        });
    }

    /// Submits and reaps on every ring.
    pub(super) fn turn(&self, threads: &Arc<Threads>) {
        self.family.turn(threads);
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
