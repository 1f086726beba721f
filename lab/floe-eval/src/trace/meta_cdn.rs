//! Meta CDN traces: CSV with a header; the 10 columns of 2020 and the newer
//! ones with more. Columns are found by name.

use super::fields::{self, Table, number};
use super::request::{ByteRange, Decoded, Key, Op, Request};

const NAMES: [&str; 7] = [
    "timestamp",
    "cacheKey",
    "OpType",
    "objectSize",
    "rangeStart",
    "rangeEnd",
    "TTL",
];
const REQUIRED: [&str; 3] = ["timestamp", "cacheKey", "OpType"];

/// The columns of such a file.
pub(super) fn table() -> Table<7> {
    Table::new(NAMES, &REQUIRED)
}

/// A row stands for a request.
pub(super) fn decode(row: [&str; 7]) -> Result<Decoded, String> {
    let [time, key, op, size, start, end, ttl] = row;
    if key.is_empty() {
        return Err("the cacheKey is empty".into());
    }
    let size = optional(size, "objectSize")?;
    Ok(Decoded::One(Request {
        time_ns: Some(fields::whole_seconds_ns("the timestamp", time)?),
        key: Key::Bytes(key.as_bytes().into()),
        op: operation(op)?,
        size,
        range: range(
            optional(start, "rangeStart")?,
            optional(end, "rangeEnd")?,
            size,
        )?,
        ttl: if ttl.is_empty() {
            None
        } else {
            fields::ttl(ttl)?
        },
    }))
}

fn operation(field: &str) -> Result<Op, String> {
    match field.trim().to_ascii_uppercase().as_str() {
        "1" | "GET" => Ok(Op::Get),
        "2" | "SET" | "PUT" => Ok(Op::Put),
        "3" | "DEL" | "DELETE" => Ok(Op::Delete),
        _ => Err(format!(
            "OpType `{}` is neither 1 (GET), 2 (SET) nor 3 (DELETE)",
            fields::excerpt(field)
        )),
    }
}

/// A number that is -1 or absent if it is unknown.
fn optional(field: &str, name: &str) -> Result<Option<u64>, String> {
    match field.trim() {
        "" | "-" => Ok(None),
        field => Ok(u64::try_from(number::<i64>(name, field)?).ok()),
    }
}

/// `start..=end`. An absent end means the rest of the object. Real traces have
/// ranges past an object's end, which are kept.
fn range(
    start: Option<u64>,
    end: Option<u64>,
    size: Option<u64>,
) -> Result<Option<ByteRange>, String> {
    match (start, end) {
        (None, None) => Ok(None),
        (Some(start), None) => {
            let end = size.unwrap_or(u64::MAX);
            Ok(Some(ByteRange::new(start, end.saturating_sub(start))))
        }
        (start, Some(end)) => {
            let start = start.unwrap_or(0);
            if start > end {
                return Err(format!("rangeStart {start} is after rangeEnd {end}"));
            }
            Ok(Some(ByteRange::new(start, end - start + 1)))
        }
    }
}
