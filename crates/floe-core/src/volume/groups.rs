//! Groups: slabs of equal blocks, the state of each block, and the room that is
//! free.
//!
//! A block's record is 4 bytes, plus 8 where an order links blocks and 1 where
//! it marks them. A group's is 8 bytes, with the same additions. Records of a
//! group's blocks are a run whose length is their number, so that RAM falls as
//! blocks grow. Of each length one run may be free; when a second one is, the
//! last run moves into it.

use super::members::{
    Block, DIRTY, Group, LinkedBlocks, LinkedGroups, Members, NO_SLOT, PARTIAL, Ring, record_in,
};
use super::order::{Levels, Order};
use super::pages::Pages;
use super::plan::PartitionPlan;
use super::regions::{RegionHash, Regions};
use super::shape::{BlockId, CLASSES, Shape};
use super::slabs::Slabs;

/// No group, no run.
const NONE: u32 = u32::MAX;

/// The groups of a shard, and their blocks.
#[derive(Debug)]
pub(super) struct Groups {
    shape: Shape,
    groups: Members<Group>,
    blocks: Members<Block>,
    /// Runs of block records. Those of class `i` have `1 << i` records.
    runs: Slabs<CLASSES>,
    /// The free run of each class, or [`NONE`].
    free_runs: [u32; CLASSES],
    /// Head of the list of free groups that were in use before, and their number.
    free: u32,
    free_count: u32,
    /// Groups in use, all of whose blocks are retired.
    retired_groups: Vec<u32>,
    /// The first group that has not been in use.
    fresh: u32,
    /// Groups there are, and granules: the last group may have fewer than others.
    count: u32,
    granules: u32,
    /// By partition.
    partitions: Vec<Partition>,
    /// The owner of each group, if there is more than one partition.
    owners: Option<Pages<Owner>>,
    uses: u64,
    in_use: BlockCounts,
}

/// Blocks in use, by class.
pub(super) type BlockCounts = [u64; CLASSES];

/// Volumes that share their room without limits, or one volume with limits.
#[derive(Debug)]
struct Partition {
    /// Groups that may have a free slot, by class. Used from the end; those
    /// that have none any more are dropped when they are met there.
    open: [Vec<u32>; CLASSES],
    /// Free and retired slots of groups in use that are not wholly retired, by class.
    free_slots: [u32; CLASSES],
    blocks: Option<Order>,
    groups: Option<Order>,
    /// Groups in use, and their bounds.
    held: u32,
    bounds: PartitionPlan,
    /// Its groups in use, if there is more than one partition.
    members: Vec<u32>,
}

/// The partition of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Owner {
    partition: u16,
    /// The group's place among the partition's members.
    place: u32,
    /// The time of its last use in uses of the shard.
    used_at: u32,
}

/// The room for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// A free slot.
    Free(BlockId),
    /// None until this victim is evicted.
    Replacing(Victim),
}

/// The next to be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    /// A block, whose slot has the wanted size.
    Block(BlockId),
    /// All blocks of a group.
    Group(u32),
}

impl Groups {
    /// Groups over `granules` granules, which `partitions` share.
    pub(super) fn new(
        shape: Shape,
        granules: u32,
        levels: Levels,
        partitions: &[PartitionPlan],
    ) -> Self {
        Groups {
            shape,
            groups: Members::new(Group::default(), levels.group),
            blocks: Members::new(Block::default(), levels.block),
            runs: Slabs::new(std::array::from_fn(|class| 1 << class)),
            free_runs: [NONE; CLASSES],
            free: NONE,
            free_count: 0,
            retired_groups: Vec::new(),
            fresh: 0,
            count: granules.div_ceil(1 << shape.group_bits),
            granules,
            partitions: partitions
                .iter()
                .map(|plan| Partition::new(levels, *plan))
                .collect(),
            owners: (partitions.len() > 1).then(|| Pages::new(Owner::default())),
            uses: 0,
            in_use: [0; CLASSES],
        }
    }

    /// Adds granules, up to `granules`.
    pub(super) fn grow_to(&mut self, granules: u32) {
        // The last group may have been cut short; it gets its other slots.
        let last = self.count.saturating_sub(1);
        let cut = self.fresh == self.count && self.count > 0;
        let state = if cut {
            self.groups.records[last]
        } else {
            Group::default()
        };
        let slots_before = self.slots(last, state.class());
        self.granules = granules.max(self.granules);
        self.count = self.granules.div_ceil(1 << self.shape.group_bits);
        let slots = self.slots(last, state.class());
        if !state.is_in_use() || state.is_retired() || slots == slots_before {
            return;
        }
        let mut free_slot = state.free_slot();
        for slot in (slots_before..slots).rev() {
            self.blocks.records[state.first + slot] = Block::free(free_slot);
            free_slot = slot;
        }
        let class = state.class();
        self.groups.records[last] = Group::of(state.first, state.used(), free_slot, class);
        let owner = self.owner(last);
        let owner = &mut self.partitions[owner];
        owner.open[class as usize].push(last);
        owner.free_slots[class as usize] += slots - slots_before;
    }

    /// Room for a block of `class`; `None` if nothing can be evicted.
    pub(super) fn room(&mut self, partition: usize, class: u32) -> Option<Room> {
        match self.free_slot(partition, class) {
            Some(slot) => Some(Room::Free(slot)),
            None => self.victim(partition, class, &[]).map(Room::Replacing),
        }
    }

    /// A free slot of an open group, or of a free group.
    pub(super) fn free_slot(&mut self, partition: usize, class: u32) -> Option<BlockId> {
        if let Some(slot) = self.open_slot(partition, class) {
            return Some(slot);
        }
        if self.partitions[partition].held >= self.partitions[partition].bounds.most {
            return None;
        }
        let group = self.take_group()?;
        self.open(group, partition, class);
        self.open_slot(partition, class)
    }

    /// The victim that makes room for a block of `class`, and is none of `rejected`.
    pub(super) fn victim(
        &mut self,
        partition: usize,
        class: u32,
        rejected: &[Victim],
    ) -> Option<Victim> {
        let from = self.yielding(partition)?;
        let accepts = |block| !rejected.contains(&Victim::Block(block));
        let block = self.victim_block(from, accepts);
        if let Some(block) = block
            && block.class() == class
            && from == partition
        {
            return Some(Victim::Block(block));
        }
        let accepts = |group| !rejected.contains(&Victim::Group(group));
        let of_block = block.map(|block| self.shape.group_of(block));
        let group = self.victim_group(from, accepts);
        group
            .or_else(|| of_block.filter(|group| accepts(*group)))
            .map(Victim::Group)
    }

    /// Slots of `class` that are free, or become so without another eviction.
    pub(super) fn spare_slots(&self, partition: usize, class: u32) -> u32 {
        let owner = &self.partitions[partition];
        let fresh = self.count - self.fresh + self.free_count + self.retired_groups.len() as u32;
        let groups = fresh.min(owner.bounds.most.saturating_sub(owner.held));
        let per_group = 1 << (self.shape.group_bits - class);
        owner.free_slots[class as usize] + groups.saturating_mul(per_group)
    }

    /// Marks the free slot `block` in use, as one of `region`.
    pub(super) fn occupy(&mut self, block: BlockId, region: RegionHash) {
        let group = self.shape.group_of(block);
        let record = self.record(block);
        let Group { first, .. } = self.groups.records[group];
        let state = self.groups.records[group];
        let next = self.blocks.records[record].next();
        self.groups.records[group] = Group::of(first, state.used() + 1, next, state.class());
        self.blocks.records[record] = Block::used(region, 0);
        self.in_use[block.class() as usize] += 1;
        let partition = self.owner(group);
        self.partitions[partition].free_slots[block.class() as usize] -= 1;
        self.order_block(partition, |order, blocks| order.insert(blocks, block.0));
        self.touch_group(group);
    }

    /// Takes `group`, which is free and above all groups that have been in use, for
    /// blocks of `class` in `slots`, in ascending order. They belong to `partition`.
    pub(super) fn restore(&mut self, group: u32, partition: usize, class: u32, used: &[u32]) {
        while self.fresh <= group {
            let Some(fresh) = self.take_fresh() else {
                return;
            };
            if fresh == group {
                break;
            }
            self.groups.records[fresh].first = std::mem::replace(&mut self.free, fresh);
            self.free_count += 1;
        }
        self.open(group, partition, class);
        let state = self.groups.records[group];
        let slots = self.slots(group, class);
        let mut free_slot = NO_SLOT;
        for slot in (0..slots).rev().filter(|slot| !used.contains(slot)) {
            self.blocks.records[state.first + slot] = Block::free(free_slot);
            free_slot = slot;
        }
        // `occupy` takes the first free slot: the used ones stand before the others.
        for &slot in used.iter().rev() {
            self.blocks.records[state.first + slot] = Block::free(free_slot);
            free_slot = slot;
        }
        self.groups.records[group] = Group::of(state.first, 0, free_slot, class);
    }

    /// Frees the slot of `block`, which `regions` have no more, and its group if that
    /// was the last one.
    pub(super) fn vacate(&mut self, block: BlockId, regions: &Regions) {
        self.leave(block);
        self.release(block, regions);
    }

    /// Removes `block` from the orders. Its slot is not free before it is released.
    pub(super) fn retire(&mut self, block: BlockId) {
        self.leave(block);
        let group = self.shape.group_of(block);
        let record = self.record(block);
        self.blocks.records[record] = Block::RETIRED;
        let state = self.groups.records[group];
        let slots = 0..self.slots(group, state.class());
        let mut records = slots.map(|slot| self.blocks.records[state.first + slot]);
        if !records.any(|record| record.region().is_some()) {
            self.retire_group(group);
        }
    }

    /// Frees the slot of `block`, which was retired, and its group if that was the
    /// last one.
    pub(super) fn release(&mut self, block: BlockId, regions: &Regions) {
        let group = self.shape.group_of(block);
        let partition = self.owner(group);
        let state = self.groups.records[group];
        let record = self.record(block);
        self.blocks.records[record] = Block::free(state.free_slot());
        let slot = record - state.first;
        let class = state.class();
        let left = Group::of(state.first, state.used() - 1, slot, class);
        self.groups.records[group] = left.retired_if(state.is_retired());
        if state.used() == 1 {
            self.close(group, regions);
        } else if state.free_slot() == NO_SLOT && !state.is_retired() {
            let open = &mut self.partitions[partition].open[class as usize];
            if open.last() != Some(&group) {
                open.push(group);
            }
        }
    }

    /// Notes a use of `block`, and of its group.
    pub(super) fn touch(&mut self, block: BlockId) {
        let group = self.shape.group_of(block);
        let partition = self.owner(group);
        self.order_block(partition, |order, blocks| order.touch(blocks, block.0));
        self.touch_group(group);
    }

    /// The hash of the region of `block`, unless it is free.
    pub(super) fn region(&self, block: BlockId) -> Option<RegionHash> {
        self.blocks.records[self.record(block)].region()
    }

    pub(super) fn is_dirty(&self, block: BlockId) -> bool {
        self.blocks.records[self.record(block)].flags() & DIRTY != 0
    }

    pub(super) fn set_dirty(&mut self, block: BlockId, is_dirty: bool) {
        self.set_flag(block, DIRTY, is_dirty);
    }

    /// True if the block has a map of its sectors.
    pub(super) fn is_partial(&self, block: BlockId) -> bool {
        self.blocks.records[self.record(block)].flags() & PARTIAL != 0
    }

    pub(super) fn set_partial(&mut self, block: BlockId, is_partial: bool) {
        self.set_flag(block, PARTIAL, is_partial);
    }

    /// The group after the last one that has been in use.
    pub(super) fn end(&self) -> u32 {
        self.fresh
    }

    /// The blocks in use of `group`.
    pub(super) fn blocks_of(&self, group: u32, blocks: &mut Vec<BlockId>) {
        let state = self.groups.records[group];
        if !state.is_in_use() {
            return;
        }
        let class = state.class();
        let is_used = |slot: &u32| self.blocks.records[state.first + slot].region().is_some();
        let first = group << self.shape.group_bits;
        let used = (0..self.slots(group, class)).filter(is_used);
        blocks.extend(used.map(|slot| BlockId::new(first + (slot << class), class)));
    }

    /// The block whose first granule is `granule`, if its group is in use.
    pub(super) fn block_at(&self, granule: u32) -> Option<BlockId> {
        let group = granule >> self.shape.group_bits;
        if group >= self.fresh || !self.groups.records[group].is_in_use() {
            return None;
        }
        let class = self.groups.records[group].class();
        Some(BlockId::new(granule >> class << class, class))
    }

    /// True if no group is free.
    pub(super) fn is_full(&self) -> bool {
        self.free == NONE && self.fresh == self.count
    }

    /// Blocks in use, by class.
    pub(super) fn in_use(&self) -> &BlockCounts {
        &self.in_use
    }

    /// Granules there are.
    pub(super) fn granules(&self) -> u32 {
        self.granules
    }

    /// Bytes of RAM of the records of blocks and groups.
    pub(super) fn state_bytes(&self) -> u64 {
        let open = self.partitions.iter().flat_map(|partition| &partition.open);
        let open: usize = open
            .map(|groups| groups.capacity() * size_of::<u32>())
            .sum();
        let groups = self.fresh as usize;
        let owners = self.owners.as_ref().map_or(0, |of| of.memory_of(groups));
        let members = self.partitions.iter().map(|p| p.members.capacity());
        let members = members.sum::<usize>() * size_of::<u32>();
        self.groups.records.memory_of(groups)
            + self.blocks.records.memory_of(self.runs.elements())
            + self.runs.memory_bytes()
            + (open + members) as u64
            + owners
    }

    /// Bytes of RAM of the orders of replacement.
    pub(super) fn order_bytes(&self) -> u64 {
        let groups = self.groups.order_bytes(self.fresh as usize);
        groups + self.blocks.order_bytes(self.runs.elements())
    }

    fn open_slot(&mut self, partition: usize, class: u32) -> Option<BlockId> {
        let open = &mut self.partitions[partition].open[class as usize];
        while let Some(&group) = open.last() {
            let state = self.groups.records[group];
            let is_open = state.is_in_use()
                && state.class() == class
                && state.free_slot() != NO_SLOT
                && !state.is_retired()
                && owner_in(&self.owners, group) == partition;
            if is_open {
                let granule = (group << self.shape.group_bits) + (state.free_slot() << class);
                return Some(BlockId::new(granule, class));
            }
            open.pop();
        }
        None
    }

    fn take_group(&mut self) -> Option<u32> {
        if self.free != NONE {
            let group = self.free;
            self.free = self.groups.records[group].first;
            self.free_count -= 1;
            return Some(group);
        }
        self.take_fresh()
    }

    /// The first group that has not been in use.
    fn take_fresh(&mut self) -> Option<u32> {
        if self.fresh == self.count {
            return None;
        }
        let group = self.fresh;
        self.fresh += 1;
        self.groups.allocate(group);
        if let Some(owners) = &mut self.owners {
            owners.allocate(group);
        }
        Some(group)
    }

    /// Makes the free `group` one of `partition` with free slots of `class`.
    fn open(&mut self, group: u32, partition: usize, class: u32) {
        let slots = self.slots(group, class);
        let first = self.take_run(self.run_class(class));
        for slot in 0..1 << self.run_class(class) {
            let next = if slot + 1 < slots { slot + 1 } else { NO_SLOT };
            self.blocks.records[first + slot] = Block::free(next);
        }
        let free_slot = if slots == 0 { NO_SLOT } else { 0 };
        self.groups.records[group] = Group::of(first, 0, free_slot, class);
        let owner = &mut self.partitions[partition];
        if let Some(owners) = &mut self.owners {
            owners[group].partition = partition as u16;
            owners[group].place = owner.held;
            owner.members.push(group);
        }
        owner.held += 1;
        owner.free_slots[class as usize] += slots;
        owner.open[class as usize].push(group);
        let (mut groups, order) = self.group_order(partition);
        if let Some(order) = order {
            order.insert(&mut groups, group);
        }
    }

    /// Removes `block` from the orders and the counts.
    fn leave(&mut self, block: BlockId) {
        let class = block.class() as usize;
        let partition = self.owner(self.shape.group_of(block));
        self.order_block(partition, |order, blocks| order.remove(blocks, block.0));
        self.in_use[class] -= 1;
        self.partitions[partition].free_slots[class] += 1;
    }

    /// Removes `group`, all of whose blocks are retired, from the order.
    fn retire_group(&mut self, group: u32) {
        self.remove_from_order(group);
        let state = self.groups.records[group];
        self.groups.records[group] = state.retired_if(true);
        self.retired_groups.push(group);
    }

    /// Removes `group`, which has no live block, from the order and the counts.
    fn remove_from_order(&mut self, group: u32) {
        let partition = self.owner(group);
        let (mut groups, order) = self.group_order(partition);
        if let Some(order) = order {
            order.remove(&mut groups, group);
        }
        let class = self.groups.records[group].class();
        let slots = self.slots(group, class);
        self.partitions[partition].free_slots[class as usize] -= slots;
    }

    /// Frees `group`, which has no block in use.
    fn close(&mut self, group: u32, regions: &Regions) {
        let partition = self.owner(group);
        let state = self.groups.records[group];
        if state.is_retired() {
            self.retired_groups.retain(|&retired| retired != group);
        } else {
            self.remove_from_order(group);
        }
        self.give_run(state.first, self.run_class(state.class()), regions);
        self.groups.records[group] = Group {
            first: std::mem::replace(&mut self.free, group),
            state: 0,
        };
        self.free_count += 1;
        let owner = &mut self.partitions[partition];
        if let Some(owners) = &mut self.owners {
            let place = owners[group].place;
            owner.members.swap_remove(place as usize);
            if let Some(&moved) = owner.members.get(place as usize) {
                owners[moved].place = place;
            }
        }
        owner.held -= 1;
    }

    /// Slots of a group of blocks of `class`: fewer in the last group of the cache.
    fn slots(&self, group: u32, class: u32) -> u32 {
        let first = group << self.shape.group_bits;
        (self.granules - first).min(1 << self.shape.group_bits) >> class
    }

    /// Base-2 logarithm of the number of blocks of `class` in a group.
    fn run_class(&self, class: u32) -> usize {
        (self.shape.group_bits - class) as usize
    }

    fn take_run(&mut self, class: usize) -> u32 {
        let free = std::mem::replace(&mut self.free_runs[class], NONE);
        if free != NONE {
            return free;
        }
        let run = self.runs.push(class);
        self.blocks.allocate(run);
        run
    }

    /// Frees `run`. If another run of `class` is free, one is given up.
    fn give_run(&mut self, run: u32, class: usize, regions: &Regions) {
        let free = std::mem::replace(&mut self.free_runs[class], run);
        if free == NONE {
            return;
        }
        let last = self.runs.last(class);
        if last == run {
            self.free_runs[class] = free;
        } else if last != free {
            let Some(group) = self.group_of_run(last, class, regions) else {
                debug_assert!(false, "a run in use belongs to a group in use");
                return;
            };
            self.blocks.move_run(last, free, 1 << class);
            self.groups.records[group].first = free;
        }
        if let Some(page) = self.runs.pop(class) {
            self.blocks.release(page);
        }
    }

    /// The group that has `run`: some block of it is in the index, or all are retired.
    fn group_of_run(&self, run: u32, class: usize, regions: &Regions) -> Option<u32> {
        let has_run = |group: &u32| {
            let state = self.groups.records[*group];
            state.first == run && self.run_class(state.class()) == class
        };
        if let Some(group) = self.retired_groups.iter().copied().find(has_run) {
            return Some(group);
        }
        let (slot, region) = (0..1 << class).find_map(|slot| {
            let region = self.blocks.records[run + slot].region()?;
            Some((slot, region))
        })?;
        let (_, entry) = regions.find_entry(region, |entry| {
            let block = entry.block(self.shape);
            self.run_class(block.class()) == class && self.record(block) == run + slot
        })?;
        Some(self.shape.group_of(entry.block(self.shape)))
    }

    fn touch_group(&mut self, group: u32) {
        let partition = self.owner(group);
        let (mut groups, order) = self.group_order(partition);
        if let Some(order) = order {
            order.touch(&mut groups, group);
        }
        self.uses += 1;
        let stamp = (self.uses >> STAMP_SHIFT) as u32;
        if let Some(owners) = &mut self.owners {
            owners[group].used_at = stamp;
        }
    }

    /// The partition that gives up room for `partition`.
    fn yielding(&mut self, partition: usize) -> Option<usize> {
        if self.owners.is_none()
            || self.partitions[partition].held >= self.partitions[partition].bounds.most
        {
            return Some(partition);
        }
        let now = (self.uses >> STAMP_SHIFT) as u32;
        let mut best: Option<(u32, usize)> = None;
        for candidate in 0..self.partitions.len() {
            let from = &self.partitions[candidate];
            if from.held == 0 || (candidate != partition && from.held <= from.bounds.least) {
                continue;
            }
            let Some(group) = self.victim_of_either_level(candidate) else {
                continue;
            };
            let used_at = self
                .owners
                .as_ref()
                .map_or(0, |owners| owners[group].used_at);
            let age = now.wrapping_sub(used_at);
            if best.is_none_or(|(oldest, _)| age > oldest) {
                best = Some((age, candidate));
            }
        }
        best.map(|(_, partition)| partition)
    }

    fn victim_of_either_level(&mut self, partition: usize) -> Option<u32> {
        self.victim_group(partition, |_| true).or_else(|| {
            let block = self.victim_block(partition, |_| true)?;
            Some(self.shape.group_of(block))
        })
    }

    fn victim_block(
        &mut self,
        partition: usize,
        accepts: impl Fn(BlockId) -> bool,
    ) -> Option<BlockId> {
        let (mut blocks, order) = self.block_order(partition);
        let victim = order?.victim(&mut blocks, |id| accepts(BlockId(id)));
        victim.map(BlockId)
    }

    fn victim_group(&mut self, partition: usize, accepts: impl Fn(u32) -> bool) -> Option<u32> {
        let (mut groups, order) = self.group_order(partition);
        order?.victim(&mut groups, accepts)
    }

    fn owner(&self, group: u32) -> usize {
        owner_in(&self.owners, group)
    }

    fn block_order(&mut self, partition: usize) -> (LinkedBlocks<'_>, Option<&mut Order>) {
        let owner = &mut self.partitions[partition];
        let ring = Ring::new(self.owners.is_some(), &owner.members, self.fresh);
        let blocks = LinkedBlocks {
            shape: self.shape,
            ring,
            groups: &self.groups.records,
            blocks: &mut self.blocks,
        };
        (blocks, owner.blocks.as_mut())
    }

    /// Changes the order of blocks, if there is one.
    fn order_block(
        &mut self,
        partition: usize,
        change: impl FnOnce(&mut Order, &mut LinkedBlocks<'_>),
    ) {
        let (mut blocks, order) = self.block_order(partition);
        if let Some(order) = order {
            change(order, &mut blocks);
        }
    }

    fn group_order(&mut self, partition: usize) -> (LinkedGroups<'_>, Option<&mut Order>) {
        let owner = &mut self.partitions[partition];
        let ring = Ring::new(self.owners.is_some(), &owner.members, self.fresh);
        let groups = LinkedGroups {
            ring,
            groups: &mut self.groups,
        };
        (groups, owner.groups.as_mut())
    }

    fn record(&self, block: BlockId) -> u32 {
        record_in(&self.groups.records, self.shape, block)
    }

    fn set_flag(&mut self, block: BlockId, flag: u32, is_set: bool) {
        let record = self.record(block);
        let flagged = self.blocks.records[record].with_flag(flag, is_set);
        self.blocks.records[record] = flagged;
    }
}

/// Uses of a shard to one unit of the stamps that compare partitions.
const STAMP_SHIFT: u32 = 4;

impl Partition {
    fn new(levels: Levels, bounds: PartitionPlan) -> Self {
        Partition {
            open: Default::default(),
            free_slots: [0; CLASSES],
            blocks: levels.block.map(Order::new),
            groups: levels.group.map(Order::new),
            held: 0,
            bounds,
            members: Vec::new(),
        }
    }
}

fn owner_in(owners: &Option<Pages<Owner>>, group: u32) -> usize {
    match owners {
        Some(owners) => usize::from(owners[group].partition),
        None => 0,
    }
}
