//! A zone as its policy sees it.

use crate::ZoneId;

/// A zone that could be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub zone: ZoneId,
    /// Position in the order of filling; larger is newer.
    pub filled: u64,
    /// When anything in it was last used, on any clock that only grows.
    pub last_access: u64,
}
