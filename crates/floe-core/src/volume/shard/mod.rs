//! One shard: an index, blocks, and the decisions about one region at a time.
//!
//! `blocks.rs` has the blocks' entry and exit, and the state of their sectors.

mod blocks;

use super::address::{ByteRange, Extent, Piece, SECTOR_BYTES, VolumeId};
use super::greedy;
use super::groups::Groups;
use super::mode::{Mode, Read, Sector, Write};
use super::plan::{Fill, Plan};
use super::policies::{Admits, Policies};
use super::regions::{RegionId, Regions};
use super::request::Operation;
use super::sectors::{SectorMap, SectorMaps, Sectors, sectors_in};
use super::shape::{BlockId, CLASSES, Entry, RegionKey, Shape};
use super::stats::{Memory, Occupancy, Usage};
use super::steps::Steps;
use crate::hash::KeyHash;

/// A shard of a cache.
#[derive(Debug)]
pub(super) struct Shard {
    /// Its number, and the number of shards.
    number: u32,
    shards: u32,
    shape: Shape,
    regions: Regions,
    groups: Groups,
    maps: SectorMaps,
    dirty_blocks: u64,
    dirty_bytes: u64,
    /// Changes when a block enters or leaves.
    version: u64,
    /// Blocks of a group that is being evicted.
    victims: Vec<BlockId>,
    /// Places are used again only after they were released.
    defers_reuse: bool,
    /// The partition that last wanted a block of each size, until the reserve of that
    /// size is there.
    demand: [Option<usize>; CLASSES],
}

/// The part of a request in one region, and the policies in force.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) key: RegionKey,
    pub(super) hash: KeyHash,
    pub(super) range: ByteRange,
    pub(super) plan: &'a Plan,
    pub(super) mode: Mode,
    /// The missing blocks that may enter.
    pub(super) admits: Admits,
}

/// A stretch of a region.
enum Stretch {
    Cached(Cached),
    Missing(Gap),
}

/// Granules of a region that are not cached.
#[derive(Clone, Copy)]
struct Gap {
    first: u32,
    end: u32,
}

/// A cached block, and its bytes of the volume.
#[derive(Clone, Copy)]
struct Cached {
    block: BlockId,
    volume: VolumeId,
    bytes: ByteRange,
}

/// Sectors and the state of all of them.
struct Run {
    range: ByteRange,
    sector: Sector,
}

impl Shard {
    pub(super) fn new(plan: &Plan, number: u32) -> Self {
        Shard {
            number,
            shards: plan.shards,
            shape: plan.shape,
            regions: Regions::new(plan.seed),
            groups: Groups::new(plan.shape, plan.granules, plan.levels, &plan.partitions),
            maps: SectorMaps::default(),
            dirty_blocks: 0,
            dirty_bytes: 0,
            version: 0,
            victims: Vec::new(),
            defers_reuse: plan.reserve_granules > 0,
            demand: [None; CLASSES],
        }
    }

    /// Adds room, up to the granules of `plan`.
    pub(super) fn grow(&mut self, plan: &Plan) {
        self.groups.grow_to(plan.granules);
    }

    /// Decides about the part of a request.
    pub(super) fn apply(&mut self, operation: Operation, part: Part<'_>, steps: &mut Steps<'_>) {
        self.walk(part, |shard, stretch| match (operation, stretch) {
            (_, Stretch::Cached(cached)) => shard.apply_cached(operation, cached, part, steps),
            (Operation::Read, Stretch::Missing(gap)) => {
                shard.each_gap(gap, part, steps, Shard::read_missing);
            }
            (Operation::Write, Stretch::Missing(gap)) => {
                shard.each_gap(gap, part, steps, Shard::write_missing);
            }
            (_, Stretch::Missing(_)) => {}
        });
    }

    fn apply_cached(
        &mut self,
        operation: Operation,
        cached: Cached,
        part: Part<'_>,
        steps: &mut Steps<'_>,
    ) {
        let range = part.range.intersection(cached.bytes);
        match operation {
            Operation::Read => {
                self.touch(cached, range, steps);
                self.each_run(cached, range, steps, |shard, run, steps| {
                    shard.read_run(cached, run, part, steps);
                });
            }
            Operation::Write => {
                self.touch(cached, range, steps);
                steps.outcome.hit_bytes += range.len();
                self.each_run(cached, range, steps, |shard, run, steps| {
                    shard.write_run(cached, run, part, steps);
                });
            }
            // Trimmed bytes stay in a block that keeps no map of its sectors,
            // unless the whole block is trimmed.
            Operation::Trim => {
                self.forget(cached, range, part.plan, steps);
            }
            // The backing device gets the zeros: a block needs them only in part.
            Operation::WriteZeroes => {
                if !self.forget(cached, range, part.plan, steps) {
                    steps.zero_cache(self.piece(cached, range));
                }
            }
            Operation::Flush => {}
        }
    }

    /// Hands the cached blocks that have bytes of `range` to `each`, with these bytes.
    /// Returns whether some bytes are missing.
    pub(super) fn lookup(
        &self,
        key: RegionKey,
        hash: KeyHash,
        range: ByteRange,
        mut each: impl FnMut(Piece),
    ) -> bool {
        let Some(region) = self.regions.find(key, hash) else {
            return true;
        };
        let (first, end) = self.shape.granules_of(range);
        let entries = self.regions.entries(region);
        let from = entries.partition_point(|&entry| Entry(entry).end(self.shape) <= first);
        let (mut at, mut is_missing) = (first, false);
        for &entry in &entries[from..] {
            let entry = Entry(entry);
            if entry.first(self.shape) >= end {
                break;
            }
            let cached = self.cached(key, entry);
            is_missing |= entry.first(self.shape) > at;
            at = entry.end(self.shape);
            each(self.piece(cached, range.intersection(cached.bytes)));
        }
        is_missing || at < end
    }

    /// Notes a read of `range`, if a single block has all of it and `mode` reads from it.
    pub(super) fn hit(
        &mut self,
        key: RegionKey,
        hash: KeyHash,
        range: ByteRange,
        mode: Mode,
        policies: &mut Policies,
    ) -> Option<Piece> {
        let cached = self.whole_block(key, hash, range)?;
        let sector = Sector::valid(self.groups.is_dirty(cached.block));
        if mode.read(sector) != Read::Cache {
            return None;
        }
        let piece = self.piece(cached, range);
        self.groups.touch(cached.block);
        policies.note_hit(piece);
        Some(piece)
    }

    /// Notes a write of `range`, if a single block has all of it and is dirty.
    pub(super) fn overwrite(
        &mut self,
        key: RegionKey,
        hash: KeyHash,
        range: ByteRange,
        policies: &mut Policies,
    ) -> Option<Piece> {
        let cached = self.whole_block(key, hash, range)?;
        if !self.groups.is_dirty(cached.block) {
            return None;
        }
        let piece = self.piece(cached, range);
        self.groups.touch(cached.block);
        policies.note_hit(piece);
        policies.note_dirty(self.piece(cached, cached.bytes));
        Some(piece)
    }

    /// The block that has all of `range`, unless some of its sectors differ.
    fn whole_block(&self, key: RegionKey, hash: KeyHash, range: ByteRange) -> Option<Cached> {
        let region = self.regions.find(key, hash)?;
        let (first, _) = self.shape.granules_of(range);
        let Stretch::Cached(cached) = self.stretch(Some(region), key, first, first + 1) else {
            return None;
        };
        let is_whole = !self.groups.is_partial(cached.block) && cached.bytes.contains(range);
        is_whole.then_some(cached)
    }

    /// True if every sector of `range` is valid.
    pub(super) fn is_cached(&self, key: RegionKey, hash: KeyHash, range: ByteRange) -> bool {
        let Some(region) = self.regions.find(key, hash) else {
            return false;
        };
        let (first, end) = self.shape.granules_of(range);
        let entries = self.regions.entries(region);
        let from = entries.partition_point(|&entry| Entry(entry).end(self.shape) <= first);
        let mut at = first;
        for entry in entries[from..].iter().map(|&entry| Entry(entry)) {
            if at >= end || entry.first(self.shape) > at {
                break;
            }
            let cached = self.cached(key, entry);
            if let Some(map) = self.maps.get(cached.block) {
                let sectors = sectors_at(cached, range.intersection(cached.bytes));
                if map.runs(sectors).any(|(_, state)| state.is_none()) {
                    return false;
                }
            }
            at = entry.end(self.shape);
        }
        at >= end
    }

    /// Writes the dirty bytes of the block at `granule` back, and keeps it, if
    /// `may_clean` its bytes. Returns whether there were any.
    pub(super) fn clean(
        &mut self,
        granule: u32,
        plan: &Plan,
        may_clean: &mut impl FnMut(Extent) -> bool,
        steps: &mut Steps<'_>,
    ) -> bool {
        let Some((_, cached)) = self.at(granule) else {
            return false;
        };
        let before = self.dirty_bytes_of(cached.block);
        let extent = Extent {
            volume: cached.volume,
            range: cached.bytes,
        };
        if before == 0 || !may_clean(extent) {
            return false;
        }
        self.write_back(cached, plan, steps);
        if let Some(map) = self.maps.get_mut(cached.block) {
            map.clean();
        }
        self.count_dirty(cached, before, 0, steps);
        self.settle(cached, steps);
        true
    }

    /// Cleans dirty blocks of `volume`, or of all volumes, from group `from` on, until
    /// `blocks_max` have been. Returns their number, and the group to go on with.
    pub(super) fn clean_all(
        &mut self,
        volume: Option<VolumeId>,
        (from, blocks_max): (u32, u64),
        plan: &Plan,
        may_clean: &mut impl FnMut(Extent) -> bool,
        steps: &mut Steps<'_>,
    ) -> (u64, Option<u32>) {
        let (mut blocks, mut cleaned) = (Vec::new(), 0);
        for group in from..self.groups.end() {
            if cleaned >= blocks_max {
                return (cleaned, Some(group));
            }
            self.groups.blocks_of(group, &mut blocks);
            for block in blocks.drain(..) {
                let granule = block.granule();
                let is_wanted =
                    |place: (VolumeId, u64)| volume.is_none_or(|volume| volume == place.0);
                if self.groups.is_dirty(block) && self.place_of(granule).is_some_and(is_wanted) {
                    cleaned += u64::from(self.clean(granule, plan, may_clean, steps));
                }
            }
        }
        (cleaned, None)
    }

    /// True if `volume` has dirty blocks.
    pub(super) fn has_dirty(&self, volume: VolumeId) -> bool {
        let mut blocks = Vec::new();
        (0..self.groups.end()).any(|group| {
            self.groups.blocks_of(group, &mut blocks);
            let mut dirty = blocks
                .drain(..)
                .filter(|block| self.groups.is_dirty(*block));
            dirty.any(|block| self.is_of(block, volume))
        })
    }

    /// Hands the blocks of the group of `granule` to `each`.
    pub(super) fn blocks_around(&self, granule: u32, each: &mut impl FnMut(Piece)) {
        let (group, mut blocks) = (granule >> self.shape.group_bits, Vec::new());
        if group < self.groups.end() {
            self.groups.blocks_of(group, &mut blocks);
        }
        for (_, cached) in blocks.iter().filter_map(|block| self.at(block.granule())) {
            each(self.piece(cached, cached.bytes));
        }
    }

    /// Adds the blocks of `volume`.
    pub(super) fn add_usage(&self, volume: VolumeId, usage: &mut Usage) {
        let mut blocks = Vec::new();
        for group in 0..self.groups.end() {
            self.groups.blocks_of(group, &mut blocks);
            let own = blocks.drain(..).filter(|block| self.is_of(*block, volume));
            for block in own {
                usage.blocks += 1;
                usage.bytes += self.shape.granule_bytes() << block.class();
                usage.dirty_bytes += self.dirty_bytes_of(block);
            }
        }
    }

    /// Adds the blocks of `volume` that end after byte `from`.
    pub(super) fn blocks_after(&self, volume: VolumeId, from: u64, pieces: &mut Vec<Piece>) {
        for group in 0..self.groups.end() {
            self.blocks_around(group << self.shape.group_bits, &mut |block: Piece| {
                if block.extent.volume == volume && block.extent.range.end > from {
                    pieces.push(block);
                }
            });
        }
    }

    /// Removes all blocks of `volume`.
    pub(super) fn invalidate_volume(&mut self, volume: VolumeId, steps: &mut Steps<'_>) {
        let mut blocks = Vec::new();
        for group in 0..self.groups.end() {
            self.groups.blocks_of(group, &mut blocks);
            for block in blocks.drain(..) {
                if self.is_of(block, volume) {
                    self.invalidate_at(block.granule(), steps);
                }
            }
        }
    }

    fn is_of(&self, block: BlockId, volume: VolumeId) -> bool {
        let place = self.place_of(block.granule());
        place.is_some_and(|(of, _)| of == volume)
    }

    /// Notes a use of the block at `granule`.
    pub(super) fn touch_at(&mut self, granule: u32) {
        if let Some((_, cached)) = self.at(granule) {
            self.groups.touch(cached.block);
        }
    }

    /// True if the block at `granule` is dirty.
    pub(super) fn is_dirty(&self, granule: u32) -> bool {
        self.at(granule)
            .is_some_and(|(_, cached)| self.groups.is_dirty(cached.block))
    }

    /// Hands runs of sectors of `extent` in the block at `granule` to `each`.
    pub(super) fn runs_at(
        &self,
        granule: u32,
        extent: Extent,
        mut each: impl FnMut(Piece, Sector),
    ) {
        let Some((cached, range)) = self.part_at(granule, extent) else {
            return;
        };
        if !self.groups.is_partial(cached.block) {
            let sector = Sector::valid(self.groups.is_dirty(cached.block));
            return each(self.piece(cached, range), sector);
        }
        for run in self.runs(cached, range) {
            each(self.piece(cached, run.range), run.sector);
        }
    }

    /// Forgets the bytes of `extent` in the block at `granule`.
    pub(super) fn forget_at(
        &mut self,
        granule: u32,
        extent: Extent,
        plan: &Plan,
        steps: &mut Steps<'_>,
    ) {
        if let Some((cached, range)) = self.part_at(granule, extent) {
            self.forget(cached, range, plan, steps);
        }
    }

    /// The block at `granule` and the bytes of `extent` in it, if there are some.
    fn part_at(&self, granule: u32, extent: Extent) -> Option<(Cached, ByteRange)> {
        let (_, cached) = self.at(granule)?;
        let range = extent.range.intersection(cached.bytes);
        (cached.volume == extent.volume && !range.is_empty()).then_some((cached, range))
    }

    /// Marks `range` of the block at `granule` dirty.
    pub(super) fn mark_dirty(
        &mut self,
        granule: u32,
        range: ByteRange,
        part: Part<'_>,
        steps: &mut Steps<'_>,
    ) {
        if let Some((_, cached)) = self.at(granule) {
            self.mark_written(cached, range.intersection(cached.bytes), true, part, steps);
        }
    }

    /// Removes the block at `granule` without writing it back.
    pub(super) fn invalidate_at(&mut self, granule: u32, steps: &mut Steps<'_>) {
        if let Some((_, cached)) = self.at(granule) {
            self.invalidate(cached, steps);
        }
    }

    /// The first byte of the block at `granule` of this shard, and its volume.
    pub(super) fn place_of(&self, granule: u32) -> Option<(VolumeId, u64)> {
        let (_, cached) = self.at(granule)?;
        Some((cached.volume, cached.bytes.start))
    }

    /// The group after the last one that has been in use.
    pub(super) fn groups_end(&self) -> u32 {
        self.groups.end()
    }

    /// True if no group is free.
    pub(super) fn is_full(&self) -> bool {
        self.groups.is_full()
    }

    pub(super) fn dirty_blocks(&self) -> u64 {
        self.dirty_blocks
    }

    pub(super) fn blocks(&self) -> u64 {
        self.groups.in_use().iter().sum()
    }

    pub(super) fn memory(&self) -> Memory {
        Memory {
            index: self.regions.memory_bytes(),
            order: self.groups.order_bytes(),
            state: self.groups.state_bytes(),
            sectors: self.maps.memory_bytes(),
            history: 0,
        }
    }

    pub(super) fn add_occupancy(&self, occupancy: &mut Occupancy) {
        for (class, count) in self.groups.in_use().iter().enumerate() {
            occupancy.blocks[class] += count;
            occupancy.bytes += count << (class as u32 + self.shape.granule_bits);
        }
        occupancy.dirty_blocks += self.dirty_blocks;
        occupancy.dirty_bytes += self.dirty_bytes;
        occupancy.partial_blocks += self.maps.len() as u64;
        occupancy.regions += self.regions.len() as u64;
        occupancy.capacity_bytes += u64::from(self.groups.granules()) << self.shape.granule_bits;
    }

    /// Hands the stretches of `part` to `each`, in the order of addresses. The
    /// index is searched again only after a block has come or gone.
    fn walk(&mut self, part: Part<'_>, mut each: impl FnMut(&mut Shard, Stretch)) {
        let (mut at, end) = self.shape.granules_of(part.range);
        let mut region = self.regions.find(part.key, part.hash);
        while at < end {
            let version = self.version;
            let stretch = self.stretch(region, part.key, at, end);
            at = match &stretch {
                Stretch::Cached(cached) => at.max(self.shape.granules_of(cached.bytes).1),
                Stretch::Missing(gap) => gap.end,
            };
            each(self, stretch);
            if self.version != version {
                region = self.regions.find(part.key, part.hash);
            }
        }
    }

    /// The stretch that granule `at` of a region begins, up to `end`.
    fn stretch(&self, region: Option<RegionId>, key: RegionKey, at: u32, end: u32) -> Stretch {
        let Some(region) = region else {
            return Stretch::Missing(Gap { first: at, end });
        };
        let entries = self.regions.entries(region);
        let next = entries.partition_point(|&entry| Entry(entry).first(self.shape) <= at);
        if let Some(before) = next.checked_sub(1) {
            let entry = Entry(entries[before]);
            if entry.end(self.shape) > at {
                return Stretch::Cached(self.cached(key, entry));
            }
        }
        let until = entries
            .get(next)
            .map(|&entry| Entry(entry).first(self.shape));
        Stretch::Missing(Gap {
            first: at,
            end: until.map_or(end, |until| until.min(end)),
        })
    }

    fn cached(&self, key: RegionKey, entry: Entry) -> Cached {
        Cached {
            block: entry.block(self.shape),
            volume: key.volume(),
            bytes: self
                .shape
                .bytes_of(key, entry.first(self.shape), entry.end(self.shape)),
        }
    }

    fn touch(&mut self, cached: Cached, range: ByteRange, steps: &mut Steps<'_>) {
        self.groups.touch(cached.block);
        steps.policies.note_hit(self.piece(cached, range));
    }

    /// Divides `gap` where it changes whether granules may enter. The part that
    /// `each` gets has one answer for all of them.
    fn each_gap(
        &mut self,
        gap: Gap,
        part: Part<'_>,
        steps: &mut Steps<'_>,
        each: impl Fn(&mut Shard, Gap, Part<'_>, &mut Steps<'_>),
    ) {
        if part.admits != Admits::Some {
            return each(self, gap, part, steps);
        }
        let (volume, start) = (part.key.volume(), self.shape.bytes_of(part.key, 0, 0).start);
        let mut first = gap.first;
        while first < gap.end {
            let at = |granule| start + (u64::from(granule) << self.shape.granule_bits);
            let admits = |granule| steps.policies.admits(volume, at(granule));
            let is_admitted = admits(first);
            let end = (first + 1..gap.end).find(|&granule| admits(granule) != is_admitted);
            let end = end.unwrap_or(gap.end);
            let admits = if is_admitted {
                Admits::All
            } else {
                Admits::None
            };
            each(self, Gap { first, end }, Part { admits, ..part }, steps);
            first = end;
        }
    }

    /// Hands the stretches of `range` whose sectors are alike to `each`.
    fn each_run(
        &mut self,
        cached: Cached,
        range: ByteRange,
        steps: &mut Steps<'_>,
        mut each: impl FnMut(&mut Shard, &Run, &mut Steps<'_>),
    ) {
        if !self.groups.is_partial(cached.block) {
            let sector = Sector::valid(self.groups.is_dirty(cached.block));
            return each(self, &Run { range, sector }, steps);
        }
        for run in self.runs(cached, range) {
            each(self, &run, steps);
        }
        self.settle(cached, steps);
    }

    fn read_run(&mut self, cached: Cached, run: &Run, part: Part<'_>, steps: &mut Steps<'_>) {
        match part.mode.read(run.sector) {
            Read::Cache => {
                steps.outcome.hit_bytes += run.range.len();
                steps.read_cache(self.piece(cached, run.range));
            }
            Read::Backing => steps.read_backing(cached.volume, run.range),
            Read::BackingInsert => {
                steps.read_backing(cached.volume, run.range);
                steps.fill(self.piece(cached, run.range));
                self.change_map(cached, run.range, steps, SectorMap::fill);
                steps.mark(self.piece(cached, run.range), Sector::Clean);
            }
        }
    }

    fn read_missing(&mut self, gap: Gap, part: Part<'_>, steps: &mut Steps<'_>) {
        let inserts =
            part.admits == Admits::All && part.mode.read(Sector::Missing) == Read::BackingInsert;
        if !inserts {
            let missing = self.shape.bytes_of(part.key, gap.first, gap.end);
            return self.bypass_read(missing.intersection(part.range), part, steps);
        }
        for (first, class) in greedy::blocks(self.shape.classes, gap.first, gap.end) {
            let bytes = self.shape.bytes_of(part.key, first, first + (1 << class));
            let wanted = bytes.intersection(part.range);
            let Some(cached) = self.promote(first, class, part, steps) else {
                self.bypass_read(wanted, part, steps);
                continue;
            };
            let filled = match part.plan.read_miss {
                Fill::Fetch => self.within(part.plan, cached.volume, bytes),
                Fill::Sector => wanted,
            };
            steps.read_backing(cached.volume, filled);
            steps.fill(self.piece(cached, filled));
            if filled != self.within(part.plan, cached.volume, bytes) {
                self.begin_map(cached, filled, false, steps);
            } else {
                steps.mark(self.piece(cached, filled), Sector::Clean);
            }
        }
    }

    fn bypass_read(&mut self, range: ByteRange, part: Part<'_>, steps: &mut Steps<'_>) {
        steps.statistics.turnover.bypassed_bytes += range.len();
        steps.read_backing(part.key.volume(), range);
    }

    fn write_run(&mut self, cached: Cached, run: &Run, part: Part<'_>, steps: &mut Steps<'_>) {
        let range = run.range;
        match part.mode.write(run.sector) {
            Write::Cache => {
                steps.write_cache(self.piece(cached, range));
                self.mark_written(cached, range, true, part, steps);
            }
            Write::Both => {
                steps.write_backing(cached.volume, range);
                steps.write_cache(self.piece(cached, range));
                self.mark_written(cached, range, false, part, steps);
            }
            Write::Backing => steps.write_backing(cached.volume, range),
            Write::BackingInvalidate => {
                steps.write_backing(cached.volume, range);
                if self.forget(cached, range, part.plan, steps) {
                } else if run.sector == Sector::Dirty {
                    // Other bytes of the block may be dirty: the copy is brought
                    // up to date instead.
                    steps.write_cache(self.piece(cached, range));
                } else {
                    self.invalidate(cached, steps);
                }
            }
        }
    }

    fn write_missing(&mut self, gap: Gap, part: Part<'_>, steps: &mut Steps<'_>) {
        let volume = part.key.volume();
        let write = match part.mode.write(Sector::Missing) {
            write if part.admits == Admits::All => write,
            write => write.without_insertion(),
        };
        if matches!(write, Write::Backing | Write::BackingInvalidate) {
            let missing = self.shape.bytes_of(part.key, gap.first, gap.end);
            let range = missing.intersection(part.range);
            steps.statistics.turnover.bypassed_bytes += range.len();
            return steps.write_backing(volume, range);
        }
        let is_dirty = write == Write::Cache;
        for (first, class) in greedy::blocks(self.shape.classes, gap.first, gap.end) {
            let bytes = self.shape.bytes_of(part.key, first, first + (1 << class));
            let wanted = bytes.intersection(part.range);
            let promoted = self.promote(first, class, part, steps);
            if promoted.is_none() || !is_dirty {
                steps.write_backing(volume, wanted);
            }
            match promoted {
                Some(cached) => self.fill_around(cached, wanted, is_dirty, part, steps),
                None => steps.statistics.turnover.bypassed_bytes += wanted.len(),
            }
        }
    }

    /// Writes `wanted` of a new block, and fetches the rest of it where the plan
    /// says so: with one operation, which reads over the written bytes if they
    /// lie in the middle.
    fn fill_around(
        &mut self,
        cached: Cached,
        wanted: ByteRange,
        is_dirty: bool,
        part: Part<'_>,
        steps: &mut Steps<'_>,
    ) {
        let bytes = self.within(part.plan, cached.volume, cached.bytes);
        if part.plan.write_miss == Fill::Fetch {
            let before = ByteRange {
                start: bytes.start,
                end: wanted.start,
            };
            let after = ByteRange {
                start: wanted.end,
                end: bytes.end.max(wanted.end),
            };
            let fetched = match (before.is_empty(), after.is_empty()) {
                (true, _) => after,
                (false, true) => before,
                (false, false) => bytes,
            };
            steps.read_backing(cached.volume, fetched);
            steps.fill(self.piece(cached, before));
            steps.fill(self.piece(cached, after));
        }
        steps.write_cache(self.piece(cached, wanted));
        if part.plan.write_miss == Fill::Sector && !wanted.contains(bytes) {
            return self.begin_map(cached, wanted, is_dirty, steps);
        }
        steps.mark(self.piece(cached, bytes), Sector::Clean);
        if is_dirty {
            self.mark_written(cached, wanted, true, part, steps);
        }
    }

    /// The stretches of `range` whose sectors are alike, in a partial block.
    fn runs(&self, cached: Cached, range: ByteRange) -> Vec<Run> {
        let Some(map) = self.maps.get(cached.block) else {
            return Vec::new();
        };
        let runs = map.runs(sectors_at(cached, range)).map(|(run, state)| Run {
            range: bytes_at(cached, run),
            sector: state.map_or(Sector::Missing, Sector::valid),
        });
        runs.collect()
    }

    /// The part of `bytes` that the volume has.
    fn within(&self, plan: &Plan, volume: VolumeId, bytes: ByteRange) -> ByteRange {
        ByteRange {
            start: bytes.start,
            end: bytes.end.min(plan.end_of(volume)),
        }
    }

    /// `range` of a block, and its place on the cache device. Shards take turns
    /// in groups, so that a cache grows at its end.
    fn piece(&self, cached: Cached, range: ByteRange) -> Piece {
        let granule = cached.block.granule();
        let group = u64::from(granule >> self.shape.group_bits) * u64::from(self.shards);
        let within = u64::from(granule) & ((1 << self.shape.group_bits) - 1);
        let granules = ((group + u64::from(self.number)) << self.shape.group_bits) + within;
        Piece {
            extent: Extent {
                volume: cached.volume,
                range,
            },
            place: (granules << self.shape.granule_bits) + (range.start - cached.bytes.start),
        }
    }
}

/// The sectors of a block that have the bytes of `range`.
fn sectors_at(cached: Cached, range: ByteRange) -> Sectors {
    Sectors {
        first: sectors_in(range.start - cached.bytes.start),
        end: sectors_in(range.end - cached.bytes.start),
    }
}

fn bytes_at(cached: Cached, sectors: Sectors) -> ByteRange {
    let start = cached.bytes.start + u64::from(sectors.first) * SECTOR_BYTES;
    ByteRange::at(start, u64::from(sectors.count()) * SECTOR_BYTES)
}
