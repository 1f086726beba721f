//! How recently values were used, noted in the journal now and then.
//!
//! Evicting a slot writes nothing, and recency is kept in RAM. Without these
//! notes a restart would find every value that its table still names, the
//! evicted ones too, would have no free slots, and would make room at the cost
//! of whatever comes first: the hot and the new. So two bits per slot say which
//! were served at all, and which would have been evicted last.
//!
//! They are noted whenever 1/128 of the slots were evicted, or hit after a long
//! time: 64 bytes for each such slot. **They are hints.** What lies in a slot is
//! decided by its table alone, so notes that are missing, old or torn cost hits,
//! never the truth.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use floe_core::ZoneId;
use floe_core::chunk::{Plan, ZonePhase};
use floe_core::layout::{
    NOTE_BYTES, Note, SLOTS_PER_NOTE, Sequence, SlotGeometry, SlotUse, SlotUses,
};
use floe_core::slots::slot_at;
use tokio::sync::Notify;

use super::super::Engine;
use super::SlotSpace;

/// So much of all slots must have changed before they are noted again.
const CHANGED_SHARE: u64 = 128;
/// Time between two rounds of notes, which end with a flush each.
const REST: Duration = Duration::from_millis(100);
/// Share of a metadata zone that the notes may take; of larger caches nothing is noted.
const JOURNAL_SHARE: u64 = 4;
/// Notes handed to the journal at once.
const NOTES_AT_ONCE: usize = 4096;

/// When to note uses.
#[derive(Debug)]
pub(in crate::chunk) struct UseNotes {
    /// Slots evicted or hit after a long time since uses were last noted.
    changed: AtomicU64,
    /// So many are worth it.
    worth: u64,
    /// Whether the notes fit the journal.
    fits: bool,
    wake: Notify,
    stop: Notify,
}

impl UseNotes {
    pub(super) fn new(plan: &Plan, geometry: &SlotGeometry) -> Self {
        let zones = plan.data_zones().count() as u64;
        let notes = zones * u64::from(geometry.slots.div_ceil(SLOTS_PER_NOTE));
        UseNotes {
            changed: AtomicU64::new(0),
            worth: (zones * u64::from(geometry.slots) / CHANGED_SHARE).max(1),
            fits: notes * NOTE_BYTES as u64 <= plan.geometry.zone_capacity / JOURNAL_SHARE,
            wake: Notify::new(),
            stop: Notify::new(),
        }
    }

    /// So many slots were evicted, or hit after a long time.
    pub(in crate::chunk) fn changed(&self, count: u64) {
        let before = self.changed.fetch_add(count, Relaxed);
        if before < self.worth && before + count >= self.worth {
            self.wake.notify_one();
        }
    }

    pub(in crate::chunk) fn stop(&self) {
        self.wake.notify_one();
        self.stop.notify_one();
    }
}

impl Engine {
    /// Notes uses when it is worth it, until the engine stops.
    pub(in crate::chunk) async fn run_use_notes(self: Arc<Self>) {
        let Some(slots) = self.slots() else {
            return;
        };
        if !slots.uses.fits {
            tracing::warn!(
                "so many slots that the journal has no room to note what was used lately; \
                 restarts will be less warm; larger zones (device.zone_size) or chunks help"
            );
            return;
        }
        loop {
            slots.uses.wake.notified().await;
            if self.is_stopped() {
                return;
            }
            self.note_uses(slots).await;
            tokio::select! {
                biased;
                () = slots.uses.stop.notified() => return,
                () = self.clock.sleep(REST) => {}
            }
        }
    }

    /// Notes how recently every value was used.
    pub(in crate::chunk) async fn note_uses(&self, slots: &SlotSpace) {
        if !slots.uses.fits || slots.uses.changed.swap(0, Relaxed) == 0 {
            return;
        }
        let known = self.known_sequence();
        let uses = self.collect_uses(slots).await;
        let mut notes = Vec::new();
        for (zone, uses) in uses {
            let life = self.states.life(zone);
            for (number, uses) in (0..).zip(uses) {
                let first_slot = number * SLOTS_PER_NOTE;
                notes.push(Note::SlotUse {
                    life,
                    first_slot,
                    uses,
                });
            }
        }
        // Behind all others: until it is there, what is younger than the last one counts as new.
        notes.push(Note::UseNoted { sequence: known });
        for some in notes.chunks(NOTES_AT_ONCE) {
            if let Err(error) = self.journal.commit(some.to_vec()).await {
                tracing::debug!(%error, "what was used lately could not be noted");
                return;
            }
        }
    }

    /// Every record with this sequence or a lower one is in the index, or never will be.
    fn known_sequence(&self) -> Sequence {
        // Before the shards are looked into: sequences are drawn under their locks.
        let mut known = self.sequence.load(SeqCst).saturating_sub(1);
        for shard in &self.shards {
            for pending in shard.lock().pending.values() {
                known = known.min(pending.record.sequence.0.saturating_sub(1));
            }
        }
        Sequence(known)
    }

    /// The use of every slot of the zones that are divided now.
    async fn collect_uses(&self, slots: &SlotSpace) -> Vec<(ZoneId, Vec<SlotUses>)> {
        let geometry = &slots.geometry;
        let empty = || vec![SlotUses::default(); geometry.slots.div_ceil(SLOTS_PER_NOTE) as usize];
        let mut uses: Vec<Option<Vec<SlotUses>>> =
            vec![None; self.plan.geometry.zone_count as usize];
        for zone in self.zones.lock().in_phase(ZonePhase::Open) {
            uses[zone.index()] = Some(empty());
        }
        for shard in &self.shards {
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
        let zones = self.plan.data_zones();
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
