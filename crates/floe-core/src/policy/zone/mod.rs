//! Zone policies: the choice of the next zone to evict.
//!
//! A zone policy sees a list of full zones, with their order of filling and the
//! time of their last use. It names one. Adding a policy takes a file here and
//! an arm of [`ZonePolicy`].

mod candidate;
mod fifo;
mod sieve;
mod zplru;

pub use candidate::Candidate;

use crate::ZoneId;

/// A zone policy and its state.
#[derive(Clone, Debug)]
pub enum ZonePolicy {
    /// Zone LRU with promotion.
    Zplru,
    /// Oldest first.
    Fifo,
    /// SIEVE over zones.
    Sieve(sieve::Sieve),
}

impl ZonePolicy {
    /// SIEVE with its hand at the oldest zone.
    pub fn sieve() -> Self {
        ZonePolicy::Sieve(sieve::Sieve::default())
    }

    /// Keeps the first `count` of the candidates in the order in which they would be evicted
    /// if none were used meanwhile.
    pub fn next(&self, mut candidates: Vec<Candidate>, count: usize) -> Vec<Candidate> {
        let rank = |candidate: &Candidate| match self {
            ZonePolicy::Zplru => zplru::rank(candidate),
            ZonePolicy::Fifo => (0, candidate.filled),
            ZonePolicy::Sieve(sieve) => sieve.rank(candidate),
        };
        if count < candidates.len() {
            candidates.select_nth_unstable_by_key(count, rank);
            candidates.truncate(count);
        }
        candidates.sort_unstable_by_key(rank);
        candidates
    }

    /// Chooses the zone to evict; `None` if there is no candidate.
    pub fn choose(&mut self, candidates: &[Candidate]) -> Option<ZoneId> {
        match self {
            ZonePolicy::Zplru => zplru::choose(candidates),
            ZonePolicy::Fifo => fifo::choose(candidates),
            ZonePolicy::Sieve(sieve) => sieve.choose(candidates),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each policy evicts the zones in the order that was told, if none is used meanwhile.
    #[test]
    fn zones_are_evicted_in_the_order_that_was_told() {
        let zone = |n: u64, last_access| Candidate {
            zone: ZoneId(n as u32),
            filled: n,
            last_access,
        };
        let all = vec![zone(0, 7), zone(1, 0), zone(2, 9), zone(3, 0), zone(4, 3)];
        for mut policy in [ZonePolicy::Zplru, ZonePolicy::Fifo, ZonePolicy::sieve()] {
            let mut left = all.clone();
            // Of SIEVE, the hand is no longer at the oldest zone then.
            let first = policy.choose(&left).unwrap();
            left.retain(|c| c.zone != first);
            for count in [0, 2, 4, 9] {
                let told = policy.next(left.clone(), count);
                let (mut policy, mut left) = (policy.clone(), left.clone());
                assert_eq!(told.len(), count.min(4));
                for candidate in told {
                    let evicted = policy.choose(&left).unwrap();
                    assert_eq!(evicted, candidate.zone, "{policy:?}");
                    left.retain(|c| c.zone != evicted);
                }
            }
        }
    }
}
