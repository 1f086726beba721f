//! Zones of slots: each slot holds one chunk and is rewritten in place; a table
//! describes them.
//!
//! A zone is its header block, the table, then the slots. A slot has space for
//! a chunk's payload. If chunks may be longer than small values, space for a
//! large descriptor comes first. After a table block's frame, whose count is
//! the number of entries:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 4 | zone |
//! | 28 | 4 | generation |
//! | 32 | 4 | number of this block in the table, from zero |
//! | 36 | 4 | zero |
//! | 40 | 32 × count | entries |
//!
//! and an entry, all zeros for an empty slot:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | key hash |
//! | 8 | 8 | sequence |
//! | 16 | 4 | value length |
//! | 20 | 4 | checksum: the small one, or the large descriptor's |
//! | 24 | 4 | expiry, seconds since 1970; 0 for none |
//! | 28 | 2 | kind: 0 empty, 1 small, 2 large |
//! | 30 | 2 | key length |
//!
//! A block is the unit of rewriting: a torn block loses its own slots and no
//! others.

use super::error::LayoutError;
use super::frame::{Frame, open, seal};
use super::ids::{
    CacheId, KEY_MAX_BYTES, LARGE_MAX_BYTES, SMALL_MAX_BYTES, Sequence, UNIT_BYTES, ValueKind,
    ZoneLife,
};
use super::large::large_descriptor_bytes;
use super::structure::Structure;
use super::wire::{
    first_mut, narrow, prefix_mut, put_u16, put_u32, put_u64, round_up, u16_at, u32_at, u64_at,
};
use super::zone_header::{expect_life, put_life};
use crate::hash::KeyHash;

/// Length of a table block's header.
pub const SLOT_HEADER_BYTES: usize = 40;

/// Length of an entry.
pub const SLOT_ENTRY_BYTES: usize = 32;

/// The contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotEntry {
    /// The key's hash.
    pub hash: KeyHash,
    /// The value's position in the order of writes.
    pub sequence: Sequence,
    /// Length of the value.
    pub value_bytes: u32,
    /// The small checksum, or the large descriptor's.
    pub checksum: u32,
    /// Seconds since 1970 when it expires; 0 for never.
    pub expiry_unix_s: u32,
    /// The placement of the value in the slot.
    pub kind: ValueKind,
    /// Length of the key.
    pub key_bytes: u16,
}

impl SlotEntry {
    fn put(&self, bytes: &mut [u8; SLOT_ENTRY_BYTES]) {
        put_u64(bytes, 0, self.hash.0);
        put_u64(bytes, 8, self.sequence.0);
        put_u32(bytes, 16, self.value_bytes);
        put_u32(bytes, 20, self.checksum);
        put_u32(bytes, 24, self.expiry_unix_s);
        put_u16(bytes, 28, self.kind.code());
        put_u16(bytes, 30, self.key_bytes);
    }

    fn read(bytes: &[u8; SLOT_ENTRY_BYTES]) -> Result<Option<Self>, LayoutError> {
        let code = u16_at(bytes, 28);
        if code == 0 {
            return Ok(None);
        }
        let kind = ValueKind::from_code(code)
            .ok_or(LayoutError::Malformed("a slot entry of unknown kind"))?;
        Ok(Some(SlotEntry {
            hash: KeyHash(u64_at(bytes, 0)),
            sequence: Sequence(u64_at(bytes, 8)),
            value_bytes: u32_at(bytes, 16),
            checksum: u32_at(bytes, 20),
            expiry_unix_s: u32_at(bytes, 24),
            kind,
            key_bytes: u16_at(bytes, 30),
        }))
    }
}

/// The piece size of a cache with slots. A value is in one piece, so this is
/// the whole chunk, rounded up to whole units and blocks.
pub fn slot_piece_bytes(chunk_bytes: u64, block_size: u32) -> Option<u32> {
    let granule = UNIT_BYTES.max(block_size);
    u32::try_from(round_up(chunk_bytes, granule)).ok()
}

/// The layout of a zone of slots. Lengths are in bytes, offsets from the zone's
/// start; all are whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotGeometry {
    /// Number of slots.
    pub slots: u32,
    /// Entries per table block.
    pub entries_per_block: u32,
    /// Start of the table.
    pub table_offset: u64,
    /// Length of the table in blocks.
    pub table_blocks: u32,
    /// Start of the first slot.
    pub slots_offset: u64,
    /// Length of a slot.
    pub slot_bytes: u64,
    /// Length of the space for a large descriptor at a slot's start.
    pub descriptor_bytes: u64,
    /// Length of a block.
    pub block_size: u32,
}

impl SlotGeometry {
    /// Divides a zone into as many slots as fit. `None` if not even one does,
    /// or if the numbers are invalid.
    pub fn new(zone_capacity: u64, block_size: u32, chunk_bytes: u64) -> Option<Self> {
        let block = u64::from(block_size);
        let entries_per_block =
            (block_size as usize).checked_sub(SLOT_HEADER_BYTES)? / SLOT_ENTRY_BYTES;
        if entries_per_block == 0 || chunk_bytes == 0 || chunk_bytes > LARGE_MAX_BYTES {
            return None;
        }
        let descriptor_bytes = if chunk_bytes > SMALL_MAX_BYTES as u64 {
            let piece_bytes = slot_piece_bytes(chunk_bytes, block_size)?;
            large_descriptor_bytes(KEY_MAX_BYTES, chunk_bytes, piece_bytes, block_size) as u64
        } else {
            0
        };
        let slot_bytes = descriptor_bytes.checked_add(round_up(chunk_bytes, block_size))?;
        // One header block, then groups of one table block and its slots.
        let room = zone_capacity.checked_sub(block)?;
        let group_bytes = slot_bytes
            .checked_mul(entries_per_block as u64)?
            .checked_add(block)?;
        let whole_groups = (room / group_bytes).checked_mul(entries_per_block as u64)?;
        let last_group = (room % group_bytes).saturating_sub(block) / slot_bytes;
        let slots = u32::try_from(whole_groups + last_group).ok()?;
        if slots == 0 {
            return None;
        }
        let table_blocks = slots.div_ceil(entries_per_block as u32);
        Some(SlotGeometry {
            slots,
            entries_per_block: entries_per_block as u32,
            table_offset: block,
            table_blocks,
            slots_offset: block * (1 + u64::from(table_blocks)),
            slot_bytes,
            descriptor_bytes,
            block_size,
        })
    }

    /// Start of slot number `slot`, and so of a large value's descriptor.
    pub fn slot_offset(&self, slot: u32) -> u64 {
        self.slots_offset + u64::from(slot) * self.slot_bytes
    }

    /// Start of the payload in slot number `slot`.
    pub fn payload_offset(&self, slot: u32) -> u64 {
        self.slot_offset(slot) + self.descriptor_bytes
    }

    /// The table block that describes slot number `slot`.
    pub fn table_block_of(&self, slot: u32) -> u32 {
        slot / self.entries_per_block.max(1)
    }

    /// Start of table block number `table_block`.
    pub fn table_block_offset(&self, table_block: u32) -> u64 {
        self.table_offset + u64::from(table_block) * u64::from(self.block_size)
    }

    /// The slots that table block number `table_block` describes.
    pub fn slots_of_block(&self, table_block: u32) -> std::ops::Range<u32> {
        let start = table_block
            .saturating_mul(self.entries_per_block)
            .min(self.slots);
        start..start.saturating_add(self.entries_per_block).min(self.slots)
    }
}

/// Writes table block number `table_block` with the entries of its slots.
/// Returns its length: one block.
///
/// # Errors
/// [`LayoutError::Malformed`] if the number of entries is not that of
/// [`SlotGeometry::slots_of_block`]; [`LayoutError::TooShort`] if `out` is
/// shorter than a block.
pub fn encode_slot_block(
    id: CacheId,
    life: ZoneLife,
    geometry: &SlotGeometry,
    table_block: u32,
    entries: &[Option<SlotEntry>],
    out: &mut [u8],
) -> Result<usize, LayoutError> {
    let slots = geometry.slots_of_block(table_block);
    if entries.is_empty() || entries.len() != slots.len() {
        return Err(LayoutError::Malformed(
            "the entries are not those of one table block",
        ));
    }
    let out = prefix_mut(out, geometry.block_size as usize)?;
    out.fill(0);
    let covered = prefix_mut(out, SLOT_HEADER_BYTES + entries.len() * SLOT_ENTRY_BYTES)?;
    let header = first_mut::<SLOT_HEADER_BYTES>(covered)?;
    put_life(header, 24, life);
    put_u32(header, 32, table_block);
    let (fields, _) = covered[SLOT_HEADER_BYTES..].as_chunks_mut();
    for (field, entry) in fields.iter_mut().zip(entries) {
        if let Some(entry) = entry {
            entry.put(field);
        }
    }
    let frame = Frame {
        structure: Structure::SlotTable,
        kind: 0,
        count: narrow(entries.len())?,
    };
    seal(id, frame, covered)?;
    Ok(out.len())
}

/// Reads table block number `table_block`: each of its slots with its entry,
/// `None` for an empty slot.
///
/// # Errors
/// [`LayoutError::Stale`] if it is of another zone or life;
/// [`LayoutError::Malformed`] if it is another block of the table or an entry
/// is invalid; otherwise as every decoder.
pub fn decode_slot_block(
    id: CacheId,
    life: ZoneLife,
    geometry: &SlotGeometry,
    table_block: u32,
    bytes: &[u8],
) -> Result<Vec<(u32, Option<SlotEntry>)>, LayoutError> {
    let opened = open(id, Structure::SlotTable, bytes)?;
    let (header, rest) = opened
        .covered
        .split_first_chunk::<SLOT_HEADER_BYTES>()
        .ok_or(LayoutError::Malformed("the block's header ends early"))?;
    expect_life(header, 24, life)?;
    if u32_at(header, 32) != table_block {
        return Err(LayoutError::Malformed("another block of the table"));
    }
    let (entries, rest) = rest.as_chunks::<SLOT_ENTRY_BYTES>();
    let slots = geometry.slots_of_block(table_block);
    if !rest.is_empty() || entries.len() != opened.count as usize || entries.len() != slots.len() {
        return Err(LayoutError::Malformed("the block's entries are miscounted"));
    }
    slots
        .zip(entries)
        .map(|(slot, entry)| Ok((slot, SlotEntry::read(entry)?)))
        .collect()
}
