//! LFU: the object hit least often goes; among equals, the one that reached
//! its frequency first.

use std::collections::BTreeMap;

use super::Access;
use super::slab::{List, Slab};

/// Least frequently used, with exact counts that end with the object.
#[derive(Debug)]
pub struct Lfu {
    capacity_bytes: u64,
    slab: Slab,
    /// One list per frequency that has objects.
    lists: BTreeMap<u32, List>,
}

impl Lfu {
    /// An empty cache.
    pub fn new(capacity_bytes: u64) -> Self {
        Lfu {
            capacity_bytes,
            slab: Slab::default(),
            lists: BTreeMap::new(),
        }
    }

    /// Looks `key` up and inserts it on a miss.
    pub fn access(&mut self, key: u64, size: u64) -> Access {
        if let Some(id) = self.slab.find(key) {
            self.promote(id);
            return Access::Hit;
        }
        if size > self.capacity_bytes {
            return Access::Refused;
        }
        while self.slab.used_bytes() > self.capacity_bytes - size {
            self.evict_one();
        }
        let list = self.lists.entry(1).or_insert(List::EMPTY);
        self.slab.insert(list, key, size, 1);
        Access::Miss
    }

    fn promote(&mut self, id: u32) {
        let frequency = self.slab.get(id).mark;
        let higher = frequency.saturating_add(1);
        if higher == frequency {
            return;
        }
        let mut from = self.lists.remove(&frequency).unwrap_or(List::EMPTY);
        let to = self.lists.entry(higher).or_insert(List::EMPTY);
        self.slab.transfer(&mut from, to, id);
        *self.slab.mark_mut(id) = higher;
        if !from.is_empty() {
            self.lists.insert(frequency, from);
        }
    }

    fn evict_one(&mut self) {
        if let Some(mut lowest) = self.lists.first_entry() {
            let victim = lowest.get().oldest();
            self.slab.remove(lowest.get_mut(), victim);
            if lowest.get().is_empty() {
                lowest.remove();
            }
        }
    }

    /// Forgets `key`; says whether it was there.
    pub fn remove(&mut self, key: u64) -> bool {
        let Some(id) = self.slab.find(key) else {
            return false;
        };
        let frequency = self.slab.get(id).mark;
        let mut list = self.lists.remove(&frequency).unwrap_or(List::EMPTY);
        self.slab.remove(&mut list, id);
        if !list.is_empty() {
            self.lists.insert(frequency, list);
        }
        true
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
