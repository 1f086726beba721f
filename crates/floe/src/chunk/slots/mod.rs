//! Values in slots that are rewritten in place: CLRU on devices with random writes.
//!
//! | file | content |
//! |---|---|
//! | `take.rs` | takes slots, divides zones |
//! | `write.rs` | small values |
//! | `stream.rs` | large values |
//! | `evict.rs` | eviction between the watermarks |
//! | `tables.rs` | implements the owner of the tables (`crate::slots`) |
//! | `uses.rs`, `changed_uses.rs` | recency of values, noted in the journal |
//! | `../recover/slots.rs` | recovery from tables |
//!
//! **A slot that is free may still be described by its table block**, until the
//! block is written again. That costs nothing and is not a lie: a value that was
//! evicted may come back. One that was deleted or overwritten may not, so its
//! entry stays in the index as a ghost, which the next write or delete of the key
//! finds, until its table block is durable without it.
//!
//! **Nothing waits for readers.** A slot can be written while a reader reads it;
//! the reader then gets bytes without the checksum that it looks for, which
//! covers key, life and value: a miss.
//!
//! A panic in a task of the store poisons no lock. The slots that the task was
//! writing are not used again until the cache is reopened; a zone that it was
//! dividing is reset and used again. `small_writer.rs` says what becomes of a
//! batch, and `crate::slots` has the tables' own task.

mod changed_uses;
mod evict;
mod stream;
mod tables;
mod take;
mod uses;
mod write;

use std::sync::Arc;

use floe_core::ZoneId;
use floe_core::chunk::{Durability, Entry, Found, Place, Plan, ZonePhase, ZoneTable};
use floe_core::hash::KeyHash;
use floe_core::layout::{Sequence, SlotEntry, SlotGeometry, ValueKind};
use floe_core::placement::Stream;
use floe_core::slots::{SlotId, SlotMap, slot_at};
use floe_device::{Address, Placement, ZoneState};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::base::Base;
use super::shard::{Shard, has_expired};
use super::stats::EngineStats;
use crate::slots::{Change, TableBlocks, Tables};
use changed_uses::ChangedUses;

pub(crate) use stream::SlotStream;

/// The slots of all zones, and their values.
#[derive(Debug)]
pub(crate) struct SlotStore {
    base: Base,
    geometry: SlotGeometry,
    map: Mutex<SlotMap>,
    tables: Tables,
    uses: ChangedUses,
    /// Permits for slots that streaming values may hold. The others are for
    /// small values, so that reserved room in the write buffer never waits for
    /// a slot whose holder waits for room.
    large: Arc<Semaphore>,
    high_water: u64,
    low_water: u64,
}

impl SlotStore {
    pub(crate) fn new(base: &Base, map: SlotMap) -> Arc<Self> {
        let (env, geometry) = (&base.env, *map.geometry());
        let plan = &env.plan;
        let per_zone = u64::from(geometry.slots);
        let blocks = TableBlocks::new(Arc::clone(&env.device), env.id, geometry);
        // No device has more slots than a semaphore can count.
        let large = (slots_total(plan, &geometry) / 2).clamp(1, 1 << 24) as usize;
        Arc::new(SlotStore {
            geometry,
            map: Mutex::new(map),
            tables: Tables::new(blocks, plan.durability == Durability::Power),
            uses: ChangedUses::new(plan, &geometry),
            large: Arc::new(Semaphore::new(large)),
            high_water: u64::from(plan.water.high) * per_zone,
            low_water: u64::from(plan.water.low) * per_zone,
            base: base.clone(),
        })
    }

    /// Invalidates the value of `hash`, because a write or delete of sequence
    /// `up_to` replaces it. A value in a slot becomes a ghost until its table
    /// entry is cleared. Returns whether there was a value, and whether a table
    /// change must be durable before the replacement is acknowledged.
    pub(crate) fn invalidate(
        &self,
        shard: &mut Shard,
        hash: KeyHash,
        up_to: Sequence,
    ) -> (bool, bool) {
        let mut was_served = shard.ram_remove(hash);
        // A pending value has no table entry yet, so no crash brings it back.
        was_served |= shard.remove_pending(hash).is_some();
        let Some(found) = shard.index.get(hash) else {
            return (was_served, false);
        };
        let entry = found.entry();
        let frees = matches!(found, Found::Live(_));
        if frees {
            was_served |= !has_expired(entry.expiry_unix_s, &self.base.env.clock);
            self.base.index.ghost(shard, hash, entry);
        }
        if let Some(slot) = slot_at(&self.geometry, entry.place) {
            self.tables.push(Change::Clear {
                slot,
                hash,
                up_to,
                frees,
            });
        }
        (was_served, true)
    }

    /// Adds `entry` in `slot` as the live value of its key, whose older one was
    /// invalidated. False if the index is full.
    fn enter(&self, shard: &mut Shard, slot: SlotId, entry: SlotEntry) -> bool {
        let known = Entry {
            place: place(&self.geometry, slot, entry.kind),
            len: entry.value_bytes,
            checksum: entry.checksum,
            expiry_unix_s: entry.expiry_unix_s,
        };
        if self.base.index.insert(shard, entry.hash, known).is_err() {
            self.give_back(&[slot]);
            return false;
        }
        self.tables.push(Change::Set { slot, entry });
        true
    }

    /// Frees the slot at `place` at once, since its value was neither deleted nor overwritten.
    pub(crate) fn release(&self, place: Place) {
        if let Some(id) = slot_at(&self.geometry, place) {
            self.give_back(&[id]);
        }
    }

    /// Returns slots to the map of free ones.
    fn give_back(&self, slots: &[SlotId]) {
        if slots.is_empty() {
            return;
        }
        {
            let mut map = self.map.lock();
            for &slot in slots {
                map.give_back(slot);
            }
        }
        self.base.zones.notify_changed();
    }

    /// Retires all unwritable zones, of which `zone` is one. Their tables cannot change, so
    /// that read-only ones do not serve either.
    pub(crate) async fn retire_unwritable(&self, zone: ZoneId, state: ZoneState) {
        let lost = self.base.retire_unwritable(zone, state, false).await;
        {
            let mut map = self.map.lock();
            for zone in lost {
                let blocks = 0..self.geometry.table_blocks;
                blocks.for_each(|block| map.withdraw_block(zone, block));
            }
        }
        // A write may wait for a slot that will never be free.
        self.base.zones.notify_changed();
    }

    /// Records the first hit of a value after a long time.
    pub(crate) fn note_use(&self) {
        self.uses.changed(1);
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The placement of payloads; that of tables is the metadata's.
    fn payload_placement(&self) -> Placement {
        self.base.env.handles.of(Stream::New(0))
    }

    /// Wakes the background tasks, to let them end.
    pub(crate) fn stop(&self) {
        self.tables.wake();
        self.uses.stop();
    }

    /// Adds the gauges of slots.
    pub(crate) fn measure(&self, zones: &ZoneTable, stats: &mut EngineStats) {
        let map = self.map.lock();
        stats.index_bytes += map.memory_bytes() as u64;
        stats.slots_total = slots_total(&self.base.env.plan, &self.geometry);
        stats.slots_free = map.free() + self.undivided_slots(zones);
        stats.slots_withdrawn = map.withdrawn();
        let open = zones.in_phase(ZonePhase::Open);
        stats.zones_full = open.filter(|&zone| map.free_in(zone) == 0).count() as u64;
        let blocks = self.tables.blocks();
        stats.counts.slot_table_writes = blocks.writes();
        stats.counts.read_errors += blocks.read_errors();
        stats.counts.write_errors += blocks.write_errors();
    }

    /// The number of taken slots of `zone`, and their bytes.
    pub(crate) fn used(&self, zone: ZoneId) -> (u32, u64) {
        let records = self.geometry.slots - self.map.lock().free_in(zone);
        let bytes = u64::from(records) * self.geometry.slot_bytes;
        (records, self.geometry.slots_offset + bytes)
    }
}

fn slots_total(plan: &Plan, geometry: &SlotGeometry) -> u64 {
    u64::from(geometry.slots) * plan.data_zones().count() as u64
}

/// The address of a value of this kind in `slot`: its payload or its descriptor.
pub(crate) fn place(geometry: &SlotGeometry, slot: SlotId, kind: ValueKind) -> Address {
    let offset = match kind {
        ValueKind::Small => geometry.payload_offset(slot.slot),
        ValueKind::Large => geometry.slot_offset(slot.slot),
    };
    Address::new(slot.zone, offset)
}
