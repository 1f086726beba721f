//! All structures that the engines write to flash, as pure encoders and
//! decoders: the chunk engine's here, the tiny engines' in [`tiny`], those of caches
//! of volumes in [`volume`].
//!
//! `docs/format.md` describes the same structures in prose, with media
//! assumptions, invariants and recovery. A test compares its numbers with
//! these.
//!
//! An encoder writes into a buffer of its caller and returns the length that it
//! used. A decoder takes arbitrary bytes and returns their contents or a
//! [`LayoutError`]. Neither panics, and neither knows the source or the target
//! of the bytes.
//!
//! All numbers are little-endian and of fixed width. Every structure starts at
//! a block boundary with the frame of [`frame`](self::Structure):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic, one per structure |
//! | 8 | 4 | CRC-32C of the cache id, then of bytes 12 to the covered length |
//! | 12 | 2 | format version, [`Structure::version`] |
//! | 14 | 2 | kind, for structures that have several; otherwise 0 |
//! | 16 | 4 | covered length: the bytes that the checksum covers, from offset 0 |
//! | 20 | 4 | count: number of elements after the header; otherwise 0 |
//!
//! The frame never changes between versions, so that any version can tell
//! damage from a newer format. The bytes from the covered length to the next
//! block boundary are padding, written as zeros and never read.

mod array_label;
mod batch;
mod checksum;
mod error;
mod frame;
mod ids;
mod journal;
mod large;
mod slots;
mod small;
mod structure;
mod summary;
mod superblock;
pub mod tiny;
pub mod volume;
mod wire;
mod zone_header;

#[cfg(test)]
mod tests;

pub use array_label::{ARRAY_DRIVES_MAX, ARRAY_LABEL_BYTES, ArrayLabel};
pub use batch::{
    BATCH_HEADER_BYTES, BatchHeader, BatchKind, PieceHeader, encode_piece_header,
    piece_batch_bytes, piece_bytes_max,
};
pub(crate) use checksum::crc32c;
pub use error::LayoutError;
pub use frame::FRAME_BYTES;
pub use ids::{
    CacheId, Generation, KEY_MAX_BYTES, LARGE_MAX_BYTES, SMALL_MAX_BYTES, Sequence, UNIT_BYTES,
    ValueKind, ZoneLife,
};
pub use journal::{
    JOURNAL_HEADER_BYTES, JournalBlock, JournalChain, JournalRecord, Mark, NOTE_BYTES, Note,
    SLOTS_PER_NOTE, SlotUse, SlotUses, Span,
};
pub use large::{
    LARGE_FIXED_BYTES, LargeDescriptor, PieceRead, PieceReads, large_descriptor_bytes, unit_bytes,
    unit_checksum,
};
pub use slots::{
    SLOT_ENTRY_BYTES, SLOT_HEADER_BYTES, SlotEntry, SlotGeometry, decode_slot_block,
    encode_slot_block, slot_piece_bytes,
};
pub use small::{
    NewRecord, PlacedRecord, RECORD_FIXED_BYTES, RecordFlags, RecordRef, SmallBatch,
    SmallBatchEncoder, SmallBatchPlan, small_checksum,
};
pub use structure::{
    ARRAY_FORMAT_VERSION, FORMAT_VERSION, Identified, Structure, TINY_FORMAT_VERSION,
    VOLUME_FORMAT_VERSION, identify,
};
pub use summary::{
    SUMMARY_ENTRY_BYTES, SUMMARY_HEADER_BYTES, SUMMARY_PAGE_BYTES, SummaryEntries, SummaryEntry,
    SummaryPage, SummaryShape, encode_summary, encode_summary_page, summary_bytes,
};
pub use superblock::{FormatPlan, PlanMismatch, SUPERBLOCK_BYTES, Superblock, ZoneLayout};
pub use zone_header::{ZONE_HEADER_BYTES, ZoneHeader};
