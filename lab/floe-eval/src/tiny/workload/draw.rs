//! A request to a tiny engine.

use floe_core::hash::KeyHash;

use crate::trace::Op;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The key.
    pub hash: KeyHash,
    /// The operation.
    pub op: Op,
    /// Bytes of the object, key and value together.
    pub bytes: u32,
    /// Time to live of a `set`, in seconds; zero for no expiry.
    pub ttl_seconds: u32,
    /// Time of the request, in seconds of the workload's own time.
    pub now_seconds: u32,
}

/// Requests per second of a drawn workload's own time.
pub(super) const REQUESTS_PER_SECOND: u64 = 100_000;
