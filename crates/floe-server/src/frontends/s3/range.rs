//! The `Range` header (RFC 9110 §14.2) as in S3.

use floe::origin::ByteRange;
use http::HeaderMap;
use http::header::RANGE;

/// The requested range. `None` is the whole object: without a header, with an
/// invalid one (which RFC 9110 ignores), or with several ranges, for which S3
/// returns the whole object.
pub fn requested_range(headers: &HeaderMap) -> Option<ByteRange> {
    let mut lines = headers.get_all(RANGE).iter();
    let line = lines.next()?.to_str().ok()?;
    if lines.next().is_some() {
        return None;
    }
    parse(line)
}

fn parse(line: &str) -> Option<ByteRange> {
    let (unit, spec) = line.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    // Several ranges leave a comma in the text, which is not a digit.
    let (first, last) = spec.trim().split_once('-')?;
    match (first.trim(), last.trim()) {
        ("", "") => None,
        ("", length) => Some(ByteRange::Suffix(position(length)?)),
        (first, "") => Some(ByteRange::From(position(first)?)),
        (first, last) => {
            let (first, last) = (position(first)?, position(last)?);
            (first <= last).then_some(ByteRange::Inclusive { first, last })
        }
    }
}

/// A number beyond 64 bits is past the end of every object, so the largest
/// 64-bit number stands for it.
fn position(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
