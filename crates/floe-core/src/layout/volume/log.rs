//! A batch of the log: records that were written together.
//!
//! The log is a ring of batches. After the frame, whose count is the number of
//! records:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 8 | epoch of the log |
//! | 32 | 8 | number of the batch |
//! | 40 | 8 | stable: batches with lower numbers, and their blocks, survive a power loss |
//! | 48 | 16 each | records |

use super::record::{BlockRecord, RECORD_BYTES};
use crate::layout::error::LayoutError;
use crate::layout::frame::{Frame, open, seal};
use crate::layout::ids::CacheId;
use crate::layout::structure::Structure;
use crate::layout::volume::check_counts;
use crate::layout::wire::{first, first_mut, narrow, prefix_mut, put_u64, round_up_len, u64_at};

/// Bytes before the records.
pub const LOG_HEADER_BYTES: usize = 48;

/// Most bytes of a batch.
pub const BATCH_BYTES_MAX: usize = 64 << 10;

/// Bytes of a batch of so many records, in blocks of `block_size`.
pub fn batch_bytes(records: usize, block_size: u32) -> usize {
    round_up_len(LOG_HEADER_BYTES + records * RECORD_BYTES, block_size)
}

/// A batch of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockBatch {
    /// Changes whenever the log begins anew.
    pub epoch: u64,
    /// Counts batches within the epoch.
    pub number: u64,
    /// Batches with lower numbers, and the blocks that their records name, survive a
    /// power loss.
    pub stable: u64,
    /// The records, in their order.
    pub records: Vec<BlockRecord>,
}

impl BlockBatch {
    /// Most records of a batch.
    pub const RECORDS_MAX: usize = (BATCH_BYTES_MAX - LOG_HEADER_BYTES) / RECORD_BYTES;

    /// Writes the batch over the start of `out`, and returns its length.
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is; [`LayoutError::Malformed`] if the batch has
    /// too many records.
    pub fn encode(&self, id: CacheId, out: &mut [u8]) -> Result<usize, LayoutError> {
        if self.records.len() > Self::RECORDS_MAX {
            return Err(LayoutError::Malformed("a batch has too many records"));
        }
        let len = LOG_HEADER_BYTES + self.records.len() * RECORD_BYTES;
        let covered = prefix_mut(out, len)?;
        let head = first_mut::<LOG_HEADER_BYTES>(covered)?;
        put_u64(head, 24, self.epoch);
        put_u64(head, 32, self.number);
        put_u64(head, 40, self.stable);
        let (chunks, _) = covered[LOG_HEADER_BYTES..].as_chunks_mut::<RECORD_BYTES>();
        for (record, bytes) in self.records.iter().zip(chunks) {
            record.encode(bytes);
        }
        let frame = Frame {
            structure: Structure::BlockLog,
            kind: 0,
            count: narrow(self.records.len())?,
        };
        seal(id, frame, covered)?;
        Ok(len)
    }

    /// Reads the batch at the start of `bytes`.
    ///
    /// # Errors
    /// The errors of every structure; see [`LayoutError`].
    pub fn decode(id: CacheId, bytes: &[u8]) -> Result<Self, LayoutError> {
        let opened = open(id, Structure::BlockLog, bytes)?;
        let head = first::<LOG_HEADER_BYTES>(opened.covered)?;
        let (chunks, rest) = opened.covered[LOG_HEADER_BYTES..].as_chunks::<RECORD_BYTES>();
        let is_whole = rest.is_empty() && chunks.len() == opened.count as usize;
        if !is_whole || chunks.len() > Self::RECORDS_MAX {
            return Err(LayoutError::Malformed("the count of records is wrong"));
        }
        let (epoch, number, stable) = (u64_at(head, 24), u64_at(head, 32), u64_at(head, 40));
        check_counts([epoch, number, stable])?;
        Ok(BlockBatch {
            epoch,
            number,
            stable,
            records: chunks
                .iter()
                .map(BlockRecord::decode)
                .collect::<Result<_, _>>()?,
        })
    }
}
