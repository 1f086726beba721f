//! The limits of cleaning. Must not depend on: the state of a cache.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::RwLock;

use super::config::VolumeCacheConfig;

/// The limits of cleaning, and the batches that run.
#[derive(Debug)]
pub(super) struct Cleaning {
    /// Bytes a second that the policy writes back; 0 for no limit.
    rate: u64,
    /// Blocks that are written back at once.
    pub(super) blocks_max: usize,
    /// Each batch that runs has a read lock.
    pub(super) batches: Arc<RwLock<()>>,
    /// Batches that have failed.
    pub(super) failed: AtomicU64,
}

impl Cleaning {
    pub(super) fn new(config: &VolumeCacheConfig) -> Self {
        Cleaning {
            rate: config.cleaning_rate.bytes(),
            blocks_max: config.cleaning_blocks_max.max(1) as usize,
            batches: Arc::default(),
            failed: AtomicU64::new(0),
        }
    }

    /// The time that the rate gives to `bytes`.
    pub(super) fn time_of(&self, bytes: u64) -> Duration {
        time_at(self.rate, bytes)
    }
}

/// The time that a rate in bytes a second gives to `bytes`; none if the rate is 0.
pub(super) fn time_at(rate: u64, bytes: u64) -> Duration {
    match rate {
        0 => Duration::ZERO,
        rate => Duration::from_secs_f64(bytes as f64 / rate as f64),
    }
}
