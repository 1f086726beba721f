//! Eviction of zones, several at once, so that they share a flush.

use std::sync::Arc;

use floe_core::ZoneId;
use floe_core::chunk::{Durability, ZonePhase};

use super::Log;
use super::relocation::Relocation;
use crate::chunk::stats::add;

/// Most zones that are reset together.
const EVICTED_AT_ONCE: usize = 8;

impl Log {
    /// Frees up to `wanted` zones, chosen by the policy; false if none can be freed now.
    pub(crate) async fn evict_by_policy(self: &Arc<Self>, wanted: u32) -> bool {
        let states = self.base.index.states();
        let mut victims = Vec::new();
        {
            let mut table = self.base.zones.lock();
            while victims.len() < (wanted as usize).min(EVICTED_AT_ONCE) {
                let victim = table.choose_victim(
                    |zone| states.last_access(zone),
                    |zone| states.live_records(zone),
                );
                match victim.filter(|&zone| table.begin_evict(zone)) {
                    Some(zone) => victims.push(zone),
                    None => break,
                }
            }
        }
        self.empty_zones(&victims).await;
        !victims.is_empty()
    }

    /// Frees the full zone with the most tombstones, or drops the values of the retired zone
    /// with the most; false if none has any.
    pub(crate) async fn evict_for_the_journal(self: &Arc<Self>) -> bool {
        let tombstones = |zone| self.base.index.states().tombstones(zone);
        let (worst, is_retired) = {
            let mut table = self.base.zones.lock();
            let retired = table.in_phase(ZonePhase::Retired);
            let worst = table.full_zones().chain(retired);
            let worst = worst.filter(|&zone| tombstones(zone) > 0);
            let Some(worst) = worst.max_by_key(|&zone| tombstones(zone)) else {
                return false;
            };
            (worst, !table.begin_evict(worst))
        };
        match is_retired {
            true => self.base.drop_zones(&[worst]).await,
            false => {
                self.empty_zones(&[worst]).await;
                true
            }
        }
    }

    /// Full zones and their live bytes.
    pub(crate) fn full_zones(&self) -> Vec<(u64, ZoneId)> {
        let table = self.base.zones.lock();
        let live = |zone| (self.base.index.states().live_bytes(zone), zone);
        table.full_zones().map(live).collect()
    }

    /// Starts to copy values out of `zone`.
    pub(crate) fn relocate_from(&self, zone: ZoneId) -> Arc<Relocation> {
        Relocation::new(&self.relocating, zone)
    }

    /// Evicts a full zone whose values were copied. If that fails the originals
    /// are still on flash, so `relocation` does not end.
    pub(crate) async fn evict_relocated(self: &Arc<Self>, zone: ZoneId, relocation: &Relocation) {
        // Its drive may have made the zone unwritable since.
        let is_full = self.base.zones.lock().begin_evict(zone);
        if is_full && self.empty_zones(&[zone]).await {
            relocation.end();
        }
    }

    /// Resets zones that are being evicted. Until a zone is durably reset its
    /// entries stay in the index as ghosts, so that a write or delete of their
    /// keys adds a tombstone. A zone whose reset failed is retired, and its values are
    /// dropped. False if there is one.
    async fn empty_zones(self: &Arc<Self>, victims: &[ZoneId]) -> bool {
        if victims.is_empty() {
            return true;
        }
        let states = self.base.index.states();
        for &zone in victims {
            states.start_evicting(zone);
            let dropped = self.base.index.begin_evict(zone);
            add(&self.base.env.counters.records_evicted, dropped);
        }
        let resets = victims.iter().map(|&zone| async move {
            states.wait_unpinned(zone).await;
            (zone, self.base.env.device.reset(zone).await)
        });
        let resets = futures::future::join_all(resets).await;
        let flushed = match self.base.env.plan.durability {
            Durability::Power => self.base.env.device.flush().await,
            _ => Ok(()),
        };
        let mut lost = Vec::new();
        for (zone, reset) in resets {
            match reset.as_ref().and(flushed.as_ref()) {
                Ok(()) => self.zone_emptied(zone),
                Err(error) => {
                    if !self.base.zones.note_unwritable(zone, error) {
                        tracing::warn!(%error, %zone, "a zone could not be reset and is retired");
                    }
                    self.base.zones.retire(zone);
                    self.close_ready_zones();
                    lost.push(zone);
                }
            }
        }
        self.base.drop_zones(&lost).await;
        lost.is_empty()
    }

    fn zone_emptied(&self, zone: ZoneId) {
        let states = self.base.index.states();
        self.base.index.end_evict(zone);
        states.emptied(zone);
        self.base
            .journal
            .pressure()
            .remove_tombstones(states.tombstones(zone));
        self.base.zones.lock().end_evict(zone);
        add(&self.base.env.counters.zones_evicted, 1);
        self.base.zones.notify_changed();
    }
}
