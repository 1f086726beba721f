//! The times of signatures, such as `20130524T000000Z`.

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

const FORMAT: &[BorrowedFormatItem<'_>] =
    format_description!("[year][month][day]T[hour][minute][second]Z");

/// Parses the time of a signature.
pub(super) fn parse(text: &str) -> Option<OffsetDateTime> {
    let time = PrimitiveDateTime::parse(text, FORMAT).ok()?;
    Some(time.assume_utc())
}

/// Writes a date of HTTP as the time of a signature.
pub(super) fn of_http(date: &str) -> Option<String> {
    let time = httpdate::parse_http_date(date).ok()?;
    OffsetDateTime::from(time).format(FORMAT).ok()
}
