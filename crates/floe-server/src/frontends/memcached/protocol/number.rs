//! Numbers in memcached's format: C's `strtoull` with its whitespace and signs,
//! truncated to the requested width.

use bytes::{BufMut, BytesMut};

/// Parses an unsigned number; only whitespace may follow it.
pub(crate) fn unsigned(text: &[u8]) -> Option<u64> {
    let (is_negative, magnitude) = scan(text)?;
    let magnitude = u64::try_from(magnitude).ok()?;
    let value = match is_negative {
        true => magnitude.wrapping_neg(),
        false => magnitude,
    };
    // As in memcached, a minus is an error only if the value is negative as a signed number.
    (!(is_negative && (value as i64) < 0)).then_some(value)
}

/// Parses an unsigned number and keeps its low 32 bits.
pub(super) fn unsigned_32(text: &[u8]) -> Option<u32> {
    unsigned(text).map(|value| value as u32)
}

/// Parses a signed number and keeps its low 32 bits.
pub(super) fn signed_32(text: &[u8]) -> Option<i32> {
    let (is_negative, magnitude) = scan(text)?;
    let value = match is_negative {
        true => -i128::try_from(magnitude).ok()?,
        false => i128::try_from(magnitude).ok()?,
    };
    i64::try_from(value).ok().map(|value| value as i32)
}

/// The sign and the magnitude; `None` for other text or too many digits.
fn scan(text: &[u8]) -> Option<(bool, u128)> {
    let start = text.iter().position(|&byte| !is_space(byte))?;
    let text = &text[start..];
    let (is_negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let len = digits
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(digits.len());
    if len == 0 || digits.get(len).is_some_and(|&byte| !is_space(byte)) {
        return None;
    }
    let mut magnitude: u128 = 0;
    for digit in &digits[..len] {
        magnitude = magnitude * 10 + u128::from(digit - b'0');
        if magnitude > u128::from(u64::MAX) {
            return None;
        }
    }
    Some((is_negative, magnitude))
}

/// C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | 9..=13)
}

/// The decimal digits of a number, right-aligned.
pub(crate) struct Digits {
    bytes: [u8; 20],
    start: usize,
}

impl Digits {
    pub(crate) fn of(mut number: u64) -> Self {
        let mut bytes = [0; 20];
        let mut start = bytes.len();
        loop {
            start -= 1;
            // The remainder is below 10.
            bytes[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Digits { bytes, start };
            }
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// Appends a number.
pub(crate) fn put_number(text: &mut BytesMut, number: u64) {
    text.put_slice(Digits::of(number).as_slice());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-1", None),
            ("-0", Some(0)),
            ("+7", Some(7)),
            ("7x", None),
            ("", None),
            ("-", None),
            ("\t12", Some(12)),
            ("12 34", Some(12)),
            ("99999999999999999999999999999999999999999999", None),
        ] {
            assert_eq!(unsigned(text.as_bytes()), expected, "{text}");
        }
        for (text, expected) in [
            ("-1", Some(-1)),
            ("4294967295", Some(-1)),
            ("9223372036854775808", None),
            ("-9223372036854775808", Some(0)),
            ("abc", None),
        ] {
            assert_eq!(signed_32(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn numbers_are_written() {
        for number in [0, 9, 10, 4_294_967_296, u64::MAX] {
            let mut text = BytesMut::new();
            put_number(&mut text, number);
            assert_eq!(text, number.to_string());
        }
    }
}
