//! Errors of decoders and encoders.

use super::ids::ZoneLife;
use super::structure::Structure;
use super::tiny::PageId;

/// The reason that bytes cannot be decoded, or a structure cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The buffer ends before the structure does.
    #[error("the buffer has {available} bytes, the structure {needed}")]
    TooShort {
        /// Bytes that the structure takes at least.
        needed: usize,
        /// Bytes in the buffer.
        available: usize,
    },
    /// Every byte is zero: the place was never written, or it was discarded.
    #[error("blank: every byte is zero")]
    Blank,
    /// The bytes start with no magic of Floe's.
    #[error("not written by Floe")]
    Foreign,
    /// The bytes start with the magic of another structure.
    #[error("this is a {0}, not the expected structure")]
    Unexpected(Structure),
    /// The structure is sound, but of a format that this build cannot read.
    #[error("format version {found}; this build reads version {supported}")]
    UnsupportedVersion {
        /// The version on flash.
        found: u16,
        /// The only version this build reads.
        supported: u16,
    },
    /// The checksum does not match: the bytes are damaged or torn, or belong to
    /// a cache with another id.
    #[error("checksum mismatch: damaged, torn, or of another cache")]
    BadChecksum,
    /// The structure is sound, but belongs to another zone or another life of
    /// this one.
    #[error("belongs to {found}, not to {wanted}")]
    Stale {
        /// The zone and life that the structure belongs to.
        found: ZoneLife,
        /// The zone and life that it should belong to.
        wanted: ZoneLife,
    },
    /// The page of tiny objects is sound, but not the expected one: it is an
    /// earlier page of this place, or was written to the wrong place.
    #[error("this is {found}, not {wanted}")]
    Misplaced {
        /// The page that was found.
        found: PageId,
        /// The page that was expected.
        wanted: PageId,
    },
    /// The checksum matches but the contents contradict each other, or, on
    /// encoding, the input has no representation.
    #[error("malformed: {0}")]
    Malformed(&'static str),
}
