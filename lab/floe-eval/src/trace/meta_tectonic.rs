//! Meta's storage traces (Tectonic, 2023), CSV with a header: columns
//! `op_time,block_id,io_size,io_offset,op_name` by name. Time is seconds, offset
//! and size bytes. Each block of the file system is a volume of its own, and a
//! row stands for `op_count` equal requests.

use super::fields::{self, Table, number};
use super::request::{BlockOp, Decoded, Key};

const NAMES: [&str; 6] = [
    "op_time",
    "block_id",
    "io_size",
    "io_offset",
    "op_name",
    "op_count",
];

/// The columns of such a file.
pub(super) fn table() -> Table<6> {
    Table::new(
        NAMES,
        &["op_time", "block_id", "io_size", "io_offset", "op_name"],
    )
}

/// A row stands for a repeated request.
pub(super) fn decode(row: [&str; 6]) -> Result<Decoded, String> {
    let [time, block, size, offset, op, count] = row;
    if block.is_empty() {
        return Err("the block_id is empty".into());
    }
    let op = match op.split('.').next() {
        Some("getChunkData") => BlockOp::Read,
        Some("putChunk") => BlockOp::Write,
        _ => {
            let op = fields::excerpt(op);
            return Err(format!(
                "op_name `{op}` is neither getChunkData nor putChunk"
            ));
        }
    };
    let request = Decoded::block(
        Some(fields::whole_seconds_ns("op_time", time)?),
        Key::Bytes(block.as_bytes().into()),
        op,
        number("io_offset", offset)?,
        number("io_size", size)?,
    )?;
    match (request, count) {
        (Decoded::Blocks(request, _), count) if !count.is_empty() => {
            Ok(Decoded::Blocks(request, number("op_count", count)?))
        }
        (request, _) => Ok(request),
    }
}
