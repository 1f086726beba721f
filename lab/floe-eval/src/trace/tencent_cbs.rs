//! Tencent Cloud Block Storage, CSV without a header:
//! `timestamp,offset,size,io_type,volume`. Times are seconds since the Unix
//! epoch and run backwards now and then. The published trace counts offset and
//! size in sectors of 512 bytes; a copy that is passed around has them in bytes.
//! Type 0 reads and 1 writes.

use super::fields::{self, number};
use super::request::{BlockOp, Decoded, Key, SECTOR_BYTES};

/// One line with offset and size in sectors.
pub(super) fn decode_sectors(line: &[u8]) -> Result<Decoded, String> {
    decode(line, SECTOR_BYTES)
}

/// One line with offset and size in bytes.
pub(super) fn decode_bytes(line: &[u8]) -> Result<Decoded, String> {
    decode(line, 1)
}

fn decode(line: &[u8], unit_bytes: u64) -> Result<Decoded, String> {
    let columns = "timestamp,offset,size,io_type,volume";
    let Some([time, offset, size, op, volume]) = fields::columns(line, columns)? else {
        return Ok(Decoded::Nothing);
    };
    Decoded::block(
        Some(fields::whole_seconds_ns("the timestamp", time)?),
        Key::Id(number("the volume", volume)?),
        match op.trim() {
            "0" => BlockOp::Read,
            "1" => BlockOp::Write,
            other => {
                let other = fields::excerpt(other);
                return Err(format!(
                    "io_type `{other}` is neither 0 (read) nor 1 (write)"
                ));
            }
        },
        fields::scaled("the offset", offset, unit_bytes)?,
        fields::scaled("the size", size, unit_bytes)?,
    )
}
