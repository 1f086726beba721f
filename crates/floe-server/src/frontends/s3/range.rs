//! The `Range` header (RFC 9110 §14.2) as S3 reads it.

use floe::origin::ByteRange;
use http::HeaderMap;
use http::header::RANGE;

/// The one range that a request asks for. `None` means the whole object: no
/// header, a header that cannot be understood (which RFC 9110 says to
/// ignore), or several ranges, which S3 answers with the whole object.
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
    // More than one range leaves a comma behind, which is no digit.
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

/// A number too large for 64 bits lies past the end of every object, just as
/// the largest 64-bit number does.
fn position(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
