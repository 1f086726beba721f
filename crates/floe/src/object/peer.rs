//! The questions of a cache to others.

use std::ops::Range;

use async_trait::async_trait;

use crate::origin::{ObjectKey, ObjectMeta, OriginBody, debug_fields};

/// Other caches of the same origin.
///
/// Every call ends in bounded time, and so does each wait for a piece of a body. A failure is
/// `false`, `None`, or the end of a body.
#[async_trait]
pub trait Peers: Send + Sync + 'static {
    /// True if a peer probably holds an object's byte at `offset`, of whichever version.
    async fn hold(&self, key: &ObjectKey, offset: u64) -> bool;

    /// Bytes of one version of an object, from the start of the range on.
    async fn read(&self, wanted: WantedBytes<'_>) -> Option<HeldBytes>;
}

/// Bytes of one version of an object that a cache lacks.
#[derive(Clone, Debug)]
pub struct WantedBytes<'a> {
    /// The object.
    pub key: &'a ObjectKey,
    /// The version, told by size, entity tag and modification time.
    pub meta: &'a ObjectMeta,
    /// Offsets in the object, half-open.
    pub range: Range<u64>,
}

/// Bytes of one version of an object that a cache holds.
pub struct HeldBytes {
    /// Offsets in the object of the bytes in the body.
    pub range: Range<u64>,
    /// The bytes. It ends early if the cache loses some of them meanwhile.
    pub body: OriginBody,
}

debug_fields!(HeldBytes: range);
