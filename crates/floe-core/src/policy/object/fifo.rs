//! FIFO: the oldest goes, whatever was hit.

use super::Access;
use super::slab::{List, Slab};

/// First in, first out.
#[derive(Debug)]
pub struct Fifo {
    capacity_bytes: u64,
    slab: Slab,
    list: List,
}

impl Fifo {
    /// An empty cache.
    pub fn new(capacity_bytes: u64) -> Self {
        Fifo {
            capacity_bytes,
            slab: Slab::default(),
            list: List::EMPTY,
        }
    }

    /// Looks `key` up and inserts it on a miss.
    pub fn access(&mut self, key: u64, size: u64) -> Access {
        if self.slab.find(key).is_some() {
            return Access::Hit;
        }
        if size > self.capacity_bytes {
            return Access::Refused;
        }
        while self.slab.used_bytes() > self.capacity_bytes - size {
            let victim = self.list.oldest();
            self.slab.remove(&mut self.list, victim);
        }
        self.slab.insert(&mut self.list, key, size, 0);
        Access::Miss
    }

    /// Forgets `key`; says whether it was there.
    pub fn remove(&mut self, key: u64) -> bool {
        let found = self.slab.find(key);
        if let Some(id) = found {
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
