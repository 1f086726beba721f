//! Which values are worth a write to flash.
//!
//! An admission policy is asked before a value is written, and says yes or
//! no. It sees a key's hash, the bytes that the write would cost, and the
//! time; it keeps no values and knows no engine. A "no" is a value forgotten
//! early, which a cache may always do. What lay on flash under the key must
//! then be deleted by whoever asked, as for any refused write: an old value
//! must not outlive a newer one that was not stored.
//!
//! Every policy has a fixed size that follows from its settings
//! ([`AdmissionConfig::memory_bytes`]) and gives the same answers for the same
//! seed and questions. Hashes are expected to be seeded by the cache's secret
//! ([`crate::hash::HashSeed`]), so that nobody outside can aim at a sketch.
//!
//! Adding a policy is a file here and an arm of each enum. `docs/admission.md`
//! says when to choose which.

mod all;
mod budget;
mod error;
mod frequency;
mod probabilistic;
mod reject_first;
mod statistics;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use all::{All, AllConfig};
pub use budget::{BudgetRefusals, WriteBudget, WriteBudgetConfig};
pub use error::AdmissionConfigError;
pub use frequency::{Frequency, FrequencyConfig};
pub use probabilistic::{Probabilistic, ProbabilisticConfig};
pub use reject_first::{RejectFirst, RejectFirstConfig};
pub use statistics::AdmissionStatistics;

use crate::Tick;
use crate::hash::KeyHash;

/// The policies, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdmissionKind {
    /// Everything is written.
    All,
    /// Each value is written with the same probability.
    Probabilistic,
    /// At most so many bytes are written in any day, spread over it.
    WriteBudget,
    /// What was seen often enough lately is written.
    Frequency,
    /// What was seen before, within a window of time, is written.
    RejectFirst,
}

impl AdmissionKind {
    /// Every policy.
    pub const ALL: [AdmissionKind; 5] = [
        AdmissionKind::All,
        AdmissionKind::Probabilistic,
        AdmissionKind::WriteBudget,
        AdmissionKind::Frequency,
        AdmissionKind::RejectFirst,
    ];

    /// The name it parses from.
    pub fn name(self) -> &'static str {
        match self {
            AdmissionKind::All => "all",
            AdmissionKind::Probabilistic => "probabilistic",
            AdmissionKind::WriteBudget => "write-budget",
            AdmissionKind::Frequency => "frequency",
            AdmissionKind::RejectFirst => "reject-first",
        }
    }
}

impl fmt::Display for AdmissionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a text names no admission policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an admission policy; choose one of all, probabilistic, write-budget, frequency, reject-first"
)]
pub struct UnknownAdmission(String);

impl FromStr for AdmissionKind {
    type Err = UnknownAdmission;

    fn from_str(text: &str) -> Result<Self, UnknownAdmission> {
        let wanted = text.trim().to_ascii_lowercase().replace('_', "-");
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == wanted)
            .ok_or_else(|| UnknownAdmission(text.to_owned()))
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
    /// Everything is written.
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
    pub fn check(&self) -> Result<(), AdmissionConfigError> {
        match self {
            AdmissionConfig::All(_) => Ok(()),
            AdmissionConfig::Probabilistic(config) => config.check(),
            AdmissionConfig::WriteBudget(config) => config.check(),
            AdmissionConfig::Frequency(config) => config.check(),
            AdmissionConfig::RejectFirst(config) => config.check(),
        }
    }

    /// Bytes of RAM that the policy will take beside [`Admission`] itself, if
    /// the settings pass [`AdmissionConfig::check`].
    pub fn memory_bytes(&self) -> u64 {
        match self {
            AdmissionConfig::All(_) | AdmissionConfig::Probabilistic(_) => 0,
            AdmissionConfig::WriteBudget(config) => config.memory_bytes(),
            AdmissionConfig::Frequency(config) => config.memory_bytes(),
            AdmissionConfig::RejectFirst(config) => config.memory_bytes(),
        }
    }
}

/// Decides which values are written, and counts what it decided.
#[derive(Clone, Debug)]
pub struct Admission {
    policy: AdmissionPolicy,
    statistics: AdmissionStatistics,
}

/// A policy and what it remembers.
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
    /// A policy that has seen nothing yet. Whatever it draws at random follows
    /// from `seed`. A cache of several shards gives each its own policy, with
    /// its own seed and its share of a budget.
    ///
    /// # Errors
    /// Those of [`AdmissionConfig::check`].
    pub fn new(config: &AdmissionConfig, seed: u64) -> Result<Self, AdmissionConfigError> {
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

    /// Whether the value of `hash`, which costs `bytes` on flash, shall be
    /// written. Ask once for each write; the answer is taken as followed. A
    /// `now` earlier than the last one counts as the last one.
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

    /// Tells the policy that the key's value was asked for and found, in RAM
    /// or on flash. What remembers keys counts it as a sighting, as CacheLib's
    /// reject-first may; the others do not care. Misses are not told: the write
    /// that follows one is a sighting itself.
    pub fn note_hit(&mut self, hash: KeyHash, now: Tick) {
        match &mut self.policy {
            AdmissionPolicy::Frequency(policy) => policy.note(hash),
            AdmissionPolicy::RejectFirst(policy) => policy.note(hash, now),
            AdmissionPolicy::All(_)
            | AdmissionPolicy::Probabilistic(_)
            | AdmissionPolicy::WriteBudget(_) => {}
        }
    }

    /// What was decided so far.
    pub fn statistics(&self) -> AdmissionStatistics {
        self.statistics
    }

    /// The policy, for what only it can tell.
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

    /// Bytes of RAM that the policy takes beside itself; fixed for its life.
    pub fn memory_bytes(&self) -> u64 {
        match &self.policy {
            AdmissionPolicy::All(_) | AdmissionPolicy::Probabilistic(_) => 0,
            AdmissionPolicy::WriteBudget(policy) => policy.memory_bytes(),
            AdmissionPolicy::Frequency(policy) => policy.memory_bytes(),
            AdmissionPolicy::RejectFirst(policy) => policy.memory_bytes(),
        }
    }
}
