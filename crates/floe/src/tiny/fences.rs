//! Which fences still hold, so that what one covers needs no other, and so
//! that no more of them hold than a crash can be recovered from.
//!
//! Who is overwritten is overwritten again soon. Until the set-group that its
//! newest copy lies in is on flash, a fence keeps everything older from coming
//! back; an overwrite that is durable before the fence ends only has to know
//! that it is. So fences are made to hold for some set-groups longer than
//! whoever sends them needs: on the mix of Twitter's clusters three of four
//! overwrites find one. The price is paid after a crash only, which forgets
//! what was overwritten that much earlier.

use std::collections::BTreeMap;

use floe_core::hash::KeyHash;

/// A fence that was sent to the journal.
#[derive(Clone, Copy, Debug)]
struct Sent {
    hash: KeyHash,
    below: u64,
    /// The journal's.
    number: u64,
}

/// A place that is free. Nothing is durable before set-group zero.
const FREE: Sent = Sent {
    hash: KeyHash(0),
    below: 0,
    number: 0,
};

/// With less than this part of the most fences there are few.
const FEW: usize = 4;

/// With more than this part of the most fences there are many.
const MANY: usize = 2;

/// How many fences an instance remembers and has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FenceLimits {
    /// Places of the table.
    pub(super) slots: usize,
    /// Set-groups that a fence holds longer than it must, while there are few:
    /// the checkpoint of a journal has all that hold.
    pub(super) longer: u64,
    /// Most fences that hold at once: what the journal has room for, and
    /// memory when they are recovered.
    pub(super) held_max: usize,
}

/// The fences of an instance. Behind the same lock as the engine.
#[derive(Debug)]
pub(super) struct Fences {
    limits: FenceLimits,
    /// The last ones, in a table of fixed size: one that comes takes the place
    /// of another.
    slots: Box<[Sent]>,
    /// How many hold, by where they end.
    ends: BTreeMap<u64, usize>,
    held: usize,
    /// How many were sent, and how many were not, as others cover them.
    pub(super) sent: u64,
    pub(super) spared: u64,
    /// How often a write waited, as too many held.
    pub(super) delays: u64,
    /// How often a key was looked for first, as many held.
    pub(super) lookups: u64,
}

impl Fences {
    pub(super) fn new(limits: FenceLimits) -> Self {
        Fences {
            limits,
            slots: vec![FREE; limits.slots].into(),
            ends: BTreeMap::new(),
            held: 0,
            sent: 0,
            spared: 0,
            delays: 0,
            lookups: 0,
        }
    }

    /// The number of a fence that holds until everything below `until`, which
    /// is at least one, is on flash.
    pub(super) fn covering(&self, hash: KeyHash, until: u64) -> Option<u64> {
        let sent = self.slots.get(self.slot(hash)?)?;
        (sent.hash == hash && sent.below >= until).then_some(sent.number)
    }

    /// Has a fence sent that holds until everything below `until` is on flash,
    /// at least. `send` is told where it ends, and says its number.
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

    /// Counts fences that hold already.
    pub(super) fn hold(&mut self, below: u64, count: usize) {
        *self.ends.entry(below).or_default() += count;
        self.held += count;
    }

    /// Whether so many hold that it pays to read what could make another
    /// needless.
    pub(super) fn are_many(&self) -> bool {
        self.held > self.limits.held_max / MANY
    }

    /// Whether no other may be sent, when everything below `durable` is on
    /// flash.
    pub(super) fn are_too_many(&mut self, durable: u64) -> bool {
        while let Some(end) = self.ends.first_entry()
            && *end.key() <= durable
        {
            self.held -= end.remove();
        }
        self.held >= self.limits.held_max
    }

    /// None of them holds any more, or none is relied on.
    pub(super) fn forget(&mut self) {
        self.slots.fill(FREE);
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
        // The low bits: the high ones chose the instance.
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

    /// Sends a fence with this number; returns where it ends.
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
        fences.forget();
        assert!(!fences.are_too_many(6));
        assert_eq!(fences.covering(KEY, 1), None);
    }
}
