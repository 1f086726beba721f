//! FIFO: evicts the oldest object and ignores hits.

use super::resident::Eviction;
use super::slab::Slab;
use crate::list::List;

/// First in, first out.
#[derive(Debug)]
pub(super) struct Fifo(pub(super) List);

impl Eviction for Fifo {
    fn new(_: u64) -> Self {
        Fifo(List::EMPTY)
    }

    fn hit(&mut self, _: &mut Slab, _: u32) {}

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
