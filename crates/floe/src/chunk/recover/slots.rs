//! Recovery of zones of slots: tables only, no payloads.
//!
//! What the tables should not claim any more is cleared, and stable, before
//! anything is served: entries that lost against a newer one of their key,
//! that expired, or that the journal says are dead, and blocks that could not
//! be read, for they may be readable the next time. After that no death in the
//! journal matters any more, and none is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use floe_core::ZoneId;
use floe_core::chunk::{Entry, Found, SlotId, SlotMap, slot_at};
use floe_core::layout::{
    CacheId, LayoutError, Note, SMALL_MAX_BYTES, Sequence, SlotEntry, SlotGeometry, Superblock,
    ValueKind, ZoneHeader, ZoneLayout, ZoneLife, decode_slot_block, encode_slot_block,
};
use floe_device::{Address, DeviceError, Placement as Handle, SharedDevice};
use futures::{StreamExt, TryStreamExt};

use super::{Deaths, Digest, Engine, OpenError, PARALLEL, Recovery, RecoveryReport};
use crate::chunk::shard::is_expired;
use crate::chunk::slots::place;

/// Table bytes read at once.
const READ_BYTES: u64 = 1 << 20;
/// Writes of a table block before opening fails.
const ATTEMPTS: usize = 3;

/// A zone's table: each block's entries, or `None` where it is not sound.
type Table = Vec<Option<Vec<(u32, Option<SlotEntry>)>>>;

/// How a table block is to be put right.
#[derive(Debug)]
enum Repair {
    /// It was not sound: nothing in it is believed, whatever it reads as later.
    Empty,
    /// These slots' entries are not to come back.
    Clear(BTreeSet<u32>),
}

type Repairs = BTreeMap<(ZoneId, u32), Repair>;

impl Recovery {
    pub(super) async fn recover_slots(
        mut self,
        geometry: SlotGeometry,
        metadata: ZoneId,
        superblock: Superblock,
        notes: &[Note],
        mut lives: Vec<ZoneHeader>,
    ) -> Result<(Arc<Engine>, RecoveryReport), OpenError> {
        let Digest { deaths, .. } = self.digest(notes);
        lives.retain(|header| {
            let sound = header.layout == ZoneLayout::Slots;
            if !sound {
                self.states.mark_unknown(header.life.zone);
                self.doubtful.push(header.life.zone);
            }
            sound
        });
        let mut repairs = Repairs::new();
        let mut map = SlotMap::new(geometry, self.plan.geometry.zone_count);
        let mut filled = Vec::new();
        for header in &lives {
            let life = header.life;
            self.states.open(life.zone, life.generation, 0);
            map.open(life.zone);
            filled.push((life, 0, 0));
        }
        // A few zones ahead of what is being entered, so that few tables are in memory.
        let device = Arc::clone(&self.device);
        let mut tables = futures::stream::iter(lives.iter().map(|header| header.life))
            .map(|life| {
                let device = Arc::clone(&device);
                async move {
                    (
                        life,
                        read_table(&device, &geometry, superblock.id, life).await,
                    )
                }
            })
            .buffered(PARALLEL);
        while let Some((life, table)) = tables.next().await {
            self.report.zones_from_summaries += 1;
            for (number, block) in (0..).zip(table) {
                let Some(entries) = block else {
                    repairs.insert((life.zone, number), Repair::Empty);
                    continue;
                };
                for (slot, entry) in entries {
                    let Some(entry) = entry else { continue };
                    let id = SlotId {
                        zone: life.zone,
                        slot,
                    };
                    let mut entering = Entering {
                        geometry: &geometry,
                        id: superblock.id,
                        deaths: &deaths,
                        map: &mut map,
                        repairs: &mut repairs,
                    };
                    self.enter_slot(&mut entering, life, id, entry).await;
                }
            }
        }
        drop(tables);
        self.repair(&geometry, superblock.id, repairs).await?;
        self.slots = Some(map);
        let superblock = Superblock {
            epoch: self.epoch_max + 1,
            ..superblock
        };
        let next = super::METADATA[1 - metadata.index()];
        self.start(next, superblock, Vec::new(), filled).await
    }

    /// Enters one record, unless it is dead, or a newer one of its key is there.
    async fn enter_slot(
        &mut self,
        entering: &mut Entering<'_>,
        life: ZoneLife,
        id: SlotId,
        found: SlotEntry,
    ) {
        self.next_sequence = self.next_sequence.max(found.sequence.0.saturating_add(1));
        let dead = entering
            .deaths
            .get(&(life.zone, life.generation, found.hash))
            .is_some_and(|&up_to| found.sequence <= up_to);
        let expired = is_expired(found.expiry_unix_s, self.clock.unix_seconds());
        if dead || expired || !self.can_be(&found) {
            self.report.dead_records += u64::from(dead);
            entering.clear(id);
            return;
        }
        let entry = Entry {
            place: place(entering.geometry, id, found.kind),
            len: found.value_bytes,
            checksum: found.checksum,
            expiry_unix_s: found.expiry_unix_s,
        };
        let shard = floe_core::hash::fast_range(found.hash.0, self.shards.len());
        let index = &mut self.shards[shard].index;
        let older = index.get(found.hash);
        if let Some(known) = older {
            self.report.superseded_records += 1;
            let other = slot_at(entering.geometry, known.entry().place);
            let sequence = self.slot_sequence(entering, other).await;
            if sequence.is_some_and(|other| other > found.sequence) {
                entering.clear(id);
                return;
            }
            if let Some(other) = other {
                entering.clear(other);
                entering.map.give_back(other);
            }
            if sequence.is_none() {
                // Which is newer cannot be told: neither is believed.
                entering.clear(id);
                self.shards[shard].index.remove(found.hash);
                self.states
                    .remove_live(known.entry().place.zone, u64::from(known.entry().len));
                self.report.records -= 1;
                return;
            }
        }
        let index = &mut self.shards[shard].index;
        if index.insert(found.hash, entry).is_err() {
            entering.clear(id);
            return;
        }
        entering.map.take(id);
        self.states.add_live(id.zone, u64::from(entry.len));
        match older {
            Some(Found::Live(old) | Found::Ghost(old)) => {
                self.states.remove_live(old.place.zone, u64::from(old.len));
            }
            None => self.report.records += 1,
        }
    }

    /// Whether this cache may have written such an entry.
    fn can_be(&self, entry: &SlotEntry) -> bool {
        let is_small = entry.value_bytes as usize <= SMALL_MAX_BYTES;
        u64::from(entry.value_bytes) <= self.plan.chunk_bytes
            && is_small == (entry.kind == ValueKind::Small)
    }

    /// The sequence in the table entry of `slot`, which the index does not keep.
    async fn slot_sequence(
        &self,
        entering: &Entering<'_>,
        slot: Option<SlotId>,
    ) -> Option<Sequence> {
        let slot = slot?;
        let geometry = entering.geometry;
        let life = self.states.life(slot.zone);
        let number = geometry.table_block_of(slot.slot);
        let entries = read_block(&self.device, geometry, entering.id, life, number).await?;
        let (_, entry) = entries.into_iter().find(|(s, _)| *s == slot.slot)?;
        entry.map(|entry| entry.sequence)
    }

    /// Puts table blocks right, durably.
    async fn repair(
        &self,
        geometry: &SlotGeometry,
        id: CacheId,
        repairs: Repairs,
    ) -> Result<(), OpenError> {
        if repairs.is_empty() {
            return Ok(());
        }
        futures::stream::iter(repairs)
            .map(|((zone, number), repair)| async move {
                let life = self.states.life(zone);
                let known = match &repair {
                    Repair::Empty => None,
                    Repair::Clear(_) => read_block(&self.device, geometry, id, life, number).await,
                };
                let mut entries: Vec<Option<SlotEntry>> = match known {
                    Some(known) => known.into_iter().map(|(_, entry)| entry).collect(),
                    None => vec![None; geometry.slots_of_block(number).len()],
                };
                let first = geometry.slots_of_block(number).start;
                if let Repair::Clear(slots) = repair {
                    for slot in slots {
                        if let Some(entry) = entries.get_mut((slot - first) as usize) {
                            *entry = None;
                        }
                    }
                }
                write_block(&self.device, geometry, id, life, number, &entries).await
            })
            .buffer_unordered(PARALLEL)
            .try_collect::<Vec<()>>()
            .await?;
        self.device.flush().await?;
        Ok(())
    }
}

/// What entering a record needs to know and changes.
struct Entering<'a> {
    geometry: &'a SlotGeometry,
    id: CacheId,
    deaths: &'a Deaths,
    map: &'a mut SlotMap,
    repairs: &'a mut Repairs,
}

impl Entering<'_> {
    /// The entry of `slot` is to go.
    fn clear(&mut self, slot: SlotId) {
        let block = (slot.zone, self.geometry.table_block_of(slot.slot));
        let repair = self
            .repairs
            .entry(block)
            .or_insert_with(|| Repair::Clear(BTreeSet::new()));
        if let Repair::Clear(slots) = repair {
            slots.insert(slot.slot);
        }
    }
}

async fn read_table(
    device: &SharedDevice,
    geometry: &SlotGeometry,
    id: CacheId,
    life: ZoneLife,
) -> Table {
    let block = u64::from(geometry.block_size);
    let at_once = (READ_BYTES / block).max(1) as u32;
    let mut table = Vec::with_capacity(geometry.table_blocks as usize);
    let mut first = 0;
    while first < geometry.table_blocks {
        let count = at_once.min(geometry.table_blocks - first);
        let at = Address::new(life.zone, geometry.table_block_offset(first));
        let buf = device.allocate((u64::from(count) * block) as usize);
        match device.read(at, buf).await {
            Ok(buf) => {
                for (number, bytes) in (first..).zip(buf.chunks(block as usize)) {
                    table.push(decode_slot_block(id, life, geometry, number, bytes).ok());
                }
            }
            Err(error) => {
                tracing::warn!(%error, zone = %life.zone, "a part of a slot table could not be read at once");
                for number in first..first + count {
                    table.push(read_block(device, geometry, id, life, number).await);
                }
            }
        }
        first += count;
    }
    table
}

async fn read_block(
    device: &SharedDevice,
    geometry: &SlotGeometry,
    id: CacheId,
    life: ZoneLife,
    number: u32,
) -> Option<Vec<(u32, Option<SlotEntry>)>> {
    let at = Address::new(life.zone, geometry.table_block_offset(number));
    let buf = device.allocate(geometry.block_size as usize);
    let buf = device.read(at, buf).await.ok()?;
    decode_slot_block(id, life, geometry, number, &buf).ok()
}

async fn write_block(
    device: &SharedDevice,
    geometry: &SlotGeometry,
    id: CacheId,
    life: ZoneLife,
    number: u32,
    entries: &[Option<SlotEntry>],
) -> Result<(), OpenError> {
    let at = Address::new(life.zone, geometry.table_block_offset(number));
    let mut failure: Option<DeviceError> = None;
    for _ in 0..ATTEMPTS {
        let mut buf = device.allocate(geometry.block_size as usize);
        encode_slot_block(id, life, geometry, number, entries, &mut buf)
            .map_err(|error: LayoutError| OpenError::Metadata(error.to_string()))?;
        match device.write(at, buf.freeze(), Handle(0)).await {
            Ok(()) => return Ok(()),
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) => Err(OpenError::Device(error)),
        None => Ok(()),
    }
}
