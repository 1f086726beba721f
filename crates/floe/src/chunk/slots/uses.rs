//! Recency of values, noted in the journal.
//!
//! Evicting a slot writes nothing, and recency is kept in RAM. Without notes a
//! restart would find every value in its tables, including evicted ones, would
//! have no free slots, and would evict hot and new values first. So two bits
//! per slot record whether its value was served, and whether it was among the
//! last to evict.
//!
//! They are noted whenever 1/128 of the slots were evicted or hit after a long
//! time: 64 bytes per such slot. **They are hints.** The table alone determines
//! the content of a slot, so missing, old or torn notes only cost hits.

use std::sync::Arc;
use std::time::Duration;

use floe_core::ZoneId;
use floe_core::chunk::ZonePhase;
use floe_core::layout::{Note, SLOTS_PER_NOTE, Sequence, SlotGeometry, SlotUse, SlotUses};
use floe_core::slots::slot_at;

use super::SlotStore;

/// Time between two rounds of notes, each of which ends with a flush.
const REST: Duration = Duration::from_millis(100);
/// Notes sent to the journal together.
const NOTES_AT_ONCE: usize = 4096;

impl SlotStore {
    /// Notes uses when enough have changed, until the engine stops.
    pub(crate) async fn run_use_notes(self: Arc<Self>) {
        if !self.uses.fits() {
            tracing::warn!(
                "so many slots that the journal has no room to record which were used recently; \
                 restarts will be less warm; larger zones (device.zone_size) or chunks help"
            );
            return;
        }
        loop {
            self.uses.until_due().await;
            if self.base.env.is_stopped() {
                return;
            }
            self.note_uses().await;
            tokio::select! {
                biased;
                () = self.uses.stopped() => return,
                () = self.base.env.clock.sleep(REST) => {}
            }
        }
    }

    /// Notes the recency of every value.
    pub(crate) async fn note_uses(&self) {
        if !self.uses.fits() || !self.uses.take_changed() {
            return;
        }
        let known = self.known_sequence();
        let uses = self.collect_uses().await;
        let mut notes = Vec::new();
        for (zone, uses) in uses {
            let life = self.base.index.states().life(zone);
            for (number, uses) in (0..).zip(uses) {
                let first_slot = number * SLOTS_PER_NOTE;
                notes.push(Note::SlotUse {
                    life,
                    first_slot,
                    uses,
                });
            }
        }
        // After all others: until it is written, records younger than the last
        // note count as new.
        notes.push(Note::UseNoted { sequence: known });
        for some in notes.chunks(NOTES_AT_ONCE) {
            if let Err(error) = self.base.journal.commit(some.to_vec()).await {
                tracing::debug!(%error, "the recently used slots could not be recorded");
                return;
            }
        }
    }

    /// Every record with this sequence or a lower one is in the index, or never will be.
    fn known_sequence(&self) -> Sequence {
        // Read before the shards: sequences are drawn under their locks.
        let mut known = self.base.env.next_sequence().0.saturating_sub(1);
        for shard in self.base.index.shards() {
            for pending in shard.lock().pending.values() {
                known = known.min(pending.record.sequence.0.saturating_sub(1));
            }
        }
        Sequence(known)
    }

    /// The uses of all slots of the divided zones.
    async fn collect_uses(&self) -> Vec<(ZoneId, Vec<SlotUses>)> {
        let geometry = &self.geometry;
        let empty = || vec![SlotUses::default(); geometry.slots.div_ceil(SLOTS_PER_NOTE) as usize];
        let mut uses: Vec<Option<Vec<SlotUses>>> =
            vec![None; self.base.env.plan.geometry.zone_count as usize];
        for zone in self.base.zones.lock().in_phase(ZonePhase::Open) {
            uses[zone.index()] = Some(empty());
        }
        for shard in self.base.index.shards() {
            let Some(bounds) = shard.lock().index.use_bounds() else {
                continue;
            };
            let mut next = Some(0);
            while let Some(from) = next {
                next = shard
                    .lock()
                    .index
                    .for_each_use(bounds, from, |place, slot_use| {
                        set(geometry, &mut uses, place, slot_use);
                    });
                tokio::task::yield_now().await;
            }
        }
        let zones = self.base.env.plan.data_zones();
        zones
            .filter_map(|zone| Some((zone, uses.get_mut(zone.index())?.take()?)))
            .collect()
    }
}

fn set(
    geometry: &SlotGeometry,
    uses: &mut [Option<Vec<SlotUses>>],
    place: floe_device::Address,
    slot_use: SlotUse,
) {
    if let Some(id) = slot_at(geometry, place)
        && let Some(Some(zone)) = uses.get_mut(id.zone.index())
        && let Some(some) = zone.get_mut((id.slot / SLOTS_PER_NOTE) as usize)
    {
        some.set(id.slot % SLOTS_PER_NOTE, slot_use);
    }
}
