//! The part of an object that a request needs.

use std::ops::Range;

use crate::origin::ByteRange;

/// The bytes that a request needs besides the metadata.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    /// None.
    Metadata,
    /// The object, or this range of it. On a miss one request to the origin
    /// brings metadata and first bytes.
    Bytes(Option<ByteRange>),
}

impl Wanted {
    /// The chunks of these bytes in an object of any size.
    pub(super) fn chunks(self, chunk_size: u64) -> Range<u64> {
        match self {
            Wanted::Metadata => 0..0,
            Wanted::Bytes(None | Some(ByteRange::Suffix(_))) => 0..u64::MAX,
            Wanted::Bytes(Some(ByteRange::From(first))) => first / chunk_size..u64::MAX,
            Wanted::Bytes(Some(ByteRange::Inclusive { first, last })) => {
                first / chunk_size..(last / chunk_size).saturating_add(1)
            }
        }
    }
}
