//! Which fences still hold, so that what one covers needs no other.
//!
//! Who is overwritten is overwritten again soon, mostly long before the
//! set-group that its newest copy lies in is on flash. Until then the fence of
//! the first overwrite keeps everything older from coming back, for as many
//! set-groups as it was made for; an overwrite that is durable by then, too,
//! only has to know that this fence is. On the mix of Twitter's clusters this
//! saves half of all fences.

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

/// The last fences of an instance, in a table of fixed size: one that comes
/// takes the place of another. Behind the same lock as the engine.
#[derive(Debug)]
pub(super) struct Fences {
    slots: Box<[Sent]>,
    /// How many were sent, and how many were not, as others cover them.
    pub(super) sent: u64,
    pub(super) spared: u64,
}

impl Fences {
    /// Room for `slots` fences.
    pub(super) fn new(slots: usize) -> Self {
        Fences {
            slots: vec![FREE; slots].into(),
            sent: 0,
            spared: 0,
        }
    }

    /// The number of a fence that holds until everything below `until`, which
    /// is at least one, is on flash.
    pub(super) fn covering(&self, hash: KeyHash, until: u64) -> Option<u64> {
        let sent = self.slots.get(self.slot(hash)?)?;
        (sent.hash == hash && sent.below >= until).then_some(sent.number)
    }

    /// Notes a fence that was sent.
    pub(super) fn was_sent(&mut self, hash: KeyHash, below: u64, number: u64) {
        self.sent += 1;
        if let Some(slot) = self.slot(hash).and_then(|at| self.slots.get_mut(at)) {
            *slot = Sent {
                hash,
                below,
                number,
            };
        }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.slots) as u64
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

    #[test]
    fn a_fence_covers_what_is_durable_before_it_ends() {
        let mut fences = Fences::new(4);
        assert_eq!(fences.covering(KEY, 1), None);
        assert_eq!(fences.covering(KeyHash(0), 1), None);
        fences.was_sent(KEY, 7, 3);
        assert_eq!(fences.covering(KEY, 6), Some(3));
        assert_eq!(fences.covering(KEY, 7), Some(3));
        assert_eq!(fences.covering(KEY, 8), None);
    }

    #[test]
    fn one_of_another_key_covers_nothing() {
        let mut fences = Fences::new(4);
        fences.was_sent(KEY, 7, 3);
        let same_slot = KeyHash(KEY.0 + 4);
        assert_eq!(fences.covering(same_slot, 1), None);
        fences.was_sent(same_slot, 9, 4);
        assert_eq!(fences.covering(KEY, 1), None);
        assert_eq!(fences.covering(same_slot, 9), Some(4));
    }

    #[test]
    fn without_slots_nothing_is_known() {
        let mut fences = Fences::new(0);
        fences.was_sent(KEY, 7, 3);
        assert_eq!(fences.covering(KEY, 1), None);
        assert_eq!(fences.memory_bytes(), 0);
    }
}
