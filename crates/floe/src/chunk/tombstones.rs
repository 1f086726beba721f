//! Tombstones that are being written, and those that the journal lacks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use floe_core::hash::{ByKeyHash, KeyHash, fast_range};
use floe_core::layout::Note;
use parking_lot::Mutex;

/// The tombstones of a delete or an overwrite.
#[derive(Debug)]
pub(crate) enum Tombstones {
    /// Notes for the journal, if there are some.
    Notes(Option<Unsent>),
    /// Changes of slot tables; true if any were queued.
    InTables(bool),
}

impl Tombstones {
    /// True if there is nothing to make durable.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Tombstones::Notes(notes) => notes.is_none(),
            Tombstones::InTables(any) => !any,
        }
    }
}

/// Tombstones that the journal lacks: they are queued, or could not be written.
/// A crash may bring back their values, so the next write or delete of such a
/// key must wait for them too, whether the first one is still running, failed
/// or was dropped.
#[derive(Debug, Default)]
pub(crate) struct PendingTombstones {
    /// Keys in all parts together.
    keys: AtomicUsize,
    parts: [Mutex<HashMap<KeyHash, Vec<Note>, ByKeyHash>>; PARTS],
    /// Tombstones without a sender.
    orphans: Mutex<Vec<Note>>,
}

/// Several parts, so that overwrites do not contend for one lock.
const PARTS: usize = 16;

/// Most keys with pending tombstones; beyond that, the journal counts as permanently broken.
const PENDING_KEYS_MAX: usize = 1 << 16;

/// Most orphans to track. Others are written at the next write or delete of their key.
const ORPHANS_MAX: usize = 1 << 12;

impl PendingTombstones {
    fn part(&self, hash: KeyHash) -> &Mutex<HashMap<KeyHash, Vec<Note>, ByKeyHash>> {
        &self.parts[fast_range(hash.0, PARTS)]
    }

    /// The pending tombstones of `hash`.
    pub(crate) fn of(&self, hash: KeyHash) -> Vec<Note> {
        if self.keys.load(SeqCst) == 0 {
            return Vec::new();
        }
        let part = self.part(hash).lock();
        part.get(&hash).cloned().unwrap_or_default()
    }

    /// True if no more tombstones can be tracked.
    pub(super) fn is_full(&self) -> bool {
        self.keys.load(SeqCst) >= PENDING_KEYS_MAX
    }

    /// Adds tombstones; other notes are never pending.
    pub(super) fn enqueue(&self, notes: &[Note]) {
        for note in notes {
            let Note::Tombstone { hash, .. } = note else {
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

    /// Removes tombstones that the journal has, or that were cancelled.
    pub(super) fn remove(&self, notes: &[Note]) {
        for note in notes {
            let Note::Tombstone { hash, .. } = note else {
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

    /// Takes the tombstones without a sender, for the journal to send.
    pub(super) fn take_orphans(&self) -> Vec<Note> {
        std::mem::take(&mut *self.orphans.lock())
    }

    fn orphan(&self, notes: Vec<Note>) {
        self.enqueue(&notes);
        let mut orphans = self.orphans.lock();
        if orphans.len() + notes.len() <= ORPHANS_MAX {
            orphans.extend(notes);
        }
    }
}

/// Notes that are about to be sent. If the sending future is dropped, they become orphans.
#[derive(Debug)]
pub(crate) struct Unsent {
    pending: Arc<PendingTombstones>,
    notes: Vec<Note>,
}

impl Unsent {
    pub(super) fn new(pending: &Arc<PendingTombstones>, notes: Vec<Note>) -> Self {
        Unsent {
            pending: Arc::clone(pending),
            notes,
        }
    }

    /// Takes the notes, to send them.
    pub(crate) fn take(mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if !self.notes.is_empty() {
            self.pending.orphan(std::mem::take(&mut self.notes));
        }
    }
}

#[cfg(test)]
mod tests {
    use floe_core::ZoneId;
    use floe_core::layout::{Generation, Sequence, ZoneLife};

    use super::*;

    fn tombstone(hash: u64, sequence: u64) -> Note {
        Note::Tombstone {
            life: ZoneLife::new(ZoneId(3), Generation(1)),
            hash: KeyHash(hash),
            sequence: Sequence(sequence),
        }
    }

    #[test]
    fn tombstones_are_pending_until_they_are_removed() {
        let pending = Arc::<PendingTombstones>::default();
        pending.enqueue(&[
            tombstone(1, 10),
            tombstone(1, 11),
            tombstone(2, 12),
            tombstone(1, 10),
        ]);
        assert_eq!(pending.of(KeyHash(1)), [tombstone(1, 10), tombstone(1, 11)]);
        pending.remove(&[tombstone(1, 10), tombstone(2, 12), tombstone(3, 1)]);
        assert_eq!(pending.of(KeyHash(1)), [tombstone(1, 11)]);
        assert!(pending.of(KeyHash(2)).is_empty());
        pending.remove(&[tombstone(1, 11)]);
        assert_eq!(pending.keys.load(SeqCst), 0);
    }

    #[test]
    fn notes_that_are_not_sent_are_left_to_the_journal() {
        let pending = Arc::<PendingTombstones>::default();
        assert_eq!(
            Unsent::new(&pending, vec![tombstone(1, 10)]).take().len(),
            1
        );
        assert!(pending.take_orphans().is_empty());
        drop(Unsent::new(&pending, vec![tombstone(1, 10)]));
        assert_eq!(pending.of(KeyHash(1)), [tombstone(1, 10)]);
        assert_eq!(pending.take_orphans(), [tombstone(1, 10)]);
        for sequence in 0..2 * ORPHANS_MAX as u64 {
            drop(Unsent::new(&pending, vec![tombstone(sequence, 1)]));
        }
        assert_eq!(pending.take_orphans().len(), ORPHANS_MAX);
    }
}
