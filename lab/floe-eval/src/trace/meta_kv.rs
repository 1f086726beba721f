//! Meta key-value traces (2022 and 2024): CSV with a header, columns by name;
//! a row stands for `op_count` equal requests.

use super::fields::{self, Table, number};
use super::request::{Decoded, Key, Op, Request};

const NAMES: [&str; 7] = [
    "op_time", "key", "op", "size", "op_count", "key_size", "ttl",
];
const REQUIRED: [&str; 3] = ["key", "op", "size"];

/// The columns of such a file.
pub(super) fn table() -> Table<7> {
    Table::new(NAMES, &REQUIRED)
}

/// A row stands for a repeated request. A read that
/// missed in production has size 0: its request has no size.
pub(super) fn decode(row: [&str; 7]) -> Result<Decoded, String> {
    let [time, key, op, size, count, key_size, ttl] = row;
    if key.is_empty() {
        return Err("the key is empty".into());
    }
    let value_bytes: u64 = number("the size", size)?;
    let key_bytes: u64 = match key_size {
        "" => 0,
        key_size => number("key_size", key_size)?,
    };
    let request = Request {
        time_ns: match time {
            "" => None,
            time => Some(fields::whole_seconds_ns("op_time", time)?),
        },
        key: Key::Bytes(key.as_bytes().into()),
        op: operation(op)?,
        size: (value_bytes > 0).then(|| value_bytes.saturating_add(key_bytes)),
        range: None,
        ttl: match ttl {
            "" => None,
            ttl => fields::ttl(ttl)?,
        },
    };
    let count = match count {
        "" => 1,
        count => number("op_count", count)?,
    };
    Ok(Decoded::Repeat(request, count))
}

fn operation(field: &str) -> Result<Op, String> {
    match field.trim().to_ascii_uppercase().as_str() {
        "GET" | "GET_LEASE" => Ok(Op::Get),
        "SET" | "SET_LEASE" => Ok(Op::Put),
        "DELETE" => Ok(Op::Delete),
        _ => Err(format!(
            "op `{}` is none of GET, GET_LEASE, SET, SET_LEASE, DELETE",
            fields::excerpt(field)
        )),
    }
}
