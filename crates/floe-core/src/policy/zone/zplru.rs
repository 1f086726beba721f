//! Zone promotion LRU (ZNCache §3.3): any use of a chunk promotes its whole
//! zone; the least recently used zone goes.
//!
//! The flow keeps one time stamp per zone, so promotion costs a relaxed store
//! and no list; the price is this scan, once per evicted zone.

use super::candidate::Candidate;
use crate::ZoneId;

pub(super) fn choose(candidates: &[Candidate]) -> Option<ZoneId> {
    candidates
        .iter()
        .min_by_key(|c| (c.last_access, c.filled))
        .map(|c| c.zone)
}
