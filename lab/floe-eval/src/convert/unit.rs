//! Units of conversions.

use std::fmt;
use std::str::FromStr;

use floe_core::ByteSize;

use crate::trace::SECTOR_BYTES;

/// The object that a block trace's requests become, or were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Blocks of this many bytes, whole ones.
    Blocks(u64),
    /// Whole requests, by their first sector, as libCacheSim converts them.
    Requests,
}

impl Unit {
    /// The bytes that an object's number counts.
    pub(super) fn step_bytes(self) -> u64 {
        match self {
            Unit::Blocks(bytes) => bytes,
            Unit::Requests => SECTOR_BYTES,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unit::Blocks(bytes) => ByteSize(*bytes).fmt(f),
            Unit::Requests => f.write_str("request"),
        }
    }
}

impl FromStr for Unit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "request" {
            return Ok(Unit::Requests);
        }
        match text.parse::<ByteSize>() {
            Ok(size) if size.bytes() > 0 => Ok(Unit::Blocks(size.bytes())),
            _ => Err(format!(
                "`{text}` is neither `request` nor a size of blocks such as 4KiB"
            )),
        }
    }
}
