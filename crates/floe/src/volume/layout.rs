//! The places of things on the cache device.

use floe_core::ByteSize;
use floe_core::layout::volume::{
    LOG_BYTES_MAX, TABLE_PAGE_BYTES, TableShape, VOLUME_SUPERBLOCK_BYTES, VolumeFormatPlan,
};

use super::config::VolumeCacheConfig;
use super::error::OpenVolumesError;

/// Parts of the device begin at multiples of this.
const PLAN_UNIT: u64 = 4096;

/// The log has whole units.
const LOG_UNIT: u64 = 1 << 20;

/// Most shards that are chosen by default.
const SHARDS_MAX: u64 = 16;

/// Groups that a shard has at least by default.
const GROUPS_MIN: u64 = 16;

/// The plan of the cache that `plan` laid out on a device that now has `size` bytes: the
/// table moves to the end, and places follow the old ones. `None` if what was added has
/// no room for a table besides what is in use.
pub(super) fn grown(plan: &VolumeFormatPlan, size: u64) -> Option<VolumeFormatPlan> {
    let granule = u64::from(plan.granule_bytes);
    let shape = plan.shape()?;
    let page = 2 * TABLE_PAGE_BYTES as u64;
    let entries = u64::from(shape.entries());
    let room = size.checked_sub(plan.places_offset)?;
    let pages = room / (page + entries * granule) + 1;
    let table_offset = size.checked_sub(pages * page)? / PLAN_UNIT * PLAN_UNIT;
    let granules = table_offset.checked_sub(plan.places_offset)? / granule;
    let granules = granules.min(pages * entries).min(u64::from(u32::MAX));
    let grown = VolumeFormatPlan {
        table_offset,
        places_bytes: granules * granule,
        ..*plan
    };
    (table_offset >= plan.end() && grown.places_bytes > plan.places_bytes).then_some(grown)
}

/// Divides a device of `size` bytes: superblocks, log, table, places.
pub(super) fn plan(
    size: u64,
    block_size: u32,
    config: &VolumeCacheConfig,
) -> Result<VolumeFormatPlan, OpenVolumesError> {
    let granule = config.sizes.smallest().bytes();
    let group = config.sizes.largest().bytes().max(granule << 3);
    let log_offset = 2 * VOLUME_SUPERBLOCK_BYTES as u64;
    let log_bytes = (size / 2048)
        .next_multiple_of(LOG_UNIT)
        .clamp(LOG_UNIT, LOG_BYTES_MAX);
    let table_offset = log_offset + log_bytes;
    let shape = TableShape::of_cache(granule as u32, block_size, config.checksums);
    let shape = shape.ok_or(OpenVolumesError::TooManySums {
        granule: granule as u32,
        block_size,
    })?;
    let page = 2 * TABLE_PAGE_BYTES as u64;
    // One page more than its share of the room serves the last, partial one.
    let room = size.saturating_sub(table_offset);
    let entries = u64::from(shape.entries());
    let pages = room / (page + entries * granule) + 1;
    let places_offset = (table_offset + pages * page).next_multiple_of(granule);
    let granules = size.saturating_sub(places_offset) / granule;
    let granules = granules.min(pages * entries).min(u64::from(u32::MAX));
    let needed = places_offset + 4 * group;
    if size < needed {
        return Err(OpenVolumesError::TooSmall { size, needed });
    }
    let shards = match config.shards {
        0 => (granules * granule / (group * GROUPS_MIN)).clamp(1, SHARDS_MAX) as u32,
        shards => shards,
    };
    Ok(VolumeFormatPlan {
        block_size,
        granule_bytes: granule as u32,
        classes: config.sizes.classes(),
        shards,
        log_offset,
        log_bytes,
        table_offset,
        places_offset,
        places_bytes: granules * granule,
        checksums: config.checksums,
    })
}

impl VolumeCacheConfig {
    /// The bytes of a cache device with blocks of `block_bytes` that has room for
    /// `capacity` bytes of cached blocks.
    ///
    /// # Errors
    /// The capacity is too small for these sizes of blocks.
    pub fn device_bytes(
        &self,
        capacity: ByteSize,
        block_bytes: u32,
    ) -> Result<ByteSize, OpenVolumesError> {
        let capacity = capacity.bytes();
        let mut size = 2 * VOLUME_SUPERBLOCK_BYTES as u64 + LOG_UNIT + capacity;
        loop {
            size = size.next_multiple_of(u64::from(block_bytes));
            let places = plan(size, block_bytes, self)?.places_bytes;
            if places >= capacity {
                return Ok(ByteSize(size));
            }
            size += capacity - places;
        }
    }
}
