//! The times of signatures, such as `20130524T000000Z`.

use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc2822;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime, UtcOffset};

const FORMAT: &[BorrowedFormatItem<'_>] =
    format_description!("[year][month][day]T[hour][minute][second]Z");

/// Parses the time of a signature.
pub(super) fn parse(text: &str) -> Option<OffsetDateTime> {
    let time = PrimitiveDateTime::parse(text, FORMAT).ok()?;
    Some(time.assume_utc())
}

/// Most bytes of a date of mail without comments.
const MAIL_DATE_BYTES_MAX: usize = 40;

/// Writes a date of HTTP, or one of mail (RFC 2822), which botocore signs, as the time of a
/// signature.
pub(super) fn of_http(date: &str) -> Option<String> {
    let time = match httpdate::parse_http_date(date) {
        Ok(time) => OffsetDateTime::from(time),
        Err(_) if date.len() > MAIL_DATE_BYTES_MAX => return None,
        Err(_) => OffsetDateTime::parse(date, &Rfc2822).ok()?,
    };
    time.checked_to_offset(UtcOffset::UTC)?.format(FORMAT).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_http_and_of_mail_are_times() {
        for date in [
            "Fri, 24 May 2013 00:00:00 GMT",
            "Fri, 24 May 2013 00:00:00 -0000",
            "Fri, 24 May 2013 02:00:00 +0200",
        ] {
            assert_eq!(of_http(date).as_deref(), Some("20130524T000000Z"), "{date}");
        }
        let comments = "(".repeat(1000) + "Fri, 24 May 2013 00:00:00 GMT";
        for wrong in [
            "",
            "yesterday",
            "Fri, 24 May 2013 00:00:00 +9900",
            "Fri, 31 Dec 9999 23:59:59 -0100",
            &comments,
        ] {
            assert_eq!(of_http(wrong), None, "{wrong}");
        }
    }
}
