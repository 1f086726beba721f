//! HP Labs' SRT 1.3: a text header that ends with a form feed, then records of
//! big-endian words, `size, id, sec, usec, start, stop, bytes, block, device,
//! driver, cylinder, flags, info[, queue_length]`. The first word is the
//! record's size in bytes. Blocks are 256 bytes; bit 0 of the flags reads. A
//! volume is a device's minor number: its major tells block from raw access.

use super::binary::Fields;
use super::fields::{NS_PER_S, NS_PER_US};
use super::request::{BlockOp, Decoded, Key};
use super::source::Cut;

/// The text that the header starts with.
pub(super) const MAGIC: &[u8] = b"$$TR_IOREC-1.";
/// Records have 13 words, or 14 with the queue's length.
pub(super) const CUT: Cut = Cut::Sized {
    bytes_min: 52,
    bytes_max: 56,
};

const BLOCK_BYTES: u64 = 256;
/// The type of records of requests, in the low half of the id.
const TYPE_REQUEST: u32 = 1;
const FLAG_READ: u32 = 1;
const MINOR_MASK: u32 = 0x00ff_ffff;

/// The header, or one record.
pub(super) fn decode(piece: &[u8]) -> Result<Decoded, String> {
    if piece.starts_with(MAGIC) {
        return Ok(Decoded::Nothing);
    }
    let mut fields = Fields(piece);
    let mut words = [0; 12];
    for word in &mut words {
        *word = fields.u32_be()?;
    }
    let [
        _size,
        id,
        sec,
        usec,
        _start,
        _stop,
        bytes,
        block,
        device,
        _driver,
        _cylinder,
        flags,
    ] = words;
    if id & 0xffff != TYPE_REQUEST {
        return Ok(Decoded::Nothing);
    }
    let op = if flags & FLAG_READ != 0 {
        BlockOp::Read
    } else {
        BlockOp::Write
    };
    Decoded::block(
        Some(u64::from(sec) * NS_PER_S + u64::from(usec) * NS_PER_US),
        Key::Id((device & MINOR_MASK).into()),
        op,
        u64::from(block) * BLOCK_BYTES,
        bytes.into(),
    )
}
