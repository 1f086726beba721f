//! The places of things on the cache device.

use floe_core::layout::volume::{
    LOG_BYTES_MAX, TABLE_PAGE_BYTES, TableShape, VOLUME_SUPERBLOCK_BYTES, VolumeFormatPlan,
};
use floe_core::volume::BlockSizes;

use super::error::OpenVolumesError;

/// The log has whole units.
const LOG_UNIT: u64 = 1 << 20;

/// Most shards that are chosen by default.
const SHARDS_MAX: u64 = 16;

/// Groups that a shard has at least by default.
const GROUPS_MIN: u64 = 16;

/// Divides a device of `size` bytes: superblocks, log, table, places.
pub(super) fn plan(
    size: u64,
    block_size: u32,
    sizes: BlockSizes,
    shards: u32,
) -> Result<VolumeFormatPlan, OpenVolumesError> {
    let granule = sizes.smallest().bytes();
    let group = sizes.largest().bytes().max(granule << 3);
    let log_offset = 2 * VOLUME_SUPERBLOCK_BYTES as u64;
    let log_bytes = (size / 2048)
        .next_multiple_of(LOG_UNIT)
        .clamp(LOG_UNIT, LOG_BYTES_MAX);
    let table_offset = log_offset + log_bytes;
    let shape = TableShape::new(granule as u32);
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
    let shards = match shards {
        0 => (granules * granule / (group * GROUPS_MIN)).clamp(1, SHARDS_MAX) as u32,
        shards => shards,
    };
    Ok(VolumeFormatPlan {
        block_size,
        granule_bytes: granule as u32,
        classes: sizes.classes(),
        shards,
        log_offset,
        log_bytes,
        table_offset,
        places_offset,
        places_bytes: granules * granule,
    })
}

/// The bytes of a device whose places have `capacity` bytes.
pub(super) fn device_bytes(
    capacity: u64,
    block_size: u32,
    sizes: BlockSizes,
    shards: u32,
) -> Result<u64, OpenVolumesError> {
    let mut size = 2 * VOLUME_SUPERBLOCK_BYTES as u64 + LOG_UNIT + capacity;
    loop {
        size = size.next_multiple_of(u64::from(block_size));
        let places = plan(size, block_size, sizes, shards)?.places_bytes;
        if places >= capacity {
            return Ok(size);
        }
        size += capacity - places;
    }
}
