//! Alibaba block traces (2020), CSV without a header:
//! `device_id,opcode,offset,length,timestamp`. Offset and length are bytes, the
//! time is microseconds since the Unix epoch.

use super::fields::{self, NS_PER_US, number};
use super::request::{Decoded, Key};

/// One line.
pub(super) fn decode(line: &[u8]) -> Result<Decoded, String> {
    let columns = "device_id,opcode,offset,length,timestamp";
    let Some([device, op, offset, length, time]) = fields::columns(line, columns)? else {
        return Ok(Decoded::Nothing);
    };
    Decoded::block(
        Some(fields::scaled("the timestamp", time, NS_PER_US)?),
        Key::Id(number("the device", device)?),
        fields::read_or_write(op)?,
        number("the offset", offset)?,
        number("the length", length)?,
    )
}
