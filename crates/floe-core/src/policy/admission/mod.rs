//! Admission policies: whether a value is worth a write to flash.
//!
//! An engine asks the policy before it writes a value. The policy sees a key's
//! hash, the bytes that the write would cost, and the time. It keeps no values
//! and knows no engine.
//!
//! A rejected value is forgotten early, which a cache may always do. The caller
//! must then delete any value of the key on flash, as for every rejected write:
//! an old value must not outlive a newer one that was not stored.
//!
//! Every policy has a fixed size that follows from its settings
//! ([`AdmissionConfig::memory_bytes`]). It makes the same decisions for the same
//! seed and calls. Hashes must be seeded by the cache's secret
//! ([`crate::hash::HashSeed`]), so that clients cannot attack a sketch.
//!
//! Adding a policy takes a file here and an arm of each enum.
//! `docs/admission.md` says when to choose which policy.

mod all;
mod budget;
mod frequency;
mod probabilistic;
mod reject_first;
mod statistics;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use all::{All, AllConfig};
pub use budget::{BudgetRejections, WriteBudget, WriteBudgetConfig};
pub use frequency::{Frequency, FrequencyConfig};
pub use probabilistic::{Probabilistic, ProbabilisticConfig};
pub use reject_first::{RejectFirst, RejectFirstConfig};
pub use statistics::AdmissionStatistics;

use crate::Tick;
use crate::hash::KeyHash;
use crate::policy::PolicyConfigError;

/// The policies, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdmissionKind {
    /// Every value is written.
    All,
    /// Each value is written with the same probability.
    Probabilistic,
    /// At most a fixed number of bytes is written in any day, spread over it.
    WriteBudget,
    /// Values of keys that were seen often enough lately are written.
    Frequency,
    /// Values of keys that were seen before, within a window of time, are
    /// written.
    RejectFirst,
}

crate::names! {
    AdmissionKind: "an admission policy" {
        All => "all",
        Probabilistic => "probabilistic",
        WriteBudget => "write-budget",
        Frequency => "frequency",
        RejectFirst => "reject-first",
    }
}

/// A policy and its settings, such as
/// `{ kind = "write-budget", bytes_per_day = "500GiB" }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum AdmissionConfig {
    /// See [`All`].
    All(AllConfig),
    /// See [`Probabilistic`].
    Probabilistic(ProbabilisticConfig),
    /// See [`WriteBudget`].
    WriteBudget(WriteBudgetConfig),
    /// See [`Frequency`].
    Frequency(FrequencyConfig),
    /// See [`RejectFirst`].
    RejectFirst(RejectFirstConfig),
}

impl Default for AdmissionConfig {
    /// Every value is written.
    fn default() -> Self {
        AdmissionConfig::All(AllConfig {})
    }
}

impl AdmissionConfig {
    /// The policy's name.
    pub fn kind(&self) -> AdmissionKind {
        match self {
            AdmissionConfig::All(_) => AdmissionKind::All,
            AdmissionConfig::Probabilistic(_) => AdmissionKind::Probabilistic,
            AdmissionConfig::WriteBudget(_) => AdmissionKind::WriteBudget,
            AdmissionConfig::Frequency(_) => AdmissionKind::Frequency,
            AdmissionConfig::RejectFirst(_) => AdmissionKind::RejectFirst,
        }
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// Names the first setting that cannot work and the nearest value that does.
    pub fn check(&self) -> Result<(), PolicyConfigError> {
        match self {
            AdmissionConfig::All(_) => Ok(()),
            AdmissionConfig::Probabilistic(config) => config.check(),
            AdmissionConfig::WriteBudget(config) => config.check(),
            AdmissionConfig::Frequency(config) => config.check(),
            AdmissionConfig::RejectFirst(config) => config.check(),
        }
    }

    /// Bytes of RAM that the policy takes beside [`Admission`] itself, if the
    /// settings pass [`AdmissionConfig::check`].
    pub fn memory_bytes(&self) -> u64 {
        match self {
            AdmissionConfig::All(_) | AdmissionConfig::Probabilistic(_) => 0,
            AdmissionConfig::WriteBudget(config) => config.memory_bytes(),
            AdmissionConfig::Frequency(config) => config.memory_bytes(),
            AdmissionConfig::RejectFirst(config) => config.memory_bytes(),
        }
    }
}

/// Decides whether values are written, and counts its decisions.
#[derive(Clone, Debug)]
pub struct Admission {
    policy: AdmissionPolicy,
    statistics: AdmissionStatistics,
}

/// A policy and its state.
#[derive(Clone, Debug)]
pub enum AdmissionPolicy {
    /// See [`All`].
    All(All),
    /// See [`Probabilistic`].
    Probabilistic(Probabilistic),
    /// See [`WriteBudget`].
    WriteBudget(WriteBudget),
    /// See [`Frequency`].
    Frequency(Frequency),
    /// See [`RejectFirst`].
    RejectFirst(RejectFirst),
}

impl Admission {
    /// A policy that has seen nothing yet. All of its random choices follow
    /// from `seed`. In a cache of several shards each has its own policy, with
    /// its own seed and its share of a budget.
    ///
    /// # Errors
    /// Those of [`AdmissionConfig::check`].
    pub fn new(config: &AdmissionConfig, seed: u64) -> Result<Self, PolicyConfigError> {
        config.check()?;
        let policy = match config {
            AdmissionConfig::All(_) => AdmissionPolicy::All(All),
            AdmissionConfig::Probabilistic(config) => {
                AdmissionPolicy::Probabilistic(Probabilistic::new(config, seed))
            }
            AdmissionConfig::WriteBudget(config) => {
                AdmissionPolicy::WriteBudget(WriteBudget::new(config, seed))
            }
            AdmissionConfig::Frequency(config) => {
                AdmissionPolicy::Frequency(Frequency::new(config, seed))
            }
            AdmissionConfig::RejectFirst(config) => {
                AdmissionPolicy::RejectFirst(RejectFirst::new(config, seed))
            }
        };
        Ok(Admission {
            policy,
            statistics: AdmissionStatistics::default(),
        })
    }

    /// Decides if the value of `hash`, which costs `bytes` on flash, is written.
    /// Call it once per write: the policy assumes that its decision is followed.
    /// A `now` before that of an earlier call counts as that earlier time.
    pub fn admit(&mut self, hash: KeyHash, bytes: u64, now: Tick) -> bool {
        let admitted = match &mut self.policy {
            AdmissionPolicy::All(policy) => policy.admit(),
            AdmissionPolicy::Probabilistic(policy) => policy.admit(),
            AdmissionPolicy::WriteBudget(policy) => policy.admit(bytes, now),
            AdmissionPolicy::Frequency(policy) => policy.admit(hash),
            AdmissionPolicy::RejectFirst(policy) => policy.admit(hash, now),
        };
        self.statistics.count(bytes, admitted);
        admitted
    }

    /// Notes a lookup that found the key's value, in RAM or on flash. Policies
    /// that remember keys count it as a sighting, as CacheLib's reject-first
    /// may; others ignore it. Misses are not noted: the write that follows a
    /// miss is a sighting itself.
    pub fn note_hit(&mut self, hash: KeyHash, now: Tick) {
        match &mut self.policy {
            AdmissionPolicy::Frequency(policy) => policy.note(hash),
            AdmissionPolicy::RejectFirst(policy) => policy.note(hash, now),
            AdmissionPolicy::All(_)
            | AdmissionPolicy::Probabilistic(_)
            | AdmissionPolicy::WriteBudget(_) => {}
        }
    }

    /// The decisions so far.
    pub fn statistics(&self) -> AdmissionStatistics {
        self.statistics
    }

    /// The policy, for its own statistics.
    pub fn policy(&self) -> &AdmissionPolicy {
        &self.policy
    }

    /// The policy's name.
    pub fn kind(&self) -> AdmissionKind {
        match &self.policy {
            AdmissionPolicy::All(_) => AdmissionKind::All,
            AdmissionPolicy::Probabilistic(_) => AdmissionKind::Probabilistic,
            AdmissionPolicy::WriteBudget(_) => AdmissionKind::WriteBudget,
            AdmissionPolicy::Frequency(_) => AdmissionKind::Frequency,
            AdmissionPolicy::RejectFirst(_) => AdmissionKind::RejectFirst,
        }
    }

    /// Bytes of RAM that the policy takes beside itself; constant over its
    /// life.
    pub fn memory_bytes(&self) -> u64 {
        match &self.policy {
            AdmissionPolicy::All(_) | AdmissionPolicy::Probabilistic(_) => 0,
            AdmissionPolicy::WriteBudget(policy) => policy.memory_bytes(),
            AdmissionPolicy::Frequency(policy) => policy.memory_bytes(),
            AdmissionPolicy::RejectFirst(policy) => policy.memory_bytes(),
        }
    }
}
