//! Blocks that enter and leave a shard, and the state of their sectors.

use super::{Cached, Part, Shard, bytes_at, sectors_at};
use crate::volume::address::ByteRange;
use crate::volume::groups::Room;
use crate::volume::plan::Plan;
use crate::volume::regions::RegionHash;
use crate::volume::sectors::{SectorMap, Sectors, Settled, sectors_in};
use crate::volume::shape::{BlockId, Entry};
use crate::volume::steps::Steps;

impl Shard {
    /// Gives bytes of the volume a block, for which it evicts others. `None` if
    /// nothing may be evicted.
    pub(super) fn promote(
        &mut self,
        first: u32,
        class: u32,
        part: Part<'_>,
        steps: &mut Steps<'_>,
    ) -> Option<Cached> {
        let partition = part.plan.partition_of(part.key.volume());
        let block = loop {
            match self.groups.room(partition, class, |_| true)? {
                Room::Free(block) => break block,
                Room::Replacing(victim) => {
                    steps.statistics.turnover.replaced += 1;
                    self.evict(victim, part.plan, steps);
                }
                Room::ReplacingGroup(group) => self.evict_group(group, part.plan, steps),
            }
        };
        let entry = Entry::new(self.shape, first, block);
        self.regions.insert(part.key, part.hash, entry);
        self.groups.occupy(block, RegionHash::of(part.hash));
        self.version += 1;
        let cached = self.cached(part.key, entry);
        steps.outcome.promoted += 1;
        steps.outcome.promoted_bytes += cached.bytes.len();
        steps.statistics.turnover.promoted[class as usize] += 1;
        steps.map(self.piece(cached, cached.bytes));
        Some(cached)
    }

    fn evict_group(&mut self, group: u32, plan: &Plan, steps: &mut Steps<'_>) {
        let mut victims = std::mem::take(&mut self.victims);
        self.groups.blocks_of(group, &mut victims);
        steps.statistics.turnover.groups_evicted += 1;
        steps.statistics.turnover.evicted += victims.len() as u64;
        for victim in victims.drain(..) {
            self.evict(victim, plan, steps);
        }
        self.victims = victims;
    }

    /// Writes back the dirty bytes of `block`, and removes it.
    fn evict(&mut self, block: BlockId, plan: &Plan, steps: &mut Steps<'_>) {
        let Some((entry, cached)) = self.locate(block) else {
            debug_assert!(false, "a block in use is in the index");
            return;
        };
        if self.groups.is_dirty(block) {
            self.write_back(cached, plan, steps);
        }
        self.remove(entry, cached, steps);
    }

    pub(super) fn write_back(&mut self, cached: Cached, plan: &Plan, steps: &mut Steps<'_>) {
        let bytes = self.within(plan, cached.volume, cached.bytes);
        let sectors = sectors_in(cached.bytes.len());
        match self.maps.get(cached.block) {
            None => steps.write_back(self.piece(cached, bytes)),
            Some(map) => {
                for run in map.dirty_runs(sectors) {
                    let range = bytes_at(cached, run).intersection(bytes);
                    steps.write_back(self.piece(cached, range));
                }
            }
        }
    }

    fn remove(&mut self, entry: Entry, cached: Cached, steps: &mut Steps<'_>) {
        let Some(hash) = self.groups.region(cached.block) else {
            return;
        };
        let dirty = self.dirty_bytes_of(cached.block);
        self.count_dirty(cached, dirty, 0, steps);
        self.maps.remove(cached.block);
        self.regions.remove(hash, entry);
        self.groups.vacate(cached.block, &self.regions);
        self.version += 1;
        steps.unmap(self.piece(cached, cached.bytes));
    }

    /// Forgets `range` of a block. Returns `false` if the block still has it,
    /// because it also has other bytes and no map can tell them apart.
    pub(super) fn forget(
        &mut self,
        cached: Cached,
        range: ByteRange,
        plan: &Plan,
        steps: &mut Steps<'_>,
    ) -> bool {
        if range.contains(self.within(plan, cached.volume, cached.bytes)) {
            self.invalidate(cached, steps);
            return true;
        }
        if plan.keeps_maps() {
            self.need_map(cached);
            let range = range.intersection(cached.bytes);
            self.change_map(cached, range, steps, SectorMap::forget);
            self.settle(cached, steps);
        }
        plan.keeps_maps()
    }

    /// Removes a block without writing it back.
    pub(super) fn invalidate(&mut self, cached: Cached, steps: &mut Steps<'_>) {
        if let Some((entry, cached)) = self.locate(cached.block) {
            steps.statistics.turnover.invalidated += 1;
            self.remove(entry, cached, steps);
        }
    }

    /// Notes that `range` of a block has been written, and differs from the
    /// backing device if `is_dirty`.
    pub(super) fn mark_written(
        &mut self,
        cached: Cached,
        range: ByteRange,
        is_dirty: bool,
        part: Part<'_>,
        steps: &mut Steps<'_>,
    ) {
        let is_whole = range.contains(self.within(part.plan, cached.volume, cached.bytes));
        let was_dirty = self.groups.is_dirty(cached.block);
        if self.groups.is_partial(cached.block) {
            self.change_map(cached, range, steps, |map, sectors| {
                map.write(sectors, is_dirty)
            });
        } else if is_whole || (is_dirty && !part.plan.keeps_maps()) {
            let before = self.dirty_bytes_of(cached.block);
            let after = if is_dirty { cached.bytes.len() } else { 0 };
            self.count_dirty(cached, before, after, steps);
        } else if was_dirty != is_dirty && part.plan.keeps_maps() {
            self.need_map(cached);
            self.change_map(cached, range, steps, |map, sectors| {
                map.write(sectors, is_dirty)
            });
        }
        if is_dirty {
            steps.policies.note_dirty(self.piece(cached, cached.bytes));
        }
    }

    /// Gives a new block a map in which only `range` is valid.
    pub(super) fn begin_map(
        &mut self,
        cached: Cached,
        range: ByteRange,
        is_dirty: bool,
        steps: &mut Steps<'_>,
    ) {
        let sectors = sectors_in(cached.bytes.len());
        self.maps
            .insert(cached.block, sectors, SectorMap::empty(sectors));
        self.groups.set_partial(cached.block, true);
        self.change_map(cached, range, steps, |map, sectors| {
            map.write(sectors, is_dirty)
        });
        if is_dirty {
            steps.policies.note_dirty(self.piece(cached, cached.bytes));
        }
    }

    /// Makes sure that a block has a map.
    fn need_map(&mut self, cached: Cached) {
        if !self.groups.is_partial(cached.block) {
            let sectors = sectors_in(cached.bytes.len());
            let map = SectorMap::full(sectors, self.groups.is_dirty(cached.block));
            self.maps.insert(cached.block, sectors, map);
            self.groups.set_partial(cached.block, true);
        }
    }

    pub(super) fn change_map(
        &mut self,
        cached: Cached,
        range: ByteRange,
        steps: &mut Steps<'_>,
        change: impl FnOnce(&mut SectorMap, Sectors),
    ) {
        if let Some(map) = self.maps.get_mut(cached.block) {
            let before = map.dirty_bytes();
            change(map, sectors_at(cached, range));
            let after = map.dirty_bytes();
            self.count_dirty(cached, before, after, steps);
        }
    }

    /// Drops the map of a block that needs none any more, and a block that has
    /// no valid sector.
    pub(super) fn settle(&mut self, cached: Cached, steps: &mut Steps<'_>) {
        let sectors = sectors_in(cached.bytes.len());
        let settled = match self.maps.get(cached.block) {
            Some(map) => map.settled(sectors),
            None => return,
        };
        match settled {
            Settled::No => {}
            Settled::Empty => {
                self.invalidate(cached, steps);
            }
            Settled::Clean | Settled::Dirty => {
                self.maps.remove(cached.block);
                self.groups.set_partial(cached.block, false);
            }
        }
    }

    pub(super) fn dirty_bytes_of(&self, block: BlockId) -> u64 {
        match self.maps.get(block) {
            Some(map) => map.dirty_bytes(),
            None if self.groups.is_dirty(block) => self.shape.granule_bytes() << block.class(),
            None => 0,
        }
    }

    /// Of a block `before` bytes were dirty, and now `after` bytes are.
    pub(super) fn count_dirty(
        &mut self,
        cached: Cached,
        before: u64,
        after: u64,
        steps: &mut Steps<'_>,
    ) {
        self.dirty_bytes = self.dirty_bytes + after - before;
        self.dirty_blocks = self.dirty_blocks + u64::from(after > 0) - u64::from(before > 0);
        self.groups.set_dirty(cached.block, after > 0);
        if before > 0 && after == 0 {
            steps.policies.note_clean(self.piece(cached, cached.bytes));
        }
    }

    /// The entry of `block` in the index.
    fn locate(&self, block: BlockId) -> Option<(Entry, Cached)> {
        let hash = self.groups.region(block)?;
        let is_it = |entry: Entry| entry.block(self.shape) == block;
        let (region, entry) = self.regions.find_entry(hash, is_it)?;
        Some((entry, self.cached(self.regions.key(region), entry)))
    }

    pub(super) fn at(&self, granule: u32) -> Option<(Entry, Cached)> {
        self.locate(self.groups.block_at(granule)?)
    }
}
