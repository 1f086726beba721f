//! Zone promotion LRU (ZNCache §3.3): any use of a chunk promotes its whole
//! zone. The least recently used zone is evicted.
//!
//! The driver keeps one time stamp per zone, so that a promotion is a relaxed
//! store and needs no list. The cost is this scan, once per evicted zone.

use super::candidate::Candidate;
use crate::ZoneId;

pub(super) fn choose(candidates: &[Candidate]) -> Option<ZoneId> {
    candidates.iter().min_by_key(|c| rank(c)).map(|c| c.zone)
}

pub(super) fn rank(candidate: &Candidate) -> (u64, u64) {
    (candidate.last_access, candidate.filled)
}
