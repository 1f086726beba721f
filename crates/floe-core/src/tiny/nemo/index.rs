//! The index on flash, and its cache (§4.3).
//!
//! A search needs the filters of its sets in every index group. So the cache
//! holds, for each cached set, its page of every index group. A cached set has
//! one slot, its position among the cached pages of each group.

use std::collections::VecDeque;

use super::extents::Extent;
use super::filters::{Probe, Shape, probe_page};
use super::hashes::{Homes, Rows};
use super::matches::{MatchCollector, MatchMask};
use super::open::OpenGroup;
use super::{IndexCache, NemoConfig};
use crate::tiny::engine::Discarded;
use crate::tiny::object::PAGE_BYTES;
use crate::tiny::statistics::room_bytes;

/// An index group on flash.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) shape: Shape,
    /// Sequence of the set-group in its first column.
    pub(super) first: u64,
    pub(super) extent: Extent,
    /// Expected false positives of a search of all its set-groups.
    pub(super) wrong: f64,
}

impl Group {
    /// One more than the last set-group's sequence.
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.shape.columns)
    }
}

/// The cached pages of an index group, by slot.
#[derive(Debug)]
struct Pages {
    chunks: Vec<Option<Box<[u8]>>>,
    slots: usize,
}

/// Pages that are allocated at once; fewer at the end.
const CHUNK_PAGES: usize = 8;

impl Pages {
    fn new(slots: usize) -> Self {
        Pages {
            chunks: vec![None; slots.div_ceil(CHUNK_PAGES)],
            slots,
        }
    }

    /// The page of a slot; an empty one if it was not written.
    fn page(&self, slot: u32) -> &[u8] {
        let (chunk, at) = Self::place(slot);
        let chunk = self.chunks[chunk].as_deref();
        chunk.map_or(&[0; PAGE_BYTES], |chunk| &chunk[at..at + PAGE_BYTES])
    }

    fn page_mut(&mut self, slot: u32) -> &mut [u8] {
        let (chunk, at) = Self::place(slot);
        let pages = CHUNK_PAGES.min(self.slots - chunk * CHUNK_PAGES);
        let chunk = self.chunks[chunk].get_or_insert_with(|| vec![0; pages * PAGE_BYTES].into());
        &mut chunk[at..at + PAGE_BYTES]
    }

    fn place(slot: u32) -> (usize, usize) {
        let slot = slot as usize;
        (slot / CHUNK_PAGES, slot % CHUNK_PAGES * PAGE_BYTES)
    }

    fn memory_bytes(&self) -> u64 {
        let chunks = self.chunks.iter().flatten().map(|chunk| chunk.len() as u64);
        room_bytes::<Option<Box<[u8]>>>(self.chunks.capacity()) + chunks.sum::<u64>()
    }
}

/// The cached pages of a group that is being written.
#[derive(Debug)]
struct Coming {
    pages: Pages,
    /// The pages of the cached sets before this one are there.
    end: u32,
}

/// The slot of a set that is not cached.
const NO_SLOT: u32 = u32::MAX;

/// All index groups.
#[derive(Debug)]
pub(super) struct Index {
    /// Groups on flash, oldest first, with their cached pages.
    groups: VecDeque<(Group, Pages)>,
    /// The group that is being filled.
    pub(super) open: OpenGroup,
    /// Sequence of the set-group in its first column.
    pub(super) open_first: u64,
    /// Expected false positives of a search of the open group.
    pub(super) open_wrong: f64,
    /// The pages of the open group, while it is written.
    coming: Option<Coming>,
    /// The slot of each set, or [`NO_SLOT`].
    slots: Vec<u32>,
    /// Cached sets, in order of arrival. Their slots are the numbers below its
    /// length.
    cached: VecDeque<u32>,
    /// Most sets that may be cached.
    cached_max: usize,
    policy: IndexCache,
    /// One in this many sets that are read from flash is cached.
    cache_one_in: u32,
    /// Sets read since one was cached.
    skipped: u32,
    /// For [`IndexCache::Clock`]: a bit per set that was probed since it was
    /// cached or last spared.
    probed: Vec<u64>,
}

impl Index {
    pub(super) fn new(shape: Shape, sets: u32, config: &NemoConfig) -> Self {
        let tracked = match config.index_cache_eviction {
            IndexCache::Fifo => 0,
            IndexCache::Clock => sets.div_ceil(u64::BITS) as usize,
        };
        Index {
            groups: VecDeque::new(),
            open: OpenGroup::new(shape, sets),
            open_first: 0,
            open_wrong: 0.0,
            coming: None,
            slots: vec![NO_SLOT; sets as usize],
            cached: VecDeque::new(),
            cached_max: (config.index_cache_share * f64::from(sets)) as usize,
            policy: config.index_cache_eviction,
            cache_one_in: config.index_cache_admit_one_in,
            skipped: 0,
            probed: vec![0; tracked],
        }
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().map(|(group, _)| group)
    }

    /// True if all filters of a set are in memory.
    pub(super) fn knows(&self, set: u32) -> bool {
        self.groups.is_empty() || self.slots[set as usize] != NO_SLOT
    }

    /// Probes all filters in memory of a key's sets, newest set-groups first,
    /// and passes each mask of matches to `collect`.
    pub(super) fn probe(&self, homes: Homes, rows: &Rows, collect: impl FnMut(MatchMask)) {
        let mut matches = MatchCollector::new(collect);
        let mut probe = Probe::new(rows, self.open.shape);
        for home in homes.iter() {
            matches.of(self.open_first, home);
            self.open.probe(home, &probe, &mut matches);
        }
        for (group, pages) in self.groups.iter().rev() {
            if group.shape != probe.shape {
                probe = Probe::new(rows, group.shape);
            }
            for home in homes.iter() {
                let slot = self.slots[home as usize];
                if slot != NO_SLOT {
                    matches.of(group.first, home);
                    probe_page(&probe, pages.page(slot), &mut matches);
                }
            }
        }
        matches.finish();
    }

    /// The group on flash that begins with the set-group `first`.
    pub(super) fn group(&self, first: u64) -> Option<&Group> {
        self.groups().find(|group| group.first == first)
    }

    /// Caches a set's pages of the groups that begin with `firsts`, unless the
    /// groups have changed since the search began.
    pub(super) fn cache<'a>(
        &mut self,
        set: u32,
        firsts: impl Iterator<Item = u64>,
        pages: impl Iterator<Item = &'a [u8]>,
    ) {
        let current = self.groups().map(|group| group.first).eq(firsts);
        if !current || self.cached_max == 0 || self.slots[set as usize] != NO_SLOT {
            return;
        }
        // Every set is admitted until the cache is full.
        if self.cached.len() >= self.cached_max {
            self.skipped += 1;
            if self.skipped < self.cache_one_in {
                return;
            }
            self.skipped = 0;
        }
        let slot = self.free_slot();
        for ((_, cached), page) in self.groups.iter_mut().zip(pages) {
            cached.page_mut(slot).copy_from_slice(page);
        }
        if let Some(coming) = &mut self.coming
            && set < coming.end
        {
            coming
                .pages
                .page_mut(slot)
                .copy_from_slice(&self.open.page(set));
        }
        self.slots[set as usize] = slot;
        self.cached.push_back(set);
    }

    /// An unused slot, if necessary after evicting a set.
    fn free_slot(&mut self) -> u32 {
        if self.cached.len() >= self.cached_max
            && let Some(oldest) = self.next_victim()
        {
            return std::mem::replace(&mut self.slots[oldest as usize], NO_SLOT);
        }
        self.cached.len() as u32
    }

    /// Records that a set was probed.
    pub(super) fn touch(&mut self, set: u32) {
        if let Some(word) = self.probed.get_mut((set / u64::BITS) as usize) {
            *word |= 1 << (set % u64::BITS);
        }
    }

    /// Removes the next set to evict from the queue.
    fn next_victim(&mut self) -> Option<u32> {
        while let Some(oldest) = self.cached.pop_front() {
            let bit = 1 << (oldest % u64::BITS);
            let word = self.probed.get_mut((oldest / u64::BITS) as usize);
            match (self.policy, word) {
                (IndexCache::Clock, Some(word)) if *word & bit != 0 => {
                    *word &= !bit;
                    self.cached.push_back(oldest);
                }
                _ => return Some(oldest),
            }
        }
        None
    }

    /// The page of a set of the open group, which is full, and the number of objects of which
    /// fingerprints were built. The page is kept if the set is cached.
    pub(super) fn page(&mut self, set: u32) -> (Box<[u8]>, usize) {
        let coming = self.coming.get_or_insert_with(|| Coming {
            pages: Pages::new(self.cached_max),
            end: 0,
        });
        let made = self.open.make(set + 1);
        let page = self.open.page(set);
        if set != coming.end {
            return (page, made);
        }
        coming.end += 1;
        let slot = &mut self.slots[set as usize];
        // The cache is unused while there is no group on flash. It is filled with the first sets.
        if self.groups.is_empty() && self.cached.len() < self.cached_max && *slot == NO_SLOT {
            *slot = self.cached.len() as u32;
            self.cached.push_back(set);
        }
        if *slot != NO_SLOT {
            coming.pages.page_mut(*slot).copy_from_slice(&page);
        }
        (page, made)
    }

    /// Moves the open group to the groups on flash, in `extent`. The next open
    /// group has the shape `next`. Returns the memory that is no longer needed.
    pub(super) fn open_is_on_flash(&mut self, extent: Extent, next: Shape) -> Discarded {
        let sets = self.slots.len() as u32;
        // All were made for the write already.
        while self.coming.as_ref().is_none_or(|coming| coming.end < sets) {
            let next = self.coming.as_ref().map_or(0, |coming| coming.end);
            self.page(next);
        }
        let open = std::mem::replace(&mut self.open, OpenGroup::new(next, sets));
        let group = Group {
            shape: open.shape.of_pages(),
            first: self.open_first,
            extent,
            wrong: std::mem::take(&mut self.open_wrong),
        };
        self.open_first = group.end();
        if let Some(coming) = self.coming.take() {
            self.groups.push_back((group, coming.pages));
        }
        Discarded::new(open)
    }

    /// Restores, after a restart, the index groups on flash, oldest first, and
    /// the shape of the open group.
    pub(super) fn recover(&mut self, groups: Vec<Group>, open: Shape, open_first: u64) {
        let groups = groups.into_iter();
        self.groups = groups
            .map(|group| (group, Pages::new(self.cached_max)))
            .collect();
        self.open = OpenGroup::new(open, self.slots.len() as u32);
        self.open_first = open_first;
    }

    /// Replaces the open group by an empty one that begins with the set-group
    /// `first`. Returns the memory that is no longer needed.
    pub(super) fn start_over(&mut self, shape: Shape, first: u64) -> Discarded {
        let sets = self.slots.len() as u32;
        let open = std::mem::replace(&mut self.open, OpenGroup::new(shape, sets));
        self.open_first = first;
        self.open_wrong = 0.0;
        Discarded::new((open, self.coming.take()))
    }

    /// Drops the oldest group if all of its set-groups are before `oldest`;
    /// returns its extent, and the memory that is no longer needed.
    pub(super) fn forget_before(&mut self, oldest: u64) -> Option<(Extent, Discarded)> {
        if self.groups().next()?.end() > oldest {
            return None;
        }
        let (group, pages) = self.groups.pop_front()?;
        Some((group.extent, Discarded::new(pages)))
    }

    /// Bytes of memory of the cached filters and the tables that manage them.
    pub(super) fn memory_bytes(&self) -> u64 {
        let coming = self.coming.iter().map(|coming| &coming.pages);
        let pages = self.groups.iter().map(|(_, pages)| pages).chain(coming);
        let pages: u64 = pages.map(Pages::memory_bytes).sum();
        let tables = (self.slots.len() + self.cached.capacity()) * size_of::<u32>()
            + self.probed.len() * size_of::<u64>();
        pages + tables as u64
    }
}
