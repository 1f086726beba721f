//! Settings of reservations, and the keys by which they are held.

use std::fmt;
use std::str::FromStr;

use floe_core::layout::CacheId;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The reservation of a backing device that several machines reach, for writes of one: a
/// persistent reservation of NVMe or SCSI. Volumes that are read-only reserve nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reserve {
    /// Where the device has reservations.
    Auto,
    /// Always: a device without them is refused.
    Required,
    /// Never.
    #[default]
    Off,
}

floe_core::names! {
    Reserve: "a kind of reservation" {
        Auto => "auto",
        Required => "required",
        Off => "off",
    }
}

/// The key by which a machine holds a reservation, in text 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationKey(pub u64);

impl fmt::Display for ReservationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for ReservationKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        match u64::from_str_radix(digits, 16) {
            Ok(key) if key != 0 && !digits.starts_with('+') => Ok(ReservationKey(key)),
            _ => Err(format!(
                "`{text}` is no key of a reservation: up to 16 hexadecimal digits, not all 0"
            )),
        }
    }
}

impl Serialize for ReservationKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ReservationKey {
    fn deserialize<D>(deserializer: D) -> Result<Self, D::Error>
    where
        D: Deserializer<'de>,
    {
        let parsed = String::deserialize(deserializer)?.parse();
        parsed.map_err(D::Error::custom)
    }
}

impl ReservationKey {
    /// The key of a cache of volumes, the same in each of its lives.
    pub(super) fn of(cache: CacheId) -> Self {
        let (first, _) = cache.0.split_at(8);
        let key = first
            .iter()
            .fold(0, |key, byte| key << 8 | u64::from(*byte));
        // A key of zeros means none.
        ReservationKey(key.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let key = ReservationKey::of(CacheId([0x0a; 16]));
        assert_eq!(key.to_string(), "0a0a0a0a0a0a0a0a");
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!("0xff".parse(), Ok(ReservationKey(255)));
        for bad in ["", "0", "0x", "+1", "12345678123456781", "key"] {
            assert!(bad.parse::<ReservationKey>().is_err(), "{bad}");
        }
        assert_eq!(ReservationKey::of(CacheId([0; 16])), ReservationKey(1));
    }
}
