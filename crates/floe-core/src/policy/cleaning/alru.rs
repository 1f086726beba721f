//! Approximately least recently used: cleans blocks that were not written for
//! long, oldest first, while the cache is not busy. OCF's default, with its rules
//! and its parameters.
//!
//! A batch that found blocks is followed by the next one at once, until no stale
//! block is left or a request comes; then the policy sleeps for the wake-up time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::by_age::{ByAge, seconds};
use super::view::Load;
use crate::Tick;
use crate::policy::error::{PolicyConfigError, check_range};

/// Time between two batches while stale blocks are left, so that a batch that
/// cannot be cleaned is not named without end.
const PAUSE: Duration = Duration::from_millis(1);

/// `{ kind = "alru", wake_up_seconds = 20, staleness_seconds = 120 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlruConfig {
    /// Seconds between two searches for stale blocks: 1 to 3,600. Default 20.
    pub wake_up_seconds: u32,
    /// Seconds without a write after which a block is stale: 1 to 3,600.
    /// Default 120.
    pub staleness_seconds: u32,
    /// Blocks to clean at once: 1 to 10,000. Default 100.
    pub blocks_max: u32,
    /// Milliseconds without a request after which the cache is not busy: 0 to
    /// 1,000,000. Default 10,000.
    pub activity_threshold_ms: u32,
}

impl Default for AlruConfig {
    fn default() -> Self {
        AlruConfig {
            wake_up_seconds: 20,
            staleness_seconds: 120,
            blocks_max: 100,
            activity_threshold_ms: 10_000,
        }
    }
}

impl AlruConfig {
    pub(super) fn check(&self) -> Result<(), PolicyConfigError> {
        check_range("wake_up_seconds", self.wake_up_seconds, 1, 3600)?;
        check_range("staleness_seconds", self.staleness_seconds, 1, 3600)?;
        check_range("blocks_max", self.blocks_max, 1, 10_000)?;
        check_range(
            "activity_threshold_ms",
            self.activity_threshold_ms,
            0,
            1_000_000,
        )
    }
}

/// Cleans stale blocks. 12 bytes for each block.
#[derive(Clone, Debug)]
pub struct Alru {
    config: AlruConfig,
    /// The dirty blocks.
    pub(super) dirty: ByAge,
}

impl Alru {
    pub(super) fn new(config: AlruConfig) -> Self {
        Alru {
            config,
            dirty: ByAge::default(),
        }
    }

    /// Names blocks; returns when to wake up again.
    pub(super) fn poll(&mut self, now: Tick, load: Load, named: &mut Vec<u32>) -> Tick {
        let asleep = now + Duration::from_secs(u64::from(self.config.wake_up_seconds));
        if now < load.idle_at(self.config.activity_threshold_ms) {
            return asleep;
        }
        let from = named.len();
        let fresh_from = seconds(now).saturating_sub(self.config.staleness_seconds);
        let oldest = self.dirty.oldest_first();
        let stale = oldest.take_while(|(_, written_at)| *written_at < fresh_from);
        named.extend(
            stale
                .map(|(block, _)| block)
                .take(self.config.blocks_max as usize),
        );
        match named.len() - from {
            0 => asleep,
            _ => now + PAUSE,
        }
    }
}
