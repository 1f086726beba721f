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
