//! Batches: one device append each, self-describing.
//!
//! A batch is a descriptor region of whole blocks, then payloads, each starting
//! at a block boundary. The region starts with this header. The rest of the
//! used region, the body, depends on the kind: records
//! ([`small`](super::SmallBatch)), nothing (a piece), or a large descriptor
//! ([`large`](super::LargeDescriptor)).
//!
//! The frame comes first. Its kind is 1 small, 2 piece, 3 large. Its count is
//! the number of records, the piece's number, or the number of pieces. Then:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 4 | zone |
//! | 28 | 4 | generation |
//! | 32 | 4 | length of the whole batch: the next one starts there |
//! | 36 | 4 | length of the descriptor region |
//! | 40 | 8 | sequence: the first record's, or the large value's |
//! | 48 | 8 | key hash of the large value; 0 in a small batch |
//! | 56 | 4 | payload length of a piece, without padding; otherwise 0 |
//! | 60 | 4 | zero |
//! | 64 | 4 | length of the body |
//! | 68 | 4 | CRC-32C of the cache id, then the body |
//!
//! The frame covers these 72 bytes alone. A reader can therefore step to the
//! next batch safely after reading only the first block of this one. The
//! header's checksum covers that of the body, and so stands for the whole
//! descriptor.

use super::checksum::crc32c;
use super::error::LayoutError;
use super::frame::{Frame, open, seal};
use super::ids::{CacheId, Sequence, ZoneLife};
use super::structure::Structure;
use super::wire::{
    first, first_mut, narrow, prefix_mut, put_u32, put_u64, round_up, round_up_len, u32_at, u64_at,
};
use super::zone_header::{expect_life, put_life};
use crate::hash::KeyHash;

/// Length of the header that every batch starts with.
pub const BATCH_HEADER_BYTES: usize = 72;

/// The contents of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// Whole small values.
    Small {
        /// Number of records.
        records: u32,
    },
    /// A part of a large value.
    Piece(PieceHeader),
    /// The descriptor of a large value, and no payload.
    Large {
        /// The key's hash.
        hash: KeyHash,
        /// Number of pieces that it lists.
        pieces: u32,
    },
}

/// Identifies the part of a large value that a piece batch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceHeader {
    /// The key's hash.
    pub hash: KeyHash,
    /// The value's sequence.
    pub sequence: Sequence,
    /// The piece's place among the value's pieces, from zero.
    pub number: u32,
    /// Length of the payload without padding.
    pub payload_bytes: u32,
}

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The contents.
    pub kind: BatchKind,
    /// The zone, and the life of it in which the batch was written.
    pub life: ZoneLife,
    /// Length of the whole batch: whole blocks, and at least one.
    pub batch_bytes: u32,
    /// Length of the descriptor region: whole blocks, and at least one.
    pub descriptor_bytes: u32,
    /// The first record's sequence, or the large value's.
    pub sequence: Sequence,
    /// Length of the body, which follows this header.
    pub body_bytes: u32,
    /// The body's checksum, checked when the body is read.
    body_checksum: u32,
}

impl BatchHeader {
    /// Reads a batch's header; [`BATCH_HEADER_BYTES`] are enough. The body is
    /// not read.
    ///
    /// # Errors
    /// [`LayoutError::Stale`] if the batch is not of the zone's life `life`;
    /// otherwise as every decoder.
    pub fn decode(
        id: CacheId,
        life: ZoneLife,
        block_size: u32,
        bytes: &[u8],
    ) -> Result<Self, LayoutError> {
        Ok(Self::decode_with_checksum(id, life, block_size, bytes)?.0)
    }

    /// As [`decode`](Self::decode), and returns the header's checksum too.
    pub(super) fn decode_with_checksum(
        id: CacheId,
        life: ZoneLife,
        block_size: u32,
        bytes: &[u8],
    ) -> Result<(Self, u32), LayoutError> {
        let opened = open(id, Structure::Batch, bytes)?;
        let bytes = first::<BATCH_HEADER_BYTES>(opened.covered)
            .map_err(|_| LayoutError::Malformed("the batch header ends early"))?;
        expect_life(bytes, 24, life)?;
        let sequence = Sequence(u64_at(bytes, 40));
        let hash = KeyHash(u64_at(bytes, 48));
        let kind = match opened.kind {
            1 => BatchKind::Small {
                records: opened.count,
            },
            2 => BatchKind::Piece(PieceHeader {
                hash,
                sequence,
                number: opened.count,
                payload_bytes: u32_at(bytes, 56),
            }),
            3 => BatchKind::Large {
                hash,
                pieces: opened.count,
            },
            _ => return Err(LayoutError::Malformed("unknown batch kind")),
        };
        let header = BatchHeader {
            kind,
            life,
            batch_bytes: u32_at(bytes, 32),
            descriptor_bytes: u32_at(bytes, 36),
            sequence,
            body_bytes: u32_at(bytes, 64),
            body_checksum: u32_at(bytes, 68),
        };
        header.check(block_size)?;
        Ok((header, opened.checksum))
    }

    /// Checks that the lengths are consistent.
    fn check(&self, block_size: u32) -> Result<(), LayoutError> {
        let wrong = |why| Err(LayoutError::Malformed(why));
        let block = block_size.max(1);
        let used = u64::from(self.body_bytes) + BATCH_HEADER_BYTES as u64;
        if self.descriptor_bytes == 0 || !self.descriptor_bytes.is_multiple_of(block) {
            return wrong("the descriptor region is not whole blocks");
        }
        if !self.batch_bytes.is_multiple_of(block) {
            return wrong("the batch is not whole blocks");
        }
        if used > u64::from(self.descriptor_bytes) {
            return wrong("the body is longer than the descriptor region");
        }
        let payload_bytes = match self.kind {
            BatchKind::Small { records: 0 } => return wrong("a batch of no records"),
            // Its payloads are checked one by one with its records.
            BatchKind::Small { .. } => {
                if self.batch_bytes < self.descriptor_bytes {
                    return wrong("the batch is shorter than its descriptor region");
                }
                return Ok(());
            }
            BatchKind::Piece(piece) => {
                if self.body_bytes != 0 || piece.payload_bytes == 0 {
                    return wrong("a piece with a body or without a payload");
                }
                piece.payload_bytes
            }
            BatchKind::Large { .. } => 0,
        };
        let total =
            u64::from(self.descriptor_bytes) + round_up(u64::from(payload_bytes), block_size);
        if total != u64::from(self.batch_bytes) {
            return wrong("the batch's length is not that of its parts");
        }
        Ok(())
    }

    /// The body within the descriptor region `bytes`, checked.
    pub(super) fn body<'a>(&self, id: CacheId, bytes: &'a [u8]) -> Result<&'a [u8], LayoutError> {
        let end = BATCH_HEADER_BYTES.saturating_add(self.body_bytes as usize);
        let body = bytes
            .get(BATCH_HEADER_BYTES..end)
            .ok_or(LayoutError::TooShort {
                needed: end,
                available: bytes.len(),
            })?;
        if body_checksum(id, body) == self.body_checksum {
            Ok(body)
        } else {
            Err(LayoutError::BadChecksum)
        }
    }
}

/// The header of a batch whose descriptor region an encoder has filled.
pub(super) struct NewHeader {
    pub(super) kind: BatchKind,
    pub(super) life: ZoneLife,
    pub(super) sequence: Sequence,
    pub(super) batch_bytes: usize,
    pub(super) body_bytes: usize,
}

/// Writes the header in front of a final body. `region` is the whole descriptor
/// region. Returns the header's checksum.
pub(super) fn seal_header(
    id: CacheId,
    new: &NewHeader,
    region: &mut [u8],
) -> Result<u32, LayoutError> {
    let end = BATCH_HEADER_BYTES.saturating_add(new.body_bytes);
    let body = region
        .get(BATCH_HEADER_BYTES..end)
        .ok_or(LayoutError::TooShort {
            needed: end,
            available: region.len(),
        })?;
    let checksum = body_checksum(id, body);
    let descriptor_bytes = narrow(region.len())?;
    let (kind, count, hash, payload_bytes) = match new.kind {
        BatchKind::Small { records } => (1, records, KeyHash(0), 0),
        BatchKind::Piece(piece) => (2, piece.number, piece.hash, piece.payload_bytes),
        BatchKind::Large { hash, pieces } => (3, pieces, hash, 0),
    };
    let header = first_mut::<BATCH_HEADER_BYTES>(region)?;
    header.fill(0);
    put_life(header, 24, new.life);
    put_u32(header, 32, narrow(new.batch_bytes)?);
    put_u32(header, 36, descriptor_bytes);
    put_u64(header, 40, new.sequence.0);
    put_u64(header, 48, hash.0);
    put_u32(header, 56, payload_bytes);
    put_u32(header, 64, narrow(new.body_bytes)?);
    put_u32(header, 68, checksum);
    let frame = Frame {
        structure: Structure::Batch,
        kind,
        count,
    };
    seal(id, frame, header)
}

fn body_checksum(id: CacheId, body: &[u8]) -> u32 {
    crc32c([&id.0, body])
}

/// Length of a piece batch whose payload is `payload_bytes` long.
pub fn piece_batch_bytes(payload_bytes: u32, block_size: u32) -> u64 {
    round_up_len(BATCH_HEADER_BYTES, block_size) as u64
        + round_up(u64::from(payload_bytes), block_size)
}

/// The largest piece whose batch fits one append of `append_bytes`, or `None`
/// if not even one block of payload fits.
pub fn piece_bytes_max(append_bytes: u32, block_size: u32) -> Option<u32> {
    let header = u32::try_from(round_up_len(BATCH_HEADER_BYTES, block_size)).ok()?;
    let room = append_bytes.checked_sub(header)?;
    let unit = super::ids::UNIT_BYTES;
    // A piece shorter than one unit is its own unit, of any whole number of
    // blocks.
    let granule = if room >= unit {
        unit
    } else {
        block_size.max(1)
    };
    Some(room - room % granule).filter(|&bytes| bytes > 0)
}

/// Writes the descriptor region of a piece batch and returns its length. The
/// payload follows it, padded to whole blocks.
///
/// # Errors
/// [`LayoutError::TooShort`] if `out` is shorter than the region, which is
/// [`BATCH_HEADER_BYTES`] rounded up to whole blocks;
/// [`LayoutError::Malformed`] for a piece without payload.
pub fn encode_piece_header(
    id: CacheId,
    life: ZoneLife,
    piece: PieceHeader,
    block_size: u32,
    out: &mut [u8],
) -> Result<usize, LayoutError> {
    if piece.payload_bytes == 0 {
        return Err(LayoutError::Malformed("a piece without a payload"));
    }
    let region = prefix_mut(out, round_up_len(BATCH_HEADER_BYTES, block_size))?;
    region.fill(0);
    let header = NewHeader {
        kind: BatchKind::Piece(piece),
        life,
        sequence: piece.sequence,
        batch_bytes: usize::try_from(piece_batch_bytes(piece.payload_bytes, block_size))
            .unwrap_or(usize::MAX),
        body_bytes: 0,
    };
    seal_header(id, &header, region)?;
    Ok(region.len())
}
