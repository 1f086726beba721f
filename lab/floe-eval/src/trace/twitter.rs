//! Twitter cache-trace: CSV without a header,
//! `timestamp,key,key_size,value_size,client_id,op,TTL`.

use super::fields::{self, number};
use super::request::{Decoded, Key, Op, Request};

/// One line. The object's size is that of key and value together.
pub(super) fn decode(line: &[u8]) -> Result<Decoded, String> {
    let line = fields::text(line)?;
    if line.trim().is_empty() {
        return Ok(Decoded::Nothing);
    }
    let given: Vec<&str> = line.split(',').collect();
    let [time, key, key_size, value_size, _client, op, ttl] = given[..] else {
        return Err(format!("the line has {} fields instead of 7", given.len()));
    };
    if key.is_empty() {
        return Err("the key is empty".into());
    }
    let key_bytes: u64 = number("key_size", key_size)?;
    let value_bytes: u64 = number("value_size", value_size)?;
    Ok(Decoded::One(Request {
        time_ns: Some(fields::whole_seconds_ns("the timestamp", time)?),
        key: Key::Bytes(key.as_bytes().into()),
        op: operation(op)?,
        size: (value_bytes > 0).then(|| value_bytes.saturating_add(key_bytes)),
        range: None,
        ttl: fields::ttl(ttl)?,
    }))
}

fn operation(field: &str) -> Result<Op, String> {
    match field.trim() {
        "get" | "gets" => Ok(Op::Get),
        "set" | "add" | "replace" | "cas" | "append" | "prepend" | "incr" | "decr" => Ok(Op::Put),
        "delete" => Ok(Op::Delete),
        _ => Err(format!(
            "`{}` is not an operation of the Twitter traces",
            fields::excerpt(field)
        )),
    }
}
