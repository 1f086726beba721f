//! Zones that the drive has made read-only or offline, and zones that cannot be reset.
//!
//! A zone that is read-only or offline stays so. A drive that
//! fails takes all its zones offline at once. The first operation that fails so has the
//! device asked once, and all unwritable zones are retired together, so that no write runs
//! into one after another.
//!
//! **Values that are dropped stay away.** A zone that cannot be reset may become readable
//! again, when its values may have been deleted since. So a note says durably that
//! nothing of its life counts any more. Until then its values are ghosts: misses, which
//! a delete buries as it does those on flash.

use std::collections::BTreeMap;

use floe_core::ZoneId;
use floe_core::chunk::{Eviction, METADATA_ZONES};
use floe_core::layout::{Generation, Note, ZoneLife};
use floe_device::{ZoneReport, ZoneState};

use super::base::Base;
use super::stats::add;

/// The unwritable data zones of a report, with their states.
pub(crate) fn unwritable_in(report: Vec<ZoneReport>) -> BTreeMap<ZoneId, ZoneState> {
    let is_unwritable =
        |zone: &ZoneReport| zone.zone.0 >= METADATA_ZONES && zone.state.is_unwritable();
    let unwritable = report.into_iter().filter(is_unwritable);
    unwritable.map(|zone| (zone.zone, zone.state)).collect()
}

/// Says which zones were retired together.
pub(crate) fn say_unwritable(device: &str, zones: &BTreeMap<ZoneId, ZoneState>) {
    let offline = zones.values();
    let offline = offline
        .filter(|state| **state == ZoneState::Offline)
        .count();
    let read_only = zones.len() - offline;
    tracing::warn!(
        device,
        offline,
        read_only,
        "the drive has made zones read-only or offline; they take no more values, and those of offline ones are lost"
    );
}

impl Base {
    /// Retires all unwritable zones, after an operation on `failed`
    /// has shown one. Read-only zones serve their values if `serves_read_only`. Returns the
    /// zones whose values are dropped.
    pub(crate) async fn retire_unwritable(
        &self,
        failed: ZoneId,
        state: ZoneState,
        serves_read_only: bool,
    ) -> Vec<ZoneId> {
        let mut known = self.zones.unwritable().await;
        if known.contains(&failed) {
            return Vec::new();
        }
        let report = self.env.device.report().await.unwrap_or_default();
        let mut found = unwritable_in(report);
        found.entry(failed).or_insert(state);
        found.retain(|zone, _| known.insert(*zone));
        found.keys().for_each(|zone| self.zones.retire(*zone));
        say_unwritable(&self.env.device.describe(), &found);
        let is_lost = |state: ZoneState| state == ZoneState::Offline || !serves_read_only;
        found.retain(|_, state| is_lost(*state));
        let lost: Vec<ZoneId> = found.into_keys().collect();
        self.drop_zones(&lost).await;
        lost
    }

    /// Drops the values of zones that are retired and not reset. False if they could come
    /// back, because that could not be noted.
    pub(crate) async fn drop_zones(&self, zones: &[ZoneId]) -> bool {
        let states = self.index.states();
        let mut dropped = 0;
        let mut lives: Vec<ZoneLife> = Vec::new();
        for &zone in zones {
            states.start_evicting(zone);
            dropped += self.index.begin_evict(zone);
            lives.push(states.life(zone));
        }
        add(&self.env.counters.records_evicted, dropped);
        // The others were never written.
        lives.retain(|life| life.generation >= Generation::FIRST);
        let notes = lives.iter().map(|&life| Note::ZoneDropped { life });
        if let Err(error) = self.journal.commit(notes.collect()).await {
            tracing::warn!(%error, "dropped zones are not noted; deletes of their values are");
            return false;
        }
        // Host GC has second copies of values. A ghost has a delete bury them too.
        let has_copies = self.env.plan.eviction == Eviction::Clru;
        for life in lives {
            if !has_copies {
                self.index.end_evict(life.zone);
            }
            let tombstones = states.take_tombstones(life.zone);
            self.journal.pressure().remove_tombstones(tombstones);
        }
        true
    }
}
