//! LRU: a hit makes an object the newest; the oldest object is evicted.

use super::fifo::Fifo;
use super::resident::Eviction;
use super::slab::Slab;

/// Least recently used: a FIFO in which a hit counts as an insert.
#[derive(Debug)]
pub(super) struct Lru(Fifo);

impl Eviction for Lru {
    fn new(capacity: u64) -> Self {
        Lru(Fifo::new(capacity))
    }

    fn hit(&mut self, slab: &mut Slab, id: u32) {
        self.0.0.refresh(slab, id);
    }

    fn insert(&mut self, slab: &mut Slab, key: u64, size: u64, seen: bool) {
        self.0.insert(slab, key, size, seen);
    }

    fn evict_one(&mut self, slab: &mut Slab) {
        self.0.evict_one(slab);
    }

    fn remove(&mut self, slab: &mut Slab, id: u32) {
        self.0.remove(slab, id);
    }
}
