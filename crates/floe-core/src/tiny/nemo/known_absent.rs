//! Keys that are known to have no copy.

use crate::hash::KeyHash;

/// Hashes that a recent lookup found neither in memory nor on flash, so a write
/// of one supersedes nothing. Without this table, most writes after a miss
/// would count as overwrites, because the filters that could tell are on flash.
///
/// The table has a fixed size: a new hash overwrites another one in its slot.
#[derive(Debug)]
pub(super) struct KnownAbsent {
    /// Hash values; zero marks an empty slot.
    slots: Box<[u64]>,
}

/// Slots: 40 ms of misses at 100,000 per second.
const SLOTS: usize = 4096;

impl KnownAbsent {
    pub(super) fn new() -> Self {
        KnownAbsent {
            slots: vec![0; SLOTS].into_boxed_slice(),
        }
    }

    fn slot(&mut self, hash: KeyHash) -> &mut u64 {
        &mut self.slots[hash.0 as usize % SLOTS]
    }

    pub(super) fn add(&mut self, hash: KeyHash) {
        *self.slot(hash) = hash.0;
    }

    pub(super) fn has(&self, hash: KeyHash) -> bool {
        hash.0 != 0 && self.slots[hash.0 as usize % SLOTS] == hash.0
    }

    /// Removes the hash, because a copy is about to be inserted. Returns
    /// whether it was there.
    pub(super) fn take(&mut self, hash: KeyHash) -> bool {
        let slot = self.slot(hash);
        let was_absent = *slot == hash.0 && hash.0 != 0;
        if was_absent {
            *slot = 0;
        }
        was_absent
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.slots) as u64
    }
}
