//! Decides when uses must be noted again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use floe_core::chunk::Plan;
use floe_core::layout::{NOTE_BYTES, SLOTS_PER_NOTE, SlotGeometry};
use tokio::sync::Notify;

/// Uses are noted when the inverse of this fraction of all slots has changed.
const CHANGED_SHARE: u64 = 128;
/// The inverse of the largest part of a metadata zone for notes; larger caches note nothing.
const JOURNAL_SHARE: u64 = 4;

/// Uses that changed since the last notes.
#[derive(Debug)]
pub(super) struct ChangedUses {
    /// Slots that were evicted, or hit after a long time.
    changed: AtomicU64,
    /// The number of changes that triggers notes.
    worth: u64,
    /// The notes fit the journal.
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

    /// Counts slots that were evicted, or hit after a long time.
    pub(super) fn changed(&self, count: u64) {
        let before = self.changed.fetch_add(count, Relaxed);
        if before < self.worth && before + count >= self.worth {
            self.wake.notify_one();
        }
    }

    /// True if the notes fit the journal.
    pub(super) fn fits(&self) -> bool {
        self.fits
    }

    /// Resets the count; false if nothing has changed.
    pub(super) fn take_changed(&self) -> bool {
        self.changed.swap(0, Relaxed) > 0
    }

    /// Waits until enough has changed, or the engine stops.
    pub(super) async fn until_due(&self) {
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
