//! Objects in one array, found by key through a fixed hash, and linked into
//! lists by index. The slab does not choose the object to evict.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::list::{Linked, Links, List, NONE};

/// One object's entry.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) size: u64,
    /// State of the policy: a reference bit, a frequency.
    pub(super) mark: u32,
    links: Links,
}

/// The entries. Each is in exactly one list.
#[derive(Debug, Default)]
pub(super) struct Slab {
    entries: Vec<Entry>,
    free: Vec<u32>,
    index: HashMap<u64, u32, BuildHasherDefault<FixedHasher>>,
    used_bytes: u64,
}

impl Linked for Slab {
    fn links(&self, id: u32) -> Links {
        self.entries[id as usize].links
    }

    fn links_mut(&mut self, id: u32) -> &mut Links {
        &mut self.entries[id as usize].links
    }
}

impl Slab {
    pub(super) fn find(&self, key: u64) -> Option<u32> {
        self.index.get(&key).copied()
    }

    pub(super) fn get(&self, id: u32) -> &Entry {
        &self.entries[id as usize]
    }

    pub(super) fn mark_mut(&mut self, id: u32) -> &mut u32 {
        &mut self.entries[id as usize].mark
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Adds an absent object as the newest of `list`.
    pub(super) fn insert(&mut self, list: &mut List, key: u64, size: u64, mark: u32) {
        let entry = Entry {
            key,
            size,
            mark,
            links: Links::default(),
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                // 2^32 - 1 entries would need 160 GiB; the last id is NONE.
                assert!(self.entries.len() < NONE as usize, "too many objects");
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.index.insert(key, id);
        self.used_bytes += size;
        list.push_newest(self, id);
    }

    /// Removes `id` from `list` and from the slab.
    pub(super) fn remove(&mut self, list: &mut List, id: u32) -> Entry {
        list.unlink(self, id);
        let entry = self.entries[id as usize].clone();
        self.index.remove(&entry.key);
        self.used_bytes -= entry.size;
        self.free.push(id);
        entry
    }
}

/// Hashes a 64-bit key identically in every run and process.
#[derive(Default)]
pub(super) struct FixedHasher(u64);

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, key: u64) {
        // The 128-bit product, folded: every input bit reaches high and low
        // output bits, and the table uses both.
        let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }
}
