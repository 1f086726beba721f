//! SYSTOR '17 (Fujitsu VDI), CSV with a header:
//! `Timestamp,Response,IOType,LUN,Offset,Size`. The time is decimal seconds
//! since the Unix epoch; offset and size are bytes. A row without a type had no
//! response and is no request. Files of several hours may follow each other,
//! each with its header.

use super::fields::{self, Table, number};
use super::request::{Decoded, Key};

const NAMES: [&str; 5] = ["Timestamp", "IOType", "LUN", "Offset", "Size"];

/// The columns of such a file.
pub(super) fn table() -> Table<5> {
    Table::new(NAMES, &NAMES)
}

/// A row stands for a request.
pub(super) fn decode(row: [&str; 5]) -> Result<Decoded, String> {
    let [time, op, lun, offset, size] = row;
    if op.trim().is_empty() || time == NAMES[0] {
        return Ok(Decoded::Nothing);
    }
    Decoded::block(
        Some(fields::decimal_seconds_ns("the timestamp", time)?),
        Key::Id(number("the LUN", lun)?),
        fields::read_or_write(op)?,
        number("the offset", offset)?,
        number("the size", size)?,
    )
}
