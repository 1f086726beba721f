//! Making room: evicting whole zones; `host_gc.rs` evicts chunks one by one.
//!
//! One task reclaims, a few zones at a time, from the high water mark to the
//! low one. Writers that find no zone wait for it: that is the foreground.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use floe_core::chunk::{Durability, Eviction};
use floe_core::{Tick, ZoneId};

use super::Engine;
use super::stats::add;

/// Zones that are reset together.
const EVICTED_AT_ONCE: usize = 8;

/// How long zones without space below the device rest before they are tried again.
const WITHDRAWN_REST: Duration = Duration::from_secs(60);

impl Engine {
    /// Reclaims whenever woken, until the engine stops.
    pub(super) async fn run_reclaim(self: Arc<Self>) {
        let mut retry_at = None;
        while !self.is_stopped() {
            tokio::select! {
                biased;
                () = self.reclaim_wake.notified() => {}
                () = self.journal.pressure().risen() => {}
                () = self.wait_until(retry_at) => {}
            }
            retry_at = self.restore_withdrawn(retry_at);
            if self.journal.pressure().take_starved() {
                // Its notes take little: what one zone gives back is enough.
                let withdrawn = self.zones.lock().out_of_space(None);
                self.note_withdrawn(withdrawn);
            }
            if let Some(slots) = self.slots() {
                self.evict_slots(slots);
            } else if self.is_low(&self.zones.lock()) || self.journal.pressure().is_high() {
                self.reclaim_to_low_water().await;
            }
        }
    }

    async fn wait_until(&self, at: Option<Tick>) {
        match at {
            Some(at) => self.clock.sleep(at.since(self.clock.now())).await,
            None => std::future::pending().await,
        }
    }

    /// Puts zones back that were withdrawn for want of space, if it is time.
    /// Returns when it will be.
    fn restore_withdrawn(&self, retry_at: Option<Tick>) -> Option<Tick> {
        let now = self.clock.now();
        let mut zones = self.zones.lock();
        match retry_at {
            _ if !zones.any_withdrawn() => None,
            None => Some(now + WITHDRAWN_REST),
            Some(at) if now < at => Some(at),
            Some(_) => {
                let restored = zones.restore_withdrawn();
                tracing::info!(
                    zones = restored,
                    "looking whether there is space for all zones"
                );
                self.space.notify_waiters();
                None
            }
        }
    }

    async fn reclaim_to_low_water(self: &Arc<Self>) {
        while !self.is_stopped() {
            let lacking = self.lacking_zones();
            let freed = if lacking > 0 {
                match self.plan.eviction {
                    Eviction::Clru => self.collect_to_low_water().await,
                    _ => self.evict_by_policy(lacking).await,
                }
            } else if self.journal.pressure().is_high() {
                self.evict_for_the_journal().await
            } else {
                return;
            };
            if !freed {
                if self.zones.lock().is_idle() {
                    // Whoever waits for a zone must not wait for ever.
                    self.futile_reclaims.fetch_add(1, SeqCst);
                    self.space.notify_waiters();
                }
                return;
            }
        }
    }

    /// Free zones that are missing up to the low water mark.
    pub(super) fn lacking_zones(&self) -> u32 {
        let zones = self.zones.lock();
        let low = zones.water(self.plan.water).low;
        low.saturating_sub(zones.free_zones())
    }

    /// Frees the full zone with the most deaths; false if none has any.
    async fn evict_for_the_journal(self: &Arc<Self>) -> bool {
        let worst = self
            .zones
            .lock()
            .full_zones()
            .max_by_key(|&zone| self.states.deaths(zone));
        match worst.filter(|&zone| self.states.deaths(zone) > 0) {
            Some(zone) => {
                self.evict_zones(&[zone]).await;
                true
            }
            None => false,
        }
    }

    /// Frees up to `wanted` zones at once, so that one flush does for all of
    /// them; false if there is none to free now.
    async fn evict_by_policy(self: &Arc<Self>, wanted: u32) -> bool {
        let mut victims = Vec::new();
        {
            let mut zones = self.zones.lock();
            while victims.len() < (wanted as usize).min(EVICTED_AT_ONCE) {
                let victim = zones.choose_victim(
                    |zone| self.states.last_access(zone),
                    |zone| self.states.live_records(zone),
                );
                let Some(zone) = victim else { break };
                zones.begin_evict(zone);
                victims.push(zone);
            }
        }
        self.empty_zones(&victims).await;
        !victims.is_empty()
    }

    /// Empties full zones.
    pub(super) async fn evict_zones(self: &Arc<Self>, victims: &[ZoneId]) {
        {
            let mut zones = self.zones.lock();
            for &zone in victims {
                zones.begin_evict(zone);
            }
        }
        self.empty_zones(victims).await;
    }

    /// Empties zones that are being evicted. Until a zone's bytes are gone
    /// from flash its entries stay in the index as ghosts, so that whoever
    /// writes one of its keys journals the death of what still lies there.
    async fn empty_zones(self: &Arc<Self>, victims: &[ZoneId]) {
        for &zone in victims {
            self.states.start_evicting(zone);
            let mut dropped = 0;
            for shard in &self.shards {
                dropped += shard.lock().index.begin_evict(zone);
            }
            add(&self.counters.records_evicted, dropped as u64);
        }
        let resets = victims.iter().map(|&zone| {
            let engine = Arc::clone(self);
            async move {
                engine.states.wait_unpinned(zone).await;
                (zone, engine.device.reset(zone).await)
            }
        });
        let resets = futures::future::join_all(resets).await;
        let flushed = match self.plan.durability {
            Durability::Power if !victims.is_empty() => self.device.flush().await,
            _ => Ok(()),
        };
        for (zone, reset) in resets {
            match reset.as_ref().and(flushed.as_ref()) {
                Ok(()) => self.zone_emptied(zone),
                Err(error) => {
                    tracing::warn!(%error, %zone, "a zone could not be emptied and is not used any more");
                    self.retire(zone);
                }
            }
        }
    }

    fn zone_emptied(&self, zone: ZoneId) {
        for shard in &self.shards {
            shard.lock().index.end_evict(zone);
        }
        self.states.emptied(zone);
        self.journal.pressure().relieve(self.states.deaths(zone));
        self.zones.lock().end_evict(zone);
        add(&self.counters.zones_evicted, 1);
        self.space.notify_waiters();
    }
}
