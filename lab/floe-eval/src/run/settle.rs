//! Waiting until a cache is at rest.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use floe::Store;
use floe_core::chunk::ZonePhase;
use floe_device::Clock;

use crate::error::EvalError;

/// Interval of looks at a cache that is not at rest.
const LOOK: Duration = Duration::from_micros(200);

/// How long a cache may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long after its last record the journal writes the second copy of its last block, and
/// more.
const JOURNAL_COPY: Duration = Duration::from_millis(200);

/// Waits for a store.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// The journal's records when it was last at rest.
    journal_records: AtomicU64,
}

impl Settling {
    /// Waits until `store` has written what it accepted, and has emptied the zones that it
    /// evicts.
    pub(super) async fn settle(&self, store: &Store, clock: &Clock) -> Result<(), EvalError> {
        let flushed = store.flush().await;
        flushed.map_err(|error| EvalError::Cache(crate::error::chain(&error)))?;
        until(clock, || is_at_rest(store)).await?;
        let records = store.stats().engine.counts.journal_records;
        if self.journal_records.swap(records, Relaxed) != records {
            clock.sleep(JOURNAL_COPY).await;
        }
        Ok(())
    }
}

/// Waits until a cache `is_at_rest`.
pub(crate) async fn until(clock: &Clock, is_at_rest: impl Fn() -> bool) -> Result<(), EvalError> {
    let began = clock.now();
    while !is_at_rest() {
        if clock.now().since(began) > PATIENCE {
            return Err(EvalError::Option {
                option: "settle",
                reason: format!("the cache is not at rest after {PATIENCE:?}; leave it out"),
            });
        }
        clock.sleep(LOOK).await;
    }
    Ok(())
}

fn is_at_rest(store: &Store) -> bool {
    let zones = store.zone_stats();
    let is_busy = |phase| {
        matches!(
            phase,
            ZonePhase::Opening | ZonePhase::Closing | ZonePhase::Evicting
        )
    };
    let free = zones.iter().filter(|zone| zone.phase == ZonePhase::Empty);
    let is_low = free.count() <= store.plan().water.high as usize;
    !is_low && !zones.iter().any(|zone| is_busy(zone.phase))
}
