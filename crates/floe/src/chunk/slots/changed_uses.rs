//! When it is worth noting uses again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use floe_core::chunk::Plan;
use floe_core::layout::{NOTE_BYTES, SLOTS_PER_NOTE, SlotGeometry};
use tokio::sync::Notify;

/// So much of all slots must have changed before they are noted again.
const CHANGED_SHARE: u64 = 128;
/// Share of a metadata zone that the notes may take; of larger caches nothing is noted.
const JOURNAL_SHARE: u64 = 4;

/// Uses that changed since they were last noted.
#[derive(Debug)]
pub(super) struct ChangedUses {
    /// Slots evicted or hit after a long time.
    changed: AtomicU64,
    /// So many are worth notes.
    worth: u64,
    /// Whether the notes fit the journal.
    fits: bool,
    wake: Notify,
    stop: Notify,
}

impl ChangedUses {
    pub(super) fn new(plan: &Plan, geometry: &SlotGeometry) -> Self {
        let zones = plan.data_zones().count() as u64;
        let notes = zones * u64::from(geometry.slots.div_ceil(SLOTS_PER_NOTE));
        ChangedUses {
            changed: AtomicU64::new(0),
            worth: (zones * u64::from(geometry.slots) / CHANGED_SHARE).max(1),
            fits: notes * NOTE_BYTES as u64 <= plan.geometry.zone_capacity / JOURNAL_SHARE,
            wake: Notify::new(),
            stop: Notify::new(),
        }
    }

    /// So many slots were evicted, or hit after a long time.
    pub(super) fn changed(&self, count: u64) {
        let before = self.changed.fetch_add(count, Relaxed);
        if before < self.worth && before + count >= self.worth {
            self.wake.notify_one();
        }
    }

    /// Whether the notes fit the journal.
    pub(super) fn fits(&self) -> bool {
        self.fits
    }

    /// Starts to count anew; false if nothing has changed.
    pub(super) fn take_changed(&self) -> bool {
        self.changed.swap(0, Relaxed) > 0
    }

    /// Waits until enough has changed, or the engine has stopped.
    pub(super) async fn worth_noting(&self) {
        self.wake.notified().await;
    }

    pub(super) async fn stopped(&self) {
        self.stop.notified().await;
    }

    pub(super) fn stop(&self) {
        self.wake.notify_one();
        self.stop.notify_one();
    }
}
