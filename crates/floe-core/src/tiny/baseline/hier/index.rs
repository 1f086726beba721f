//! The index of the log in front of the sets: one chain of entries per set.
//!
//! As in Kangaroo (SOSP '21, §4.2), an entry takes 48 bits (19 of page, 9 of
//! tag, 1 valid, 3 of hits, 16 of next), and a chain's head 16. Tables are
//! divided into shelves of at most 65,535 entries, so that 16 bits identify an
//! entry.
//!
//! Deviation: Kangaroo divides its log into partitions of 2^19 pages (2 GiB).
//! Zones of a gibibyte are too large for that, so entries of a longer log take
//! one more byte.

use crate::tiny::object::PageAddress;
use crate::tiny::statistics::room_bytes;

/// Nine bits of an object's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(u16);

const TAG_BITS: u32 = 9;
const PAGE_BITS: u32 = 19;
const HITS_MAX: u16 = 7;
const NONE: u16 = u16::MAX;
const VALID: u16 = 1 << 12;
const HITS_SHIFT: u32 = 13;
/// Log pages per shelf: about 16,000 entries at 246 bytes per object.
const SHELF_PAGES: u64 = 1024;
/// Most entries of a shelf: one number stands for none.
const ENTRIES_MAX: usize = NONE as usize;
/// Most pages of a log, with the additional byte.
pub(in crate::tiny::baseline) const LOG_PAGES_MAX: u64 = 1 << (PAGE_BITS + 8);

impl Tag {
    /// The lowest bits, which do not choose the set.
    pub(super) fn of(hash: crate::hash::KeyHash) -> Self {
        Tag(hash.0 as u16 & ((1 << TAG_BITS) - 1))
    }
}

/// An entry, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The entry's number in its shelf.
    pub(super) id: u16,
    pub(super) page: PageAddress,
    pub(super) tag: Tag,
    pub(super) hits: u8,
}

/// The index.
#[derive(Debug)]
pub(super) struct LogIndex {
    shelves: Vec<Shelf>,
    buckets_per_shelf: u32,
    first_page: u32,
    len: u64,
}

#[derive(Debug)]
struct Shelf {
    heads: Vec<u16>,
    entries: Vec<[u16; 3]>,
    /// Higher bits of pages, if the log is long.
    far: Option<Vec<u8>>,
    /// Head of the list of unused entries.
    free: u16,
}

impl LogIndex {
    /// An empty index of `buckets` chains for a log of `pages` pages from `first_page` on.
    pub(super) fn new(buckets: u32, first_page: PageAddress, pages: u64) -> Self {
        let shelves = pages.div_ceil(SHELF_PAGES).clamp(1, u64::from(buckets)) as u32;
        let buckets_per_shelf = buckets.div_ceil(shelves);
        let is_long = pages > 1 << PAGE_BITS;
        let shelf = || Shelf {
            heads: vec![NONE; buckets_per_shelf as usize],
            entries: Vec::new(),
            far: is_long.then(Vec::new),
            free: NONE,
        };
        LogIndex {
            shelves: std::iter::repeat_with(shelf)
                .take(buckets.div_ceil(buckets_per_shelf) as usize)
                .collect(),
            buckets_per_shelf,
            first_page: first_page.0,
            len: 0,
        }
    }

    fn shelf(&self, bucket: u32) -> (&Shelf, usize) {
        let shelf = &self.shelves[(bucket / self.buckets_per_shelf) as usize];
        (shelf, (bucket % self.buckets_per_shelf) as usize)
    }

    fn shelf_mut(&mut self, bucket: u32) -> (&mut Shelf, usize) {
        let shelf = &mut self.shelves[(bucket / self.buckets_per_shelf) as usize];
        (shelf, (bucket % self.buckets_per_shelf) as usize)
    }

    /// A bucket's entries, newest first.
    pub(super) fn chain(&self, bucket: u32) -> impl Iterator<Item = Entry> + '_ {
        let (shelf, at) = self.shelf(bucket);
        let first_page = self.first_page;
        let mut next = shelf.heads[at];
        std::iter::from_fn(move || {
            let entry = shelf.entry(next)?;
            next = shelf.entries[next as usize][2];
            Some(Entry {
                page: PageAddress(entry.page.0 + first_page),
                ..entry
            })
        })
    }

    /// True if the shelf of `bucket` is full.
    pub(super) fn is_full(&self, bucket: u32) -> bool {
        let (shelf, _) = self.shelf(bucket);
        shelf.free == NONE && shelf.entries.len() == ENTRIES_MAX
    }

    /// The buckets in the same shelf as `bucket`.
    pub(super) fn neighbours(&self, bucket: u32) -> std::ops::Range<u32> {
        let first = bucket - bucket % self.buckets_per_shelf;
        first..first + self.buckets_per_shelf
    }

    /// Adds an entry as the newest of a bucket, whose shelf must not be full.
    pub(super) fn push(&mut self, bucket: u32, tag: Tag, page: PageAddress) {
        let offset = page.0 - self.first_page;
        let (shelf, at) = self.shelf_mut(bucket);
        let entry = [0, tag.0 << 3 | VALID, shelf.heads[at]];
        let id = if shelf.free == NONE {
            debug_assert!(shelf.entries.len() < ENTRIES_MAX, "the shelf is full");
            shelf.entries.push(entry);
            if let Some(far) = &mut shelf.far {
                far.push(0);
            }
            (shelf.entries.len() - 1) as u16
        } else {
            let id = shelf.free;
            shelf.free = shelf.entries[id as usize][2];
            shelf.entries[id as usize] = entry;
            id
        };
        shelf.set_page(id, offset);
        shelf.heads[at] = id;
        self.len += 1;
    }

    /// Removes an entry from its bucket.
    pub(super) fn remove(&mut self, bucket: u32, id: u16) {
        let (shelf, at) = self.shelf_mut(bucket);
        let after = shelf.entries[id as usize][2];
        let mut next = shelf.heads[at];
        if next == id {
            shelf.heads[at] = after;
        } else {
            while next != NONE {
                let link = &mut shelf.entries[next as usize][2];
                next = *link;
                if next == id {
                    *link = after;
                    break;
                }
            }
        }
        debug_assert_eq!(next, id, "the entry is not in bucket {bucket}");
        shelf.entries[id as usize] = [0, 0, shelf.free];
        shelf.free = id;
        self.len -= 1;
    }

    /// Counts a hit of an entry.
    pub(super) fn hit(&mut self, bucket: u32, id: u16) {
        let (shelf, _) = self.shelf_mut(bucket);
        let word = &mut shelf.entries[id as usize][1];
        if *word >> HITS_SHIFT < HITS_MAX {
            *word += 1 << HITS_SHIFT;
        }
    }

    /// Updates the page of an entry.
    pub(super) fn relocate(&mut self, bucket: u32, tag: Tag, old: PageAddress, new: PageAddress) {
        let mut chain = self.chain(bucket);
        let moved = chain.find(|entry| entry.tag == tag && entry.page == old);
        drop(chain);
        if let Some(entry) = moved {
            let offset = new.0 - self.first_page;
            self.shelf_mut(bucket).0.set_page(entry.id, offset);
        }
    }

    /// Buckets with entries in `pages`. Scans all entries.
    pub(super) fn buckets_in(&self, pages: std::ops::Range<u32>) -> Vec<u32> {
        let buckets = self.shelves.len() as u32 * self.buckets_per_shelf;
        let inside = |bucket: &u32| {
            self.chain(*bucket)
                .any(|entry| pages.contains(&entry.page.0))
        };
        (0..buckets).filter(inside).collect()
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let of_shelf = |shelf: &Shelf| {
            room_bytes::<u16>(shelf.heads.capacity())
                + room_bytes::<[u16; 3]>(shelf.entries.capacity())
                + room_bytes::<u8>(shelf.far.as_ref().map_or(0, Vec::capacity))
        };
        let shelves = self.shelves.iter().map(of_shelf).sum::<u64>();
        room_bytes::<Shelf>(self.shelves.capacity()) + shelves
    }
}

impl Shelf {
    fn entry(&self, id: u16) -> Option<Entry> {
        if id == NONE {
            return None;
        }
        let [low, middle, _] = self.entries[id as usize];
        let far = self.far.as_ref().map_or(0, |far| far[id as usize]);
        Some(Entry {
            id,
            page: PageAddress(u32::from(low) | u32::from(middle & 7) << 16 | u32::from(far) << 19),
            tag: Tag(middle >> 3 & ((1 << TAG_BITS) - 1)),
            hits: (middle >> HITS_SHIFT) as u8,
        })
    }

    fn set_page(&mut self, id: u16, offset: u32) {
        let entry = &mut self.entries[id as usize];
        entry[0] = offset as u16;
        entry[1] = entry[1] & !7 | (offset >> 16 & 7) as u16;
        if let Some(far) = &mut self.far {
            far[id as usize] = (offset >> PAGE_BITS) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::hash::KeyHash;

    proptest! {
        #[test]
        fn chains_agree_with_lists(
            is_long: bool,
            operations in prop::collection::vec((0u8..6, 0u32..7, 0u64..512, 0u32..100_000), 1..400),
        ) {
            let pages = if is_long { 4 << PAGE_BITS } else { 1 << PAGE_BITS };
            let stretch = if is_long { 20 } else { 5 };
            let first = PageAddress(1000);
            let mut index = LogIndex::new(7, first, pages);
            let mut lists: BTreeMap<u32, Vec<(Tag, u32, u8)>> = BTreeMap::new();
            for (what, bucket, hash, page) in operations {
                let tag = Tag::of(KeyHash(hash));
                let page = 1000 + page * stretch;
                let list = lists.entry(bucket).or_default();
                let entries: Vec<Entry> = index.chain(bucket).collect();
                let chosen = (!list.is_empty()).then(|| hash as usize % list.len());
                match (what, chosen) {
                    (0, Some(at)) => {
                        index.remove(bucket, entries[at].id);
                        list.remove(at);
                    }
                    (1, Some(at)) => {
                        index.hit(bucket, entries[at].id);
                        list[at].2 = (list[at].2 + 1).min(7);
                    }
                    (2, Some(at)) => {
                        let (tag, old, _) = list[at];
                        index.relocate(bucket, tag, PageAddress(old), PageAddress(page));
                        let first = list.iter().position(|e| e.0 == tag && e.1 == old);
                        list[first.unwrap()].1 = page;
                    }
                    _ => {
                        index.push(bucket, tag, PageAddress(page));
                        list.insert(0, (tag, page, 0));
                    }
                }
                let list = &lists[&bucket];
                let chain: Vec<_> = index.chain(bucket).map(|e| (e.tag, e.page.0, e.hits)).collect();
                prop_assert_eq!(&chain, list);
                prop_assert_eq!(index.len(), lists.values().map(Vec::len).sum::<usize>() as u64);
            }
        }
    }
}
