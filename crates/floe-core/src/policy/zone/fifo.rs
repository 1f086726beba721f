//! FIFO: evicts the zone that was filled first.

use super::candidate::Candidate;
use crate::ZoneId;

pub(super) fn choose(candidates: &[Candidate]) -> Option<ZoneId> {
    candidates.iter().min_by_key(|c| c.filled).map(|c| c.zone)
}
