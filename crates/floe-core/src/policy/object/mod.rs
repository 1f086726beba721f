//! Object-granular eviction policies with a capacity in bytes.
//!
//! They decide which *objects* a cache keeps; the zone policies next door
//! decide which *zones* it gives up. Here no bytes are stored: a policy sees
//! keys and sizes, and says hit or miss. That is what miss-ratio curves are
//! computed with, and what the published counts are checked against.
//!
//! All policies follow the same rules: an object costs its size and nothing
//! else, an object larger than the cache is never admitted, any other miss
//! inserts the object after evicting until it fits, and a hit keeps the size
//! the object was inserted with.

mod clock;
mod fifo;
mod lfu;
mod lru;
mod s3fifo;
mod sieve;
mod slab;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use clock::Clock;
pub use fifo::Fifo;
pub use lfu::Lfu;
pub use lru::Lru;
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;

/// What became of one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The object was there.
    Hit,
    /// It was not; it is now.
    Miss,
    /// It was not, and it is not admitted: it is larger than the cache.
    Refused,
}

/// The policies, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectPolicyKind {
    /// Least recently used.
    Lru,
    /// First in, first out.
    Fifo,
    /// Second chance, one reference bit.
    Clock,
    /// SIEVE: a FIFO with a hand that moves from old to new.
    Sieve,
    /// S3-FIFO: a small queue that filters, a main queue, a ghost queue.
    S3Fifo,
    /// Least frequently used, oldest first among equals.
    Lfu,
}

impl ObjectPolicyKind {
    /// Every policy.
    pub const ALL: [ObjectPolicyKind; 6] = [
        ObjectPolicyKind::Lru,
        ObjectPolicyKind::Fifo,
        ObjectPolicyKind::Clock,
        ObjectPolicyKind::Sieve,
        ObjectPolicyKind::S3Fifo,
        ObjectPolicyKind::Lfu,
    ];

    /// The name it parses from.
    pub fn name(self) -> &'static str {
        match self {
            ObjectPolicyKind::Lru => "lru",
            ObjectPolicyKind::Fifo => "fifo",
            ObjectPolicyKind::Clock => "clock",
            ObjectPolicyKind::Sieve => "sieve",
            ObjectPolicyKind::S3Fifo => "s3fifo",
            ObjectPolicyKind::Lfu => "lfu",
        }
    }
}

impl fmt::Display for ObjectPolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a text names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an eviction policy; choose one of lru, fifo, clock, sieve, s3fifo, lfu")]
pub struct UnknownPolicy(String);

impl FromStr for ObjectPolicyKind {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let wanted = text.trim().to_ascii_lowercase().replace('-', "");
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == wanted)
            .ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

/// A policy and what it holds.
#[derive(Debug)]
pub enum ObjectPolicy {
    /// See [`Lru`].
    Lru(Lru),
    /// See [`Fifo`].
    Fifo(Fifo),
    /// See [`Clock`].
    Clock(Clock),
    /// See [`Sieve`].
    Sieve(Sieve),
    /// See [`S3Fifo`].
    S3Fifo(S3Fifo),
    /// See [`Lfu`].
    Lfu(Lfu),
}

macro_rules! each {
    ($self:expr, $policy:ident => $body:expr) => {
        match $self {
            ObjectPolicy::Lru($policy) => $body,
            ObjectPolicy::Fifo($policy) => $body,
            ObjectPolicy::Clock($policy) => $body,
            ObjectPolicy::Sieve($policy) => $body,
            ObjectPolicy::S3Fifo($policy) => $body,
            ObjectPolicy::Lfu($policy) => $body,
        }
    };
}

impl ObjectPolicy {
    /// An empty cache of `capacity_bytes` under `kind`.
    pub fn new(kind: ObjectPolicyKind, capacity_bytes: u64) -> Self {
        match kind {
            ObjectPolicyKind::Lru => ObjectPolicy::Lru(Lru::new(capacity_bytes)),
            ObjectPolicyKind::Fifo => ObjectPolicy::Fifo(Fifo::new(capacity_bytes)),
            ObjectPolicyKind::Clock => ObjectPolicy::Clock(Clock::new(capacity_bytes)),
            ObjectPolicyKind::Sieve => ObjectPolicy::Sieve(Sieve::new(capacity_bytes)),
            ObjectPolicyKind::S3Fifo => ObjectPolicy::S3Fifo(S3Fifo::new(capacity_bytes)),
            ObjectPolicyKind::Lfu => ObjectPolicy::Lfu(Lfu::new(capacity_bytes)),
        }
    }

    /// Looks `key` up and, on a miss, inserts it with `size` bytes.
    pub fn access(&mut self, key: u64, size: u64) -> Access {
        each!(self, policy => policy.access(key, size))
    }

    /// Forgets `key`; says whether it was there.
    pub fn remove(&mut self, key: u64) -> bool {
        each!(self, policy => policy.remove(key))
    }

    /// Whether `key` is held. Changes nothing.
    pub fn contains(&self, key: u64) -> bool {
        each!(self, policy => policy.contains(key))
    }

    /// Bytes of the objects held; never above the capacity.
    pub fn used_bytes(&self) -> u64 {
        each!(self, policy => policy.used_bytes())
    }

    /// Objects held.
    pub fn len(&self) -> usize {
        each!(self, policy => policy.len())
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
