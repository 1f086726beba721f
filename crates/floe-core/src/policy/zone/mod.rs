//! Which zone is evicted next.
//!
//! A zone policy sees a list of full zones with the order in which they were
//! filled and when each was last used; it names one. Adding a policy is a file
//! here and an arm of [`ZonePolicy`].

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

    /// Names the zone to evict, or `None` if there is no candidate.
    pub fn choose(&mut self, candidates: &[Candidate]) -> Option<ZoneId> {
        match self {
            ZonePolicy::Zplru => zplru::choose(candidates),
            ZonePolicy::Fifo => fifo::choose(candidates),
            ZonePolicy::Sieve(sieve) => sieve.choose(candidates),
        }
    }
}
