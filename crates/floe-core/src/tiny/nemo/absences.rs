//! Keys that are known to be nowhere.

use crate::hash::KeyHash;

/// Hashes of which lately no copy was anywhere: those that a client looked for
/// in vain and is about to write. Without it most of these writes would have
/// to be taken for overwrites, as the filters that tell are not in memory.
///
/// A table of fixed size; one that comes takes the place of another.
#[derive(Debug)]
pub(super) struct Absences {
    /// Zero for none.
    slots: Box<[u64]>,
}

/// Enough for what is fetched in 40 ms at 100,000 misses a second.
const ABSENCES: usize = 4096;

impl Absences {
    pub(super) fn new() -> Self {
        Absences {
            slots: vec![0; ABSENCES].into_boxed_slice(),
        }
    }

    fn slot(&mut self, hash: KeyHash) -> &mut u64 {
        &mut self.slots[hash.0 as usize % ABSENCES]
    }

    pub(super) fn add(&mut self, hash: KeyHash) {
        *self.slot(hash) = hash.0;
    }

    /// Whether it is known to be absent.
    pub(super) fn has(&self, hash: KeyHash) -> bool {
        hash.0 != 0 && self.slots[hash.0 as usize % ABSENCES] == hash.0
    }

    /// Whether it is known to be absent, which is about to change.
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
