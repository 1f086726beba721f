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

    /// Chooses the zone to evict; `None` if there is no candidate.
    pub fn choose(&mut self, candidates: &[Candidate]) -> Option<ZoneId> {
        match self {
            ZonePolicy::Zplru => zplru::choose(candidates),
            ZonePolicy::Fifo => fifo::choose(candidates),
            ZonePolicy::Sieve(sieve) => sieve.choose(candidates),
        }
    }
}
