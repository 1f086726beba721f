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
    /// How long a `set` is for, in seconds; zero for ever.
    pub ttl_seconds: u32,
    /// When, in seconds of the workload's own time.
    pub now_seconds: u32,
}

/// Requests per second of the time that a drawn workload lives in.
pub(super) const REQUESTS_PER_SECOND: u64 = 100_000;
