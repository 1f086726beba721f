//! The reclaimer: one task makes room, from the high water mark to the low one.
//! Writers that find no room wait for it: that is the foreground.
//!
//! A panic in the task poisons the engine: writes that wait for room are given up,
//! and further ones fail. Lookups, deletes and closing go on.

mod host_gc;

use std::sync::Arc;

use floe_core::Tick;
use floe_core::chunk::Eviction;

use super::base::Base;
use super::large::LargeValues;
use super::log::Log;
use super::placement::Placement;
use host_gc::HostGc;

pub(crate) use host_gc::zones_at_once;

/// The reclaimer of a cache.
#[derive(Debug)]
pub(crate) struct Reclaimer {
    base: Base,
    placement: Placement,
    /// Set under CLRU in a log.
    host_gc: Option<HostGc>,
}

impl Reclaimer {
    pub(crate) fn new(base: &Base, placement: &Placement, large: &Arc<LargeValues>) -> Self {
        let host_gc = match placement {
            Placement::Log(log) if base.env.plan.eviction == Eviction::Clru => {
                Some(HostGc::new(base, log, large))
            }
            _ => None,
        };
        Reclaimer {
            base: base.clone(),
            placement: placement.clone(),
            host_gc,
        }
    }

    /// Reclaims when woken, until the engine stops.
    pub(crate) async fn run(self) {
        let mut retry_at = None;
        while !self.base.env.is_stopped() {
            tokio::select! {
                biased;
                () = self.base.zones.until_needed() => {}
                () = self.base.journal.pressure().until_high() => {}
                () = self.wait_until(retry_at) => {}
            }
            if let Some((zone, state)) = self.base.zones.take_unwritable() {
                self.placement.retire_unwritable(zone, state).await;
            }
            retry_at = self.base.zones.restore_withdrawn(retry_at);
            if self.base.journal.pressure().take_out_of_space() {
                self.base.zones.journal_out_of_space();
            }
            match &self.placement {
                Placement::Slots(store) => store.evict_to_low_water(),
                Placement::Log(log) => self.free_zones(log).await,
            }
        }
    }

    async fn wait_until(&self, at: Option<Tick>) {
        let clock = &self.base.env.clock;
        match at {
            Some(at) => clock.sleep(at.since(clock.now())).await,
            None => std::future::pending().await,
        }
    }

    /// Frees zones up to the low watermark if few are free, and zones whose
    /// tombstones fill the journal.
    async fn free_zones(&self, log: &Arc<Log>) {
        let is_high = || self.base.journal.pressure().is_high();
        if !is_high() && !self.base.zones.is_low(&self.base.zones.lock()) {
            return;
        }
        while !self.base.env.is_stopped() {
            let lacking = self.base.zones.lacking();
            let has_freed = match &self.host_gc {
                Some(host_gc) if lacking > 0 => host_gc.collect_to_low_water().await,
                None if lacking > 0 => log.evict_by_policy(lacking).await,
                _ if is_high() => log.evict_for_the_journal().await,
                _ => return,
            };
            if !has_freed {
                self.base.zones.note_futile_reclaim();
                return;
            }
        }
    }
}
