//! Blocks by their places, by volume, and all of them: what a driver asks for besides
//! requests.

use super::{Cached, Part, Shard};
use crate::volume::address::{ByteRange, Extent, Piece, VolumeId};
use crate::volume::mode::Sector;
use crate::volume::plan::Plan;
use crate::volume::shape::BlockId;
use crate::volume::stats::{Memory, Occupancy, Usage};
use crate::volume::steps::Steps;

impl Shard {
    /// Writes the dirty bytes of the block at `granule` back, and keeps it, if
    /// `may_clean` its bytes. Returns whether there were any.
    pub(in crate::volume) fn clean(
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
    pub(in crate::volume) fn clean_all(
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
    pub(in crate::volume) fn has_dirty(&self, volume: VolumeId) -> bool {
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
    pub(in crate::volume) fn blocks_around(&self, granule: u32, each: &mut impl FnMut(Piece)) {
        let (group, mut blocks) = (granule >> self.shape.group_bits, Vec::new());
        if group < self.groups.end() {
            self.groups.blocks_of(group, &mut blocks);
        }
        for (_, cached) in blocks.iter().filter_map(|block| self.at(block.granule())) {
            each(self.piece(cached, cached.bytes));
        }
    }

    /// Adds the blocks of `volume`.
    pub(in crate::volume) fn add_usage(&self, volume: VolumeId, usage: &mut Usage) {
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
    pub(in crate::volume) fn blocks_after(
        &self,
        volume: VolumeId,
        from: u64,
        pieces: &mut Vec<Piece>,
    ) {
        for group in 0..self.groups.end() {
            self.blocks_around(group << self.shape.group_bits, &mut |block: Piece| {
                if block.extent.volume == volume && block.extent.range.end > from {
                    pieces.push(block);
                }
            });
        }
    }

    /// Removes all blocks of `volume`.
    pub(in crate::volume) fn invalidate_volume(&mut self, volume: VolumeId, steps: &mut Steps<'_>) {
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
    pub(in crate::volume) fn touch_at(&mut self, granule: u32) {
        if let Some((_, cached)) = self.at(granule) {
            self.groups.touch(cached.block);
        }
    }

    /// True if the block at `granule` is dirty.
    pub(in crate::volume) fn is_dirty(&self, granule: u32) -> bool {
        self.at(granule)
            .is_some_and(|(_, cached)| self.groups.is_dirty(cached.block))
    }

    /// Hands runs of sectors of `extent` in the block at `granule` to `each`.
    pub(in crate::volume) fn runs_at(
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
    pub(in crate::volume) fn forget_at(
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
    pub(in crate::volume) fn mark_dirty(
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
    pub(in crate::volume) fn invalidate_at(&mut self, granule: u32, steps: &mut Steps<'_>) {
        if let Some((_, cached)) = self.at(granule) {
            self.invalidate(cached, steps);
        }
    }

    /// The first byte of the block at `granule` of this shard, and its volume.
    pub(in crate::volume) fn place_of(&self, granule: u32) -> Option<(VolumeId, u64)> {
        let (_, cached) = self.at(granule)?;
        Some((cached.volume, cached.bytes.start))
    }

    /// The group after the last one that has been in use.
    pub(in crate::volume) fn groups_end(&self) -> u32 {
        self.groups.end()
    }

    /// True if no group is free.
    pub(in crate::volume) fn is_full(&self) -> bool {
        self.groups.is_full()
    }

    pub(in crate::volume) fn dirty_blocks(&self) -> u64 {
        self.dirty_blocks
    }

    pub(in crate::volume) fn blocks(&self) -> u64 {
        self.groups.in_use().iter().sum()
    }

    pub(in crate::volume) fn memory(&self) -> Memory {
        Memory {
            index: self.regions.memory_bytes(),
            order: self.groups.order_bytes(),
            state: self.groups.state_bytes(),
            sectors: self.maps.memory_bytes(),
            history: 0,
        }
    }

    pub(in crate::volume) fn add_occupancy(&self, occupancy: &mut Occupancy) {
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
}
