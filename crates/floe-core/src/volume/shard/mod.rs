//! One shard: an index, blocks, and the decisions about one region at a time.
//!
//! `blocks.rs` has the blocks' entry and exit, and the state of their sectors;
//! `lookup.rs` finds blocks by address, `places.rs` by place and volume.

mod blocks;
mod lookup;
mod places;

use super::address::{ByteRange, Extent, Piece, SECTOR_BYTES, VolumeId};
use super::greedy;
use super::groups::Groups;
use super::mode::{Mode, Read, Sector, Write};
use super::plan::{Fill, Plan};
use super::policies::Admits;
use super::regions::{RegionId, Regions};
use super::request::Operation;
use super::sectors::{SectorMap, SectorMaps, Sectors, sectors_in};
use super::shape::{BlockId, CLASSES, Entry, RegionKey, Shape};
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
