//! Numbers of granules, blocks, groups and regions, and how they relate.
//!
//! A *granule* is the smallest block of a cache. A *group* is the slab of
//! equal blocks that is allocated and freed as one. A *region* is an aligned
//! range of a volume that no block crosses: the unit of the index.

use super::address::{ByteRange, VolumeId};
use super::sizes::BlockSizes;

/// Most granules of a region or of a group, as a power of two.
pub(super) const CLASSES: usize = 9;

/// Fewest granules of a region, as a power of two. Blocks of one size share an
/// entry of the index with their neighbours, too.
const REGION_BITS_MIN: u32 = 3;

/// Granules of a group in a cache of one block size, as a power of two: groups
/// are then of no use to replacement, and their records cost RAM.
const GROUP_BITS_OF_ONE_SIZE: u32 = 6;

/// The sizes of a cache, as powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of a granule.
    pub(super) granule_bits: u32,
    /// Granules of a region.
    pub(super) region_bits: u32,
    /// Granules of a group.
    pub(super) group_bits: u32,
    /// Bit `i` stands for blocks of `1 << i` granules.
    pub(super) classes: u32,
}

impl Shape {
    pub(super) fn new(sizes: BlockSizes) -> Self {
        let largest = sizes.classes().ilog2();
        Shape {
            granule_bits: sizes.smallest().bytes().ilog2(),
            region_bits: largest.max(REGION_BITS_MIN),
            group_bits: if largest == 0 {
                GROUP_BITS_OF_ONE_SIZE
            } else {
                largest
            },
            classes: sizes.classes(),
        }
    }

    pub(super) fn granule_bytes(self) -> u64 {
        1 << self.granule_bits
    }

    pub(super) fn region_bytes(self) -> u64 {
        1 << (self.granule_bits + self.region_bits)
    }

    pub(super) fn group_bytes(self) -> u64 {
        1 << (self.granule_bits + self.group_bits)
    }

    /// The region that has byte `at` of `volume`.
    pub(super) fn region_of(self, volume: VolumeId, at: u64) -> RegionKey {
        RegionKey::new(volume, at >> (self.granule_bits + self.region_bits))
    }

    /// The granules of a region that `range`, which lies within it, touches.
    pub(super) fn granules_of(self, range: ByteRange) -> (u32, u32) {
        let base = range.start & !(self.region_bytes() - 1);
        let first = (range.start - base) >> self.granule_bits;
        let end = (range.end - base).div_ceil(self.granule_bytes());
        (first as u32, end as u32)
    }

    /// The bytes of granules `first..end` of region `key`.
    pub(super) fn bytes_of(self, key: RegionKey, first: u32, end: u32) -> ByteRange {
        let base = key.number() << (self.granule_bits + self.region_bits);
        ByteRange {
            start: base + (u64::from(first) << self.granule_bits),
            end: base + (u64::from(end) << self.granule_bits),
        }
    }

    /// The group of granule `granule` of the cache.
    pub(super) fn group_of(self, block: BlockId) -> u32 {
        block.granule() >> self.group_bits
    }
}

/// Bits of a region's number: volumes of 1 PiB at regions of 32 KiB.
pub(super) const REGION_NUMBER_BITS: u32 = 35;

/// A region: its volume and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionKey(u64);

impl RegionKey {
    pub(super) fn new(volume: VolumeId, number: u64) -> Self {
        debug_assert!(number >> REGION_NUMBER_BITS == 0, "the plan bounds volumes");
        RegionKey(u64::from(volume.0) << REGION_NUMBER_BITS | number)
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        RegionKey(bits)
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn volume(self) -> VolumeId {
        VolumeId((self.0 >> REGION_NUMBER_BITS) as u16)
    }

    pub(super) fn number(self) -> u64 {
        self.0 & ((1 << REGION_NUMBER_BITS) - 1)
    }
}

/// A block of the cache: its first granule and its size in one number. Of a
/// block of `1 << class` granules the lowest bit set is bit `class`, and the
/// granule's number stands above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlockId(pub(super) u32);

impl BlockId {
    /// `granule` must be a multiple of `1 << class`.
    pub(super) fn new(granule: u32, class: u32) -> Self {
        BlockId(granule << 1 | 1 << class)
    }

    /// Base-2 logarithm of its size in granules.
    pub(super) fn class(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// Its first granule in the cache.
    pub(super) fn granule(self) -> u32 {
        (self.0 & (self.0 - 1)) >> 1
    }
}

/// A block in the index: its first granule within the region, above its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry(pub(super) u32);

impl Entry {
    pub(super) fn new(shape: Shape, first: u32, block: BlockId) -> Self {
        Entry(first << (u32::BITS - shape.region_bits) | block.0)
    }

    pub(super) fn block(self, shape: Shape) -> BlockId {
        BlockId(self.0 & (u32::MAX >> shape.region_bits))
    }

    /// Its first granule within the region.
    pub(super) fn first(self, shape: Shape) -> u32 {
        self.0 >> (u32::BITS - shape.region_bits)
    }

    /// The granule after its last.
    pub(super) fn end(self, shape: Shape) -> u32 {
        self.first(shape) + (1 << self.block(shape).class())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_holds_the_place_and_the_size_of_a_block() {
        let shape = Shape::new("4KiB..1MiB".parse().unwrap());
        for class in 0..CLASSES as u32 {
            for granule in [0, 1 << class, 77 << class, (1 << 22) - (1 << class)] {
                let block = BlockId::new(granule, class);
                assert_eq!((block.granule(), block.class()), (granule, class));
                let first = 256 - (1 << class);
                let entry = Entry::new(shape, first, block);
                assert_eq!((entry.first(shape), entry.end(shape)), (first, 256));
                assert_eq!(entry.block(shape), block);
            }
        }
    }

    #[test]
    fn regions_hold_eight_blocks_of_the_smallest_size_at_least() {
        let fixed = Shape::new("32KiB".parse().unwrap());
        assert_eq!(fixed.region_bytes(), 256 << 10);
        let four = Shape::new(BlockSizes::ADACACHE);
        assert_eq!(
            (four.region_bytes(), four.group_bytes()),
            (256 << 10, 256 << 10)
        );
        let key = four.region_of(VolumeId(7), (300 << 10) + 5);
        assert_eq!((key.volume(), key.number()), (VolumeId(7), 1));
        let range = ByteRange {
            start: 300 << 10,
            end: 353 << 10,
        };
        assert_eq!(four.granules_of(range), (1, 4));
        assert_eq!(
            four.bytes_of(key, 1, 4),
            ByteRange {
                start: 288 << 10,
                end: 384 << 10
            }
        );
    }
}
