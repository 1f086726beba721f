//! Promotion policies of volumes: whether missing parts of a request are
//! inserted into the cache.
//!
//! An insertion costs a write to the cache device, and evicts something. A
//! policy therefore remembers addresses that the cache does not have, and
//! admits those that are requested again. Addresses are [`Granule`]s: aligned
//! ranges of the smallest block size.
//!
//! For each request the cache first asks [`Promotion::see`], which counts the
//! request once. If it answers [`Verdict::Some`], the cache asks
//! [`Promotion::admits`] about each missing granule. After insertions, hits and
//! evictions the cache calls the `note` functions. No policy may rely on every
//! admitted granule being inserted: room, sequential cut-off and modes decide
//! too.
//!
//! Adding a policy takes a file here and an arm of each enum.

mod always;
mod history;
mod levels;
mod nhit;
mod request;
mod sketch;
mod smq;
#[cfg(test)]
mod tests;

use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use nhit::{Nhit, NhitConfig};
pub use request::{Granule, Sighting, Verdict};
pub use sketch::{Sketch, SketchConfig};
pub use smq::{Confidence, Smq, SmqConfig, SmqThresholds};

use crate::Tick;
use crate::policy::PolicyConfigError;

/// A policy and its settings, such as `{ kind = "nhit", threshold = 2 }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PromotionConfig {
    /// Every missing granule is inserted.
    #[default]
    Always,
    /// See [`Nhit`].
    Nhit(NhitConfig),
    /// See [`Smq`].
    Smq(SmqConfig),
    /// See [`Sketch`].
    Sketch(SketchConfig),
}

impl PromotionConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// Names the first setting that cannot work and the nearest value that does.
    pub fn check(&self) -> Result<(), PolicyConfigError> {
        match self {
            PromotionConfig::Always | PromotionConfig::Smq(_) => Ok(()),
            PromotionConfig::Nhit(config) => config.check(),
            PromotionConfig::Sketch(config) => config.check(),
        }
    }
}

/// A text names no promotion policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a promotion policy; choose one of always, nhit, nhit-N (N from 2 to 1000), smq, smq-adaptive, sketch, sketch-N (N from 1 to 15)"
)]
pub struct UnknownPromotion(String);

impl FromStr for PromotionConfig {
    type Err = UnknownPromotion;

    /// Reads the short form of command lines: a policy's name, or its name and
    /// threshold as in `nhit-4`, which also makes it active from the first
    /// request.
    fn from_str(text: &str) -> Result<Self, UnknownPromotion> {
        let unknown = || UnknownPromotion(text.to_owned());
        let config = match text.split_once('-') {
            None => match text {
                "always" => PromotionConfig::Always,
                "nhit" => PromotionConfig::Nhit(NhitConfig::default()),
                "smq" => PromotionConfig::Smq(SmqConfig::default()),
                "sketch" => PromotionConfig::Sketch(SketchConfig::default()),
                _ => return Err(unknown()),
            },
            Some(("nhit", threshold)) => PromotionConfig::Nhit(NhitConfig {
                threshold: threshold.parse().map_err(|_| unknown())?,
                trigger_percent: 0,
            }),
            Some(("smq", "adaptive")) => PromotionConfig::Smq(SmqConfig {
                thresholds: SmqThresholds::Adaptive,
            }),
            Some(("sketch", threshold)) => PromotionConfig::Sketch(SketchConfig {
                threshold: threshold.parse().map_err(|_| unknown())?,
            }),
            Some(_) => return Err(unknown()),
        };
        config.check().map_err(|_| unknown())?;
        Ok(config)
    }
}

/// Decides which missing granules are inserted, and counts its decisions.
#[derive(Clone, Debug)]
pub struct Promotion {
    policy: Policy,
    statistics: PromotionStatistics,
}

#[derive(Clone, Debug)]
enum Policy {
    Always,
    Nhit(Nhit),
    Smq(Box<Smq>),
    Sketch(Sketch),
}

/// Requests with missing granules, by the verdict on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromotionStatistics {
    /// Requests of which every missing granule was admitted.
    pub admitted: u64,
    /// Requests of which none was.
    pub rejected: u64,
    /// Requests whose granules were decided one by one.
    pub divided: u64,
}

impl Promotion {
    /// A policy that has seen nothing, for a cache of `granules_max` granules.
    /// `seed` keys its hashes, so that clients cannot attack them.
    ///
    /// # Errors
    /// Those of [`PromotionConfig::check`].
    pub fn new(
        config: &PromotionConfig,
        granules_max: u64,
        seed: u64,
    ) -> Result<Self, PolicyConfigError> {
        config.check()?;
        let policy = match config {
            PromotionConfig::Always => Policy::Always,
            PromotionConfig::Nhit(config) => Policy::Nhit(Nhit::new(config, granules_max, seed)),
            PromotionConfig::Smq(config) => {
                Policy::Smq(Box::new(Smq::new(config, granules_max, seed)))
            }
            PromotionConfig::Sketch(config) => {
                Policy::Sketch(Sketch::new(config, granules_max, seed))
            }
        };
        Ok(Promotion {
            policy,
            statistics: PromotionStatistics::default(),
        })
    }

    /// Counts a request with missing granules and decides about them. Call it
    /// once per such request, and never for a full hit.
    pub fn see(&mut self, sighting: &Sighting) -> Verdict {
        let verdict = match &mut self.policy {
            Policy::Always => always::see(),
            Policy::Nhit(policy) => policy.see(sighting),
            Policy::Smq(policy) => policy.see(sighting),
            Policy::Sketch(policy) => policy.see(sighting),
        };
        *match verdict {
            Verdict::All => &mut self.statistics.admitted,
            Verdict::None => &mut self.statistics.rejected,
            Verdict::Some => &mut self.statistics.divided,
        } += 1;
        verdict
    }

    /// Decides if `granule` is inserted: a missing one of the request for which
    /// [`Promotion::see`] has just returned [`Verdict::Some`].
    pub fn admits(&self, granule: Granule) -> bool {
        match &self.policy {
            Policy::Always => true,
            Policy::Nhit(policy) => policy.admits(granule),
            Policy::Smq(policy) => policy.admits(granule),
            Policy::Sketch(policy) => policy.admits(granule),
        }
    }

    /// True if the policy needs [`Promotion::note_hit`],
    /// [`Promotion::note_removed`] and [`Promotion::note_dirty`]. Others ignore
    /// them, so the cache may spare the calls.
    pub fn follows_blocks(&self) -> bool {
        matches!(self.policy, Policy::Smq(_))
    }

    /// Notes that `granule` was inserted.
    pub fn note_inserted(&mut self, granule: Granule, dirty: bool) {
        match &mut self.policy {
            Policy::Always | Policy::Sketch(_) => {}
            Policy::Nhit(policy) => policy.note_inserted(granule),
            Policy::Smq(policy) => policy.note_inserted(granule, dirty),
        }
    }

    /// Notes that a request hit `granule`.
    pub fn note_hit(&mut self, granule: Granule, now: Tick) {
        if let Policy::Smq(policy) = &mut self.policy {
            policy.note_hit(granule, now);
        }
    }

    /// Notes that `granule` became dirty or clean.
    pub fn note_dirty(&mut self, granule: Granule, dirty: bool) {
        if let Policy::Smq(policy) = &mut self.policy {
            policy.note_dirty(granule, dirty);
        }
    }

    /// Notes that `granule` left the cache.
    pub fn note_removed(&mut self, granule: Granule) {
        if let Policy::Smq(policy) = &mut self.policy {
            policy.note_removed(granule);
        }
    }

    /// The decisions so far.
    pub fn statistics(&self) -> PromotionStatistics {
        self.statistics
    }

    /// Bytes of RAM that the history takes, counted from live structures.
    pub fn memory_bytes(&self) -> u64 {
        match &self.policy {
            Policy::Always => 0,
            Policy::Nhit(policy) => policy.memory_bytes(),
            Policy::Smq(policy) => policy.memory_bytes(),
            Policy::Sketch(policy) => policy.memory_bytes(),
        }
    }
}
