//! A map from granules to slots `0..n` with chains of `u32`: 4 bytes per slot and
//! 4 to 8 per bucket. The slots' owner keeps the granules themselves.

use super::request::Granule;
use crate::hash::mix;
use crate::list::NONE;

/// Finds the slot of a granule. The owner passes its slots' granules in.
#[derive(Clone, Debug)]
pub(super) struct History {
    seed: u64,
    /// The first slot of each chain. A power of two of them.
    buckets: Vec<u32>,
    /// The next slot of the same chain.
    next: Vec<u32>,
}

impl History {
    pub(super) fn new(slots: usize, seed: u64) -> Self {
        assert!(slots < NONE as usize, "slots are numbered by u32");
        History {
            seed,
            buckets: vec![NONE; slots.next_power_of_two()],
            next: vec![NONE; slots],
        }
    }

    /// The slot of `granule`.
    pub(super) fn find(&self, granule: Granule, granules: &[Granule]) -> Option<u32> {
        let mut slot = self.buckets[self.bucket(granule)];
        while slot != NONE {
            if granules[slot as usize] == granule {
                return Some(slot);
            }
            slot = self.next[slot as usize];
        }
        None
    }

    /// Adds `slot`, which is in no chain, as the slot of `granule`.
    pub(super) fn insert(&mut self, granule: Granule, slot: u32) {
        let bucket = self.bucket(granule);
        self.next[slot as usize] = std::mem::replace(&mut self.buckets[bucket], slot);
    }

    /// Removes `slot`, which is the slot of `granule`.
    pub(super) fn remove(&mut self, granule: Granule, slot: u32) {
        let bucket = self.bucket(granule);
        let after = std::mem::replace(&mut self.next[slot as usize], NONE);
        let mut before = self.buckets[bucket];
        if before == slot {
            self.buckets[bucket] = after;
            return;
        }
        while self.next[before as usize] != slot {
            before = self.next[before as usize];
        }
        self.next[before as usize] = after;
    }

    fn bucket(&self, granule: Granule) -> usize {
        mix(granule.0 ^ self.seed) as usize & (self.buckets.len() - 1)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        ((self.buckets.len() + self.next.len()) * size_of::<u32>()) as u64
    }
}
