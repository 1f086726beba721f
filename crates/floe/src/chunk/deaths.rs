//! Deaths that the journal has, and those that it could not take.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use floe_core::hash::KeyHash;
use floe_core::layout::{NOTE_BYTES, Note};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// How much of a metadata zone the deaths take that still matter. Reclaim
/// evicts the zones with most of them before a whole zone would not hold them.
#[derive(Debug)]
pub(crate) struct Pressure {
    live_bytes: AtomicU64,
    limit_bytes: u64,
    /// The journal found no space below the device since this was last asked.
    starved: AtomicBool,
    wake: Notify,
}

impl Pressure {
    pub(super) fn new(zone_capacity: u64) -> Arc<Self> {
        Arc::new(Pressure {
            live_bytes: AtomicU64::new(0),
            // The other half is for what comes while zones are being evicted.
            limit_bytes: zone_capacity / 2,
            starved: AtomicBool::new(false),
            wake: Notify::new(),
        })
    }

    pub(super) fn set(&self, bytes: u64) {
        self.live_bytes.store(bytes, SeqCst);
        self.add(0);
    }

    pub(super) fn add(&self, deaths: u64) {
        let bytes = deaths * NOTE_BYTES as u64;
        self.live_bytes.fetch_add(bytes, SeqCst);
        if self.is_high() {
            self.wake.notify_one();
        }
    }

    /// A zone is empty: its deaths matter no more.
    pub(crate) fn relieve(&self, deaths: u32) {
        let bytes = u64::from(deaths) * NOTE_BYTES as u64;
        let less = |live: u64| Some(live.saturating_sub(bytes));
        // The closure never declines.
        let _ = self.live_bytes.fetch_update(SeqCst, SeqCst, less);
    }

    /// The journal found no space below the device: reclaim must give some back.
    pub(super) fn starve(&self) {
        self.starved.store(true, SeqCst);
        self.wake.notify_one();
    }

    /// Whether the journal found no space since this was last asked.
    pub(crate) fn take_starved(&self) -> bool {
        self.starved.swap(false, SeqCst)
    }

    pub(crate) fn is_high(&self) -> bool {
        self.live_bytes.load(SeqCst) > self.limit_bytes
    }

    /// Waits until the pressure has become high, or the journal was starved.
    pub(crate) async fn risen(&self) {
        self.wake.notified().await;
    }
}

/// Deaths that could not be written. What they name may come back after a
/// crash, so whoever next writes or deletes one of those keys must first see
/// them written.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    any: AtomicBool,
    notes: Mutex<HashMap<KeyHash, Vec<Note>>>,
}

/// Keys whose deaths may be owed before the journal counts as broken for good.
const OWED_KEYS_MAX: usize = 1 << 16;

impl Owed {
    /// What is owed for `hash`.
    pub(crate) fn of(&self, hash: KeyHash) -> Vec<Note> {
        if !self.any.load(SeqCst) {
            return Vec::new();
        }
        self.notes.lock().get(&hash).cloned().unwrap_or_default()
    }

    /// Whether so much is owed that no more can be remembered.
    pub(super) fn is_full(&self) -> bool {
        self.any.load(SeqCst) && self.notes.lock().len() >= OWED_KEYS_MAX
    }

    pub(super) fn add(&self, notes: &[Note]) {
        let mut owed = self.notes.lock();
        for note in notes {
            if let Note::Death { hash, .. } = note {
                let of_key = owed.entry(*hash).or_default();
                if !of_key.contains(note) {
                    of_key.push(*note);
                }
                self.any.store(true, SeqCst);
            }
        }
    }

    pub(super) fn paid(&self, notes: &[Note]) {
        if !self.any.load(SeqCst) {
            return;
        }
        let mut owed = self.notes.lock();
        for note in notes {
            if let Note::Death { hash, .. } = note
                && let Some(of_key) = owed.get_mut(hash)
            {
                of_key.retain(|other| other != note);
                if of_key.is_empty() {
                    owed.remove(hash);
                }
            }
        }
        self.any.store(!owed.is_empty(), SeqCst);
    }
}
