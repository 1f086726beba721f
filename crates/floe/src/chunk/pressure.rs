//! The journal's space that tombstones take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use floe_core::layout::NOTE_BYTES;
use tokio::sync::Notify;

/// The part of a metadata zone that live tombstones take. Reclaim evicts the
/// zones with the most tombstones before a metadata zone overflows.
#[derive(Debug)]
pub(crate) struct Pressure {
    live_bytes: AtomicU64,
    limit_bytes: u64,
    /// The journal found the storage below the device full since the last check.
    out_of_space: AtomicBool,
    wake: Notify,
}

impl Pressure {
    pub(super) fn new(zone_capacity: u64) -> Arc<Self> {
        Arc::new(Pressure {
            live_bytes: AtomicU64::new(0),
            // The other half is for tombstones that arrive while zones are being evicted.
            limit_bytes: zone_capacity / 2,
            out_of_space: AtomicBool::new(false),
            wake: Notify::new(),
        })
    }

    pub(super) fn set(&self, bytes: u64) {
        self.live_bytes.store(bytes, SeqCst);
        self.add(0);
    }

    pub(super) fn add(&self, tombstones: u64) {
        let bytes = tombstones * NOTE_BYTES as u64;
        self.live_bytes.fetch_add(bytes, SeqCst);
        if self.is_high() {
            self.wake.notify_one();
        }
    }

    /// Subtracts the tombstones of an evicted zone.
    pub(crate) fn remove_tombstones(&self, tombstones: u32) {
        let bytes = u64::from(tombstones) * NOTE_BYTES as u64;
        let less = |live: u64| Some(live.saturating_sub(bytes));
        // The closure always returns `Some`.
        let _ = self.live_bytes.fetch_update(SeqCst, SeqCst, less);
    }

    /// Records that the storage below the device is full: reclaim must free some.
    pub(super) fn note_out_of_space(&self) {
        self.out_of_space.store(true, SeqCst);
        self.wake.notify_one();
    }

    /// True if the journal found no space since the last call.
    pub(crate) fn take_out_of_space(&self) -> bool {
        self.out_of_space.swap(false, SeqCst)
    }

    pub(crate) fn is_high(&self) -> bool {
        self.live_bytes.load(SeqCst) > self.limit_bytes
    }

    /// Waits until the pressure is high, or the journal found no space.
    pub(crate) async fn until_high(&self) {
        self.wake.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn pressure_is_high_above_half_a_zone_until_zones_are_emptied() {
        let note = NOTE_BYTES as u64;
        let pressure = Pressure::new(20 * note);
        pressure.add(10);
        assert!(!pressure.is_high());
        assert!(pressure.until_high().now_or_never().is_none());
        pressure.add(1);
        assert!(pressure.is_high());
        assert!(pressure.until_high().now_or_never().is_some());
        pressure.remove_tombstones(3);
        assert!(!pressure.is_high());
        pressure.remove_tombstones(100);
        pressure.set(11 * note);
        assert!(pressure.is_high());
    }

    #[test]
    fn a_journal_without_space_wakes_the_reclaimer_once() {
        let pressure = Pressure::new(1 << 20);
        pressure.note_out_of_space();
        assert!(pressure.until_high().now_or_never().is_some());
        assert!(pressure.take_out_of_space());
        assert!(!pressure.take_out_of_space());
    }
}
