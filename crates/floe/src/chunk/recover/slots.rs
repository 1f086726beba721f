//! Recovery of zones of slots: reads only tables, no payloads.
//!
//! Table entries that must not come back are cleared durably before anything is
//! served: superseded, expired and dead ones. So are unreadable blocks, which
//! may be readable the next time. After that no tombstone in the journal is
//! needed.
//!
//! Evicted values are evicted again, and recently used ones get a young age, as
//! far as the journal has noted. Entries of evicted values become ghosts, as
//! before, because their tables still name them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use floe_core::ZoneId;
use floe_core::chunk::{Entry, Found, RECOVERED_AGES};
use floe_core::hash::{KeyHash, fast_range};
use floe_core::layout::{
    Note, SLOTS_PER_NOTE, SMALL_MAX_BYTES, Sequence, SlotEntry, SlotGeometry, SlotUse, SlotUses,
    Superblock, ValueKind, ZoneHeader, ZoneLayout, ZoneLife,
};
use floe_core::slots::{SlotId, SlotMap, slot_at};
use floe_device::Address;
use futures::{FutureExt, StreamExt, TryStreamExt};

use super::{Digest, Engine, OpenError, PARALLEL, Recovery, RecoveryReport, Tombstones};
use crate::chunk::shard::is_expired;
use crate::chunk::slots::place;
use crate::metadata_log::other;
use crate::slots::TableBlocks;

/// The repair of a table block.
#[derive(Debug)]
enum Repair {
    /// The block was invalid: none of its entries count, although it may be readable later.
    Empty,
    /// The entries of these slots must not come back.
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
        let Digest { tombstones, .. } = self.digest(notes);
        lives.retain(|header| {
            let sound = header.layout == ZoneLayout::Slots;
            if !sound {
                self.states.mark_unknown(header.life.zone);
                self.suspect.push(header.life.zone);
            }
            sound
        });
        let uses = KnownUses::of(notes, lives.iter().map(|header| header.life).collect());
        let mut repairs = Repairs::new();
        let mut map = SlotMap::new(geometry, self.plan.geometry.zone_count);
        let mut filled = Vec::new();
        let mut evicted = Vec::new();
        for header in &lives {
            let life = header.life;
            self.states.open(life.zone, life.generation, 0);
            filled.push((life, 0, 0));
        }
        // Zones are filled before others are divided, so this is about their number.
        let expected = lives.len() * geometry.slots as usize / self.shards.len();
        for shard in &mut self.shards {
            shard.index.reserve(expected);
        }
        // Reads a few zones ahead, so that few tables are in memory.
        let blocks = TableBlocks::new(Arc::clone(&self.device), superblock.id, geometry);
        let mut tables = futures::stream::iter(lives.iter().map(|header| header.life))
            .map(|life| blocks.read_table(life).map(move |table| (life, table)))
            .buffered(PARALLEL);
        while let Some((life, table)) = tables.next().await {
            self.report.zones_from_summaries += 1;
            let mut entering = Entering {
                geometry: &geometry,
                blocks: &blocks,
                tombstones: &tombstones,
                now_unix_s: self.clock.unix_seconds(),
                life,
                taken: vec![false; geometry.slots as usize],
                uses: uses.of_zone(life, geometry.slots),
                uses_up_to: uses.up_to,
                evicted: &mut evicted,
                map: &mut map,
                repairs: &mut repairs,
            };
            for (number, block) in (0..).zip(table) {
                let Some(entries) = block else {
                    entering.repairs.insert((life.zone, number), Repair::Empty);
                    continue;
                };
                for (slot, entry) in entries {
                    if let Some(entry) = entry
                        && let Some(older) = self.enter_slot(&mut entering, slot, &entry)
                    {
                        self.decide(&mut entering, slot, &entry, older).await;
                    }
                }
            }
            let taken = entering.taken;
            map.open_with(life.zone, &taken);
        }
        drop(tables);
        self.evict_again(&geometry, &mut map, evicted);
        self.repair(&blocks, repairs).await?;
        self.slots = Some(map);
        let superblock = Superblock {
            epoch: self.epoch_max + 1,
            ..superblock
        };
        self.start(other(metadata), superblock, uses.into_notes(), filled)
            .await
    }

    /// Adds a record unless it is dead. Returns the record that it replaced.
    fn enter_slot(
        &mut self,
        entering: &mut Entering<'_>,
        slot: u32,
        found: &SlotEntry,
    ) -> Option<Entry> {
        self.next_sequence = self.next_sequence.max(found.sequence.0.saturating_add(1));
        let dead = entering.is_dead(found);
        if dead || is_expired(found.expiry_unix_s, entering.now_unix_s) || !self.can_be(found) {
            self.report.dead_records += u64::from(dead);
            entering.clear(entering.slot(slot));
            return None;
        }
        let entry = entering.entry(slot, found);
        let shard = fast_range(found.hash.0, self.shards.len());
        let age = entering.age(slot, found.sequence);
        let Ok(replaced) =
            self.shards[shard]
                .index
                .insert_aged(found.hash, entry, age.unwrap_or(RECOVERED_AGES))
        else {
            entering.clear(entering.slot(slot));
            return None;
        };
        if age.is_none() {
            entering.evicted.push((found.hash, entry.place));
        }
        self.count_in(entering, &entry);
        self.report.records += 1;
        replaced.map(Found::entry)
    }

    /// Turns values that had been evicted into ghosts, unless their key has a newer value.
    fn evict_again(
        &mut self,
        geometry: &SlotGeometry,
        map: &mut SlotMap,
        evicted: Vec<(KeyHash, Address)>,
    ) {
        for (hash, place) in evicted {
            let index = &mut self.shards[fast_range(hash.0, self.plan.shards as usize)].index;
            let Some(Found::Live(entry)) = index.get(hash) else {
                continue;
            };
            if entry.place != place {
                continue;
            }
            index.ghost(hash);
            self.states.remove_live(&entry);
            if let Some(slot) = slot_at(geometry, place) {
                map.give_back(slot);
            }
            self.report.records -= 1;
            self.report.evicted_records += 1;
        }
    }

    /// Resolves two records of one key: the crash came between the newer one's
    /// table block and the clearing of the older one. The newer one stays.
    async fn decide(
        &mut self,
        entering: &mut Entering<'_>,
        slot: u32,
        found: &SlotEntry,
        other: Entry,
    ) {
        self.report.superseded_records += 1;
        self.report.records -= 1;
        let entry = entering.entry(slot, found);
        let index = fast_range(found.hash.0, self.shards.len());
        match self.slot_sequence(entering, other.place).await {
            Some(sequence) if sequence > found.sequence => {
                self.count_out(entering, &entry);
                // It was in the index a moment ago, so there is room.
                let _ = self.shards[index].index.insert_aged(found.hash, other, 0);
            }
            Some(_) => self.count_out(entering, &other),
            None => {
                // The order of the two is unknown, so neither counts.
                self.count_out(entering, &entry);
                self.count_out(entering, &other);
                self.shards[index].index.remove(found.hash);
                self.report.records -= 1;
            }
        }
    }

    fn count_in(&self, entering: &mut Entering<'_>, entry: &Entry) {
        self.states.add_live(entry);
        entering.set_taken(entry, true);
    }

    fn count_out(&self, entering: &mut Entering<'_>, entry: &Entry) {
        self.states.remove_live(entry);
        entering.set_taken(entry, false);
        if let Some(slot) = slot_at(entering.geometry, entry.place) {
            entering.clear(slot);
        }
    }

    /// True if this cache could have written the entry.
    fn can_be(&self, entry: &SlotEntry) -> bool {
        let is_small = entry.value_bytes as usize <= SMALL_MAX_BYTES;
        u64::from(entry.value_bytes) <= self.plan.chunk_bytes
            && is_small == (entry.kind == ValueKind::Small)
    }

    /// The sequence in the table entry of the value at `place`, which the index lacks.
    async fn slot_sequence(&self, entering: &Entering<'_>, place: Address) -> Option<Sequence> {
        let slot = slot_at(entering.geometry, place)?;
        let geometry = entering.geometry;
        let life = self.states.life(slot.zone);
        let number = geometry.table_block_of(slot.slot);
        let entries = entering.blocks.read(life, number).await.ok()?;
        let (_, entry) = entries.into_iter().find(|(s, _)| *s == slot.slot)?;
        entry.map(|entry| entry.sequence)
    }

    /// Writes repaired table blocks durably.
    async fn repair(&self, blocks: &TableBlocks, repairs: Repairs) -> Result<(), OpenError> {
        if repairs.is_empty() {
            return Ok(());
        }
        let geometry = blocks.geometry();
        futures::stream::iter(repairs)
            .map(|((zone, number), repair)| async move {
                let life = self.states.life(zone);
                let known = match &repair {
                    Repair::Empty => None,
                    Repair::Clear(_) => blocks.read(life, number).await.ok(),
                };
                let mut entries: Vec<Option<SlotEntry>> = match known {
                    Some(known) => known.into_iter().map(|(_, entry)| entry).collect(),
                    None => blocks.empty_block(number),
                };
                let first = geometry.slots_of_block(number).start;
                if let Repair::Clear(slots) = repair {
                    for slot in slots {
                        if let Some(entry) = entries.get_mut((slot - first) as usize) {
                            *entry = None;
                        }
                    }
                }
                blocks.write_with_retries(life, number, &entries).await
            })
            .buffer_unordered(PARALLEL)
            .try_collect::<Vec<()>>()
            .await?;
        self.device.flush().await?;
        Ok(())
    }
}

/// The state of adding one zone's records.
struct Entering<'a> {
    geometry: &'a SlotGeometry,
    blocks: &'a TableBlocks,
    tombstones: &'a Tombstones,
    now_unix_s: u64,
    life: ZoneLife,
    /// JournalState uses of this zone's slots; each covers several slots.
    uses: Vec<Option<SlotUses>>,
    /// Records with a higher sequence are younger than all notes.
    uses_up_to: Sequence,
    /// Records that had been evicted, in case they are the newest of their keys.
    evicted: &'a mut Vec<(KeyHash, Address)>,
    /// Taken slots of this zone, by slot; added to the map at the end.
    taken: Vec<bool>,
    /// The slots of earlier zones.
    map: &'a mut SlotMap,
    repairs: &'a mut Repairs,
}

impl Entering<'_> {
    fn slot(&self, slot: u32) -> SlotId {
        SlotId {
            zone: self.life.zone,
            slot,
        }
    }

    fn entry(&self, slot: u32, found: &SlotEntry) -> Entry {
        Entry {
            place: place(self.geometry, self.slot(slot), found.kind),
            len: found.value_bytes,
            checksum: found.checksum,
            expiry_unix_s: found.expiry_unix_s,
        }
    }

    fn is_dead(&self, found: &SlotEntry) -> bool {
        !self.tombstones.is_empty()
            && self
                .tombstones
                .get(&(self.life.zone, self.life.generation, found.hash))
                .is_some_and(|&up_to| found.sequence <= up_to)
    }

    /// A record's age in epochs of recency; `None` if it had been evicted.
    fn age(&self, slot: u32, sequence: Sequence) -> Option<u16> {
        let Some(older_by) = self.uses_up_to.0.checked_sub(sequence.0) else {
            return Some(0);
        };
        let Some(&Some(uses)) = self.uses.get((slot / SLOTS_PER_NOTE) as usize) else {
            return Some(0);
        };
        let least = match uses.get(slot % SLOTS_PER_NOTE) {
            SlotUse::Evicted => return None,
            SlotUse::Hot => 1,
            SlotUse::Warm => 65,
            SlotUse::Cold => 129,
        };
        // Of equally used records, the most recently written is the youngest.
        let bits = u64::BITS - older_by.leading_zeros();
        Some(least + bits.min(63) as u16)
    }

    fn set_taken(&mut self, entry: &Entry, taken: bool) {
        let Some(id) = slot_at(self.geometry, entry.place) else {
            return;
        };
        if id.zone == self.life.zone {
            if let Some(slot) = self.taken.get_mut(id.slot as usize) {
                *slot = taken;
            }
        } else if !taken {
            self.map.give_back(id);
        }
    }

    /// Adds the entry of `slot` to the repairs.
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

/// Uses of slots noted in the journal.
struct KnownUses {
    /// By the first slot.
    by_slots: HashMap<(ZoneLife, u32), SlotUses>,
    /// Records with a higher sequence are younger than all notes.
    up_to: Sequence,
}

impl KnownUses {
    fn of(notes: &[Note], lives: HashSet<ZoneLife>) -> Self {
        let mut known = KnownUses {
            by_slots: HashMap::new(),
            up_to: Sequence(0),
        };
        for note in notes {
            match *note {
                Note::SlotUse {
                    life,
                    first_slot,
                    uses,
                } if lives.contains(&life) => {
                    known.by_slots.insert((life, first_slot), uses);
                }
                Note::UseNoted { sequence } => known.up_to = known.up_to.max(sequence),
                _ => {}
            }
        }
        known
    }

    /// JournalState uses of the slots of `life`, in order.
    fn of_zone(&self, life: ZoneLife, slots: u32) -> Vec<Option<SlotUses>> {
        (0..slots)
            .step_by(SLOTS_PER_NOTE as usize)
            .map(|first| self.by_slots.get(&(life, first)).copied())
            .collect()
    }

    /// The notes to keep, for a crash before there are new ones.
    fn into_notes(self) -> Vec<Note> {
        let by_slots: BTreeMap<_, _> = self.by_slots.into_iter().collect();
        let mut notes: Vec<Note> = by_slots
            .into_iter()
            .map(|((life, first_slot), uses)| Note::SlotUse {
                life,
                first_slot,
                uses,
            })
            .collect();
        if !notes.is_empty() {
            notes.push(Note::UseNoted {
                sequence: self.up_to,
            });
        }
        notes
    }
}
