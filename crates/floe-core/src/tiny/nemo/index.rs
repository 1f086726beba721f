//! The index on flash, and the part of it that is cached (§4.3).
//!
//! A search needs the filters of its sets in every index group. So what is
//! cached of a set are its pages of all index groups, together: a column.

use std::collections::VecDeque;

use super::extents::Extent;
use super::filters::{Mask, OpenGroup, Shape, probe_page};
use super::hashes::Rows;
use super::{IndexCache, NemoConfig};

/// An index group on flash.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) shape: Shape,
    /// Sequence of the set-group in its first column.
    pub(super) first: u64,
    pub(super) extent: Extent,
}

impl Group {
    /// One more than the last set-group's sequence.
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.shape.columns)
    }
}

/// The pages of one set, one for each index group on flash.
type Column = VecDeque<Box<[u8]>>;

/// All index groups.
#[derive(Debug)]
pub(super) struct Index {
    /// Those on flash, oldest first.
    groups: VecDeque<Group>,
    /// The one that is being filled.
    pub(super) open: OpenGroup,
    /// Sequence of the set-group in its first column.
    pub(super) open_first: u64,
    /// By set.
    columns: Vec<Option<Column>>,
    /// Sets that are cached, in the order in which they came.
    cached: VecDeque<u32>,
    /// Most sets that may be.
    cached_max: usize,
    policy: IndexCache,
    /// Of the sets that are read, one in so many is cached.
    cache_one_in: u32,
    /// Sets read since one was cached.
    passed_by: u32,
    /// With a second chance: a bit for each set that was asked since it came
    /// to the end of the queue.
    asked: Vec<u64>,
}

impl Index {
    pub(super) fn new(shape: Shape, sets: u32, config: &NemoConfig) -> Self {
        let tracked = match config.index_cache {
            IndexCache::Fifo => 0,
            IndexCache::Clock => sets.div_ceil(u64::BITS) as usize,
        };
        Index {
            groups: VecDeque::new(),
            open: OpenGroup::new(shape, sets),
            open_first: 0,
            columns: vec![None; sets as usize],
            cached: VecDeque::new(),
            cached_max: (config.index_cached * f64::from(sets)) as usize,
            policy: config.index_cache,
            cache_one_in: config.index_cache_one_in,
            passed_by: 0,
            asked: vec![0; tracked],
        }
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }

    /// Whether everything there is to know about a set is in memory.
    pub(super) fn knows(&self, set: u32) -> bool {
        self.groups.is_empty() || self.columns[set as usize].is_some()
    }

    /// Calls `found` with every index group's first sequence and mask that is
    /// in memory for `set`.
    pub(super) fn probe(&self, set: u32, rows: &Rows, mut found: impl FnMut(u64, Mask)) {
        found(self.open_first, self.open.probe(set, rows));
        if let Some(column) = &self.columns[set as usize] {
            for (group, page) in self.groups.iter().zip(column) {
                found(group.first, probe_page(group.shape, page, rows));
            }
        }
    }

    /// The group on flash that begins with `first`.
    pub(super) fn group(&self, first: u64) -> Option<&Group> {
        self.groups.iter().find(|group| group.first == first)
    }

    /// Caches a set's pages, which are those of the groups that begin with
    /// `firsts`, unless the groups have changed since they were asked for.
    pub(super) fn cache<'a>(
        &mut self,
        set: u32,
        firsts: impl Iterator<Item = u64>,
        pages: impl Iterator<Item = &'a [u8]>,
    ) {
        let current = self.groups.iter().map(|group| group.first).eq(firsts);
        if !current || self.cached_max == 0 || self.columns[set as usize].is_some() {
            return;
        }
        self.passed_by += 1;
        if self.passed_by < self.cache_one_in {
            return;
        }
        self.passed_by = 0;
        // The memory of the column that goes is used for the one that comes.
        let mut column = Column::new();
        while self.cached.len() >= self.cached_max {
            if let Some(oldest) = self.next_to_leave() {
                column = self.columns[oldest as usize].take().unwrap_or(column);
            }
        }
        let mut count = 0;
        for page in pages {
            match column.get_mut(count).filter(|old| old.len() == page.len()) {
                Some(old) => old.copy_from_slice(page),
                None => {
                    column.truncate(count);
                    column.push_back(Box::from(page));
                }
            }
            count += 1;
        }
        column.truncate(count);
        self.columns[set as usize] = Some(column);
        self.cached.push_back(set);
    }

    /// Notes that a set is asked.
    pub(super) fn touch(&mut self, set: u32) {
        if let Some(word) = self.asked.get_mut((set / u64::BITS) as usize) {
            *word |= 1 << (set % u64::BITS);
        }
    }

    /// Takes the set that leaves the cache next out of the queue.
    fn next_to_leave(&mut self) -> Option<u32> {
        while let Some(oldest) = self.cached.pop_front() {
            let bit = 1 << (oldest % u64::BITS);
            let word = self.asked.get_mut((oldest / u64::BITS) as usize);
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

    /// The open group is on flash, in `extent`; the next one is laid out as `next`.
    pub(super) fn open_is_on_flash(&mut self, extent: Extent, next: Shape) {
        let sets = self.columns.len() as u32;
        let open = std::mem::replace(&mut self.open, OpenGroup::new(next, sets));
        if self.groups.is_empty() {
            // Until now nothing had to be cached: begin with what fits.
            for set in 0..self.cached_max.min(sets as usize) as u32 {
                self.columns[set as usize] = Some(Column::new());
                self.cached.push_back(set);
            }
        }
        for set in &self.cached {
            if let Some(column) = &mut self.columns[*set as usize] {
                column.push_back(open.page(*set));
            }
        }
        self.groups.push_back(Group {
            shape: open.shape,
            first: self.open_first,
            extent,
        });
        self.open_first += u64::from(open.shape.columns);
    }

    /// After a restart: index groups that are on flash, oldest first, and how
    /// the open one behind them is laid out.
    pub(super) fn recover(&mut self, groups: Vec<Group>, open: Shape, open_first: u64) {
        self.groups = groups.into();
        self.start_over(open, open_first);
    }

    /// Begins again with no index at all; the next set-group is number `first`.
    pub(super) fn start_over(&mut self, shape: Shape, first: u64) {
        let sets = self.columns.len() as u32;
        self.open = OpenGroup::new(shape, sets);
        self.open_first = first;
    }

    /// Forgets groups that only speak of set-groups before `oldest`; returns
    /// the extent of one.
    pub(super) fn forget_before(&mut self, oldest: u64) -> Option<Extent> {
        if self.groups.front()?.end() > oldest {
            return None;
        }
        let group = self.groups.pop_front()?;
        for set in &self.cached {
            if let Some(column) = &mut self.columns[*set as usize] {
                column.pop_front();
            }
        }
        if self.groups.is_empty() {
            for set in self.cached.drain(..) {
                self.columns[set as usize] = None;
            }
        }
        Some(group.extent)
    }

    /// Memory of filters that are cached, and of what manages them.
    pub(super) fn memory_bytes(&self) -> u64 {
        let pages: usize = self
            .cached
            .iter()
            .filter_map(|set| self.columns[*set as usize].as_ref())
            .flatten()
            .map(|page| page.len() + size_of::<Box<[u8]>>())
            .sum();
        let tables = self.columns.len() * size_of::<Option<Column>>()
            + self.cached.len() * size_of::<u32>()
            + self.asked.len() * size_of::<u64>();
        (pages + tables) as u64
    }
}
