//! The index of a shard: region to blocks.
//!
//! One probe answers a whole request within a region. The *record* of a region
//! is its key and one 4-byte [`Entry`] per cached block, in the order of
//! addresses. Records lie in one array, in the order of their regions' hashes
//! and each in the line that its hash leads to, its *home*, or as soon after as
//! there is room. A lookup reads the end of its home's records, which the
//! processor's caches hold for most indexes, and the record: one random read.
//!
//! A change moves the records that follow up to the next gap. Blocks know their
//! region by its hash, so that moves need not be told to them. The array grows
//! and shrinks by a sixteenth, in place and in one pass.
//!
//! RAM of a region of `n` blocks: 8 B for the key and 4 B for each block, in an
//! array that is filled to 80 to 90 %, and 3 % for the ends of lines.

use std::hint::black_box;
use std::ops::Range;

use super::shape::{Entry, RegionKey};
use crate::hash::{HashSeed, KeyHash};

/// Words of a line: two lines of the processor's caches.
const LINE: usize = 32;

/// Words of a record before its entries: its [`Header`].
const HEADER_WORDS: usize = 2;

/// A region's record: its first word. Valid until a block is added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionId(pub(super) u32);

/// The bits of a region's hash that order records, which blocks remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RegionHash(pub(super) u32);

impl RegionHash {
    pub(super) const BITS: u32 = 29;

    /// The upper bits of a hash choose the shard; these are the ones below.
    pub(super) fn of(hash: KeyHash) -> Self {
        RegionHash((hash.0 >> 19) as u32 & ((1 << Self::BITS) - 1))
    }

    /// The line that the hash leads to, of `lines`.
    fn line(self, lines: usize) -> usize {
        ((u64::from(self.0) * lines as u64) >> Self::BITS) as usize
    }
}

/// The hash of a region's key.
pub(super) fn hash_of(seed: HashSeed, key: RegionKey) -> KeyHash {
    KeyHash::of(seed, &key.bits().to_le_bytes())
}

/// Regions with cached blocks.
#[derive(Debug)]
pub(super) struct Regions {
    seed: HashSeed,
    words: Vec<u32>,
    /// By line, the words from its start to the end of the records whose home is
    /// this line or one before it; 0 if they end before it.
    ends: Vec<u32>,
    /// Words of all records.
    used: usize,
    len: usize,
}

/// Key and number of entries less one (8 bits) of a region.
#[derive(Clone, Copy)]
struct Header(u64);

impl Header {
    fn new(key: RegionKey, len: usize) -> Self {
        Header(key.bits() << 8 | (len as u64 - 1))
    }

    fn key(self) -> RegionKey {
        RegionKey::from_bits(self.0 >> 8)
    }

    fn len(self) -> usize {
        (self.0 & 0xff) as usize + 1
    }
}

impl Regions {
    pub(super) fn new(seed: HashSeed) -> Self {
        Regions {
            seed,
            words: Vec::new(),
            ends: vec![0],
            used: 0,
            len: 0,
        }
    }

    /// The region of `key`, whose hash is `hash`, if it has cached blocks.
    pub(super) fn find(&self, key: RegionKey, hash: KeyHash) -> Option<RegionId> {
        let line = RegionHash::of(hash).line(self.ends.len());
        // Loads that nothing waits for: the record arrives while the ends do.
        black_box(self.words.get(line * LINE).copied());
        black_box(self.words.get(line * LINE + LINE / 2).copied());
        black_box(self.words.get(line * LINE + LINE).copied());
        self.records(line)
            .find(|(_, header)| header.key() == key)
            .map(|(at, _)| RegionId(at as u32))
    }

    pub(super) fn key(&self, region: RegionId) -> RegionKey {
        self.header(region.0 as usize).key()
    }

    /// The region's blocks, in the order of addresses.
    pub(super) fn entries(&self, region: RegionId) -> &[u32] {
        let at = region.0 as usize;
        &self.words[at + HEADER_WORDS..][..self.header(at).len()]
    }

    /// The entry that `is_it` accepts of the regions whose hashes are like `hash`.
    pub(super) fn find_entry(
        &self,
        hash: RegionHash,
        is_it: impl Fn(Entry) -> bool,
    ) -> Option<(RegionId, Entry)> {
        self.records(hash.line(self.ends.len()))
            .find_map(|(at, _)| {
                let region = RegionId(at as u32);
                let mut entries = self.entries(region).iter().map(|&entry| Entry(entry));
                Some((region, entries.find(|&entry| is_it(entry))?))
            })
    }

    /// Adds a block to the region of `key`, where it overlaps none.
    pub(super) fn insert(&mut self, key: RegionKey, hash: KeyHash, entry: Entry) {
        let line = RegionHash::of(hash).line(self.ends.len());
        match self.find(key, hash) {
            None => {
                let at = self.place_of(line, RegionHash::of(hash));
                self.open(at, record_words(1), line);
                self.set_header(at, Header::new(key, 1));
                self.words[at + HEADER_WORDS] = entry.0;
                self.len += 1;
            }
            Some(region) => {
                let (start, len) = (region.0 as usize, self.entries(region).len());
                let words = record_words(len);
                self.open(start + words, record_words(len + 1) - words, line);
                let at = self.entries(region).partition_point(|&e| e < entry.0);
                self.set_header(start, Header::new(key, len + 1));
                let entries = self.entries_mut(region);
                entries.copy_within(at..len, at + 1);
                entries[at] = entry.0;
            }
        }
        if self.used * 10 > self.ends.len() * LINE * 9 {
            self.rebuild(self.ends.len() + self.ends.len() / 16 + 1);
        }
    }

    /// Removes `entry` from a region whose hash is `hash`. It is in the index.
    pub(super) fn remove(&mut self, hash: RegionHash, entry: Entry) {
        let Some((region, _)) = self.find_entry(hash, |other| other == entry) else {
            debug_assert!(false, "the index has the block");
            return;
        };
        let (start, header) = (region.0 as usize, self.header(region.0 as usize));
        let line = hash.line(self.ends.len());
        let len = header.len();
        if len == 1 {
            self.close(start, record_words(1), line);
            self.len -= 1;
        } else {
            let entries = self.entries_mut(region);
            let at = entries.partition_point(|&e| e < entry.0);
            entries.copy_within(at + 1.., at);
            self.set_header(start, Header::new(header.key(), len - 1));
            let words = record_words(len - 1);
            self.close(start + words, record_words(len) - words, line);
        }
        if self.used * 100 < (self.ends.len() - 1) * LINE * 82 {
            self.rebuild(self.ends.len() - self.ends.len() / 16 - 1);
        }
    }

    /// The number of regions.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of RAM.
    pub(super) fn memory_bytes(&self) -> u64 {
        ((self.words.capacity() + self.ends.capacity()) * size_of::<u32>()) as u64
    }

    /// The records whose home is `line`, and their headers.
    fn records(&self, line: usize) -> impl Iterator<Item = (usize, Header)> {
        let Range { mut start, end } = span(&self.ends, line);
        std::iter::from_fn(move || {
            let at = start;
            let header = (at < end).then(|| self.header(at))?;
            start += record_words(header.len());
            Some((at, header))
        })
    }

    /// The place of a new record of `hash`, whose home is `line`.
    fn place_of(&self, line: usize, hash: RegionHash) -> usize {
        let after = self
            .records(line)
            .find(|(_, header)| self.home(*header) > hash);
        after.map_or(span(&self.ends, line).end, |(at, _)| at)
    }

    /// Makes room for `count` words at `at`, among or after the records whose home
    /// is `line`.
    fn open(&mut self, at: usize, mut count: usize, line: usize) {
        self.used += count;
        while count > 0 {
            let mut last = line;
            while last + 1 < self.ends.len() && self.ends[last] as usize >= LINE {
                last += 1;
            }
            let end = span(&self.ends, last).end;
            let gap = if last + 1 < self.ends.len() {
                count.min((last + 1) * LINE - end)
            } else {
                count
            };
            if end + gap > self.words.len() {
                self.words.reserve_exact(end + gap - self.words.len());
                self.words.resize(end + gap, 0);
            }
            self.words.copy_within(at..end, at + gap);
            for end in &mut self.ends[line..=last] {
                *end += gap as u32;
            }
            count -= gap;
        }
    }

    /// Gives up `count` words at `at`, among the records whose home is `line`, and
    /// moves the records that follow as near to their homes as they get.
    fn close(&mut self, at: usize, mut count: usize, line: usize) {
        self.used -= count;
        while count > 0 {
            let (mut last, mut step) = (line, count);
            while last + 1 < self.ends.len() && self.ends[last] as usize > LINE {
                step = step.min(self.ends[last] as usize - LINE);
                last += 1;
            }
            self.words
                .copy_within(at + step..span(&self.ends, last).end, at);
            for end in &mut self.ends[line..=last] {
                *end -= step as u32;
            }
            count -= step;
        }
    }

    /// Spreads the records over `lines` lines. The array of more lines is first
    /// moved to its new end: no record is then written over one that is not read.
    fn rebuild(&mut self, lines: usize) {
        let ends = std::mem::replace(&mut self.ends, Vec::with_capacity(lines));
        let old_len = self.words.len();
        let moved = lines.saturating_sub(ends.len()) * LINE;
        self.words.reserve_exact(moved);
        self.words.resize(old_len + moved, 0);
        self.words.copy_within(..old_len, moved);
        let mut end = 0;
        for line in 0..ends.len() {
            let mut from = span(&ends, line);
            while !from.is_empty() {
                let header = self.header(from.start + moved);
                let words = record_words(header.len());
                self.end_lines(self.home(header).line(lines), &mut end);
                let start = from.start + moved;
                self.words.copy_within(start..start + words, end);
                end += words;
                from.start += words;
            }
        }
        self.end_lines(lines, &mut end);
        self.words.truncate(end);
        self.words.shrink_to_fit();
    }

    /// Notes the ends of lines up to `line`. The records before it end at `end`,
    /// which moves to where the next one may be.
    fn end_lines(&mut self, line: usize, end: &mut usize) {
        while self.ends.len() < line {
            self.ends.push((*end - self.ends.len() * LINE) as u32);
            *end = (self.ends.len() * LINE).max(*end);
        }
    }

    fn home(&self, header: Header) -> RegionHash {
        RegionHash::of(hash_of(self.seed, header.key()))
    }

    fn header(&self, at: usize) -> Header {
        Header(u64::from(self.words[at]) | u64::from(self.words[at + 1]) << 32)
    }

    fn set_header(&mut self, at: usize, header: Header) {
        self.words[at] = header.0 as u32;
        self.words[at + 1] = (header.0 >> 32) as u32;
    }

    fn entries_mut(&mut self, region: RegionId) -> &mut [u32] {
        let at = region.0 as usize;
        let len = self.header(at).len();
        &mut self.words[at + HEADER_WORDS..][..len]
    }
}

/// Words of the record of a region with `len` blocks. Long ones have room for an
/// eighth more at most, so that not every block moves the records after it.
fn record_words(len: usize) -> usize {
    let unit = (len.next_power_of_two() / 16).max(1);
    HEADER_WORDS + len.next_multiple_of(unit)
}

/// The words of the records whose home is `line`.
fn span(ends: &[u32], line: usize) -> Range<usize> {
    let before = line
        .checked_sub(1)
        .map_or(0, |before| ends[before] as usize);
    let start = line * LINE + before.saturating_sub(LINE);
    start..line * LINE + ends[line] as usize
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::volume::address::VolumeId;
    use crate::volume::shape::{BlockId, Shape};

    const SEED: HashSeed = HashSeed(1);

    /// An index, and a map of sets with the same blocks.
    struct Modelled {
        shape: Shape,
        regions: Regions,
        model: BTreeMap<u64, BTreeSet<u32>>,
    }

    impl Modelled {
        fn new() -> Self {
            Modelled {
                shape: Shape::new("4KiB..1MiB".parse().unwrap()),
                regions: Regions::new(SEED),
                model: BTreeMap::new(),
            }
        }

        fn entry(&self, number: u64, first: u32) -> Entry {
            let block = BlockId::new(number as u32 * 256 + first, 0);
            Entry::new(self.shape, first, block)
        }

        fn insert(&mut self, number: u64, first: u32) {
            let (key, entry) = (key(number), self.entry(number, first));
            self.regions.insert(key, hash_of(SEED, key), entry);
            self.model.entry(number).or_default().insert(first);
        }

        fn remove(&mut self, number: u64, first: u32) {
            let (key, entry) = (key(number), self.entry(number, first));
            let hash = RegionHash::of(hash_of(SEED, key));
            self.regions.remove(hash, entry);
            let set = self.model.get_mut(&number).unwrap();
            set.remove(&first);
            if set.is_empty() {
                self.model.remove(&number);
            }
        }

        /// Changes whether the index has a block.
        fn toggle(&mut self, number: u64, first: u32) {
            let set = self.model.get(&number);
            if set.is_some_and(|set| set.contains(&first)) {
                self.remove(number, first);
            } else {
                self.insert(number, first);
            }
        }

        /// Compares a region with the model, by its key and by each of its blocks.
        fn check_region(&self, number: u64) {
            let (key, shape) = (key(number), self.shape);
            let hash = hash_of(SEED, key);
            let Some(region) = self.regions.find(key, hash) else {
                return assert!(!self.model.contains_key(&number), "{number} is missing");
            };
            assert_eq!(self.regions.key(region), key);
            let set = self.model.get(&number).into_iter().flatten();
            let entries = self.regions.entries(region).iter().map(|&e| Entry(e));
            assert!(entries.clone().map(|e| e.first(shape)).eq(set.copied()));
            for entry in entries {
                let has_block = |e: Entry| e.block(shape) == entry.block(shape);
                let found = self.regions.find_entry(RegionHash::of(hash), has_block);
                assert_eq!(found, Some((region, entry)));
            }
        }

        /// Records lie in the order of hashes, each as near to its home as the one
        /// before it lets it.
        fn check_layout(&self) {
            let regions = &self.regions;
            let lines = regions.ends.len();
            let (mut end, mut before, mut used, mut len) = (0, RegionHash(0), 0, 0);
            for line in 0..lines {
                end = end.max(line * LINE);
                assert_eq!(span(&regions.ends, line).start, end);
                for (at, header) in regions.records(line) {
                    let hash = regions.home(header);
                    assert_eq!((at, hash.line(lines)), (end, line));
                    assert!(before <= hash);
                    let words = record_words(header.len());
                    (end, before) = (end + words, hash);
                    (used, len) = (used + words, len + 1);
                }
                assert_eq!(span(&regions.ends, line).end, end);
            }
            assert_eq!((regions.used, regions.len()), (used, len));
            assert_eq!(self.model.len(), len);
        }
    }

    fn key(number: u64) -> RegionKey {
        RegionKey::new(VolumeId(3), number)
    }

    /// Steps among few long regions, and among many short ones.
    fn steps() -> impl Strategy<Value = Vec<(u64, u32)>> {
        prop_oneof![
            prop::collection::vec((0_u64..12, 0_u32..256), 0..1200),
            prop::collection::vec((0_u64..150, 0_u32..8), 0..1200),
        ]
    }

    proptest! {
        /// Blocks come and go at random, and then go one by one.
        #[test]
        fn the_index_is_a_map_of_ordered_sets(steps in steps()) {
            let mut index = Modelled::new();
            for (number, first) in steps {
                index.toggle(number, first);
                index.check_region(number);
                index.check_layout();
            }
            (0..151).for_each(|number| index.check_region(number));
            while let Some((&number, set)) = index.model.iter().next() {
                let first = *set.first().unwrap();
                index.remove(number, first);
                index.check_layout();
                index.check_region(number);
            }
            prop_assert_eq!((index.regions.used, index.regions.ends.len()), (0, 1));
        }
    }

    /// Regions go from many blocks each to few, and other regions take their place.
    #[test]
    fn ram_follows_the_blocks_there_are() {
        let mut index = Modelled::new();
        for number in 0..1000 {
            (0..64).for_each(|first| index.insert(number, first));
        }
        let check = |index: &Modelled| {
            let sets = index.model.values();
            let needed: usize = sets.map(|set| HEADER_WORDS + set.len()).sum();
            let words = index.regions.memory_bytes() as usize / size_of::<u32>();
            assert!(words < needed + needed / 4 + LINE, "{words} for {needed}");
            index.check_layout();
            (0..2000).for_each(|number| index.check_region(number));
        };
        check(&index);
        for number in 0..1000 {
            (3..64).for_each(|first| index.remove(number, first));
            index.insert(1000 + number, 7);
        }
        check(&index);
        for number in 0..1000 {
            (64..124).for_each(|first| index.insert(number, first));
        }
        check(&index);
    }
}
