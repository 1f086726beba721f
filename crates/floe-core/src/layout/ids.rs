//! The names and limits that every on-flash structure shares.

use std::fmt;

use crate::geometry::ZoneId;

/// Longest key, in bytes.
pub const KEY_MAX_BYTES: usize = 2048;

/// Longest value that shares a batch with others; longer ones are streamed as
/// pieces with a descriptor of their own.
pub const SMALL_MAX_BYTES: usize = 256 << 10;

/// Longest value.
pub const LARGE_MAX_BYTES: u64 = 1 << 30;

/// Bytes of a large value that one checksum covers. A range read fetches at
/// least so many, to verify what it returns.
pub const UNIT_BYTES: u32 = 64 << 10;

/// A cache's identity, random at format time. It is mixed into every checksum,
/// so that data that another cache left on the device is never served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheId(pub [u8; 16]);

impl fmt::Display for CacheId {
    /// Formats as a UUID: `8-4-4-4-12` hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// The life of a zone. One counter serves all zones of a cache, so that no two
/// lives of any zones share a number. The first life is 1; a zone that was
/// never opened has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

impl Generation {
    /// A zone's first life.
    pub const FIRST: Generation = Generation(1);

    /// The next life, or `None` after four billion lives. No flash survives
    /// that many: the zone must be retired.
    pub fn next(self) -> Option<Generation> {
        self.0.checked_add(1).map(Generation)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A position in the order of all writes of a cache. Of two records with the
/// same key the one with the higher sequence is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One life of one zone; every structure inside a zone belongs to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneLife {
    /// The zone.
    pub zone: ZoneId,
    /// The number of its life.
    pub generation: Generation,
}

impl ZoneLife {
    /// From its parts.
    pub fn new(zone: ZoneId, generation: Generation) -> Self {
        ZoneLife { zone, generation }
    }
}

impl fmt::Display for ZoneLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zone {} generation {}", self.zone, self.generation)
    }
}

/// The placement of a value on flash. It decides what the value's checksum
/// covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValueKind {
    /// In one place. The checksum is [`small_checksum`](super::small_checksum).
    Small,
    /// In pieces, found through a large descriptor. The checksum is that
    /// descriptor's.
    Large,
}

impl ValueKind {
    pub(super) fn code(self) -> u16 {
        match self {
            ValueKind::Small => 1,
            ValueKind::Large => 2,
        }
    }

    pub(super) fn from_code(code: u16) -> Option<Self> {
        match code {
            1 => Some(ValueKind::Small),
            2 => Some(ValueKind::Large),
            _ => None,
        }
    }
}
