//! Batches of small records.
//!
//! The body of the descriptor region is one record after another:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | key hash |
//! | 8 | 8 | sequence |
//! | 16 | 4 | payload offset from the batch's start; a block boundary |
//! | 20 | 4 | payload length, without padding |
//! | 24 | 4 | checksum: CRC-32C of generation (4), key length (2), key, payload |
//! | 28 | 4 | expiry, seconds since 1970; 0 for none |
//! | 32 | 2 | key length |
//! | 34 | 2 | flags: bit 0 void, the record was dead before it was written |
//! | 36 | key length | key |
//!
//! The payloads follow the region in the same order.

use super::batch::{BATCH_HEADER_BYTES, BatchHeader, BatchKind, NewHeader, seal_header};
use super::checksum::crc32c;
use super::error::LayoutError;
use super::ids::{CacheId, Generation, KEY_MAX_BYTES, SMALL_MAX_BYTES, Sequence, ZoneLife};
use super::wire::{
    narrow, prefix_mut, put_u16, put_u32, put_u64, round_up, round_up_len, u16_at, u32_at, u64_at,
};
use crate::hash::KeyHash;

/// Length of a record's descriptor without its key.
pub const RECORD_FIXED_BYTES: usize = 36;

/// The checksum of a small value. It binds the bytes to their key and to one
/// life of their zone, so that nothing else that flash returns passes for them.
pub fn small_checksum(key: &[u8], generation: Generation, payload: &[u8]) -> u32 {
    let mut prefix = [0; 6];
    put_u32(&mut prefix, 0, generation.0);
    // Keys have at most 2048 bytes; a longer one would still have a checksum of
    // its own.
    put_u16(&mut prefix, 4, key.len() as u16);
    crc32c([&prefix, key, payload])
}

/// The flags of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFlags {
    /// The record was deleted or overwritten before it was written. Recovery
    /// must not index it.
    pub void: bool,
}

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// The key's hash.
    pub hash: KeyHash,
    /// The record's position in the order of writes.
    pub sequence: Sequence,
    /// Seconds since 1970 when it expires; 0 for never.
    pub expiry_unix_s: u32,
    /// Its flags.
    pub flags: RecordFlags,
    /// The key; at most [`KEY_MAX_BYTES`].
    pub key: &'a [u8],
    /// The value; at most [`SMALL_MAX_BYTES`].
    pub payload: &'a [u8],
}

/// The position and checksum of a written record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedRecord {
    /// The payload's offset from the batch's start.
    pub payload_offset: u32,
    /// The payload's [`small_checksum`].
    pub checksum: u32,
}

/// The size of a batch while it is planned. It holds no records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallBatchPlan {
    block_size: u32,
    batch_bytes_max: u32,
    records: u32,
    body_bytes: u32,
    payload_bytes: u32,
}

impl SmallBatchPlan {
    /// An empty batch that may grow to `batch_bytes_max`.
    pub fn new(block_size: u32, batch_bytes_max: u32) -> Self {
        SmallBatchPlan {
            block_size: block_size.max(1),
            batch_bytes_max,
            records: 0,
            body_bytes: 0,
            payload_bytes: 0,
        }
    }

    /// Adds a record. Returns `false` and changes nothing if the batch would
    /// exceed its limit, or if the record is too long.
    #[must_use]
    pub fn try_add(&mut self, key_bytes: usize, payload_bytes: usize) -> bool {
        match self.with(key_bytes, payload_bytes) {
            Some(grown) => {
                *self = grown;
                true
            }
            None => false,
        }
    }

    /// True if [`try_add`](Self::try_add) would add this record.
    pub fn fits(&self, key_bytes: usize, payload_bytes: usize) -> bool {
        self.with(key_bytes, payload_bytes).is_some()
    }

    fn with(mut self, key_bytes: usize, payload_bytes: usize) -> Option<Self> {
        if key_bytes > KEY_MAX_BYTES || payload_bytes > SMALL_MAX_BYTES {
            return None;
        }
        let record = u32::try_from(RECORD_FIXED_BYTES + key_bytes).ok()?;
        let payload = u32::try_from(round_up(payload_bytes as u64, self.block_size)).ok()?;
        self.records = self.records.checked_add(1)?;
        self.body_bytes = self.body_bytes.checked_add(record)?;
        self.payload_bytes = self.payload_bytes.checked_add(payload)?;
        let total = self.region_bytes() + u64::from(self.payload_bytes);
        (total <= u64::from(self.batch_bytes_max)).then_some(self)
    }

    fn region_bytes(&self) -> u64 {
        round_up(
            BATCH_HEADER_BYTES as u64 + u64::from(self.body_bytes),
            self.block_size,
        )
    }

    /// Number of records so far.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// True if no record was added yet.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Length of the descriptor region so far.
    pub fn descriptor_bytes(&self) -> usize {
        usize::try_from(self.region_bytes()).unwrap_or(usize::MAX)
    }

    /// Length of the whole batch so far.
    pub fn batch_bytes(&self) -> usize {
        self.descriptor_bytes()
            .saturating_add(self.payload_bytes as usize)
    }
}

/// Writes a planned batch into a buffer, record by record.
///
/// The records pushed must be those of the plan, in any order. Other records
/// give an error, never a wrong batch.
#[derive(Debug)]
pub struct SmallBatchEncoder<'a> {
    id: CacheId,
    life: ZoneLife,
    plan: SmallBatchPlan,
    out: &'a mut [u8],
    first_sequence: Sequence,
    records: u32,
    body_end: usize,
    payload_end: usize,
}

impl<'a> SmallBatchEncoder<'a> {
    /// Starts a batch at the beginning of `out`.
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is shorter than the plan's
    /// [`batch_bytes`](SmallBatchPlan::batch_bytes); [`LayoutError::Malformed`]
    /// for a plan of no records.
    pub fn new(
        plan: &SmallBatchPlan,
        id: CacheId,
        life: ZoneLife,
        out: &'a mut [u8],
    ) -> Result<Self, LayoutError> {
        if plan.is_empty() {
            return Err(LayoutError::Malformed("a batch of no records"));
        }
        Ok(SmallBatchEncoder {
            id,
            life,
            plan: *plan,
            out: prefix_mut(out, plan.batch_bytes())?,
            first_sequence: Sequence(0),
            records: 0,
            body_end: BATCH_HEADER_BYTES,
            payload_end: plan.descriptor_bytes(),
        })
    }

    /// Writes one record: its descriptor, its payload and the payload's
    /// padding.
    ///
    /// # Errors
    /// [`LayoutError::Malformed`] if the record was not planned for. The batch
    /// is then unchanged.
    pub fn push(&mut self, record: &NewRecord<'_>) -> Result<PlacedRecord, LayoutError> {
        let unplanned = LayoutError::Malformed("a record that is not in the batch's plan");
        if record.key.len() > KEY_MAX_BYTES || record.payload.len() > SMALL_MAX_BYTES {
            return Err(unplanned);
        }
        let body_end = self.body_end + RECORD_FIXED_BYTES + record.key.len();
        let payload_end =
            self.payload_end + round_up_len(record.payload.len(), self.plan.block_size);
        let (region, _) = self
            .out
            .split_at_mut_checked(self.plan.descriptor_bytes())
            .ok_or(unplanned)?;
        let slot = region.get_mut(self.body_end..body_end).ok_or(unplanned)?;
        let (fixed, key) = slot
            .split_first_chunk_mut::<RECORD_FIXED_BYTES>()
            .ok_or(unplanned)?;
        if payload_end > self.plan.batch_bytes() {
            return Err(unplanned);
        }
        let placed = PlacedRecord {
            payload_offset: narrow(self.payload_end)?,
            checksum: small_checksum(record.key, self.life.generation, record.payload),
        };
        put_u64(fixed, 0, record.hash.0);
        put_u64(fixed, 8, record.sequence.0);
        put_u32(fixed, 16, placed.payload_offset);
        put_u32(fixed, 20, record.payload.len() as u32);
        put_u32(fixed, 24, placed.checksum);
        put_u32(fixed, 28, record.expiry_unix_s);
        put_u16(fixed, 32, record.key.len() as u16);
        put_u16(fixed, 34, u16::from(record.flags.void));
        key.copy_from_slice(record.key);
        let target = self
            .out
            .get_mut(self.payload_end..payload_end)
            .ok_or(unplanned)?;
        let (payload, padding) = target
            .split_at_mut_checked(record.payload.len())
            .ok_or(unplanned)?;
        payload.copy_from_slice(record.payload);
        padding.fill(0);
        if self.records == 0 {
            self.first_sequence = record.sequence;
        }
        self.records += 1;
        self.body_end = body_end;
        self.payload_end = payload_end;
        Ok(placed)
    }

    /// Writes the header and returns the batch's length.
    ///
    /// # Errors
    /// [`LayoutError::Malformed`] if fewer records were pushed than planned.
    pub fn finish(self) -> Result<usize, LayoutError> {
        let batch_bytes = self.plan.batch_bytes();
        if self.records != self.plan.records || self.payload_end != batch_bytes {
            return Err(LayoutError::Malformed("fewer records than were planned"));
        }
        let region = prefix_mut(self.out, self.plan.descriptor_bytes())?;
        if let Some(padding) = region.get_mut(self.body_end..) {
            padding.fill(0);
        }
        let header = NewHeader {
            kind: BatchKind::Small {
                records: self.records,
            },
            life: self.life,
            sequence: self.first_sequence,
            batch_bytes,
            body_bytes: self.body_end - BATCH_HEADER_BYTES,
        };
        seal_header(self.id, &header, region)?;
        Ok(batch_bytes)
    }
}

/// A record as its batch's descriptor region describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// The key's hash, as it was when written.
    pub hash: KeyHash,
    /// The record's position in the order of writes.
    pub sequence: Sequence,
    /// The payload's offset from the batch's start.
    pub payload_offset: u32,
    /// The payload's length, without padding.
    pub payload_bytes: u32,
    /// The payload's [`small_checksum`].
    pub checksum: u32,
    /// Seconds since 1970 when it expires; 0 for never.
    pub expiry_unix_s: u32,
    /// Its flags.
    pub flags: RecordFlags,
    /// The key.
    pub key: &'a [u8],
}

impl<'a> RecordRef<'a> {
    /// Splits one record off the front of `body`.
    fn split_off(body: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (fixed, rest) = body.split_first_chunk::<RECORD_FIXED_BYTES>()?;
        let (key, rest) = rest.split_at_checked(usize::from(u16_at(fixed, 32)))?;
        let record = RecordRef {
            hash: KeyHash(u64_at(fixed, 0)),
            sequence: Sequence(u64_at(fixed, 8)),
            payload_offset: u32_at(fixed, 16),
            payload_bytes: u32_at(fixed, 20),
            checksum: u32_at(fixed, 24),
            expiry_unix_s: u32_at(fixed, 28),
            flags: RecordFlags {
                void: u16_at(fixed, 34) & 1 != 0,
            },
            key,
        };
        Some((record, rest))
    }

    /// The record's payload in its whole batch, if `batch` is long enough.
    pub fn payload_in<'b>(&self, batch: &'b [u8]) -> Option<&'b [u8]> {
        let start = self.payload_offset as usize;
        batch.get(start..start.checked_add(self.payload_bytes as usize)?)
    }

    /// True if `payload` belongs to this record, written in generation
    /// `generation`.
    pub fn verify(&self, generation: Generation, payload: &[u8]) -> bool {
        payload.len() == self.payload_bytes as usize
            && small_checksum(self.key, generation, payload) == self.checksum
    }
}

/// The checked descriptor region of a batch of small records.
#[derive(Clone, Copy, Debug)]
pub struct SmallBatch<'a> {
    header: BatchHeader,
    records: u32,
    body: &'a [u8],
}

impl<'a> SmallBatch<'a> {
    /// Reads the descriptor region at the start of `bytes`; its length is in
    /// its [`BatchHeader`]. Payloads are not read: each has a checksum of its
    /// own.
    ///
    /// # Errors
    /// [`LayoutError::Malformed`] for a batch of another kind or records that
    /// lie outside the batch; otherwise as [`BatchHeader::decode`].
    pub fn decode(
        id: CacheId,
        life: ZoneLife,
        block_size: u32,
        bytes: &'a [u8],
    ) -> Result<Self, LayoutError> {
        let header = BatchHeader::decode(id, life, block_size, bytes)?;
        let BatchKind::Small { records } = header.kind else {
            return Err(LayoutError::Malformed("not a batch of small records"));
        };
        let body = header.body(id, bytes)?;
        check_records(&header, records, block_size, body)?;
        Ok(SmallBatch {
            header,
            records,
            body,
        })
    }

    /// The batch's header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The records, in the order they were written.
    pub fn records(&self) -> impl Iterator<Item = RecordRef<'a>> + use<'a> {
        let mut rest = self.body;
        (0..self.records).map_while(move |_| {
            let (record, after) = RecordRef::split_off(rest)?;
            rest = after;
            Some(record)
        })
    }
}

fn check_records(
    header: &BatchHeader,
    records: u32,
    block_size: u32,
    body: &[u8],
) -> Result<(), LayoutError> {
    let wrong = |why| Err(LayoutError::Malformed(why));
    let mut rest = body;
    let mut payload_end = u64::from(header.descriptor_bytes);
    for _ in 0..records {
        let Some((record, after)) = RecordRef::split_off(rest) else {
            return wrong("fewer records than the header counts");
        };
        if record.key.len() > KEY_MAX_BYTES {
            return wrong("the key is longer than 2048 bytes");
        }
        if record.payload_bytes as usize > SMALL_MAX_BYTES {
            return wrong("the small record is longer than 256 KiB");
        }
        if u64::from(record.payload_offset) != payload_end {
            return wrong("a payload that does not start where the last one ended");
        }
        payload_end += round_up(u64::from(record.payload_bytes), block_size);
        rest = after;
    }
    if !rest.is_empty() {
        return wrong("more records than the header counts");
    }
    if payload_end != u64::from(header.batch_bytes) {
        return wrong("the batch's length is not that of its parts");
    }
    Ok(())
}

const _: () = {
    // The casts to 32 and 16 bits above are of checked lengths.
    assert!(KEY_MAX_BYTES <= u16::MAX as usize);
    assert!(SMALL_MAX_BYTES <= u32::MAX as usize);
};
