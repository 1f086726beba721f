//! Shared by the inspections of all kinds of caches.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Most damaged places in the JSON list.
pub(super) const LISTED_MAX: usize = 10_000;

/// A time in seconds since 1970 as text.
pub(super) fn date(unix_s: u64) -> String {
    i64::try_from(unix_s)
        .ok()
        .and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok())
        .and_then(|date| date.format(&Rfc3339).ok())
        .unwrap_or_else(|| unix_s.to_string())
}
