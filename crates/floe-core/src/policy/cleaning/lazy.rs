//! Cleans only while the cache is idle, oldest writes first.
//!
//! Requests never compete with write-backs. Under steady load the cache fills with
//! dirty blocks; then writes that miss go past it. On fast backing devices that is
//! the better choice, according to the I/O-cache paper (finding 3).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::by_age::ByAge;
use super::view::Load;
use crate::Tick;
use crate::policy::error::{PolicyConfigError, check_range};

/// Blocks of one batch.
const BLOCKS_MAX: usize = 100;
/// Time between two batches of an idle cache.
const PAUSE: Duration = Duration::from_millis(100);

/// `{ kind = "lazy", idle_ms = 1000 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LazyConfig {
    /// How long no request has come when the cache counts as idle, in
    /// milliseconds: 10 to 3,600,000. Default 1,000.
    pub idle_ms: u32,
}

impl Default for LazyConfig {
    fn default() -> Self {
        LazyConfig { idle_ms: 1000 }
    }
}

impl LazyConfig {
    pub(super) fn check(&self) -> Result<(), PolicyConfigError> {
        check_range("idle_ms", self.idle_ms, 10, 3_600_000)
    }
}

/// Cleans while no requests come. 12 bytes for each block.
#[derive(Clone, Debug)]
pub struct Lazy {
    pub(super) config: LazyConfig,
    /// The dirty blocks.
    pub(super) dirty: ByAge,
}

impl Lazy {
    /// Names blocks; returns when to wake up again.
    pub(super) fn poll(&mut self, now: Tick, load: Load, named: &mut Vec<u32>) -> Tick {
        let idle_at = load.idle_at(self.config.idle_ms);
        if now < idle_at {
            return idle_at;
        }
        if load.in_flight == 0 {
            let oldest = self.dirty.oldest_first().map(|(block, _)| block);
            named.extend(oldest.take(BLOCKS_MAX));
        }
        now + PAUSE
    }
}
