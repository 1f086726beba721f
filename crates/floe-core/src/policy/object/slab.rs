//! Objects in one array, found by key through a fixed hash, linked into lists
//! by index. What it refuses to know: who is evicted next.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// No object.
pub(super) const NONE: u32 = u32::MAX;

/// One object's entry. `mark` is the policy's: a reference bit, a frequency.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) size: u64,
    pub(super) mark: u32,
    /// Towards the head (newer).
    newer: u32,
    /// Towards the tail (older).
    older: u32,
}

/// A list of entries of one [`Slab`], newest at the head.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(super) const EMPTY: List = List {
        head: NONE,
        tail: NONE,
    };

    /// The oldest entry, or [`NONE`].
    pub(super) fn oldest(&self) -> u32 {
        self.tail
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

/// The entries. An entry is in exactly one list; the slab does not know which.
#[derive(Debug, Default)]
pub(super) struct Slab {
    entries: Vec<Entry>,
    free: Vec<u32>,
    index: HashMap<u64, u32, BuildHasherDefault<FixedHasher>>,
    used_bytes: u64,
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

    /// The next newer entry of the same list, or [`NONE`].
    pub(super) fn newer(&self, id: u32) -> u32 {
        self.entries[id as usize].newer
    }

    /// Adds an object that is not there yet at the head of `list`.
    pub(super) fn insert(&mut self, list: &mut List, key: u64, size: u64, mark: u32) -> u32 {
        let entry = Entry {
            key,
            size,
            mark,
            newer: NONE,
            older: NONE,
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
        self.link_newest(list, id);
        id
    }

    /// Takes `id` out of `list` and forgets it.
    pub(super) fn remove(&mut self, list: &mut List, id: u32) -> Entry {
        self.unlink(list, id);
        let entry = self.entries[id as usize].clone();
        self.index.remove(&entry.key);
        self.used_bytes -= entry.size;
        self.free.push(id);
        entry
    }

    /// Makes `id` the newest of its list.
    pub(super) fn refresh(&mut self, list: &mut List, id: u32) {
        if list.head != id {
            self.unlink(list, id);
            self.link_newest(list, id);
        }
    }

    /// Moves `id` from one list to the head of another.
    pub(super) fn transfer(&mut self, from: &mut List, to: &mut List, id: u32) {
        self.unlink(from, id);
        self.link_newest(to, id);
    }

    fn link_newest(&mut self, list: &mut List, id: u32) {
        let old_head = list.head;
        let entry = &mut self.entries[id as usize];
        entry.newer = NONE;
        entry.older = old_head;
        if old_head == NONE {
            list.tail = id;
        } else {
            self.entries[old_head as usize].newer = id;
        }
        list.head = id;
    }

    fn unlink(&mut self, list: &mut List, id: u32) {
        let Entry { newer, older, .. } = self.entries[id as usize];
        match newer {
            NONE => list.head = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => list.tail = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }
}

/// Mixes a 64-bit key the same way in every run and process.
#[derive(Default)]
pub(super) struct FixedHasher(u64);

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, key: u64) {
        // The 128-bit product folded: every input bit reaches high and low
        // output bits, which is what the table uses.
        let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }
}
