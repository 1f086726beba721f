//! The descriptor of a large value. It has the position of every piece and the
//! checksum of every unit of 64 KiB, so that a range read verifies only what it
//! returns.
//!
//! It is a batch of kind large without payloads, and its body is:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | value length |
//! | 4 | 4 | expiry, seconds since 1970; 0 for none |
//! | 8 | 4 | piece size: payload bytes of every piece but the last |
//! | 12 | 2 | key length |
//! | 14 | 2 | flags: bit 0 void |
//! | 16 | 8 | stream: the sequence that its pieces carry |
//! | 24 | 4 × pieces | block in the zone where each piece's payload starts |
//! | … | 4 × units | each unit's checksum |
//! | … | key length | key |
//!
//! A unit is 64 KiB, or a whole piece if pieces are shorter; the last unit ends
//! with the value. A unit's checksum is CRC-32C of generation (4), key hash
//! (8), stream (8), unit number (4), then its bytes.
//!
//! A value has two sequences because it takes long to arrive. Its pieces carry
//! the sequence at which it was begun. Its descriptor carries the sequence at
//! which it was complete, which orders it among other writes.

use std::ops::Range;

use super::batch::{BATCH_HEADER_BYTES, BatchHeader, BatchKind, NewHeader, seal_header};
use super::checksum::crc32c;
use super::error::LayoutError;
use super::ids::{
    CacheId, Generation, KEY_MAX_BYTES, LARGE_MAX_BYTES, Sequence, UNIT_BYTES, ZoneLife,
};
use super::small::RecordFlags;
use super::superblock::is_piece_size;
use super::wire::{
    first_mut, narrow, prefix_mut, put_u16, put_u32, put_u64, round_up_len, u16_at, u32_at, u64_at,
};
use crate::hash::KeyHash;

/// Length of the body's fixed part.
pub const LARGE_FIXED_BYTES: usize = 24;

/// Bytes that one checksum of a large value covers.
pub fn unit_bytes(piece_bytes: u32) -> u32 {
    piece_bytes.clamp(1, UNIT_BYTES)
}

/// Length of the descriptor of such a value, padding included. A reader that
/// knows key length and value length fetches this much.
pub fn large_descriptor_bytes(
    key_bytes: usize,
    value_bytes: u64,
    piece_bytes: u32,
    block_size: u32,
) -> usize {
    let used = (BATCH_HEADER_BYTES + LARGE_FIXED_BYTES)
        .saturating_add(key_bytes)
        .saturating_add(4usize.saturating_mul(piece_count(value_bytes, piece_bytes)))
        .saturating_add(4usize.saturating_mul(unit_count(value_bytes, piece_bytes)));
    round_up_len(used, block_size)
}

fn piece_count(value_bytes: u64, piece_bytes: u32) -> usize {
    usize::try_from(value_bytes.div_ceil(u64::from(piece_bytes.max(1)))).unwrap_or(usize::MAX)
}

fn unit_count(value_bytes: u64, piece_bytes: u32) -> usize {
    usize::try_from(value_bytes.div_ceil(u64::from(unit_bytes(piece_bytes)))).unwrap_or(usize::MAX)
}

/// The checksum of a large value's unit number `unit`.
pub fn unit_checksum(
    generation: Generation,
    hash: KeyHash,
    stream: Sequence,
    unit: u32,
    bytes: &[u8],
) -> u32 {
    let mut prefix = [0; 24];
    put_u32(&mut prefix, 0, generation.0);
    put_u64(&mut prefix, 4, hash.0);
    put_u64(&mut prefix, 12, stream.0);
    put_u32(&mut prefix, 20, unit);
    crc32c([&prefix, bytes])
}

/// The descriptor of a large value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeDescriptor {
    /// The key's hash.
    pub hash: KeyHash,
    /// The value's position in the order of writes.
    pub sequence: Sequence,
    /// The sequence that its pieces carry.
    pub stream: Sequence,
    /// The key.
    pub key: Vec<u8>,
    /// Length of the value; at most [`LARGE_MAX_BYTES`].
    pub value_bytes: u64,
    /// Seconds since 1970 when it expires; 0 for never.
    pub expiry_unix_s: u32,
    /// The record's flags.
    pub flags: RecordFlags,
    /// Payload bytes of every piece but the last.
    pub piece_bytes: u32,
    /// The block in the zone where each piece's payload starts.
    pub piece_blocks: Vec<u32>,
    /// Each unit's [`unit_checksum`].
    pub unit_checksums: Vec<u32>,
}

impl LargeDescriptor {
    /// Bytes that [`encode`](Self::encode) writes.
    pub fn encoded_bytes(&self, block_size: u32) -> usize {
        large_descriptor_bytes(
            self.key.len(),
            self.value_bytes,
            self.piece_bytes,
            block_size,
        )
    }

    /// Writes the whole batch. Returns its length and the descriptor's
    /// checksum, by which an index identifies it.
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is shorter than
    /// [`encoded_bytes`](Self::encoded_bytes); [`LayoutError::Malformed`] if
    /// the parts contradict each other.
    pub fn encode(
        &self,
        id: CacheId,
        life: ZoneLife,
        block_size: u32,
        out: &mut [u8],
    ) -> Result<(usize, u32), LayoutError> {
        self.check(block_size)?;
        let region = prefix_mut(out, self.encoded_bytes(block_size))?;
        region.fill(0);
        let body_bytes = LARGE_FIXED_BYTES
            + 4 * (self.piece_blocks.len() + self.unit_checksums.len())
            + self.key.len();
        let body = region
            .get_mut(BATCH_HEADER_BYTES..)
            .ok_or(LayoutError::Malformed("no room behind the header"))?;
        let fixed = first_mut::<LARGE_FIXED_BYTES>(body)?;
        put_u32(fixed, 0, self.value_bytes as u32);
        put_u32(fixed, 4, self.expiry_unix_s);
        put_u32(fixed, 8, self.piece_bytes);
        put_u16(fixed, 12, self.key.len() as u16);
        put_u16(fixed, 14, u16::from(self.flags.void));
        put_u64(fixed, 16, self.stream.0);
        let numbers = self.piece_blocks.iter().chain(&self.unit_checksums);
        let (fields, _) = body[LARGE_FIXED_BYTES..].as_chunks_mut::<4>();
        for (field, number) in fields.iter_mut().zip(numbers) {
            *field = number.to_le_bytes();
        }
        let key_at = body_bytes - self.key.len();
        body[key_at..body_bytes].copy_from_slice(&self.key);
        let header = NewHeader {
            kind: BatchKind::Large {
                hash: self.hash,
                pieces: narrow(self.piece_blocks.len())?,
            },
            life,
            sequence: self.sequence,
            batch_bytes: region.len(),
            body_bytes,
        };
        let checksum = seal_header(id, &header, region)?;
        Ok((region.len(), checksum))
    }

    /// Reads a descriptor and its checksum. The caller compares the checksum
    /// with the one in its index, and the key, to see whether this is the right
    /// one.
    ///
    /// # Errors
    /// [`LayoutError::Malformed`] for a batch of another kind or parts that
    /// contradict each other; otherwise as [`BatchHeader::decode`].
    pub fn decode(
        id: CacheId,
        life: ZoneLife,
        block_size: u32,
        bytes: &[u8],
    ) -> Result<(Self, u32), LayoutError> {
        let ends_early = LayoutError::Malformed("the descriptor's parts exceed its body");
        let (header, checksum) = BatchHeader::decode_with_checksum(id, life, block_size, bytes)?;
        let BatchKind::Large { hash, pieces } = header.kind else {
            return Err(LayoutError::Malformed("not a large descriptor"));
        };
        let body = header.body(id, bytes)?;
        let (fixed, rest) = body
            .split_first_chunk::<LARGE_FIXED_BYTES>()
            .ok_or(ends_early)?;
        let value_bytes = u64::from(u32_at(fixed, 0));
        let piece_bytes = u32_at(fixed, 8);
        let (blocks, rest) = split_numbers(rest, pieces as usize).ok_or(ends_early)?;
        let (checksums, key) =
            split_numbers(rest, unit_count(value_bytes, piece_bytes)).ok_or(ends_early)?;
        if key.len() != usize::from(u16_at(fixed, 12)) {
            return Err(LayoutError::Malformed(
                "the key is not as long as the header says",
            ));
        }
        let descriptor = LargeDescriptor {
            hash,
            sequence: header.sequence,
            stream: Sequence(u64_at(fixed, 16)),
            key: key.to_vec(),
            value_bytes,
            expiry_unix_s: u32_at(fixed, 4),
            flags: RecordFlags {
                void: u16_at(fixed, 14) & 1 != 0,
            },
            piece_bytes,
            piece_blocks: blocks.iter().map(|b| u32::from_le_bytes(*b)).collect(),
            unit_checksums: checksums.iter().map(|b| u32::from_le_bytes(*b)).collect(),
        };
        descriptor.check(block_size)?;
        if descriptor.encoded_bytes(block_size) != header.batch_bytes as usize {
            return Err(LayoutError::Malformed("the batch is longer than its parts"));
        }
        Ok((descriptor, checksum))
    }

    /// Checks that the parts are consistent.
    fn check(&self, block_size: u32) -> Result<(), LayoutError> {
        let wrong = |why| Err(LayoutError::Malformed(why));
        if self.value_bytes == 0 || self.value_bytes > LARGE_MAX_BYTES {
            return wrong("the value is empty or longer than 1 GiB");
        }
        if self.key.len() > KEY_MAX_BYTES {
            return wrong("the key is longer than 2048 bytes");
        }
        if !is_piece_size(self.piece_bytes, block_size) {
            return wrong("the piece size is not whole blocks and units");
        }
        if self.piece_blocks.len() != piece_count(self.value_bytes, self.piece_bytes) {
            return wrong("the number of pieces does not match the value");
        }
        if self.unit_checksums.len() != unit_count(self.value_bytes, self.piece_bytes) {
            return wrong("the number of checksums does not match the value");
        }
        Ok(())
    }

    /// The reads that cover the bytes `range` of the value, in order. There is
    /// at most one per piece, widened to whole units so that it can be
    /// verified. Bytes beyond the value's end are left out.
    pub fn reads(&self, range: Range<u64>, block_size: u32) -> PieceReads<'_> {
        let unit = u64::from(unit_bytes(self.piece_bytes));
        let end = range.end.min(self.value_bytes);
        let start = range.start.min(end);
        PieceReads {
            descriptor: self,
            block_size,
            next: start - start % unit,
            end: if start == end {
                // An empty range needs no read.
                start - start % unit
            } else {
                end.next_multiple_of(unit).min(self.value_bytes)
            },
        }
    }

    /// Length of the unit number `unit`; zero beyond the value's end.
    pub fn unit_len(&self, unit: u32) -> usize {
        let size = u64::from(unit_bytes(self.piece_bytes));
        let start = u64::from(unit) * size;
        self.value_bytes.saturating_sub(start).min(size) as usize
    }

    /// True if `bytes` are unit number `unit` of this value, written in
    /// generation `generation`.
    pub fn verify(&self, generation: Generation, unit: u32, bytes: &[u8]) -> bool {
        self.unit_checksums
            .get(unit as usize)
            .is_some_and(|&checksum| {
                bytes.len() == self.unit_len(unit)
                    && checksum == unit_checksum(generation, self.hash, self.stream, unit, bytes)
            })
    }

    /// True if `bytes`, those of a whole [`PieceRead`] without padding, belong
    /// to this value.
    pub fn verify_read(&self, generation: Generation, read: &PieceRead, bytes: &[u8]) -> bool {
        let size = unit_bytes(self.piece_bytes) as usize;
        bytes.len() == read.bytes as usize
            && (read.first_unit..)
                .zip(bytes.chunks(size))
                .all(|(unit, bytes)| self.verify(generation, unit, bytes))
    }
}

fn split_numbers(bytes: &[u8], count: usize) -> Option<(&[[u8; 4]], &[u8])> {
    let (numbers, rest) = bytes.split_at_checked(count.checked_mul(4)?)?;
    Some((numbers.as_chunks::<4>().0, rest))
}

/// One read of whole units from one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceRead {
    /// Start of the read, in bytes from the zone's start; a block boundary. It
    /// comes from flash: the caller checks it against the zone's capacity.
    pub zone_offset: u64,
    /// Bytes to use, without padding. The read itself is rounded up to whole
    /// blocks.
    pub bytes: u32,
    /// Position of these bytes in the value.
    pub value_offset: u64,
    /// The first unit among them.
    pub first_unit: u32,
}

/// See [`LargeDescriptor::reads`].
#[derive(Clone, Debug)]
pub struct PieceReads<'a> {
    descriptor: &'a LargeDescriptor,
    block_size: u32,
    next: u64,
    end: u64,
}

impl Iterator for PieceReads<'_> {
    type Item = PieceRead;

    fn next(&mut self) -> Option<PieceRead> {
        if self.next >= self.end {
            return None;
        }
        let piece_bytes = u64::from(self.descriptor.piece_bytes.max(1));
        let piece = self.next / piece_bytes;
        let within = self.next % piece_bytes;
        let block = *self
            .descriptor
            .piece_blocks
            .get(usize::try_from(piece).ok()?)?;
        let end = self.end.min((piece + 1) * piece_bytes);
        let unit = self.next / u64::from(unit_bytes(self.descriptor.piece_bytes));
        let read = PieceRead {
            zone_offset: u64::from(block) * u64::from(self.block_size) + within,
            bytes: u32::try_from(end - self.next).ok()?,
            value_offset: self.next,
            first_unit: u32::try_from(unit).ok()?,
        };
        self.next = end;
        Some(read)
    }
}

const _: () = {
    assert!(KEY_MAX_BYTES <= u16::MAX as usize);
    assert!(LARGE_MAX_BYTES <= u32::MAX as u64);
};
