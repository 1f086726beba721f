//! A zone as its policy sees it.

use crate::ZoneId;

/// A zone that could be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The zone's number.
    pub zone: ZoneId,
    /// Position in the order of filling; larger is newer.
    pub filled: u64,
    /// Time of the last use of any value in it, on any monotonic clock.
    pub last_access: u64,
}
