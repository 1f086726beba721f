//! Addresses of volumes: byte ranges, in sectors of 512 B.

use std::fmt;
use std::ops::Range;

/// Bytes of a sector: requests begin and end at its multiples.
pub const SECTOR_BYTES: u64 = 512;

/// Number of a volume in its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u16);

/// A range of bytes of a volume: from `start` up to, but without, `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    /// Its first byte.
    pub start: u64,
    /// The byte after its last.
    pub end: u64,
}

impl ByteRange {
    /// The range of `len` bytes at `start`, cut at the end of `u64`.
    pub fn at(start: u64, len: u64) -> Self {
        ByteRange {
            start,
            end: start.saturating_add(len),
        }
    }

    /// The number of bytes.
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// True if the range has no byte.
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// The bytes that both ranges have; empty if there are none.
    #[must_use]
    pub fn intersection(self, other: ByteRange) -> ByteRange {
        let start = self.start.max(other.start);
        ByteRange {
            start,
            end: self.end.min(other.end).max(start),
        }
    }

    /// True if every byte of `other` is one of this range.
    pub fn contains(self, other: ByteRange) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The smallest range around this one that begins and ends at multiples of
    /// `unit`, a power of two.
    #[must_use]
    pub fn aligned_to(self, unit: u64) -> ByteRange {
        ByteRange {
            start: self.start & !(unit - 1),
            end: self
                .end
                .checked_next_multiple_of(unit)
                .unwrap_or(!(unit - 1)),
        }
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// A range of bytes of one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The volume.
    pub volume: VolumeId,
    /// Its bytes.
    pub range: ByteRange,
}

/// A range of bytes of one volume, and its copy in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// The bytes of the volume.
    pub extent: Extent,
    /// Byte offset of the copy on the cache device.
    pub place: u64,
}

impl Piece {
    /// The bytes of the copy on the cache device.
    pub fn places(&self) -> Range<u64> {
        self.place..self.place + self.extent.range.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aligned_end_stays() {
        let kib = |start: u64, end: u64| ByteRange {
            start: start << 10,
            end: end << 10,
        };
        assert_eq!(kib(0, 32).aligned_to(32 << 10), kib(0, 32));
        assert_eq!(kib(33, 65).aligned_to(32 << 10), kib(32, 96));
        let last = ByteRange {
            start: u64::MAX - 1,
            end: u64::MAX,
        };
        assert!(last.aligned_to(4096).end.is_multiple_of(4096));
    }

    #[test]
    fn ranges_that_do_not_meet_have_an_empty_intersection() {
        let (a, b) = (ByteRange::at(0, 512), ByteRange::at(1024, 512));
        assert!(a.intersection(b).is_empty() && b.intersection(a).is_empty());
        assert_eq!(
            a.intersection(ByteRange::at(256, 1024)),
            ByteRange::at(256, 256)
        );
    }
}
