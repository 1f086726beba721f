//! Promotion, cut-off and cleaning of one cache, and the notes that they need.

use super::address::{ByteRange, Piece, VolumeId};
use super::plan::Plan;
use super::sequential::Sequential;
use crate::Tick;
use crate::policy::cleaning::{Cleaning, Place};
use crate::policy::promotion::{Granule, Promotion};

/// The policies of a cache, with their state.
#[derive(Debug)]
pub(super) struct Policies {
    pub(super) promotion: Promotion,
    pub(super) sequential: Sequential,
    pub(super) cleaning: Cleaning,
    granule_bits: u32,
    /// The time of the request at hand.
    pub(super) now: Tick,
    /// Bytes of the blocks in the cache.
    pub(super) used_bytes: u64,
}

/// The missing granules of a request that may enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admits {
    All,
    None,
    /// Those that the promotion policy admits one by one.
    Some,
}

impl Policies {
    /// The policies of `shards` shards.
    pub(super) fn new(plan: &Plan, shards: u64) -> Self {
        let config = plan.config();
        let granules = u64::from(plan.granules) * shards;
        let promotion = Promotion::new(&config.promotion, granules, config.seed);
        let cleaning = Cleaning::new(&config.cleaning);
        Policies {
            promotion: promotion.expect("the plan has checked it"),
            sequential: Sequential::new(config.sequential),
            cleaning: cleaning.expect("the plan has checked it"),
            granule_bits: plan.shape.granule_bits,
            now: Tick::ZERO,
            used_bytes: 0,
        }
    }

    /// Numbers of the granules of `range` within a volume.
    pub(super) fn granules(&self, range: ByteRange) -> std::ops::Range<u64> {
        let end = range.end.div_ceil(1 << self.granule_bits);
        range.start >> self.granule_bits..end
    }

    pub(super) fn admits(&self, volume: VolumeId, at: u64) -> bool {
        let granule = Granule::new(volume.0, at >> self.granule_bits);
        self.promotion.admits(granule)
    }

    pub(super) fn note_mapped(&mut self, block: Piece) {
        self.used_bytes += block.extent.range.len();
        for granule in self.each_granule(block) {
            self.promotion.note_inserted(granule, false);
        }
    }

    pub(super) fn note_unmapped(&mut self, block: Piece) {
        self.used_bytes -= block.extent.range.len();
        if self.promotion.follows_blocks() {
            for granule in self.each_granule(block) {
                self.promotion.note_removed(granule);
            }
        }
    }

    pub(super) fn note_hit(&mut self, piece: Piece) {
        if self.promotion.follows_blocks() {
            for granule in self.each_granule(piece) {
                self.promotion.note_hit(granule, self.now);
            }
        }
    }

    /// A write left `block` dirty, for the first time or again.
    pub(super) fn note_dirty(&mut self, block: Piece) {
        let bytes = block.extent.range.len();
        self.cleaning
            .note_dirty(self.number(block), place(block), bytes, self.now);
        self.note_dirtiness(block, true);
    }

    /// `block` is not dirty any more.
    pub(super) fn note_clean(&mut self, block: Piece) {
        self.cleaning.note_clean(self.number(block), place(block));
        self.note_dirtiness(block, false);
    }

    /// Bytes of RAM.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.promotion.memory_bytes()
            + self.sequential.memory_bytes()
            + self.cleaning.memory_bytes()
    }

    fn note_dirtiness(&mut self, block: Piece, is_dirty: bool) {
        if self.promotion.follows_blocks() {
            for granule in self.each_granule(block) {
                self.promotion.note_dirty(granule, is_dirty);
            }
        }
    }

    fn each_granule(&self, piece: Piece) -> impl Iterator<Item = Granule> + use<> {
        let volume = piece.extent.volume.0;
        let granules = self.granules(piece.extent.range);
        granules.map(move |number| Granule::new(volume, number))
    }

    /// The number of a block for cleaning: its first granule on the cache device.
    fn number(&self, block: Piece) -> u32 {
        (block.place >> self.granule_bits) as u32
    }
}

fn place(block: Piece) -> Place {
    Place {
        volume: block.extent.volume.0,
        offset_bytes: block.extent.range.start,
    }
}
