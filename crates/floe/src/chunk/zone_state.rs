//! The state of each zone that readers and writers share without a lock.
//!
//! There is no lock to poison; a reader that panics unpins its zone.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use floe_core::ZoneId;
use floe_core::chunk::Entry;
use floe_core::layout::{Generation, ZoneLife};
use tokio::sync::Notify;

#[derive(Debug, Default)]
struct State {
    /// The readable life; 0 for none.
    generation: AtomicU32,
    pins: AtomicU32,
    evicting: AtomicBool,
    last_access: AtomicU64,
    live_records: AtomicU32,
    live_bytes: AtomicU64,
    tombstones: AtomicU32,
    /// The zone may hold any bytes and must be reset before it is opened.
    unknown: AtomicBool,
}

/// Pins, access times and live counts of every zone.
#[derive(Debug)]
pub(crate) struct ZoneStates {
    states: Box<[State]>,
    unpinned: Notify,
}

/// Prevents a reset of its zone. A hit borrows the states: an owned handle
/// would share their reference count among all cores.
#[derive(Debug)]
pub(crate) struct Pin<Z: Deref<Target = ZoneStates> = Arc<ZoneStates>> {
    zones: Z,
    zone: ZoneId,
}

impl<Z: Deref<Target = ZoneStates>> Drop for Pin<Z> {
    fn drop(&mut self) {
        let state = &self.zones.states[self.zone.index()];
        // SeqCst pairs with `wait_unpinned`: either this sees `evicting`, or
        // the waiter sees the count.
        if state.pins.fetch_sub(1, SeqCst) == 1 && state.evicting.load(SeqCst) {
            self.zones.unpinned.notify_waiters();
        }
    }
}

impl ZoneStates {
    pub(crate) fn new(zone_count: u32) -> Arc<Self> {
        Arc::new(ZoneStates {
            states: (0..zone_count).map(|_| State::default()).collect(),
            unpinned: Notify::new(),
        })
    }

    fn of(&self, zone: ZoneId) -> &State {
        &self.states[zone.index()]
    }

    /// Pins `zone` if it is still in the life `generation` and not being evicted.
    pub(crate) fn pin<Z>(zones: Z, zone: ZoneId, generation: Generation) -> Option<Pin<Z>>
    where
        Z: Deref<Target = ZoneStates>,
    {
        zones.of(zone).pins.fetch_add(1, SeqCst);
        let pin = Pin { zones, zone };
        let state = pin.zones.of(zone);
        // Checked after the pin is visible: an eviction that starts later waits for it.
        let may_be_read =
            state.generation.load(SeqCst) == generation.0 && !state.evicting.load(SeqCst);
        may_be_read.then_some(pin)
    }

    /// The current life of `zone`.
    pub(crate) fn life(&self, zone: ZoneId) -> ZoneLife {
        ZoneLife::new(zone, Generation(self.of(zone).generation.load(SeqCst)))
    }

    /// Starts a life.
    pub(crate) fn open(&self, zone: ZoneId, generation: Generation, now: u64) {
        let state = self.of(zone);
        state.last_access.store(now, Relaxed);
        state.live_records.store(0, Relaxed);
        state.live_bytes.store(0, Relaxed);
        state.tombstones.store(0, Relaxed);
        state.evicting.store(false, SeqCst);
        state.generation.store(generation.0, SeqCst);
    }

    /// Rejects further pins.
    pub(crate) fn start_evicting(&self, zone: ZoneId) {
        self.of(zone).evicting.store(true, SeqCst);
    }

    /// Waits until no reader pins `zone`, which is being evicted.
    pub(crate) async fn wait_unpinned(&self, zone: ZoneId) {
        loop {
            let notified = self.unpinned.notified();
            tokio::pin!(notified);
            // Registered before the check, so the last unpin is not missed.
            notified.as_mut().enable();
            if self.of(zone).pins.load(SeqCst) == 0 {
                return;
            }
            notified.await;
        }
    }

    /// Ends a life: the zone is empty.
    pub(crate) fn emptied(&self, zone: ZoneId) {
        self.of(zone).generation.store(0, SeqCst);
    }

    pub(crate) fn touch(&self, zone: ZoneId, now: u64) {
        let access = &self.of(zone).last_access;
        // Every core touches a hot zone. Storing at most once per millisecond
        // keeps its cache line shared.
        if now.saturating_sub(access.load(Relaxed)) >= 1_000_000 {
            access.store(now, Relaxed);
        }
    }

    pub(crate) fn last_access(&self, zone: ZoneId) -> u64 {
        self.of(zone).last_access.load(Relaxed)
    }

    /// Counts `entry` as live.
    pub(crate) fn add_live(&self, entry: &Entry) {
        let state = self.of(entry.place.zone);
        state.live_records.fetch_add(1, Relaxed);
        state.live_bytes.fetch_add(u64::from(entry.len), Relaxed);
    }

    /// No longer counts `entry` as live.
    pub(crate) fn remove_live(&self, entry: &Entry) {
        let state = self.of(entry.place.zone);
        state.live_records.fetch_sub(1, Relaxed);
        state.live_bytes.fetch_sub(u64::from(entry.len), Relaxed);
    }

    pub(crate) fn live_records(&self, zone: ZoneId) -> u32 {
        self.of(zone).live_records.load(Relaxed)
    }

    pub(crate) fn live_bytes(&self, zone: ZoneId) -> u64 {
        self.of(zone).live_bytes.load(Relaxed)
    }

    /// Records that the zone must be reset before it is written.
    pub(crate) fn mark_unknown(&self, zone: ZoneId) {
        self.of(zone).unknown.store(true, SeqCst);
    }

    /// True if the zone must be reset before it is written; clears the mark.
    pub(crate) fn take_unknown(&self, zone: ZoneId) -> bool {
        self.of(zone).unknown.swap(false, SeqCst)
    }

    pub(crate) fn add_tombstone(&self, zone: ZoneId) {
        self.of(zone).tombstones.fetch_add(1, Relaxed);
    }

    pub(crate) fn tombstones(&self, zone: ZoneId) -> u32 {
        self.of(zone).tombstones.load(Relaxed)
    }

    /// The tombstones of a zone that needs none any more.
    pub(crate) fn take_tombstones(&self, zone: ZoneId) -> u32 {
        self.of(zone).tombstones.swap(0, Relaxed)
    }
}
