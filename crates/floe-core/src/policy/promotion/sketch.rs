//! Inserts granules that a frequency sketch has counted often enough lately.
//!
//! The sketch is that of the admission policy [`Frequency`]: counters of four
//! bits that are halved once per window, so it needs neither a ring nor a hash
//! table. The window is four requests per granule of the cache. One request
//! decides about each of its granules on its own.

use serde::{Deserialize, Serialize};

use super::request::{Granule, Sighting, Verdict};
use crate::hash::KeyHash;
use crate::policy::admission::{Frequency, FrequencyConfig};
use crate::policy::error::{PolicyConfigError, check_range};

/// Requests after which old ones count half, per granule of the cache.
const WINDOW_PER_GRANULE: u64 = 4;

/// `{ kind = "sketch", threshold = 2 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SketchConfig {
    /// Requests of a granule, this one included, from which on it is inserted:
    /// 1 (everything) to 15. Default 2.
    pub threshold: u32,
}

impl SketchConfig {
    pub(super) fn check(&self) -> Result<(), PolicyConfigError> {
        check_range("threshold", self.threshold, 1, 15)
    }
}

impl Default for SketchConfig {
    fn default() -> Self {
        SketchConfig { threshold: 2 }
    }
}

/// Admits granules by their estimated frequency. 16 bytes for each granule of the
/// cache.
#[derive(Clone, Debug)]
pub struct Sketch {
    threshold: u32,
    frequency: Frequency,
}

impl Sketch {
    pub(super) fn new(config: &SketchConfig, granules_max: u64, seed: u64) -> Self {
        let window = granules_max.saturating_mul(WINDOW_PER_GRANULE);
        let frequency = FrequencyConfig {
            threshold: config.threshold,
            window: window.clamp(1 << 10, 1 << 30),
        };
        Sketch {
            threshold: config.threshold,
            frequency: Frequency::new(&frequency, seed),
        }
    }

    pub(super) fn see(&mut self, sighting: &Sighting) -> Verdict {
        let granules = sighting.granules();
        Verdict::of(granules.map(|granule| self.frequency.admit(hash(granule))))
    }

    pub(super) fn admits(&self, granule: Granule) -> bool {
        self.frequency.estimate(hash(granule)) >= self.threshold
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.frequency.memory_bytes()
    }
}

/// The sketch mixes it with its seed.
fn hash(granule: Granule) -> KeyHash {
    KeyHash(granule.0)
}
