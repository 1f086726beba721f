//! Blocks that enter and leave a shard, and the state of their sectors.

use super::{Cached, Part, Shard, bytes_at, sectors_at};
use crate::hash::KeyHash;
use crate::volume::address::{ByteRange, Extent, Piece};
use crate::volume::groups::{Room, Victim};
use crate::volume::mode::Sector;
use crate::volume::plan::Plan;
use crate::volume::regions::{RegionHash, hash_of};
use crate::volume::request::Restored;
use crate::volume::sectors::{SectorMap, Sectors, Settled, sectors_in};
use crate::volume::shape::{BlockId, CLASSES, Entry, RegionKey};
use crate::volume::steps::Steps;

/// Victims that may be rejected in one search.
const VICTIMS_MAX: usize = 16;

impl Shard {
    /// Gives bytes of the volume a block, for which it evicts others unless places
    /// have to be released first. `None` if there is no room.
    pub(super) fn promote(
        &mut self,
        first: u32,
        class: u32,
        part: Part<'_>,
        steps: &mut Steps<'_>,
    ) -> Option<Cached> {
        let partition = part.plan.partition_of(part.key.volume());
        let block = if part.plan.reserve_granules > 0 {
            self.demand[class as usize] = Some(partition);
            self.groups.free_slot(partition, class)?
        } else {
            loop {
                match self.groups.room(partition, class)? {
                    Room::Free(block) => break block,
                    Room::Replacing(victim) => self.evict_victim(victim, part.plan, steps),
                }
            }
        };
        let cached = self.enter(first, block, part.key, part.hash);
        steps.outcome.promoted += 1;
        steps.outcome.promoted_bytes += cached.bytes.len();
        steps.statistics.turnover.promoted[class as usize] += 1;
        steps.map(self.piece(cached, cached.bytes));
        Some(cached)
    }

    /// Puts `block`, the next free slot of its group, into the index.
    fn enter(&mut self, first: u32, block: BlockId, key: RegionKey, hash: KeyHash) -> Cached {
        let entry = Entry::new(self.shape, first, block);
        self.regions.insert(key, hash, entry);
        self.groups.occupy(block, RegionHash::of(hash));
        self.version += 1;
        self.cached(key, entry)
    }

    /// Evicts clean blocks until the reserve of each size that was in demand is there,
    /// or `blocks_max` blocks have left. `may_evict` says of each block whether it may,
    /// and `dirty` gets those that have to be cleaned first. Returns how many left.
    pub(in crate::volume) fn reclaim(
        &mut self,
        blocks_max: usize,
        plan: &Plan,
        may_evict: &mut impl FnMut(Extent) -> bool,
        dirty: &mut Vec<Piece>,
        steps: &mut Steps<'_>,
    ) -> usize {
        let mut evicted = 0;
        for class in 0..CLASSES as u32 {
            let Some(partition) = self.demand[class as usize] else {
                continue;
            };
            let reserve = (plan.reserve_granules >> class).max(1);
            while self.groups.spare_slots(partition, class) < reserve {
                if evicted >= blocks_max {
                    return evicted;
                }
                let Some(victim) = self.victim(partition, class, may_evict, dirty) else {
                    break;
                };
                let before = self.blocks();
                self.evict_victim(victim, plan, steps);
                evicted += (before - self.blocks()) as usize;
            }
            self.demand[class as usize] = None;
        }
        evicted
    }

    /// True if a size in demand lacks its reserve.
    pub(in crate::volume) fn is_short(&self, plan: &Plan) -> bool {
        let mut demand = self.demand.iter().zip(0..);
        demand.any(|(partition, class)| {
            let reserve = (plan.reserve_granules >> class).max(1);
            partition.is_some_and(|partition| self.groups.spare_slots(partition, class) < reserve)
        })
    }

    /// The next victim whose blocks all may be evicted.
    fn victim(
        &mut self,
        partition: usize,
        class: u32,
        may_evict: &mut impl FnMut(Extent) -> bool,
        dirty: &mut Vec<Piece>,
    ) -> Option<Victim> {
        let mut rejected = Vec::new();
        let mut blocks = std::mem::take(&mut self.victims);
        while rejected.len() < VICTIMS_MAX {
            let Some(victim) = self.groups.victim(partition, class, &rejected) else {
                break;
            };
            blocks.clear();
            match victim {
                Victim::Block(block) => blocks.push(block),
                Victim::Group(group) => self.groups.blocks_of(group, &mut blocks),
            }
            let mut is_accepted = !blocks.is_empty();
            for &block in &blocks {
                let Some((_, cached)) = self.locate(block) else {
                    continue;
                };
                let piece = self.piece(cached, cached.bytes);
                let is_free = may_evict(piece.extent);
                if is_free && self.groups.is_dirty(block) {
                    dirty.push(piece);
                }
                is_accepted &= is_free && !self.groups.is_dirty(block);
            }
            if is_accepted {
                blocks.clear();
                self.victims = blocks;
                return Some(victim);
            }
            rejected.push(victim);
        }
        blocks.clear();
        self.victims = blocks;
        None
    }

    fn evict_victim(&mut self, victim: Victim, plan: &Plan, steps: &mut Steps<'_>) {
        match victim {
            Victim::Block(block) => {
                steps.statistics.turnover.replaced += 1;
                self.evict(block, plan, steps);
            }
            Victim::Group(group) => self.evict_group(group, plan, steps),
        }
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

    /// Puts blocks of one group, in ascending order of their places, back into the
    /// cache. Groups come in ascending order. False if one has the address of
    /// another, or no place for one of its size.
    pub(in crate::volume) fn restore(
        &mut self,
        blocks: &[(u32, Restored<'_>)],
        plan: &Plan,
        steps: &mut Steps<'_>,
    ) -> bool {
        let Some((first, restored)) = blocks.first() else {
            return true;
        };
        let (group, volume) = (first >> self.shape.group_bits, restored.block.extent.volume);
        let granules = restored.block.extent.range.len() >> self.shape.granule_bits;
        let class = granules.max(1).ilog2();
        let slot_of = |granule: u32| (granule & ((1 << self.shape.group_bits) - 1)) >> class;
        let slots: Vec<u32> = blocks
            .iter()
            .map(|(granule, _)| slot_of(*granule))
            .collect();
        let partition = plan.partition_of(volume);
        self.groups.restore(group, partition, class, &slots);
        let mut is_sound = true;
        for (granule, restored) in blocks {
            let Extent { volume, range } = restored.block.extent;
            let key = self.shape.region_of(volume, range.start);
            let hash = hash_of(plan.seed, key);
            let block = BlockId::new(*granule, class);
            let mut is_taken = false;
            self.lookup(key, hash, range, |_| is_taken = true);
            if is_taken {
                is_sound = false;
                continue;
            }
            let cached = self.enter(self.shape.granules_of(range).0, block, key, hash);
            steps.policies.note_mapped(self.piece(cached, cached.bytes));
            self.restore_sectors(cached, restored.valid, plan, steps);
        }
        is_sound
    }

    /// Restores the state of a block's sectors from the runs that are valid.
    fn restore_sectors(
        &mut self,
        cached: Cached,
        valid: &[(ByteRange, bool)],
        plan: &Plan,
        steps: &mut Steps<'_>,
    ) {
        let bytes = self.within(plan, cached.volume, cached.bytes);
        match valid {
            [(range, is_dirty)] if range.contains(bytes) => {
                if *is_dirty {
                    self.count_dirty(cached, 0, cached.bytes.len(), steps);
                }
            }
            runs => {
                self.begin_map(cached, ByteRange::at(cached.bytes.start, 0), false, steps);
                for (range, is_dirty) in runs {
                    let range = range.intersection(cached.bytes);
                    self.write_map(cached, range, *is_dirty, steps);
                }
            }
        }
        if self.groups.is_dirty(cached.block) {
            steps.policies.note_dirty(self.piece(cached, cached.bytes));
        }
    }

    /// Frees the place of the block at `granule`, which has left.
    pub(in crate::volume) fn release(&mut self, granule: u32) {
        if let Some(block) = self.groups.block_at(granule) {
            self.groups.release(block, &self.regions);
        }
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
        if self.defers_reuse {
            self.groups.retire(cached.block);
        } else {
            self.groups.vacate(cached.block, &self.regions);
        }
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
            steps.mark(self.piece(cached, range), Sector::Missing);
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
        let state = Sector::valid(is_dirty);
        if let Some(map) = self.maps.get(cached.block) {
            if !map.is_all(sectors_at(cached, range), is_dirty) {
                self.write_map(cached, range, is_dirty, steps);
                steps.mark(self.piece(cached, range), state);
            }
        } else if is_whole || (is_dirty && !part.plan.keeps_maps()) {
            let before = self.dirty_bytes_of(cached.block);
            let after = if is_dirty { cached.bytes.len() } else { 0 };
            self.count_dirty(cached, before, after, steps);
            if was_dirty != is_dirty {
                let bytes = self.within(part.plan, cached.volume, cached.bytes);
                steps.mark(self.piece(cached, bytes), state);
            }
        } else if was_dirty != is_dirty && part.plan.keeps_maps() {
            self.need_map(cached);
            self.write_map(cached, range, is_dirty, steps);
            steps.mark(self.piece(cached, range), state);
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
        self.write_map(cached, range, is_dirty, steps);
        let state = Sector::valid(is_dirty);
        steps.mark(self.piece(cached, range), state);
        if is_dirty {
            steps.policies.note_dirty(self.piece(cached, cached.bytes));
        }
    }

    fn write_map(
        &mut self,
        cached: Cached,
        range: ByteRange,
        is_dirty: bool,
        steps: &mut Steps<'_>,
    ) {
        self.change_map(cached, range, steps, |map, sectors| {
            map.write(sectors, is_dirty)
        });
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
        steps.outcome.has_cleared_dirty |= after < before;
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
