//! The index of a shard: region to blocks.
//!
//! One probe answers a whole request within a region. A table of 4-byte cells
//! leads to the region's *run*: its key, and one 4-byte [`Entry`] per cached
//! block in the order of addresses. Runs have one of 16 capacities; a region
//! moves to another run when it outgrows its own, or fills half of it.
//!
//! RAM of a region of `n` blocks: about 5 B for the cell, 8 B for the key, 4 B
//! for each block.

use super::pages::{PAGE, Pages};
use super::shape::{Entry, RegionKey};
use crate::cells::Cells;
use crate::hash::{HashSeed, KeyHash};

/// Entries that a run can have. Each is at most half as large again as the one before.
const CAPACITIES: [usize; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// Words of a run before its entries: its [`Header`].
const HEADER_WORDS: usize = 2;

/// No run: the end of a list of free runs.
const NONE: u32 = u32::MAX;

/// A region in the index. Valid until a block is added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionId(pub(super) u32);

/// The hash of a region's key: the upper bits choose the shard, the lower 48
/// the cell.
pub(super) fn hash_of(seed: HashSeed, key: RegionKey) -> KeyHash {
    KeyHash::of(seed, &key.bits().to_le_bytes())
}

/// Regions with cached blocks.
#[derive(Debug)]
pub(super) struct Regions {
    seed: HashSeed,
    cells: Cells,
    words: Pages<u32>,
    /// Heads of the lists of free runs, by capacity.
    free: [u32; CAPACITIES.len()],
    /// The first word that no run has had.
    next: u32,
    len: usize,
}

/// Key, number of entries less one (8 bits) and number of the capacity (4 bits)
/// of a run.
#[derive(Clone, Copy)]
struct Header(u64);

impl Header {
    fn new(key: RegionKey, len: usize, capacity: usize) -> Self {
        Header(key.bits() << 12 | (len as u64 - 1) << 4 | capacity as u64)
    }

    fn key(self) -> RegionKey {
        RegionKey::from_bits(self.0 >> 12)
    }

    fn len(self) -> usize {
        (self.0 >> 4 & 0xff) as usize + 1
    }

    fn capacity(self) -> usize {
        (self.0 & 0xf) as usize
    }
}

impl Regions {
    pub(super) fn new(seed: HashSeed) -> Self {
        Regions {
            seed,
            cells: Cells::new(),
            words: Pages::new(0),
            free: [NONE; CAPACITIES.len()],
            next: 0,
            len: 0,
        }
    }

    /// The region of `key`, whose hash is `hash`, if it has cached blocks.
    pub(super) fn find(&self, key: RegionKey, hash: KeyHash) -> Option<RegionId> {
        let position = self.position(key, hash)?;
        Some(RegionId(self.cells.id_at(position)))
    }

    pub(super) fn key(&self, region: RegionId) -> RegionKey {
        self.header(region.0).key()
    }

    /// The region's blocks, in the order of addresses.
    pub(super) fn entries(&self, region: RegionId) -> &[u32] {
        let len = self.header(region.0).len();
        self.words.run(region.0 + HEADER_WORDS as u32, len)
    }

    /// Adds a block to the region of `key`, where it overlaps none. Returns the
    /// region's number, which may be a new one for all of its blocks.
    pub(super) fn insert(&mut self, key: RegionKey, hash: KeyHash, entry: Entry) -> RegionId {
        let Some(position) = self.position(key, hash) else {
            return self.insert_region(key, hash, entry);
        };
        let region = self.cells.id_at(position);
        let header = self.header(region);
        let (len, capacity) = (header.len(), header.capacity());
        let region = if len < CAPACITIES[capacity] {
            region
        } else {
            self.relocate(position, hash, capacity + 1)
        };
        let at = self
            .entries(RegionId(region))
            .partition_point(|&e| e < entry.0);
        self.set_header(
            region,
            Header::new(key, len + 1, self.header(region).capacity()),
        );
        let entries = self.entries_mut(region);
        entries.copy_within(at..len, at + 1);
        entries[at] = entry.0;
        RegionId(region)
    }

    /// Removes `entry` from `region`, which has it. Returns the region's number,
    /// which may be a new one for all of its blocks, if it still has any.
    pub(super) fn remove(&mut self, region: RegionId, entry: Entry) -> Option<RegionId> {
        let header = self.header(region.0);
        let (key, len) = (header.key(), header.len());
        let hash = hash_of(self.seed, key);
        if len == 1 {
            self.remove_region(region.0, hash);
            return None;
        }
        let entries = self.entries_mut(region.0);
        let at = entries.partition_point(|&e| e < entry.0);
        debug_assert_eq!(entries[at], entry.0, "the region has the block");
        entries.copy_within(at + 1.., at);
        let capacity = header.capacity();
        self.set_header(region.0, Header::new(key, len - 1, capacity));
        // Half as many as fit into the next smaller run, so that one more
        // insertion does not move the region back.
        if capacity > 0 && len - 1 <= CAPACITIES[capacity] / 2 {
            let position = self.cells.position_of(hash.0 & HASH_MASK, region.0)?;
            return Some(RegionId(self.relocate(position, hash, capacity - 1)));
        }
        Some(region)
    }

    /// The number of regions.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of RAM.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.cells.memory_bytes() as u64 + self.words.memory_bytes()
    }

    fn position(&self, key: RegionKey, hash: KeyHash) -> Option<usize> {
        self.cells
            .find(hash.0 & HASH_MASK, |id| self.header(id).key() == key)
    }

    fn insert_region(&mut self, key: RegionKey, hash: KeyHash, entry: Entry) -> RegionId {
        let region = self.take_run(0);
        self.set_header(region, Header::new(key, 1, 0));
        self.entries_mut(region)[0] = entry.0;
        let (words, seed) = (&self.words, self.seed);
        self.cells.reserve_one(|id| hash_in(words, seed, id));
        self.cells.insert(hash.0 & HASH_MASK, region);
        self.len += 1;
        RegionId(region)
    }

    fn remove_region(&mut self, region: u32, hash: KeyHash) {
        if let Some(position) = self.cells.position_of(hash.0 & HASH_MASK, region) {
            let (words, seed) = (&self.words, self.seed);
            self.cells.remove(position, |id| hash_in(words, seed, id));
        }
        self.give_run(region, self.header(region).capacity());
        self.len -= 1;
    }

    /// Moves the region at `position` to a run of another capacity.
    fn relocate(&mut self, position: usize, hash: KeyHash, capacity: usize) -> u32 {
        let from = self.cells.id_at(position);
        let to = self.take_run(capacity);
        let header = self.header(from);
        self.set_header(to, Header::new(header.key(), header.len(), capacity));
        for at in 0..header.len() as u32 {
            let entry = self.words[from + HEADER_WORDS as u32 + at];
            self.words[to + HEADER_WORDS as u32 + at] = entry;
        }
        self.cells.renumber(position, hash.0 & HASH_MASK, to);
        self.give_run(from, header.capacity());
        to
    }

    fn take_run(&mut self, capacity: usize) -> u32 {
        let head = self.free[capacity];
        if head != NONE {
            self.free[capacity] = self.words[head];
            return head;
        }
        let words = HEADER_WORDS + CAPACITIES[capacity];
        let left = PAGE - self.next as usize % PAGE;
        if left < words {
            self.free_tail(left);
        }
        let run = self.next;
        self.next += words as u32;
        self.words.grow_to(self.next as usize);
        self.cells.widen_ids(self.next as usize);
        run
    }

    /// Makes runs of the last `left` words of a page, which the next run does
    /// not fit into.
    fn free_tail(&mut self, mut left: usize) {
        while let Some(capacity) = CAPACITIES.iter().rposition(|c| HEADER_WORDS + c <= left) {
            let words = HEADER_WORDS + CAPACITIES[capacity];
            self.give_run(self.next, capacity);
            self.next += words as u32;
            left -= words;
        }
        self.next += left as u32;
    }

    fn give_run(&mut self, run: u32, capacity: usize) {
        self.words[run] = std::mem::replace(&mut self.free[capacity], run);
    }

    fn header(&self, run: u32) -> Header {
        header_in(&self.words, run)
    }

    fn set_header(&mut self, run: u32, header: Header) {
        self.words[run] = header.0 as u32;
        self.words[run + 1] = (header.0 >> 32) as u32;
    }

    fn entries_mut(&mut self, run: u32) -> &mut [u32] {
        let len = self.header(run).len();
        self.words.run_mut(run + HEADER_WORDS as u32, len)
    }
}

/// Bits of a hash that cells are found by.
const HASH_MASK: u64 = (1 << 48) - 1;

fn header_in(words: &Pages<u32>, run: u32) -> Header {
    Header(u64::from(words[run]) | u64::from(words[run + 1]) << 32)
}

fn hash_in(words: &Pages<u32>, seed: HashSeed, run: u32) -> u64 {
    hash_of(seed, header_in(words, run).key()).0 & HASH_MASK
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::volume::address::VolumeId;
    use crate::volume::shape::{BlockId, Shape};

    proptest! {
        /// Compares the index with a map of sets.
        #[test]
        fn the_index_is_a_map_of_ordered_sets(
            steps in prop::collection::vec((0_u64..12, 0_u32..256, any::<bool>()), 0..600),
        ) {
            let shape = Shape::new("4KiB..1MiB".parse().unwrap());
            let mut regions = Regions::new(HashSeed(1));
            let mut model: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
            for (number, first, adds) in steps {
                let key = RegionKey::new(VolumeId(3), number);
                let hash = hash_of(HashSeed(1), key);
                let block = BlockId::new(number as u32 * 256 + first, 0);
                let entry = Entry::new(shape, first, block);
                let is_there = model.get(&number).is_some_and(|set| set.contains(&first));
                if adds && !is_there {
                    model.entry(number).or_default().insert(first);
                    let region = regions.insert(key, hash, entry);
                    prop_assert_eq!(regions.key(region), key);
                } else if !adds && is_there {
                    model.entry(number).or_default().remove(&first);
                    let region = regions.find(key, hash).unwrap();
                    let region = regions.remove(region, entry);
                    prop_assert_eq!(region, regions.find(key, hash));
                }
                for (&number, set) in &model {
                    let key = RegionKey::new(VolumeId(3), number);
                    let region = regions.find(key, hash_of(HashSeed(1), key));
                    prop_assert_eq!(region.is_some(), !set.is_empty());
                    let Some(region) = region else { continue };
                    let entries = regions.entries(region).iter().map(|&e| Entry(e));
                    prop_assert!(entries.map(|e| e.first(shape)).eq(set.iter().copied()));
                }
                prop_assert_eq!(regions.len(), model.values().filter(|s| !s.is_empty()).count());
            }
        }
    }
}
