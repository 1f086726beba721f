//! Cleaning policies of volumes: which dirty blocks are written to the backing
//! device, and when.
//!
//! The cache notes every write that leaves a block dirty, and every block that
//! became clean, was invalidated or was evicted. At [`Cleaning::wake_at`] it polls
//! the policy, which names blocks in the order of their addresses. A named block
//! stays in the policy until the cache notes it clean, so a write-back that fails
//! is tried again.
//!
//! Evicting a dirty block writes it back too, whatever the policy. The policy
//! decides how many blocks are left for that.
//!
//! Adding a policy takes a file here and an arm of each enum.

mod acp;
mod alru;
mod by_age;
mod lazy;
#[cfg(test)]
mod tests;
mod view;

use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use acp::{Acp, AcpConfig};
pub use alru::{Alru, AlruConfig};
use by_age::ByAge;
pub use lazy::{Lazy, LazyConfig};
pub use view::{Blocks, Load, Place};

use crate::Tick;
use crate::policy::PolicyConfigError;

/// A policy and its settings, such as `{ kind = "alru", staleness_seconds = 60 }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum CleaningConfig {
    /// Nothing is cleaned before it is evicted or flushed; OCF's `nop`.
    None,
    /// See [`Lazy`].
    Lazy(LazyConfig),
    /// See [`Alru`].
    Alru(AlruConfig),
    /// See [`Acp`].
    Acp(AcpConfig),
}

impl Default for CleaningConfig {
    /// ALRU, as in OCF.
    fn default() -> Self {
        CleaningConfig::Alru(AlruConfig::default())
    }
}

impl CleaningConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// Names the first setting that cannot work and the nearest value that does.
    pub fn check(&self) -> Result<(), PolicyConfigError> {
        match self {
            CleaningConfig::None => Ok(()),
            CleaningConfig::Lazy(config) => config.check(),
            CleaningConfig::Alru(config) => config.check(),
            CleaningConfig::Acp(config) => config.check(),
        }
    }
}

/// A text names no cleaning policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a cleaning policy; choose one of none, lazy, alru, acp, acp-N")]
pub struct UnknownCleaning(String);

impl FromStr for CleaningConfig {
    type Err = UnknownCleaning;

    /// Reads a policy's name, or `acp-N` with the blocks of a batch; other settings are
    /// the defaults.
    fn from_str(text: &str) -> Result<Self, UnknownCleaning> {
        let unknown = || UnknownCleaning(text.to_owned());
        let config = match text {
            "none" => CleaningConfig::None,
            "lazy" => CleaningConfig::Lazy(LazyConfig::default()),
            "alru" => CleaningConfig::Alru(AlruConfig::default()),
            "acp" => CleaningConfig::Acp(AcpConfig::default()),
            _ => {
                let batch = text.strip_prefix("acp-").ok_or_else(unknown)?;
                CleaningConfig::Acp(AcpConfig {
                    blocks_max: batch.parse().map_err(|_| unknown())?,
                    ..AcpConfig::default()
                })
            }
        };
        config.check().map_err(|_| unknown())?;
        Ok(config)
    }
}

/// Decides which blocks are cleaned, and when.
#[derive(Clone, Debug)]
pub struct Cleaning {
    policy: Policy,
    wake_at: Tick,
}

#[derive(Clone, Debug)]
enum Policy {
    None,
    Lazy(Lazy),
    Alru(Alru),
    Acp(Acp),
}

impl Cleaning {
    /// A policy over no dirty blocks.
    ///
    /// # Errors
    /// Those of [`CleaningConfig::check`].
    pub fn new(config: &CleaningConfig) -> Result<Self, PolicyConfigError> {
        config.check()?;
        let (policy, wake_at) = match config {
            CleaningConfig::None => (Policy::None, Tick::MAX),
            CleaningConfig::Lazy(config) => {
                let (config, dirty) = (*config, ByAge::default());
                (Policy::Lazy(Lazy { config, dirty }), Tick::ZERO)
            }
            CleaningConfig::Alru(config) => (Policy::Alru(Alru::new(*config)), Tick::ZERO),
            CleaningConfig::Acp(config) => (Policy::Acp(Acp::new(*config)), Tick::ZERO),
        };
        Ok(Cleaning { policy, wake_at })
    }

    /// Notes that a write at `now` left `block` dirty, for the first time or
    /// again. The block has `bytes` and lies at `place`.
    pub fn note_dirty(&mut self, block: u32, place: Place, bytes: u64, now: Tick) {
        match &mut self.policy {
            Policy::None => {}
            Policy::Lazy(policy) => policy.dirty.note_dirty(block, now),
            Policy::Alru(policy) => policy.dirty.note_dirty(block, now),
            Policy::Acp(policy) => policy.note_dirty(block, place, bytes),
        }
    }

    /// Notes that `block` at `place` is not dirty any more: it was cleaned,
    /// invalidated or evicted. Does nothing if it was not.
    pub fn note_clean(&mut self, block: u32, place: Place) {
        match &mut self.policy {
            Policy::None => {}
            Policy::Lazy(policy) => policy.dirty.note_clean(block),
            Policy::Alru(policy) => policy.dirty.note_clean(block),
            Policy::Acp(policy) => policy.note_clean(place),
        }
    }

    /// Notes that writing back the block at `place` failed at `now`.
    pub fn note_failed(&mut self, place: Place, now: Tick) {
        if let Policy::Acp(policy) = &mut self.policy {
            policy.note_failed(place, now);
        }
    }

    /// When to poll next; [`Tick::MAX`] if never.
    pub fn wake_at(&self) -> Tick {
        self.wake_at
    }

    /// Appends the blocks to clean now to `named`, in the order of addresses.
    /// Call it at [`Cleaning::wake_at`] or later; earlier it names none.
    pub fn poll(&mut self, now: Tick, load: Load, blocks: &impl Blocks, named: &mut Vec<u32>) {
        if now < self.wake_at {
            return;
        }
        let from = named.len();
        self.wake_at = match &mut self.policy {
            Policy::None => Tick::MAX,
            Policy::Lazy(policy) => policy.poll(now, load, named),
            Policy::Alru(policy) => policy.poll(now, load, named),
            Policy::Acp(policy) => policy.poll(now, named),
        };
        named[from..].sort_unstable_by_key(|block| blocks.place(*block));
    }

    /// Bytes of RAM that the policy takes.
    pub fn memory_bytes(&self) -> u64 {
        match &self.policy {
            Policy::None => 0,
            Policy::Lazy(policy) => policy.dirty.memory_bytes(),
            Policy::Alru(policy) => policy.dirty.memory_bytes(),
            Policy::Acp(policy) => policy.memory_bytes(),
        }
    }
}
