//! Admits each value with a fixed probability, as CacheLib's `RejectRandomAP`.
//!
//! Writes shrink to the share `probability` of the offered values. A key that
//! is offered repeatedly is admitted after `1 / probability` offers on average.
//! Popular values are therefore written, and most values seen once are not: a
//! frequency filter without memory (Berg et al., "The CacheLib Caching Engine",
//! OSDI 2020).

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::policy::PolicyConfigError;

/// `{ kind = "probabilistic", probability = 0.5 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProbabilisticConfig {
    /// The share of values that are written: above 0, at most 1. Default 0.5.
    pub probability: f64,
}

impl Default for ProbabilisticConfig {
    fn default() -> Self {
        ProbabilisticConfig { probability: 0.5 }
    }
}

impl ProbabilisticConfig {
    pub(super) fn check(&self) -> Result<(), PolicyConfigError> {
        if self.probability > 0.0 && self.probability <= 1.0 {
            return Ok(());
        }
        Err(PolicyConfigError {
            setting: "probability",
            value: self.probability.to_string(),
            limit: "it must be above 0 and at most 1".to_owned(),
            nearest: if self.probability > 1.0 { "1" } else { "0.001" }.to_owned(),
        })
    }
}

/// Admits each value with the same probability. No memory.
#[derive(Clone, Debug)]
pub struct Probabilistic {
    probability: f64,
    random: Coin,
}

impl Probabilistic {
    pub(super) fn new(config: &ProbabilisticConfig, seed: u64) -> Self {
        Probabilistic {
            probability: config.probability,
            random: Coin::new(seed),
        }
    }

    pub(super) fn admit(&mut self) -> bool {
        self.random.falls(self.probability)
    }
}

/// A seeded coin of any bias.
#[derive(Clone, Debug)]
pub(super) struct Coin(Xoshiro256PlusPlus);

impl Coin {
    pub(super) fn new(seed: u64) -> Self {
        Coin(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Heads with `probability`: always for 1 and more, never for 0 and less.
    pub(super) fn falls(&mut self, probability: f64) -> bool {
        // 53 bits, the most that are even between 0 and 1; the draw is never 1.
        let draw = (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        draw < probability
    }
}
