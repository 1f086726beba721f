//! SIEVE (Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024): a FIFO in
//! which a hand walks from old to new, clears the marks of objects that were
//! hit, and evicts the first that was not. Objects never move.

use super::Access;
use super::slab::{List, NONE, Slab};

/// A FIFO sieved by a moving hand.
#[derive(Debug)]
pub struct Sieve {
    capacity_bytes: u64,
    slab: Slab,
    list: List,
    /// Where the next search for a victim starts; `NONE` for the oldest.
    hand: u32,
}

impl Sieve {
    /// An empty cache.
    pub fn new(capacity_bytes: u64) -> Self {
        Sieve {
            capacity_bytes,
            slab: Slab::default(),
            list: List::EMPTY,
            hand: NONE,
        }
    }

    /// Looks `key` up and inserts it on a miss.
    pub fn access(&mut self, key: u64, size: u64) -> Access {
        if let Some(id) = self.slab.find(key) {
            *self.slab.mark_mut(id) = 1;
            return Access::Hit;
        }
        if size > self.capacity_bytes {
            return Access::Refused;
        }
        while self.slab.used_bytes() > self.capacity_bytes - size {
            self.evict_one();
        }
        self.slab.insert(&mut self.list, key, size, 0);
        Access::Miss
    }

    fn evict_one(&mut self) {
        let mut candidate = self.start();
        while std::mem::take(self.slab.mark_mut(candidate)) != 0 {
            candidate = self.slab.newer(candidate);
            if candidate == NONE {
                candidate = self.list.oldest();
            }
        }
        self.hand = self.slab.newer(candidate);
        self.slab.remove(&mut self.list, candidate);
    }

    fn start(&self) -> u32 {
        match self.hand {
            NONE => self.list.oldest(),
            hand => hand,
        }
    }

    /// Forgets `key`; says whether it was there.
    pub fn remove(&mut self, key: u64) -> bool {
        let found = self.slab.find(key);
        if let Some(id) = found {
            if self.hand == id {
                self.hand = self.slab.newer(id);
            }
            self.slab.remove(&mut self.list, id);
        }
        found.is_some()
    }

    /// Whether `key` is held.
    pub fn contains(&self, key: u64) -> bool {
        self.slab.find(key).is_some()
    }

    /// Bytes held.
    pub fn used_bytes(&self) -> u64 {
        self.slab.used_bytes()
    }

    /// Objects held.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
