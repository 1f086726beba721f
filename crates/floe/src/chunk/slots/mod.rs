//! Values in slots that are written again in place: CLRU on devices that allow
//! random writes.
//!
//! | file | what happens there |
//! |---|---|
//! | this one | taking slots, dividing zones, evicting between the water marks |
//! | `write.rs` | values into slots |
//! | `tables.rs` | what slots hold, made durable block by block |
//! | `uses.rs` | how recently values were used, noted in the journal |
//! | `../recover/slots.rs` | from tables to a running engine |
//!
//! **A slot that is free may still be described by its table block**, until the
//! block is written again. That costs nothing and is not a lie: what was
//! evicted may come back. What was deleted or overwritten may not, so its entry
//! stays in the index as a ghost, which whoever writes or deletes the key next
//! finds, until its table block is durable without it.
//!
//! **Nothing waits for readers.** A slot can be written while somebody reads
//! it; what he gets then does not have the checksum that he looks for, which
//! covers key, life and value: a miss.

mod tables;
mod uses;
mod write;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use floe_core::ZoneId;
use floe_core::chunk::{Durability, Plan, ZonePhase};
use floe_core::layout::{
    Generation, Sequence, SlotGeometry, ValueKind, ZoneHeader, ZoneLayout, ZoneLife,
    encode_slot_block,
};
use floe_core::slots::{SlotId, SlotMap, SlotRun, slot_at};
use floe_device::{Address, IoBuf, Placement as Handle};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::Engine;
use super::stats::add;
use super::write::WriteError;
pub(super) use tables::{Change, Settled, TableQueue};
use uses::UseNotes;
pub(super) use write::{LargeValue, SlotHold};

/// Slots evicted while one lock is held.
const EVICT_AT_ONCE: u64 = 64;

/// The slots of all zones and their tables.
#[derive(Debug)]
pub(crate) struct SlotSpace {
    pub(super) geometry: SlotGeometry,
    map: Mutex<SlotMap>,
    pub(super) tables: TableQueue,
    pub(super) uses: UseNotes,
    /// Slots that large values may hold while they stream in. The others are
    /// left to small ones, so that nobody's room in the write buffer waits for
    /// a slot whose holder waits for room.
    large: Arc<Semaphore>,
    high_water: u64,
    low_water: u64,
}

/// How full the slots are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlotCounts {
    pub(super) total: u64,
    pub(super) free: u64,
    pub(super) withdrawn: u64,
    pub(super) memory_bytes: u64,
}

impl SlotSpace {
    pub(super) fn new(plan: &Plan, map: SlotMap) -> Self {
        let geometry = *map.geometry();
        let per_zone = u64::from(geometry.slots);
        let zones = plan.data_zones().count() as u64;
        // More than a semaphore counts would be more than anyone has.
        let large = (per_zone * zones / 2).clamp(1, 1 << 24) as usize;
        SlotSpace {
            geometry,
            map: Mutex::new(map),
            tables: TableQueue::new(),
            uses: UseNotes::new(plan, &geometry),
            large: Arc::new(Semaphore::new(large)),
            high_water: u64::from(plan.water.high) * per_zone,
            low_water: u64::from(plan.water.low) * per_zone,
        }
    }

    pub(super) fn free_in(&self, zone: ZoneId) -> u32 {
        self.map.lock().free_in(zone)
    }

    /// Where a value of this kind in `slot` is found.
    fn place(&self, slot: SlotId, kind: ValueKind) -> Address {
        place(&self.geometry, slot, kind)
    }
}

/// Where a value of this kind in `slot` is found: its payload or its descriptor.
pub(super) fn place(geometry: &SlotGeometry, slot: SlotId, kind: ValueKind) -> Address {
    let offset = match kind {
        ValueKind::Small => geometry.payload_offset(slot.slot),
        ValueKind::Large => geometry.slot_offset(slot.slot),
    };
    Address::new(slot.zone, offset)
}

impl Engine {
    /// Up to `most` neighbouring slots; waits until one is free. `None` when
    /// none ever will be, or the engine stops.
    async fn take_slots(self: &Arc<Self>, slots: &SlotSpace, most: usize) -> Option<SlotRun> {
        let mut waited = false;
        loop {
            let changed = self.space.notified();
            tokio::pin!(changed);
            // Registered before the question, so that an answer in between is not missed.
            changed.as_mut().enable();
            if let Some(run) = self.try_take_slots(slots, most) {
                return Some(run);
            }
            if self.is_stopped() {
                return None;
            }
            if !self.divide_a_zone() {
                if slots.map.lock().usable() == 0 {
                    return None;
                }
                self.reclaim_wake.notify_one();
                if !std::mem::replace(&mut waited, true) {
                    add(&self.counters.foreground_waits, 1);
                }
            }
            changed.await;
        }
    }

    fn try_take_slots(&self, slots: &SlotSpace, most: usize) -> Option<SlotRun> {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let run = slots.map.lock().take_run(most);
        if run.is_some() && self.free_slots(slots) <= slots.high_water {
            self.reclaim_wake.notify_one();
        }
        run
    }

    /// Free slots, those of zones that are not divided yet included.
    fn free_slots(&self, slots: &SlotSpace) -> u64 {
        let undivided = self.undivided_slots(slots);
        slots.map.lock().free() + undivided
    }

    /// Slots that are not out of use, whatever they hold.
    fn usable_slots(&self, slots: &SlotSpace) -> u64 {
        let undivided = self.undivided_slots(slots);
        slots.map.lock().usable() + undivided
    }

    fn undivided_slots(&self, slots: &SlotSpace) -> u64 {
        let zones = self.zones.lock();
        let count =
            u64::from(zones.free_zones()) + zones.in_phase(ZonePhase::Opening).count() as u64;
        count * u64::from(slots.geometry.slots)
    }

    pub(super) fn slot_counts(&self, slots: &SlotSpace) -> SlotCounts {
        let free = self.free_slots(slots);
        let map = slots.map.lock();
        SlotCounts {
            total: u64::from(slots.geometry.slots) * self.plan.data_zones().count() as u64,
            free,
            withdrawn: map.withdrawn(),
            memory_bytes: map.memory_bytes() as u64,
        }
    }

    /// Makes one more zone ready for slots, in a task of its own, since whoever
    /// asks may go away. False if there is none left and none under way.
    fn divide_a_zone(self: &Arc<Self>) -> bool {
        let (zone, generation) = {
            let mut zones = self.zones.lock();
            if zones.in_phase(ZonePhase::Opening).next().is_some() {
                return true;
            }
            match zones.open_for_slots() {
                Some(found) => found,
                None => return false,
            }
        };
        let engine = Arc::clone(self);
        tokio::spawn(async move {
            let super::Space::Slots(slots) = &engine.placement else {
                return;
            };
            match engine.write_slot_zone(slots, zone, generation).await {
                Ok(()) => {
                    slots.map.lock().open(zone);
                    engine.zones.lock().opened(zone);
                }
                Err(error) => {
                    tracing::warn!(%error, %zone, "a zone could not be divided into slots and is not used");
                    add(&engine.counters.write_errors, 1);
                    // What its header's write left there is unknown.
                    engine.states.mark_unknown(zone);
                    if engine.zones.lock().failed(zone) {
                        add(&engine.counters.zones_retired, 1);
                    }
                }
            }
            engine.space.notify_waiters();
        });
        true
    }

    /// Starts a life of `zone`: its header, then an empty table.
    async fn write_slot_zone(
        &self,
        slots: &SlotSpace,
        zone: ZoneId,
        generation: Generation,
    ) -> Result<(), WriteError> {
        let life = ZoneLife::new(zone, generation);
        self.journal
            .reserve_generation(generation)
            .await
            .map_err(|_| {
                floe_device::DeviceError::new(
                    floe_device::Operation::Write,
                    zone,
                    floe_device::DeviceErrorKind::Gone,
                )
            })?;
        if self.states.take_unknown(zone) {
            self.device.reset(zone).await?;
        }
        let block = self.plan.geometry.block_size;
        let header = ZoneHeader {
            life,
            layout: ZoneLayout::Slots,
            opened_sequence: Sequence(self.sequence.load(SeqCst)),
        };
        let mut buf = IoBuf::zeroed(ZoneHeader::encoded_bytes(block));
        header.encode(self.id, block, &mut buf)?;
        self.device
            .write(Address::new(zone, 0), buf.freeze(), Handle(0))
            .await?;
        // Durable before anything else is written there, as every zone's header is.
        if self.plan.durability == Durability::Power {
            self.device.flush().await?;
        }
        for table_block in 0..slots.geometry.table_blocks {
            self.write_table_block(slots, life, table_block, None)
                .await?;
        }
        self.states.open(zone, generation, self.clock.now().0);
        Ok(())
    }

    /// Writes one table block; an empty one without `entries`.
    async fn write_table_block(
        &self,
        slots: &SlotSpace,
        life: ZoneLife,
        table_block: u32,
        entries: Option<&[Option<floe_core::layout::SlotEntry>]>,
    ) -> Result<(), WriteError> {
        let geometry = &slots.geometry;
        let empty;
        let entries = match entries {
            Some(entries) => entries,
            None => {
                empty = vec![None; geometry.slots_of_block(table_block).len()];
                &empty
            }
        };
        let mut buf = self.device.allocate(geometry.block_size as usize);
        encode_slot_block(self.id, life, geometry, table_block, entries, &mut buf)?;
        let at = Address::new(life.zone, geometry.table_block_offset(table_block));
        self.device.write(at, buf.freeze(), Handle(0)).await?;
        add(&self.counters.slot_table_writes, 1);
        Ok(())
    }

    /// Gives slots back; they may be written at once.
    fn give_slots_back(&self, slots: &SlotSpace, ids: &[SlotId]) {
        if ids.is_empty() {
            return;
        }
        {
            let mut map = slots.map.lock();
            for &id in ids {
                map.give_back(id);
            }
        }
        self.space.notify_waiters();
    }

    /// The value at `place` is not served any more, and was neither deleted nor
    /// overwritten: its slot is free at once.
    pub(super) fn release_slot(&self, slots: &SlotSpace, place: Address) {
        if let Some(id) = slot_at(&slots.geometry, place) {
            self.give_slots_back(slots, &[id]);
        }
    }

    /// Between the water marks, stops serving the least recently used chunks.
    pub(super) fn evict_slots(&self, slots: &SlotSpace) {
        if self.free_slots(slots) > slots.high_water {
            return;
        }
        // Slots may be out of use: what is left is not emptied for the sake of a water mark.
        let enough = slots.low_water.min(self.usable_slots(slots) / 2);
        loop {
            let free = self.free_slots(slots);
            if free >= enough.max(1) || !self.evict_some(slots, enough.max(1) - free) {
                return;
            }
        }
    }

    /// Evicts about `wanted` chunks, as many from each shard as it has of all.
    fn evict_some(&self, slots: &SlotSpace, wanted: u64) -> bool {
        let live: Vec<u64> = self
            .shards
            .iter()
            .map(|shard| shard.lock().index.live() as u64)
            .collect();
        let all = live.iter().sum::<u64>().max(1);
        let mut evicted_any = false;
        for (shard, live) in self.shards.iter().zip(live) {
            let mut share = (wanted * live).div_ceil(all);
            while share > 0 {
                let mut places = Vec::new();
                shard
                    .lock()
                    .index
                    .evict_least_recent_records(share.min(EVICT_AT_ONCE), |entry| {
                        self.states
                            .remove_live(entry.place.zone, u64::from(entry.len));
                        places.push(entry.place);
                    });
                if places.is_empty() {
                    break;
                }
                evicted_any = true;
                share = share.saturating_sub(places.len() as u64);
                add(&self.counters.chunks_evicted, places.len() as u64);
                slots.uses.changed(places.len() as u64);
                let ids: Vec<SlotId> = places
                    .iter()
                    .filter_map(|&place| slot_at(&slots.geometry, place))
                    .collect();
                self.give_slots_back(slots, &ids);
            }
        }
        evicted_any
    }
}
