//! Tencent Photo: `YYYYMMDDhhmmss sha1 format size_class bytes hit terminal
//! response_ms`, separated by spaces. An object is an id in a format and class.

use time::{Date, Month, PrimitiveDateTime, Time};

use super::fields::{self, number};
use super::request::{Decoded, Key, Op, Request};

/// One line.
pub(super) fn decode(line: &[u8]) -> Result<Decoded, String> {
    let line = fields::text(line)?;
    let given: Vec<&str> = line.split_ascii_whitespace().collect();
    if given.is_empty() {
        return Ok(Decoded::Nothing);
    }
    let [time, id, format, class, bytes, ..] = given[..] else {
        return Err(format!(
            "the line has {} fields instead of at least 5",
            given.len()
        ));
    };
    Ok(Decoded::One(Request {
        time_ns: Some(timestamp_ns(time)?),
        key: Key::Bytes(format!("{id}/{format}/{class}").into_bytes().into()),
        op: Op::Get,
        size: Some(number("the size", bytes)?),
        range: None,
        ttl: None,
    }))
}

/// `YYYYMMDDhhmmss`, taken as UTC, in nanoseconds since 1970.
pub(super) fn timestamp_ns(field: &str) -> Result<u64, String> {
    let fail = || {
        format!(
            "`{}` is not a time as YYYYMMDDhhmmss since 1970",
            fields::excerpt(field)
        )
    };
    if field.len() != 14 || !field.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(fail());
    }
    let part = |from: usize, to: usize| number::<u16>("the time", &field[from..to]);
    let small = |from: usize, to: usize| number::<u8>("the time", &field[from..to]);
    let month = Month::try_from(small(4, 6)?).map_err(|_| fail())?;
    let date = Date::from_calendar_date(i32::from(part(0, 4)?), month, small(6, 8)?)
        .map_err(|_| fail())?;
    let clock =
        Time::from_hms(small(8, 10)?, small(10, 12)?, small(12, 14)?).map_err(|_| fail())?;
    let seconds = PrimitiveDateTime::new(date, clock)
        .assume_utc()
        .unix_timestamp();
    u64::try_from(seconds)
        .ok()
        .and_then(|seconds| seconds.checked_mul(fields::NS_PER_S))
        .ok_or_else(fail)
}
