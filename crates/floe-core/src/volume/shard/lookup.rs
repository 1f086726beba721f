//! Looking blocks up by address, and requests that one block answers.

use super::{Cached, Shard, Stretch, sectors_at};
use crate::hash::KeyHash;
use crate::volume::address::{ByteRange, Piece};
use crate::volume::mode::{Mode, Read, Sector};
use crate::volume::policies::Policies;
use crate::volume::regions::RegionId;
use crate::volume::shape::{Entry, RegionKey};

impl Shard {
    /// Hands the cached blocks that have bytes of `range` to `each`, with these bytes.
    /// Returns whether some bytes are missing.
    pub(in crate::volume) fn lookup(
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
        let (mut at, mut is_missing) = (first, false);
        for entry in self.entries_from(region, first) {
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

    /// The entries of a region that end after granule `first`, in their order.
    fn entries_from(&self, region: RegionId, first: u32) -> impl Iterator<Item = Entry> {
        let entries = self.regions.entries(region);
        let from = entries.partition_point(|&entry| Entry(entry).end(self.shape) <= first);
        entries[from..].iter().map(|&entry| Entry(entry))
    }

    /// Notes a read of `range`, if a single block has all of it and `mode` reads from it.
    pub(in crate::volume) fn hit(
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
    pub(in crate::volume) fn overwrite(
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
    pub(in crate::volume) fn is_cached(
        &self,
        key: RegionKey,
        hash: KeyHash,
        range: ByteRange,
    ) -> bool {
        let Some(region) = self.regions.find(key, hash) else {
            return false;
        };
        let (first, end) = self.shape.granules_of(range);
        let mut at = first;
        for entry in self.entries_from(region, first) {
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
}
