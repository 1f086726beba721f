//! The exact index of the log, from hash to page, with open addressing.
//!
//! It consists of many small tables, chosen by hash. Each grows alone and by
//! half, so no growth blocks the cache for long, and little memory is unused.

use crate::hash::{KeyHash, fast_range};
use crate::tiny::object::PageAddress;
use crate::tiny::statistics::room_bytes;

/// The index.
#[derive(Debug)]
pub(super) struct Index {
    shards: Vec<Shard>,
    len: u64,
    /// Bytes of memory of the shards.
    bytes: u64,
}

/// The page of an object, and whether the object was used since it was written
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) page: PageAddress,
    pub(super) hit: bool,
}

/// Fewest and most shards.
const SHARDS: std::ops::RangeInclusive<u64> = 1 << 8..=1 << 20;
/// Pages of flash for each shard, whose objects a step under a lock looks through.
const PAGES_OF_SHARD: u64 = 256;
/// Slots that are looked at together.
const CHUNK: usize = 16;
const SLOTS_LEAST: usize = 8;
/// Marks an empty slot. Pages have 31 bits; the highest bit marks hits.
const NONE: u32 = u32::MAX;
const HIT: u32 = 1 << 31;

#[derive(Debug)]
struct Shard {
    /// Whole 64-bit hashes.
    hashes: Vec<u64>,
    pages: Vec<u32>,
    len: usize,
}

impl Index {
    /// An index of the objects in `pages` pages.
    pub(super) fn new(pages: u64) -> Self {
        let shards = (pages / PAGES_OF_SHARD).next_power_of_two();
        let shards = shards.clamp(*SHARDS.start(), *SHARDS.end()) as usize;
        let shard = || Shard::with_slots(SLOTS_LEAST);
        let shards: Vec<Shard> = std::iter::repeat_with(shard).take(shards).collect();
        let tables = shards.iter().map(Shard::memory_bytes).sum::<u64>();
        Index {
            len: 0,
            bytes: room_bytes::<Shard>(shards.capacity()) + tables,
            shards,
        }
    }

    /// The number of the key's shard: there is a power of two of them.
    fn place(&self, hash: KeyHash) -> usize {
        hash.0 as usize & (self.shards.len() - 1)
    }

    fn shard(&self, hash: KeyHash) -> &Shard {
        &self.shards[self.place(hash)]
    }

    fn shard_mut(&mut self, hash: KeyHash) -> &mut Shard {
        let place = self.place(hash);
        &mut self.shards[place]
    }

    /// The parts that [`purge`](Index::purge) takes one at a time.
    pub(super) fn parts(&self) -> usize {
        self.shards.len()
    }

    pub(super) fn get(&self, hash: KeyHash) -> Option<Entry> {
        let shard = self.shard(hash);
        let slot = shard.find(hash.0)?;
        Some(Entry {
            page: PageAddress(shard.pages[slot] & !HIT),
            hit: shard.pages[slot] & HIT != 0,
        })
    }

    /// Sets the page of an object, which counts as not used yet.
    pub(super) fn set(&mut self, hash: KeyHash, page: PageAddress) {
        let shard = self.shard_mut(hash);
        let before = shard.memory_bytes();
        let added = shard.set(hash.0, page.0);
        let grown = shard.memory_bytes() - before;
        self.bytes += grown;
        self.len += u64::from(added);
    }

    /// Marks an object as used, if it is still in `page`.
    pub(super) fn hit(&mut self, hash: KeyHash, page: PageAddress) {
        let shard = self.shard_mut(hash);
        if let Some(slot) = shard.find(hash.0)
            && shard.pages[slot] & !HIT == page.0
        {
            shard.pages[slot] |= HIT;
        }
    }

    pub(super) fn remove(&mut self, hash: KeyHash) {
        let shard = self.shard_mut(hash);
        if let Some(slot) = shard.find(hash.0) {
            shard.remove(slot);
            self.len -= 1;
        }
    }

    /// Removes the objects in the pages `first..end` from one of the [`parts`](Index::parts);
    /// returns their number.
    pub(super) fn purge(&mut self, part: usize, first: PageAddress, end: PageAddress) -> u64 {
        let purged = self.shards[part].purge(first.0..end.0);
        self.len -= purged;
        purged
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes
    }
}

impl Shard {
    fn with_slots(slots: usize) -> Self {
        Shard {
            hashes: vec![0; slots],
            pages: vec![NONE; slots],
            len: 0,
        }
    }

    fn memory_bytes(&self) -> u64 {
        room_bytes::<u64>(self.hashes.capacity()) + room_bytes::<u32>(self.pages.capacity())
    }

    /// The slot where a hash belongs. Its highest bits are those of the instance, and its lowest
    /// those of the shard.
    fn home(&self, hash: u64) -> usize {
        fast_range(hash.rotate_left(20), self.pages.len())
    }

    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.pages.len() {
            0
        } else {
            slot + 1
        }
    }

    fn find(&self, hash: u64) -> Option<usize> {
        let mut slot = self.home(hash);
        while self.pages[slot] != NONE {
            if self.hashes[slot] == hash {
                return Some(slot);
            }
            slot = self.after(slot);
        }
        None
    }

    /// Returns whether the hash is new.
    fn set(&mut self, hash: u64, page: u32) -> bool {
        if let Some(slot) = self.find(hash) {
            self.pages[slot] = page;
            return false;
        }
        // At most seven eighths full, so that probes stay short and a slot is
        // free.
        if (self.len + 1) * 8 > self.pages.len() * 7 {
            self.grow();
        }
        self.put(hash, page);
        true
    }

    fn put(&mut self, hash: u64, page: u32) {
        let mut slot = self.home(hash);
        while self.pages[slot] != NONE {
            slot = self.after(slot);
        }
        self.hashes[slot] = hash;
        self.pages[slot] = page;
        self.len += 1;
    }

    fn grow(&mut self) {
        let slots = self.pages.len();
        let old = std::mem::replace(self, Shard::with_slots(slots + slots / 2));
        for (hash, page) in old.hashes.into_iter().zip(old.pages) {
            if page != NONE {
                self.put(hash, page);
            }
        }
    }

    /// Empties a slot and moves back the entries that were displaced past it.
    fn remove(&mut self, slot: usize) {
        let slots = self.pages.len();
        let mut hole = slot;
        let mut next = self.after(slot);
        while self.pages[next] != NONE {
            let displaced = (next + slots - self.home(self.hashes[next])) % slots;
            if displaced >= (next + slots - hole) % slots {
                self.hashes[hole] = self.hashes[next];
                self.pages[hole] = self.pages[next];
                hole = next;
            }
            next = self.after(next);
        }
        self.pages[hole] = NONE;
        self.len -= 1;
    }

    fn purge(&mut self, gone: std::ops::Range<u32>) -> u64 {
        let is_gone = |page: &u32| gone.contains(&(page & !HIT));
        let mut purged = 0;
        let mut slot = 0;
        while slot < self.pages.len() {
            // Without a branch for each slot, the compiler compares several at a time.
            if let Some(chunk) = self.pages[slot..].first_chunk::<CHUNK>()
                && !chunk.iter().fold(false, |any, page| any | is_gone(page))
            {
                slot += CHUNK;
            } else if is_gone(&self.pages[slot]) {
                // Another entry may have moved here, so the slot is checked
                // again.
                self.remove(slot);
                purged += 1;
            } else {
                slot += 1;
            }
        }
        // An entry that wrapped around may have moved from the front to the
        // end.
        while let Some(slot) = self.wrapped(is_gone) {
            self.remove(slot);
            purged += 1;
        }
        purged
    }

    /// A slot of the last run whose page is gone.
    fn wrapped(&self, is_gone: impl Fn(&u32) -> bool) -> Option<usize> {
        let run = (0..self.pages.len()).rev();
        run.take_while(|slot| self.pages[*slot] != NONE)
            .find(|slot| is_gone(&self.pages[*slot]))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_map(operations in prop::collection::vec((0u8..5, 0u64..80, 0u32..64), 1..600)) {
            let mut index = Index::new(0);
            let mut map = BTreeMap::new();
            for (what, key, page) in operations {
                // All in one shard, with runs that wrap around.
                let hash = KeyHash((key.wrapping_mul(0x0f0f_1234_5678_9abc) | (key % 3) << 41) & !0xff);
                match what {
                    0 | 1 => {
                        index.set(hash, PageAddress(page));
                        map.insert(hash, (page, false));
                    }
                    2 => {
                        index.remove(hash);
                        map.remove(&hash);
                    }
                    3 => {
                        index.hit(hash, PageAddress(page));
                        if let Some(entry) = map.get_mut(&hash) {
                            entry.1 |= entry.0 == page;
                        }
                    }
                    _ => {
                        let pages = (PageAddress(page), PageAddress(page + 8));
                        let purged = (0..index.parts()).map(|part| index.purge(part, pages.0, pages.1));
                        let purged: u64 = purged.sum();
                        let before = map.len();
                        map.retain(|_, (at, _)| !(page..page + 8).contains(at));
                        prop_assert_eq!(purged, (before - map.len()) as u64);
                    }
                }
                prop_assert_eq!(index.len(), map.len() as u64);
                for (hash, (page, hit)) in &map {
                    let entry = Entry { page: PageAddress(*page), hit: *hit };
                    prop_assert_eq!(index.get(*hash), Some(entry));
                }
            }
        }
    }
}
