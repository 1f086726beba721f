//! Deaths that the journal has, and those that it does not have yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use floe_core::hash::{ByKeyHash, KeyHash, fast_range};
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

/// Deaths that the journal does not have yet: they are on their way to it, or
/// could not be written. What they name may come back after a crash, so whoever
/// next writes or deletes one of those keys must see them written, too. The
/// first may have given up half-way, or may simply not be done.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// Keys in all parts.
    keys: AtomicUsize,
    parts: [Mutex<HashMap<KeyHash, Vec<Note>, ByKeyHash>>; PARTS],
    /// Of those, what nobody is about to send.
    orphans: Mutex<Vec<Note>>,
}

/// So that not every overwrite takes the same lock.
const PARTS: usize = 16;

/// Keys whose deaths may be owed before the journal counts as broken for good.
const OWED_KEYS_MAX: usize = 1 << 16;

/// Orphans that are remembered as such. Others are written when their key is
/// written or deleted next.
const ORPHANS_MAX: usize = 1 << 12;

impl Owed {
    fn part(&self, hash: KeyHash) -> &Mutex<HashMap<KeyHash, Vec<Note>, ByKeyHash>> {
        &self.parts[fast_range(hash.0, PARTS)]
    }

    /// What is owed for `hash`.
    pub(crate) fn of(&self, hash: KeyHash) -> Vec<Note> {
        if self.keys.load(SeqCst) == 0 {
            return Vec::new();
        }
        let part = self.part(hash).lock();
        part.get(&hash).cloned().unwrap_or_default()
    }

    /// Whether so much is owed that no more can be remembered.
    pub(super) fn is_full(&self) -> bool {
        self.keys.load(SeqCst) >= OWED_KEYS_MAX
    }

    /// Notes other than deaths are not owed.
    pub(super) fn add(&self, notes: &[Note]) {
        for note in notes {
            let Note::Death { hash, .. } = note else {
                continue;
            };
            let mut part = self.part(*hash).lock();
            let of_key = part.entry(*hash).or_default();
            if of_key.is_empty() {
                self.keys.fetch_add(1, SeqCst);
            }
            if !of_key.contains(note) {
                of_key.push(*note);
            }
        }
    }

    /// The journal has them, or they never came to be.
    pub(super) fn paid(&self, notes: &[Note]) {
        for note in notes {
            let Note::Death { hash, .. } = note else {
                continue;
            };
            let mut part = self.part(*hash).lock();
            let Some(of_key) = part.get_mut(hash) else {
                continue;
            };
            of_key.retain(|other| other != note);
            if of_key.is_empty() {
                part.remove(hash);
                self.keys.fetch_sub(1, SeqCst);
            }
        }
    }

    /// What nobody else sends.
    pub(super) fn take_orphans(&self) -> Vec<Note> {
        std::mem::take(&mut *self.orphans.lock())
    }

    fn orphan(&self, notes: Vec<Note>) {
        self.add(&notes);
        let mut orphans = self.orphans.lock();
        if orphans.len() + notes.len() <= ORPHANS_MAX {
            orphans.extend(notes);
        }
    }
}

/// Notes that are about to be sent. If the future that is to send them is
/// dropped, they are left to the journal.
#[derive(Debug)]
pub(crate) struct Unsent {
    owed: Arc<Owed>,
    notes: Vec<Note>,
}

impl Unsent {
    pub(super) fn new(owed: &Arc<Owed>, notes: Vec<Note>) -> Self {
        Unsent {
            owed: Arc::clone(owed),
            notes,
        }
    }

    /// They are sent now.
    pub(crate) fn take(mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if !self.notes.is_empty() {
            self.owed.orphan(std::mem::take(&mut self.notes));
        }
    }
}

#[cfg(test)]
mod tests {
    use floe_core::ZoneId;
    use floe_core::layout::{Generation, Sequence, ZoneLife};

    use super::*;

    fn death(hash: u64, sequence: u64) -> Note {
        Note::Death {
            life: ZoneLife::new(ZoneId(3), Generation(1)),
            hash: KeyHash(hash),
            sequence: Sequence(sequence),
        }
    }

    #[test]
    fn deaths_are_owed_until_they_are_paid() {
        let owed = Arc::<Owed>::default();
        owed.add(&[death(1, 10), death(1, 11), death(2, 12), death(1, 10)]);
        assert_eq!(owed.of(KeyHash(1)), [death(1, 10), death(1, 11)]);
        owed.paid(&[death(1, 10), death(2, 12), death(3, 1)]);
        assert_eq!(owed.of(KeyHash(1)), [death(1, 11)]);
        assert!(owed.of(KeyHash(2)).is_empty());
        owed.paid(&[death(1, 11)]);
        assert_eq!(owed.keys.load(SeqCst), 0);
    }

    #[test]
    fn what_is_not_sent_is_left_to_the_journal() {
        let owed = Arc::<Owed>::default();
        assert_eq!(Unsent::new(&owed, vec![death(1, 10)]).take().len(), 1);
        assert!(owed.take_orphans().is_empty());
        drop(Unsent::new(&owed, vec![death(1, 10)]));
        assert_eq!(owed.of(KeyHash(1)), [death(1, 10)]);
        assert_eq!(owed.take_orphans(), [death(1, 10)]);
        for sequence in 0..2 * ORPHANS_MAX as u64 {
            drop(Unsent::new(&owed, vec![death(sequence, 1)]));
        }
        assert_eq!(owed.take_orphans().len(), ORPHANS_MAX);
    }
}
