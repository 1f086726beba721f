//! SIEVE over zones (Zhang et al., "SIEVE is Simpler than LRU", NSDI '24).
//!
//! A hand moves from the oldest zone to the newest. A zone that was used since
//! the hand last passed it, or since it was filled, is spared once. The first
//! zone that was not used is evicted. Unlike in LRU, zones keep their order, so
//! that a scan which touches every zone once cannot evict popular ones.

use std::collections::BTreeMap;

use super::candidate::Candidate;
use crate::ZoneId;

/// The hand, and the use of each zone when the hand last passed it.
#[derive(Clone, Debug, Default)]
pub struct Sieve {
    /// Order number of the zone at which the next search starts.
    hand: u64,
    /// For zones that the hand has spared: their order number, which
    /// distinguishes a zone's lives, and their last access at that moment.
    spared: BTreeMap<ZoneId, (u64, u64)>,
}

impl Sieve {
    pub(super) fn choose(&mut self, candidates: &[Candidate]) -> Option<ZoneId> {
        let mut order: Vec<&Candidate> = candidates.iter().collect();
        order.sort_unstable_by_key(|c| c.filled);
        let start = order.partition_point(|c| c.filled < self.hand);
        // Two rounds: the first may spare every zone, and the second then
        // evicts the zone that was spared first.
        for step in 0..2 * order.len() {
            let candidate = order[(start + step) % order.len()];
            if self.visited(candidate) {
                self.spared
                    .insert(candidate.zone, (candidate.filled, candidate.last_access));
            } else {
                self.hand = candidate.filled + 1;
                self.spared.remove(&candidate.zone);
                return Some(candidate.zone);
            }
        }
        None
    }

    /// A zone that was used is passed once by the hand, after which all others come first.
    pub(super) fn rank(&self, candidate: &Candidate) -> (u64, u64) {
        // In one round the hand passes the newer zones, then the older ones.
        let rounds = 2 * u64::from(self.visited(candidate));
        let is_behind = u64::from(candidate.filled < self.hand);
        (rounds + is_behind, candidate.filled)
    }

    fn visited(&self, candidate: &Candidate) -> bool {
        match self.spared.get(&candidate.zone) {
            Some(&(filled, access)) if filled == candidate.filled => candidate.last_access > access,
            _ => candidate.last_access > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(n: u32, last_access: u64) -> Candidate {
        Candidate {
            zone: ZoneId(n),
            filled: u64::from(n),
            last_access,
        }
    }

    #[test]
    fn visited_zones_are_spared_once_and_the_hand_moves_on() {
        let mut sieve = Sieve::default();
        assert_eq!(
            sieve.choose(&[zone(1, 5), zone(2, 0), zone(3, 0)]),
            Some(ZoneId(2))
        );
        // The hand is at zone 3, which was not used.
        assert_eq!(
            sieve.choose(&[zone(1, 5), zone(3, 0), zone(4, 0)]),
            Some(ZoneId(3))
        );
        // The hand wraps at the end; zone 1 was not used since it was spared.
        assert_eq!(sieve.choose(&[zone(1, 5), zone(4, 9)]), Some(ZoneId(1)));
    }

    #[test]
    fn when_all_are_visited_the_second_round_finds_one() {
        assert_eq!(
            Sieve::default().choose(&[zone(1, 1), zone(2, 1)]),
            Some(ZoneId(1))
        );
        assert_eq!(Sieve::default().choose(&[]), None);
    }
}
