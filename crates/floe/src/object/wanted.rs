//! The part of an object that a request needs.

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
    /// The first and the last byte, if they are known before the object is: the last ones of one
    /// whose size is known, or not at the end.
    pub(super) fn bytes(self, known_size: Option<u64>) -> Option<(u64, u64)> {
        let Wanted::Bytes(range) = self else {
            return None;
        };
        match range {
            None => Some((0, u64::MAX)),
            Some(ByteRange::From(first)) => Some((first, u64::MAX)),
            Some(ByteRange::Inclusive { first, last }) => Some((first, last)),
            Some(suffix @ ByteRange::Suffix(_)) => {
                let range = suffix.resolve(known_size?)?;
                Some((range.start, range.end.checked_sub(1)?))
            }
        }
    }
}
