//! SPC (UMass Financial, WebSearch): `ASU,LBA,size,opcode,timestamp[,…]`.
//! The key is the application storage unit, the range what is accessed in it.

use super::fields::{self, number};
use super::request::{ByteRange, Decoded, Key, Op, Request};

const SECTOR_BYTES: u64 = 512;

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
    let block: u64 = number("the LBA", block)?;
    let offset = block
        .checked_mul(SECTOR_BYTES)
        .ok_or_else(|| format!("the LBA {block} is too large"))?;
    Ok(Decoded::One(Request {
        time_ns: Some(fields::decimal_seconds_ns("the timestamp", time)?),
        key: Key::Id(number("the ASU", unit)?),
        op: match op.trim() {
            "r" | "R" => Op::Get,
            "w" | "W" => Op::Put,
            other => {
                return Err(format!(
                    "opcode `{}` is neither r nor w",
                    fields::excerpt(other)
                ));
            }
        },
        size: None,
        range: Some(ByteRange::new(offset, number("the size", size)?)),
        ttl: None,
    }))
}
