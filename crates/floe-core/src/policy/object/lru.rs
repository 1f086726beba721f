//! LRU: a hit makes an object the newest; the oldest object is evicted.

use super::resident::Eviction;
use super::slab::Slab;
use crate::list::List;

/// Least recently used.
#[derive(Debug)]
pub(super) struct Lru(List);

impl Eviction for Lru {
    fn new(_: u64) -> Self {
        Lru(List::EMPTY)
    }

    fn hit(&mut self, slab: &mut Slab, id: u32) {
        self.0.refresh(slab, id);
    }

    fn insert(&mut self, slab: &mut Slab, key: u64, size: u64, _: bool) {
        slab.insert(&mut self.0, key, size, 0);
    }

    fn evict_one(&mut self, slab: &mut Slab) {
        let oldest = self.0.oldest();
        slab.remove(&mut self.0, oldest);
    }

    fn remove(&mut self, slab: &mut Slab, id: u32) {
        slab.remove(&mut self.0, id);
    }
}
