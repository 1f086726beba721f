//! Tracks the fences in force, to reuse them and to limit their number.
//!
//! A fence keeps older copies of its key invalid until the set-group of the
//! key's newest copy is on flash. An overwrite that will be on flash before the
//! fence ends needs no fence of its own: it waits for the existing one to be
//! durable. A recently overwritten key is likely to be overwritten again, so
//! fences stay in force for some set-groups beyond their need: on a mix of
//! Twitter's clusters, three of four overwrites reuse one. The cost arises only
//! after a crash, which loses the copies that those fences cover.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use floe_core::hash::KeyHash;

/// A fence that was queued in the journal.
#[derive(Clone, Copy, Debug)]
struct Sent {
    hash: KeyHash,
    below: u64,
    /// The journal's number of it.
    number: u64,
}

/// An empty entry. No set-group is below zero, so it covers nothing.
const FREE: Sent = Sent {
    hash: KeyHash(0),
    below: 0,
    number: 0,
};

/// Below `held_max / FEW` fences in force, a new one stays in force beyond its need.
const FEW: usize = 4;

/// Above `held_max / MANY` fences in force, a lookup is cheaper than a fence.
const MANY: usize = 2;

/// Limits on an instance's fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FenceLimits {
    /// Entries of the table.
    pub(super) slots: usize,
    /// Set-groups that a fence stays in force beyond its need, while few are in
    /// force: a checkpoint of the journal contains all of them.
    pub(super) longer: u64,
    /// Most fences in force, limited by the journal, and by memory at recovery.
    pub(super) held_max: usize,
}

impl FenceLimits {
    /// Most memory of an instance's fences, those in the journal included.
    pub(super) fn memory_max(&self) -> u64 {
        (self.slots * size_of::<Sent>() + self.held_max * FENCE_BYTES) as u64
    }
}

/// Bytes of a fence in the journal's memory.
pub(super) const FENCE_BYTES: usize = 32;

/// The bounds at which an instance's fences end. The journal reads them without
/// the engine's lock.
#[derive(Debug)]
pub(super) struct FenceBounds {
    /// The engine's [`Engine::durable`](floe_core::tiny::Engine::durable).
    durable: AtomicU64,
    /// Fences with lower numbers have ended: every object inserted before is on flash.
    moot_before: AtomicU64,
}

impl FenceBounds {
    pub(super) fn new(durable: u64) -> Self {
        FenceBounds {
            durable: AtomicU64::new(durable),
            moot_before: AtomicU64::new(0),
        }
    }

    pub(super) fn durable(&self) -> u64 {
        self.durable.load(SeqCst)
    }

    pub(super) fn set_durable(&self, durable: u64) {
        self.durable.store(durable, SeqCst);
    }

    /// Ends all fences up to number `last`.
    pub(super) fn end_all(&self, last: u64) {
        self.moot_before.store(last + 1, SeqCst);
    }

    /// True if a fence with this end and number is in force.
    pub(super) fn leave_in_force(&self, below: u64, number: u64) -> bool {
        self.durable() < below && self.moot_before.load(SeqCst) <= number
    }
}

/// The fences of an instance, under the engine's lock.
#[derive(Debug)]
pub(super) struct Fences {
    limits: FenceLimits,
    /// Recently sent fences, a direct-mapped table by key hash: a new fence
    /// replaces the entry in its slot.
    slots: Box<[Sent]>,
    /// Fences up to this number have ended.
    forgotten: u64,
    /// The number of fences in force, by the set-group at which they end.
    ends: BTreeMap<u64, usize>,
    held: usize,
    /// Fences sent, and fences spared because an existing one covers the write.
    pub(super) sent: u64,
    pub(super) spared: u64,
    /// Writes that waited because too many fences were in force.
    pub(super) delays: u64,
    /// Writes that first looked their key up because many fences were in force.
    pub(super) lookups: u64,
}

impl Fences {
    pub(super) fn new(limits: FenceLimits) -> Self {
        Fences {
            limits,
            slots: vec![FREE; limits.slots].into(),
            forgotten: 0,
            ends: BTreeMap::new(),
            held: 0,
            sent: 0,
            spared: 0,
            delays: 0,
            lookups: 0,
        }
    }

    /// The number of a fence on `hash` that is in force until all set-groups
    /// below `until` (at least 1) are on flash.
    pub(super) fn covering(&self, hash: KeyHash, until: u64) -> Option<u64> {
        let sent = self.slots.get(self.slot(hash)?)?;
        let covers = sent.hash == hash && sent.below >= until && sent.number > self.forgotten;
        covers.then_some(sent.number)
    }

    /// Sends a fence that is in force at least until all set-groups below
    /// `until` are on flash. `send` receives its end, and returns a result and
    /// the fence's number.
    pub(super) fn send<Sent>(
        &mut self,
        hash: KeyHash,
        until: u64,
        send: impl FnOnce(u64) -> (Sent, u64),
    ) -> Sent {
        let are_few = self.held < self.limits.held_max / FEW;
        let below = until + if are_few { self.limits.longer } else { 0 };
        let (sent, number) = send(below);
        self.sent += 1;
        self.hold(below, 1);
        self.remember(hash, below, number);
        sent
    }

    /// Counts `count` recovered fences that end at `below`.
    pub(super) fn hold(&mut self, below: u64, count: usize) {
        *self.ends.entry(below).or_default() += count;
        self.held += count;
    }

    /// True if so many fences are in force that a lookup is cheaper than another.
    pub(super) fn are_many(&self) -> bool {
        self.held > self.limits.held_max / MANY
    }

    /// True if the limit is reached, once fences that end at or before `durable` are dropped.
    pub(super) fn are_too_many(&mut self, durable: u64) -> bool {
        while let Some(end) = self.ends.first_entry()
            && *end.key() <= durable
        {
            self.held -= end.remove();
        }
        self.held >= self.limits.held_max
    }

    /// Drops all fences, of which `last` is the last: none is in force, or none is needed.
    pub(super) fn forget(&mut self, last: u64) {
        self.forgotten = last;
        self.ends.clear();
        self.held = 0;
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.slots) as u64
    }

    fn remember(&mut self, hash: KeyHash, below: u64, number: u64) {
        if let Some(slot) = self.slot(hash).and_then(|at| self.slots.get_mut(at)) {
            *slot = Sent {
                hash,
                below,
                number,
            };
        }
    }

    fn slot(&self, hash: KeyHash) -> Option<usize> {
        // The low bits; the high ones select the instance.
        (hash.0 as usize).checked_rem(self.slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyHash = KeyHash(5);

    const LIMITS: FenceLimits = FenceLimits {
        slots: 4,
        longer: 0,
        held_max: 8,
    };

    /// Sends fence `number`; returns its end.
    fn send(fences: &mut Fences, hash: KeyHash, until: u64, number: u64) -> u64 {
        fences.send(hash, until, |below| (below, number))
    }

    #[test]
    fn a_fence_covers_what_is_durable_before_it_ends() {
        let mut fences = Fences::new(LIMITS);
        assert_eq!(fences.covering(KEY, 1), None);
        assert_eq!(fences.covering(KeyHash(0), 1), None);
        assert_eq!(send(&mut fences, KEY, 7, 3), 7);
        assert_eq!(fences.covering(KEY, 6), Some(3));
        assert_eq!(fences.covering(KEY, 7), Some(3));
        assert_eq!(fences.covering(KEY, 8), None);
    }

    #[test]
    fn one_of_another_key_covers_nothing() {
        let mut fences = Fences::new(LIMITS);
        send(&mut fences, KEY, 7, 3);
        let same_slot = KeyHash(KEY.0 + 4);
        assert_eq!(fences.covering(same_slot, 1), None);
        send(&mut fences, same_slot, 9, 4);
        assert_eq!(fences.covering(KEY, 1), None);
        assert_eq!(fences.covering(same_slot, 9), Some(4));
    }

    #[test]
    fn without_slots_nothing_is_known_and_all_are_counted() {
        let mut fences = Fences::new(FenceLimits { slots: 0, ..LIMITS });
        send(&mut fences, KEY, 7, 3);
        assert_eq!(fences.covering(KEY, 1), None);
        assert_eq!(fences.memory_bytes(), 0);
        assert_eq!(fences.held, 1);
    }

    #[test]
    fn a_fence_holds_longer_than_it_must_unless_there_are_many() {
        let mut fences = Fences::new(FenceLimits {
            longer: 2,
            held_max: 16,
            ..LIMITS
        });
        for number in 0..4 {
            assert_eq!(send(&mut fences, KeyHash(number), 7, number), 9);
        }
        assert_eq!(fences.covering(KEY, 7), None);
        assert_eq!(fences.covering(KeyHash(3), 9), Some(3));
        assert_eq!(send(&mut fences, KEY, 7, 4), 7);
    }

    #[test]
    fn as_many_hold_as_may_until_they_end_or_are_forgotten() {
        let mut fences = Fences::new(LIMITS);
        fences.hold(6, 3);
        for number in 0..5 {
            assert!(!fences.are_too_many(5));
            send(&mut fences, KEY, 7, number);
        }
        assert!(fences.are_too_many(5));
        assert!(!fences.are_too_many(6));
        fences.hold(9, 3);
        assert!(fences.are_too_many(6));
        fences.forget(4);
        assert!(!fences.are_too_many(6));
        assert_eq!(fences.covering(KEY, 1), None);
    }
}
