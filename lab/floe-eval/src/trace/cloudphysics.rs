//! CloudPhysics traces as CSV with a header, `version,time,op,size,lbn`: time
//! in seconds, the SCSI code of the operation in hexadecimal, size in bytes,
//! block numbers of 512 bytes.

use super::fields::{self, Table, number};
use super::request::{Decoded, Key, SECTOR_BYTES};
use super::scsi;

const NAMES: [&str; 4] = ["time", "op", "size", "lbn"];

/// The columns of such a file.
pub(super) fn table() -> Table<4> {
    Table::new(NAMES, &NAMES)
}

/// A row stands for a request.
pub(super) fn decode(row: [&str; 4]) -> Result<Decoded, String> {
    let [time, op, size, block] = row;
    let code = u16::try_from(fields::hexadecimal("the operation", op)?)
        .map_err(|_| format!("the operation `{op}` is no SCSI code"))?;
    let Some(op) = scsi::operation(code) else {
        return Ok(Decoded::Nothing);
    };
    Decoded::block(
        Some(fields::whole_seconds_ns("the time", time)?),
        Key::Id(0),
        op,
        fields::scaled("the block", block, SECTOR_BYTES)?,
        number("the size", size)?,
    )
}
