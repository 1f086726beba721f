//! The structures that a cache of volumes writes to its device.
//!
//! The device is a flat range: two copies of the superblock, the log, the table
//! of blocks with two copies of each page, and the places of blocks. The table
//! names the block at each place. The log has the changes since: a record says
//! what a place holds from now on, so that applying a record twice does no harm.
//!
//! Blocks themselves carry no checksum, because a write in place must not
//! need another one: one logical sector of the device is written whole or not at
//! all. The table may have their checksums, of which those of recent writes are unknown
//! after an unclean stop. Everything else is framed as the chunk engine's structures are.
//! `docs/format.md`, chapter "Volumes", describes the same in prose.
//!
//! | file | structure |
//! |---|---|
//! | `superblock` | identity, plan, write-intent bitmap, volumes |
//! | `log` | a batch of records |
//! | `record` | the change of one place |
//! | `table`, `shape` | a page of the table of blocks, and its entries |
//! | `witness` | on a device of its own: the volumes that went on without the cache |

mod log;
mod record;
mod shape;
mod superblock;
mod table;
mod witness;

#[cfg(test)]
mod tests;

pub use log::{BATCH_BYTES_MAX, BlockBatch, LOG_HEADER_BYTES, batch_bytes};
pub use record::{BlockRecord, Edit, MappedBlock, NO_SUM, RECORD_BYTES};
pub use shape::{TABLE_ENTRY_BYTES, TABLE_HEADER_BYTES, TABLE_PAGE_BYTES, TableShape};
pub use superblock::{
    INTENT_BITS, IntentBitmap, LOG_BYTES_MAX, LOG_BYTES_MIN, VOLUME_ENTRY_BYTES,
    VOLUME_FIXED_BYTES, VOLUME_NAME_BYTES_MAX, VOLUME_SUPERBLOCK_BYTES, VOLUMES_MAX, VolumeEntry,
    VolumeFormatPlan, VolumeSuperblock, intent_bits,
};
pub use table::TablePage;
pub use witness::{VolumeWitness, WITNESS_BYTES, WITNESS_HEADER_BYTES};

use super::checksum::crc32c;
use super::error::LayoutError;

/// Most of an epoch, a sequence or the number of a batch. No cache counts that far;
/// readers reject more, so that the next number never overflows.
const COUNT_MAX: u64 = u64::MAX >> 1;

/// The checksum of a unit of data, by its number among the units of all places: never
/// [`NO_SUM`].
pub fn unit_sum(unit: u64, data: &[u8]) -> u32 {
    crc32c([&unit.to_le_bytes(), data]).max(NO_SUM + 1)
}

fn check_counts<const N: usize>(counts: [u64; N]) -> Result<(), LayoutError> {
    match counts.into_iter().all(|count| count <= COUNT_MAX) {
        true => Ok(()),
        false => Err(LayoutError::Malformed(
            "a count is beyond all that can be counted",
        )),
    }
}
