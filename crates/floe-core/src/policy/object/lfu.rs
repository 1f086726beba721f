//! LFU: evicts the object with the fewest hits, and among equals the one that
//! reached its frequency first.

use std::collections::BTreeMap;

use super::resident::Eviction;
use super::slab::Slab;
use crate::list::List;

/// Least frequently used, with exact counts that end with the object. An
/// entry's mark is its frequency.
#[derive(Debug)]
pub(super) struct Lfu {
    /// One list per frequency that has objects.
    lists: BTreeMap<u32, List>,
}

impl Eviction for Lfu {
    fn new(_: u64) -> Self {
        Lfu {
            lists: BTreeMap::new(),
        }
    }

    fn hit(&mut self, slab: &mut Slab, id: u32) {
        let frequency = slab.get(id).mark;
        let higher = frequency.saturating_add(1);
        if higher == frequency {
            return;
        }
        self.with_list(frequency, |list| list.unlink(slab, id));
        self.lists.entry(higher).or_default().push_newest(slab, id);
        *slab.mark_mut(id) = higher;
    }

    fn insert(&mut self, slab: &mut Slab, key: u64, size: u64, _: bool) {
        slab.insert(self.lists.entry(1).or_default(), key, size, 1);
    }

    fn evict_one(&mut self, slab: &mut Slab) {
        if let Some(mut lowest) = self.lists.first_entry() {
            let victim = lowest.get().oldest();
            slab.remove(lowest.get_mut(), victim);
            if lowest.get().is_empty() {
                lowest.remove();
            }
        }
    }

    fn remove(&mut self, slab: &mut Slab, id: u32) {
        self.with_list(slab.get(id).mark, |list| {
            slab.remove(list, id);
        });
    }
}

impl Lfu {
    /// Changes the list of `frequency`, and drops it once it is empty.
    fn with_list(&mut self, frequency: u32, change: impl FnOnce(&mut List)) {
        let mut list = self.lists.remove(&frequency).unwrap_or_default();
        change(&mut list);
        if !list.is_empty() {
            self.lists.insert(frequency, list);
        }
    }
}
