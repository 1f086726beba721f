//! SIEVE (Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024): a FIFO with a
//! hand that moves from old to new. The hand clears the marks of objects that
//! were hit, and evicts the first object without a mark. Objects never move.

use super::resident::Eviction;
use super::slab::Slab;
use crate::list::{List, NONE};

/// A FIFO sieved by a moving hand.
#[derive(Debug)]
pub(super) struct Sieve {
    list: List,
    /// Start of the next search for a victim; `NONE` for the oldest.
    hand: u32,
}

impl Eviction for Sieve {
    fn new(_: u64) -> Self {
        Sieve {
            list: List::EMPTY,
            hand: NONE,
        }
    }

    fn hit(&mut self, slab: &mut Slab, id: u32) {
        *slab.mark_mut(id) = 1;
    }

    fn insert(&mut self, slab: &mut Slab, key: u64, size: u64, _: bool) {
        slab.insert(&mut self.list, key, size, 0);
    }

    fn evict_one(&mut self, slab: &mut Slab) {
        let mut candidate = match self.hand {
            NONE => self.list.oldest(),
            hand => hand,
        };
        while std::mem::take(slab.mark_mut(candidate)) != 0 {
            candidate = match self.list.newer_than(slab, candidate) {
                NONE => self.list.oldest(),
                newer => newer,
            };
        }
        self.hand = self.list.newer_than(slab, candidate);
        slab.remove(&mut self.list, candidate);
    }

    fn remove(&mut self, slab: &mut Slab, id: u32) {
        if self.hand == id {
            self.hand = self.list.newer_than(slab, id);
        }
        slab.remove(&mut self.list, id);
    }
}
