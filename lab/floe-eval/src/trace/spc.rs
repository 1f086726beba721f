//! SPC (UMass Financial, WebSearch): `ASU,LBA,size,opcode,timestamp[,…]`. LBAs
//! are 512 bytes, the size is bytes, the time decimal seconds. A volume is an
//! application storage unit.

use super::fields::{self, number};
use super::request::{Decoded, Key, SECTOR_BYTES};

/// One line.
pub(super) fn decode(line: &[u8]) -> Result<Decoded, String> {
    let line = fields::text(line)?;
    if line.trim().is_empty() {
        return Ok(Decoded::Nothing);
    }
    let mut given = line.split(',');
    let (Some(unit), Some(block), Some(size), Some(op), Some(time)) = (
        given.next(),
        given.next(),
        given.next(),
        given.next(),
        given.next(),
    ) else {
        return Err("the line has fewer than 5 fields (ASU,LBA,size,opcode,timestamp)".into());
    };
    Decoded::block(
        Some(fields::decimal_seconds_ns("the timestamp", time)?),
        Key::Id(number("the ASU", unit)?),
        fields::read_or_write(op)?,
        fields::scaled("the LBA", block, SECTOR_BYTES)?,
        number("the size", size)?,
    )
}
