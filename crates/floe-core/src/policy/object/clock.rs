//! CLOCK: a FIFO whose oldest object gets a second chance if it was hit since
//! it entered, or since its last chance.

use super::resident::Eviction;
use super::slab::Slab;
use crate::list::List;

/// Second chance with one reference bit.
#[derive(Debug)]
pub(super) struct Clock(List);

impl Eviction for Clock {
    fn new(_: u64) -> Self {
        Clock(List::EMPTY)
    }

    fn hit(&mut self, slab: &mut Slab, id: u32) {
        *slab.mark_mut(id) = 1;
    }

    fn insert(&mut self, slab: &mut Slab, key: u64, size: u64, _: bool) {
        slab.insert(&mut self.0, key, size, 0);
    }

    fn evict_one(&mut self, slab: &mut Slab) {
        loop {
            let candidate = self.0.oldest();
            if std::mem::take(slab.mark_mut(candidate)) == 0 {
                slab.remove(&mut self.0, candidate);
                return;
            }
            self.0.refresh(slab, candidate);
        }
    }

    fn remove(&mut self, slab: &mut Slab, id: u32) {
        slab.remove(&mut self.0, id);
    }
}
