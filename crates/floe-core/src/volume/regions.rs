//! The index of a shard: region to blocks.
//!
//! One probe answers a whole request within a region. A table of 4-byte cells
//! leads to the region's *run*: its key, and one 4-byte [`Entry`] per cached
//! block in the order of addresses. Runs have one of 16 capacities; a region
//! moves to another run when it outgrows its own, or fills half of it. When many
//! runs of a capacity are free, the last one moves into a free one.
//!
//! RAM of a region of `n` blocks: about 5 B for the cell, 8 B for the key, 4 B
//! for each block.

use super::pages::Pages;
use super::shape::{Entry, RegionKey};
use super::slabs::Slabs;
use crate::cells::Cells;
use crate::hash::{HashSeed, KeyHash};

/// Entries that a run can have. Each is at most half as large again as the one before.
const CAPACITIES: [usize; CLASSES] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];
const CLASSES: usize = 16;

/// Words of a run before its entries: its [`Header`].
const HEADER_WORDS: usize = 2;

/// Of so many runs of a capacity one may be free. Each move costs about as much
/// as an eviction, and regions that grow and shrink in turn need a reserve.
const RUNS_PER_FREE: usize = 16;

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
    /// Runs. The first words of a free one are the next and the previous free
    /// run, and 0, which no entry is.
    words: Pages<u32>,
    slabs: Slabs<CLASSES>,
    /// By capacity.
    free: [FreeRuns; CLASSES],
    len: usize,
}

/// The list of the free runs of a capacity.
#[derive(Clone, Copy, Debug)]
struct FreeRuns {
    head: u32,
    count: usize,
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
        let no_runs = FreeRuns {
            head: NONE,
            count: 0,
        };
        Regions {
            seed,
            cells: Cells::new(),
            words: Pages::new(0),
            slabs: Slabs::new(CAPACITIES.map(|capacity| HEADER_WORDS + capacity)),
            free: [no_runs; CLASSES],
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

    /// Adds a block to the region of `key`, where it overlaps none. Hands the other
    /// blocks of each region that gets a new number to `renumber`.
    pub(super) fn insert(
        &mut self,
        key: RegionKey,
        hash: KeyHash,
        entry: Entry,
        renumber: impl FnMut(RegionId, &[u32]),
    ) -> RegionId {
        let Some(position) = self.position(key, hash) else {
            return self.insert_region(key, hash, entry);
        };
        let region = self.cells.id_at(position);
        let header = self.header(region);
        let (len, capacity) = (header.len(), header.capacity());
        let region = if len < CAPACITIES[capacity] {
            region
        } else {
            self.relocate(position, hash, capacity + 1, renumber)
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

    /// Removes `entry` from `region`, which has it. Hands the blocks of each region
    /// that gets a new number to `renumber`.
    pub(super) fn remove(
        &mut self,
        region: RegionId,
        entry: Entry,
        renumber: impl FnMut(RegionId, &[u32]),
    ) {
        let header = self.header(region.0);
        let (key, len) = (header.key(), header.len());
        let hash = hash_of(self.seed, key);
        if len == 1 {
            return self.remove_region(region.0, hash, renumber);
        }
        let entries = self.entries_mut(region.0);
        let at = entries.partition_point(|&e| e < entry.0);
        debug_assert_eq!(entries[at], entry.0, "the region has the block");
        entries.copy_within(at + 1.., at);
        let capacity = header.capacity();
        self.set_header(region.0, Header::new(key, len - 1, capacity));
        // Half as many as fit into the next smaller run, so that one more
        // insertion does not move the region back.
        if capacity > 0
            && len - 1 <= CAPACITIES[capacity] / 2
            && let Some(position) = self.cells.position_of(hash.0 & HASH_MASK, region.0)
        {
            self.relocate(position, hash, capacity - 1, renumber);
        }
    }

    /// The number of regions.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of RAM.
    pub(super) fn memory_bytes(&self) -> u64 {
        let words = self.words.memory_of(self.slabs.elements());
        self.cells.memory_bytes() as u64 + self.slabs.memory_bytes() + words
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

    fn remove_region(
        &mut self,
        region: u32,
        hash: KeyHash,
        renumber: impl FnMut(RegionId, &[u32]),
    ) {
        if let Some(position) = self.cells.position_of(hash.0 & HASH_MASK, region) {
            let (words, seed) = (&self.words, self.seed);
            self.cells.remove(position, |id| hash_in(words, seed, id));
        }
        self.give_run(region, self.header(region).capacity(), renumber);
        self.len -= 1;
    }

    /// Moves the region at `position` to a run of another capacity.
    fn relocate(
        &mut self,
        position: usize,
        hash: KeyHash,
        capacity: usize,
        mut renumber: impl FnMut(RegionId, &[u32]),
    ) -> u32 {
        let from = self.cells.id_at(position);
        let to = self.take_run(capacity);
        let header = self.header(from);
        self.set_header(to, Header::new(header.key(), header.len(), capacity));
        self.move_entries(position, hash, to);
        renumber(RegionId(to), self.entries(RegionId(to)));
        self.give_run(from, header.capacity(), renumber);
        to
    }

    /// Copies the entries of the region at `position` to run `to`, whose header is
    /// set, and lets the cell lead there.
    fn move_entries(&mut self, position: usize, hash: KeyHash, to: u32) {
        let from = self.cells.id_at(position) + HEADER_WORDS as u32;
        for at in 0..self.header(to).len() as u32 {
            self.words[to + HEADER_WORDS as u32 + at] = self.words[from + at];
        }
        self.cells.renumber(position, hash.0 & HASH_MASK, to);
    }

    fn take_run(&mut self, capacity: usize) -> u32 {
        if self.free[capacity].count > 0 {
            let run = self.free[capacity].head;
            self.unlink(run, capacity);
            return run;
        }
        let run = self.slabs.push(capacity);
        self.words.allocate(run);
        self.cells.widen_ids(self.slabs.end());
        run
    }

    /// Frees `run`. While more runs are free than may be, two are given up, so that
    /// the free ones become fewer as the others do.
    fn give_run(&mut self, run: u32, capacity: usize, mut renumber: impl FnMut(RegionId, &[u32])) {
        self.link(run, capacity);
        for _ in 0..2 {
            if self.free[capacity].count * RUNS_PER_FREE <= self.slabs.count(capacity) {
                return;
            }
            self.vacate_last(capacity, &mut renumber);
            if let Some(page) = self.slabs.pop(capacity) {
                self.words.release(page);
            }
        }
    }

    /// Moves the region of the last run of a capacity to a free run, unless the
    /// last one is free itself.
    fn vacate_last(&mut self, capacity: usize, mut renumber: impl FnMut(RegionId, &[u32])) {
        let last = self.slabs.last(capacity);
        if self.words[last + HEADER_WORDS as u32] == 0 {
            return self.unlink(last, capacity);
        }
        let header = self.header(last);
        let hash = hash_of(self.seed, header.key());
        let to = self.free[capacity].head;
        self.unlink(to, capacity);
        self.set_header(to, header);
        let position = self.cells.position_of(hash.0 & HASH_MASK, last);
        self.move_entries(position.expect("a cell leads to each region"), hash, to);
        renumber(RegionId(to), self.entries(RegionId(to)));
    }

    /// Adds `run` to the list of free runs.
    fn link(&mut self, run: u32, capacity: usize) {
        let free = &mut self.free[capacity];
        let next = std::mem::replace(&mut free.head, run);
        free.count += 1;
        self.words[run] = next;
        self.words[run + 1] = NONE;
        self.words[run + HEADER_WORDS as u32] = 0;
        if next != NONE {
            self.words[next + 1] = run;
        }
    }

    /// Removes `run` from the list of free runs.
    fn unlink(&mut self, run: u32, capacity: usize) {
        let (next, previous) = (self.words[run], self.words[run + 1]);
        match previous {
            NONE => self.free[capacity].head = next,
            _ => self.words[previous] = next,
        }
        if next != NONE {
            self.words[next + 1] = previous;
        }
        self.free[capacity].count -= 1;
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
    use crate::volume::pages::PAGE;
    use crate::volume::shape::{BlockId, Shape};

    /// An index, and what its owner knows of it.
    struct Owned {
        shape: Shape,
        regions: Regions,
        /// The region of each block in the index.
        numbers: BTreeMap<u32, RegionId>,
    }

    impl Owned {
        fn new() -> Self {
            Owned {
                shape: Shape::new("4KiB..1MiB".parse().unwrap()),
                regions: Regions::new(HashSeed(1)),
                numbers: BTreeMap::new(),
            }
        }

        fn entry(&self, number: u64, first: u32) -> Entry {
            let block = BlockId::new(number as u32 * 256 + first, 0);
            Entry::new(self.shape, first, block)
        }

        fn insert(&mut self, number: u64, first: u32) {
            let (key, entry) = (key(number), self.entry(number, first));
            let hash = hash_of(HashSeed(1), key);
            let numbers = &mut self.numbers;
            let region = self.regions.insert(key, hash, entry, |region, entries| {
                note(self.shape, numbers, region, entries);
            });
            assert_eq!(self.regions.key(region), key);
            self.numbers.insert(entry.block(self.shape).0, region);
        }

        fn remove(&mut self, number: u64, first: u32) {
            let entry = self.entry(number, first);
            let region = self.numbers.remove(&entry.block(self.shape).0).unwrap();
            let numbers = &mut self.numbers;
            self.regions.remove(region, entry, |region, entries| {
                note(self.shape, numbers, region, entries);
            });
        }
    }

    fn note(
        shape: Shape,
        numbers: &mut BTreeMap<u32, RegionId>,
        region: RegionId,
        entries: &[u32],
    ) {
        for &entry in entries {
            let number = numbers.get_mut(&Entry(entry).block(shape).0);
            *number.expect("a block in the index") = region;
        }
    }

    fn key(number: u64) -> RegionKey {
        RegionKey::new(VolumeId(3), number)
    }

    proptest! {
        /// Compares the index with a map of sets.
        #[test]
        fn the_index_is_a_map_of_ordered_sets(
            steps in prop::collection::vec((0_u64..12, 0_u32..256, any::<bool>()), 0..600),
        ) {
            let mut owned = Owned::new();
            let shape = owned.shape;
            let mut model: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
            for (number, first, adds) in steps {
                let is_there = model.get(&number).is_some_and(|set| set.contains(&first));
                if adds && !is_there {
                    model.entry(number).or_default().insert(first);
                    owned.insert(number, first);
                } else if !adds && is_there {
                    model.entry(number).or_default().remove(&first);
                    owned.remove(number, first);
                }
                for (&number, set) in &model {
                    let region = owned.regions.find(key(number), hash_of(HashSeed(1), key(number)));
                    prop_assert_eq!(region.is_some(), !set.is_empty());
                    let Some(region) = region else { continue };
                    let entries = owned.regions.entries(region).iter().map(|&e| Entry(e));
                    prop_assert!(entries.clone().map(|e| e.first(shape)).eq(set.iter().copied()));
                    for entry in entries {
                        prop_assert_eq!(owned.numbers[&entry.block(shape).0], region);
                    }
                }
                let regions = model.values().filter(|set| !set.is_empty()).count();
                prop_assert_eq!(owned.regions.len(), regions);
            }
        }
    }

    /// Regions go from many blocks each to few, and other regions take their place.
    #[test]
    fn ram_follows_the_blocks_there_are() {
        let mut owned = Owned::new();
        for number in 0..1000 {
            (0..64).for_each(|first| owned.insert(number, first));
        }
        let check = |owned: &Owned| {
            let regions = &owned.regions;
            let regions = (0..2000)
                .filter_map(|number| regions.find(key(number), hash_of(HashSeed(1), key(number))));
            let words = regions.map(|region| HEADER_WORDS + owned.regions.entries(region).len());
            let (needed, words) = (words.sum::<usize>(), owned.regions.slabs.elements());
            assert!(words < needed + needed / 4 + PAGE, "{words} for {needed}");
        };
        check(&owned);
        for number in 0..1000 {
            (3..64).for_each(|first| owned.remove(number, first));
            owned.insert(1000 + number, 7);
        }
        check(&owned);
        for number in 0..1000 {
            (64..124).for_each(|first| owned.insert(number, first));
        }
        check(&owned);
    }
}
