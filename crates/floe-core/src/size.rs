//! Byte sizes as people write them: `64KiB`, `1077 MiB`, `1G`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes that parses from and prints as `64KiB`, `1GiB`, `512`.
///
/// `K`, `M`, `G`, `T` and `KiB`… are powers of 1024; `KB`, `MB`, `GB`, `TB`
/// are powers of 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

impl ByteSize {
    /// `n` KiB.
    pub const fn kib(n: u64) -> Self {
        ByteSize(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        ByteSize(n << 20)
    }

    /// `n` GiB.
    pub const fn gib(n: u64) -> Self {
        ByteSize(n << 30)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, unit) in UNITS {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return f.pad(&format!("{}{name}", self.0 / unit));
            }
        }
        f.pad(&self.0.to_string())
    }
}

/// A text that is not a byte size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a size; write a number with an optional unit, such as 65536, 64KiB, 1.5GiB or 2TB"
)]
pub struct ParseSizeError(String);

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, ParseSizeError> {
        let fail = || ParseSizeError(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let number = number.replace('_', "");
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(fail()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(ByteSize).ok_or_else(fail);
        }
        let value: f64 = number.parse().map_err(|_| fail())?;
        let bytes = value * factor as f64;
        // Above 2^53 a float cannot represent every byte count.
        if !(0.0..9_007_199_254_740_992.0).contains(&bytes) {
            return Err(fail());
        }
        Ok(ByteSize(bytes.round() as u64))
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 65536 or \"64KiB\"")
            }

            fn visit_u64<E: de::Error>(self, v: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(v))
            }

            fn visit_i64<E: de::Error>(self, v: i64) -> Result<ByteSize, E> {
                u64::try_from(v)
                    .map(ByteSize)
                    .map_err(|_| E::custom("a size cannot be negative"))
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<ByteSize, E> {
                v.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_and_print() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65536),
            ("64KiB", 65536),
            ("64k", 65536),
            ("1.5 GiB", 3 << 29),
            ("1077MiB", 1077 << 20),
            ("2TB", 2_000_000_000_000),
            ("1_000", 1000),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        assert_eq!(ByteSize::mib(1077).to_string(), "1077MiB");
        assert_eq!(ByteSize(1000).to_string(), "1000");
    }

    #[test]
    fn bad_sizes_are_rejected() {
        for text in [
            "",
            "x",
            "-1",
            "1XiB",
            "99999999999999999999",
            "1e400",
            "18446744073709551615KiB",
            ".",
            "NaN",
        ] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
