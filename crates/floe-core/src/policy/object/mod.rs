//! Object-granular eviction policies with a capacity in bytes.
//!
//! These policies decide which *objects* a cache keeps; zone policies decide
//! which *zones* it evicts. A policy here stores no bytes: it sees keys and
//! sizes, and answers hit or miss. Miss-ratio curves are computed with them,
//! and checked against published counts.
//!
//! All policies follow the same rules:
//! * An object costs its size and nothing else.
//! * An object larger than the cache is never admitted. Any other miss evicts
//!   until the object fits, and inserts it.
//! * A hit keeps the size with which the object was inserted.

mod clock;
mod fifo;
mod lfu;
mod lru;
mod resident;
mod s3fifo;
mod sieve;
mod slab;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use clock::Clock;
use fifo::Fifo;
use lfu::Lfu;
use lru::Lru;
pub use resident::Access;
use resident::Resident;
use s3fifo::S3Fifo;
use sieve::Sieve;

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

crate::names! {
    ObjectPolicyKind: "an eviction policy" {
        Lru => "lru",
        Fifo => "fifo",
        Clock => "clock",
        Sieve => "sieve",
        S3Fifo => "s3fifo",
        Lfu => "lfu",
    }
}

/// A cache of objects under one of the policies.
#[derive(Debug)]
pub struct ObjectPolicy(Policy);

#[derive(Debug)]
enum Policy {
    Lru(Resident<Lru>),
    Fifo(Resident<Fifo>),
    Clock(Resident<Clock>),
    Sieve(Resident<Sieve>),
    S3Fifo(Resident<S3Fifo>),
    Lfu(Resident<Lfu>),
}

macro_rules! each {
    ($policies:expr, $policy:ident => $body:expr) => {
        match $policies {
            Policy::Lru($policy) => $body,
            Policy::Fifo($policy) => $body,
            Policy::Clock($policy) => $body,
            Policy::Sieve($policy) => $body,
            Policy::S3Fifo($policy) => $body,
            Policy::Lfu($policy) => $body,
        }
    };
}

impl ObjectPolicy {
    /// An empty cache of `capacity_bytes` under `kind`.
    pub fn new(kind: ObjectPolicyKind, capacity_bytes: u64) -> Self {
        ObjectPolicy(match kind {
            ObjectPolicyKind::Lru => Policy::Lru(Resident::new(capacity_bytes)),
            ObjectPolicyKind::Fifo => Policy::Fifo(Resident::new(capacity_bytes)),
            ObjectPolicyKind::Clock => Policy::Clock(Resident::new(capacity_bytes)),
            ObjectPolicyKind::Sieve => Policy::Sieve(Resident::new(capacity_bytes)),
            ObjectPolicyKind::S3Fifo => Policy::S3Fifo(Resident::new(capacity_bytes)),
            ObjectPolicyKind::Lfu => Policy::Lfu(Resident::new(capacity_bytes)),
        })
    }

    /// Looks `key` up; on a miss inserts it with `size` bytes.
    pub fn access(&mut self, key: u64, size: u64) -> Access {
        each!(&mut self.0, policy => policy.access(key, size))
    }

    /// Removes `key`; returns whether it was there.
    pub fn remove(&mut self, key: u64) -> bool {
        each!(&mut self.0, policy => policy.remove(key))
    }

    /// True if `key` is held. Changes nothing.
    pub fn contains(&self, key: u64) -> bool {
        each!(&self.0, policy => policy.contains(key))
    }

    /// Bytes of the objects held; never above the capacity.
    pub fn used_bytes(&self) -> u64 {
        each!(&self.0, policy => policy.used_bytes())
    }

    /// Objects held.
    pub fn len(&self) -> usize {
        each!(&self.0, policy => policy.len())
    }

    /// True if no object is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
