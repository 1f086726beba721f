//! The index on flash, and its part in memory (§4.3).
//!
//! By default memory has the page filters of each index group, and a search reads
//! only the pages that they do not exclude. A group that was not complete when the
//! cache was last closed has none. Memory keeps all of its pages until it is
//! evicted.
//!
//! As published, there are no page filters, but a cache. It holds, for each cached
//! set, its page of every index group. A cached set has one slot, its position
//! among the cached pages of each group.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::extents::Extent;
use super::filters::{Probe, Shape, probe_page};
use super::hashes::{Homes, PageProbe, Rows};
use super::matches::{MatchCollector, MatchMask};
use super::open::OpenGroup;
use super::page_filter::{BLOCK_SETS, KeyLine, PageFilters};
use super::{IndexCache, NemoConfig};
use crate::tiny::engine::Discarded;
use crate::tiny::object::{PAGE_BYTES, PAGE_HEADER_BYTES};
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

/// The pages of a group's first sets, without their page filters.
#[derive(Debug)]
struct KeptPages {
    /// Bytes of a page that are kept.
    bytes: usize,
    /// Pages of [`BLOCK_SETS`] sets each; of fewer at the end.
    blocks: Vec<Box<[u8]>>,
    /// Number of pages.
    end: u32,
    /// Sets among these whose page was unreadable.
    missing: BTreeSet<u32>,
}

impl KeptPages {
    fn new(shape: Shape) -> Self {
        let bytes = match shape.layout() {
            Some(_) => PAGE_BYTES,
            None => PAGE_HEADER_BYTES + shape.row_bytes() * shape.rows as usize,
        };
        KeptPages {
            bytes,
            blocks: Vec::new(),
            end: 0,
            missing: BTreeSet::new(),
        }
    }

    fn page(&self, set: u32) -> Option<&[u8]> {
        if set >= self.end || self.missing.contains(&set) {
            return None;
        }
        let block = self.blocks.get((set / BLOCK_SETS) as usize)?;
        block
            .chunks_exact(self.bytes)
            .nth((set % BLOCK_SETS) as usize)
    }

    /// Takes the page of the next set, unless it was unreadable. A block that begins here gets room
    /// for `left` sets at most.
    fn push(&mut self, page: Option<&[u8]>, left: usize) {
        let (at, first) = ((self.end / BLOCK_SETS) as usize, self.end % BLOCK_SETS);
        if at == self.blocks.len() {
            let pages = left.min(BLOCK_SETS as usize);
            self.blocks.push(vec![0; pages * self.bytes].into());
        }
        let mut pages = self.blocks[at].chunks_exact_mut(self.bytes);
        match pages.nth(first as usize).zip(page) {
            Some((kept, page)) => kept.copy_from_slice(&page[..self.bytes]),
            None => {
                self.missing.insert(self.end);
            }
        }
        self.end += 1;
    }

    fn memory_bytes(&self) -> u64 {
        let blocks = self.blocks.iter().map(|block| block.len() as u64);
        room_bytes::<Box<[u8]>>(self.blocks.capacity()) + blocks.sum::<u64>()
    }
}

/// The part of a group in memory that is not cached by set.
#[derive(Debug)]
enum Kept {
    /// Page filters, or those of no set if the group has none.
    PageFilters(PageFilters),
    Pages(KeptPages),
}

impl Kept {
    /// Nothing yet, of a group on flash.
    fn unloaded(shape: Shape, keeps_pages: bool) -> Self {
        match keeps_pages && !shape.page_filter.exists() {
            true => Kept::Pages(KeptPages::new(shape)),
            false => Kept::PageFilters(PageFilters::new(shape.page_filter)),
        }
    }

    /// The first set that is not loaded.
    fn end(&self) -> u32 {
        match self {
            Kept::PageFilters(filters) if !filters.shape.exists() => u32::MAX,
            Kept::PageFilters(filters) => filters.end(),
            Kept::Pages(pages) => pages.end,
        }
    }

    fn load_block(&mut self, pages: &[Option<&[u8]>]) {
        match self {
            Kept::PageFilters(filters) => filters.load_block(pages),
            Kept::Pages(kept) => {
                for (page, left) in pages.iter().zip((1..=pages.len()).rev()) {
                    kept.push(*page, left);
                }
            }
        }
    }

    fn memory_bytes(&self) -> u64 {
        match self {
            Kept::PageFilters(filters) => filters.memory_bytes(),
            Kept::Pages(pages) => pages.memory_bytes(),
        }
    }
}

/// A group on flash, and its part in memory.
#[derive(Debug)]
struct Indexed {
    group: Group,
    kept: Kept,
    /// Pages of cached sets.
    cached: Pages,
}

/// The pages in memory of a group that is being written.
#[derive(Debug)]
struct Coming {
    cached: Pages,
    /// If the group has no page filters.
    kept: Option<KeptPages>,
    /// The pages of the sets before this one are there.
    end: u32,
}

/// Sets whose pages are loaded by one task.
const LOADED_AT_ONCE: u32 = 4 * BLOCK_SETS;

/// The slot of a set that is not cached.
const NO_SLOT: u32 = u32::MAX;

/// All index groups.
#[derive(Debug)]
pub(super) struct Index {
    /// Groups on flash, oldest first.
    groups: VecDeque<Indexed>,
    /// Groups have page filters, or else are kept in memory.
    has_page_filters: bool,
    /// While [`kept_bytes`](Self::kept_bytes) are fewer, a restart loads more.
    loaded_max: u64,
    /// Bytes of memory of what is kept of all groups.
    kept_bytes: u64,
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
    pub(super) fn new(shape: Shape, sets: u32, config: &NemoConfig, loaded_max: u64) -> Self {
        let tracked = match config.index_cache_eviction {
            IndexCache::Fifo => 0,
            IndexCache::Clock => sets.div_ceil(u64::BITS) as usize,
        };
        Index {
            groups: VecDeque::new(),
            has_page_filters: config.page_filter_bits > 0.0,
            loaded_max,
            kept_bytes: 0,
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
        self.groups.iter().map(|indexed| &indexed.group)
    }

    /// A page of a group, if it is in memory.
    fn page_of<'a>(&self, indexed: &'a Indexed, set: u32) -> Option<&'a [u8]> {
        let kept = match &indexed.kept {
            Kept::Pages(pages) => pages.page(set),
            Kept::PageFilters(_) => None,
        };
        let slot = self.slots[set as usize];
        kept.or_else(|| (slot != NO_SLOT).then(|| indexed.cached.page(slot)))
    }

    /// True if all filters of a set are in memory.
    pub(super) fn knows(&self, set: u32) -> bool {
        let mut groups = self.groups.iter();
        groups.all(|indexed| self.page_of(indexed, set).is_some())
    }

    /// True if pages are cached by set.
    pub(super) fn has_cache(&self) -> bool {
        self.cached_max > 0
    }

    /// True if an object of the set that was hit is hot: with a cache, only if the set's filters
    /// are cached (§4.4).
    pub(super) fn tracks_hits(&self, set: u32) -> bool {
        self.has_page_filters || self.knows(set)
    }

    /// For each of a key's sets, the groups whose page may have the key but is not in memory,
    /// oldest first, with the set.
    pub(super) fn unread(
        &self,
        homes: Homes,
        probe: PageProbe,
    ) -> impl Iterator<Item = (&Group, u32)> {
        let key = KeyLine::of(probe, self.open.shape.page_filter);
        let with_home = move |home| self.unread_of(home, key).map(move |group| (group, home));
        homes.iter().flat_map(with_home)
    }

    fn unread_of(&self, set: u32, key: KeyLine) -> impl Iterator<Item = &Group> {
        let unread = self.groups.iter().filter(move |indexed| {
            let may_hold = match &indexed.kept {
                Kept::PageFilters(filters) => filters.may_hold(set, &key),
                Kept::Pages(_) => true,
            };
            may_hold && self.page_of(indexed, set).is_none()
        });
        unread.map(|indexed| &indexed.group)
    }

    /// Probes all filters in memory of a key's sets, newest set-groups first,
    /// and passes each mask of matches to `collect`.
    pub(super) fn probe(&self, homes: Homes, rows: &Rows, collect: impl FnMut(MatchMask)) {
        let mut matches = MatchCollector::new(collect);
        let mut probe = Probe::new(rows, self.open.shape);
        let key = KeyLine::of(rows.page, self.open.shape.page_filter);
        for home in homes.iter() {
            if self.open.may_hold(home, &key) {
                matches.of(self.open_first, home);
                self.open.probe(home, &probe, &mut matches);
            }
        }
        for indexed in self.groups.iter().rev() {
            for home in homes.iter() {
                if let Some(page) = self.page_of(indexed, home) {
                    let group = &indexed.group;
                    if group.shape != probe.shape {
                        probe = Probe::new(rows, group.shape);
                    }
                    matches.of(group.first, home);
                    probe_page(&probe, page, &mut matches);
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
        if !current || !self.has_cache() || self.slots[set as usize] != NO_SLOT {
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
        for (indexed, page) in self.groups.iter_mut().zip(pages) {
            indexed.cached.page_mut(slot).copy_from_slice(page);
        }
        if let Some(coming) = &mut self.coming
            && set < coming.end
        {
            coming
                .cached
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
    /// fingerprints were built. The page is kept if memory is to have it.
    pub(super) fn page(&mut self, set: u32) -> (Arc<[u8]>, usize) {
        let kept = self.has_page_filters && !self.open.shape.page_filter.exists();
        let shape = self.open.shape.of_pages();
        let coming = self.coming.get_or_insert_with(|| Coming {
            cached: Pages::new(self.cached_max),
            kept: kept.then(|| KeptPages::new(shape)),
            end: 0,
        });
        let made = self.open.make(set + 1);
        let page = self.open.page(set);
        if set != coming.end {
            return (page, made);
        }
        coming.end += 1;
        if let Some(kept) = &mut coming.kept {
            kept.push(Some(&page), self.slots.len() - set as usize);
        }
        let slot = &mut self.slots[set as usize];
        // The cache is unused while there is no group on flash. It is filled with the first sets.
        if self.groups.is_empty() && self.cached.len() < self.cached_max && *slot == NO_SLOT {
            *slot = self.cached.len() as u32;
            self.cached.push_back(set);
        }
        if *slot != NO_SLOT {
            coming.cached.page_mut(*slot).copy_from_slice(&page);
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
        let mut open = std::mem::replace(&mut self.open, OpenGroup::new(next, sets));
        let group = Group {
            shape: open.shape.of_pages(),
            first: self.open_first,
            extent,
            wrong: std::mem::take(&mut self.open_wrong),
        };
        self.open_first = group.end();
        if let Some(coming) = self.coming.take() {
            let kept = match coming.kept {
                Some(pages) => Kept::Pages(pages),
                None => Kept::PageFilters(open.take_page_filters()),
            };
            self.kept_bytes += kept.memory_bytes();
            self.groups.push_back(Indexed {
                group,
                kept,
                cached: coming.cached,
            });
        }
        Discarded::new(open)
    }

    /// Restores, after a restart, the index groups on flash, oldest first, and
    /// the shape of the open group. At least `load_bytes` of memory may be loaded.
    pub(super) fn recover(
        &mut self,
        groups: Vec<Group>,
        open: Shape,
        open_first: u64,
        load_bytes: u64,
    ) {
        self.loaded_max = self.loaded_max.max(load_bytes);
        let groups = groups.into_iter();
        self.kept_bytes = 0;
        self.groups = groups
            .map(|group| Indexed {
                kept: Kept::unloaded(group.shape, self.has_page_filters),
                cached: Pages::new(self.cached_max),
                group,
            })
            .collect();
        self.open = OpenGroup::new(open, self.slots.len() as u32);
        self.open_first = open_first;
    }

    /// The newest group of which memory is to have more after a restart, and the sets to load next.
    pub(super) fn to_load(&self) -> Option<(&Group, Range<u32>)> {
        let sets = self.slots.len() as u32;
        let mut groups = self.groups.iter().rev();
        let Indexed { group, kept, .. } = groups.find(|indexed| indexed.kept.end() < sets)?;
        let has_room = self.kept_bytes < self.loaded_max;
        has_room.then(|| (group, kept.end()..sets.min(kept.end() + LOADED_AT_ONCE)))
    }

    pub(super) fn stop_loading(&mut self) {
        self.loaded_max = 0;
    }

    /// Takes the pages that [`to_load`](Self::to_load) named, unless the group is gone.
    pub(super) fn load(&mut self, first: u64, pages: &[Option<&[u8]>]) {
        let mut groups = self.groups.iter_mut();
        if let Some(indexed) = groups.find(|indexed| indexed.group.first == first) {
            let before = indexed.kept.memory_bytes();
            for pages in pages.chunks(BLOCK_SETS as usize) {
                indexed.kept.load_block(pages);
            }
            self.kept_bytes += indexed.kept.memory_bytes() - before;
        }
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
        let indexed = self.groups.pop_front()?;
        let extent = indexed.group.extent;
        self.kept_bytes -= indexed.kept.memory_bytes();
        Some((extent, Discarded::new(indexed)))
    }

    /// Bytes of memory of page filters, of cached and kept pages, and of the tables that manage
    /// them.
    pub(super) fn memory_bytes(&self) -> u64 {
        let of_group =
            |indexed: &Indexed| indexed.cached.memory_bytes() + indexed.kept.memory_bytes();
        let groups: u64 = self.groups.iter().map(of_group).sum();
        let coming = self.coming.as_ref().map_or(0, |coming| {
            let kept = coming.kept.as_ref().map_or(0, KeptPages::memory_bytes);
            coming.cached.memory_bytes() + kept
        });
        let tables = (self.slots.len() + self.cached.capacity()) * size_of::<u32>()
            + self.probed.len() * size_of::<u64>();
        groups + coming + tables as u64
    }
}
