//! Opening: formats a device, or recovers an engine.
//!
//! The newest complete metadata zone lists full zones and tombstones; summaries
//! list the records of full zones. Zones without a summary are scanned from
//! descriptor to descriptor. For zones of slots, the tables are read. Then a
//! new metadata zone is started, so that the old one is never appended to.

mod find;
mod slots;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use floe_core::ZoneId;
use floe_core::chunk::{Entry, Eviction, Found, Plan, ShardIndex, ZoneTable};
use floe_core::hash::{HashSeed, KeyHash};
use floe_core::layout::{
    CacheId, Generation, LayoutError, Mark, Note, Sequence, SummaryEntry, Superblock, ZoneHeader,
    ZoneLife,
};
use floe_core::policy::zone::ZonePolicy;
use floe_core::slots::SlotMap;
use floe_device::{Address, Clock, SharedDevice, ZoneState};
use futures::StreamExt;
use rand::RngExt;

use super::base::Base;
use super::environment::Environment;
use super::index::Index;
use super::journal::{Checkpoint, Journal, filter_notes, live_marks};
use super::log::Log;
use super::opening::{OpenError, OpenOptions, RecoveryReport};
use super::placement::Placement;
use super::reclaim::zones_at_once;
use super::scan::{JournalState, ZoneContent, place, read_zone};
use super::shard::Shard;
use super::slots::SlotStore;
use super::stats::add;
use super::unwritable::{say_unwritable, unwritable_in};
use super::zone_state::ZoneStates;
use super::zones::Zones;
use super::{AdmissionControl, Engine, RamPlan};
use crate::metadata_log::{METADATA, Start, other};

/// Zones whose headers or summaries are read concurrently.
const PARALLEL: usize = 16;

/// Added to the id of a cache whose journal was damaged, above the bits of its creation.
const DAMAGED_ID_STEP: u128 = 1 << 100;

impl Engine {
    /// Opens the cache on `device`; formats a blank device.
    pub(crate) async fn open(
        device: SharedDevice,
        clock: Clock,
        plan: Plan,
        ram: RamPlan,
        admission_control: AdmissionControl,
        options: OpenOptions,
    ) -> Result<(Arc<Engine>, RecoveryReport), OpenError> {
        let mut recovery = Recovery::new(device, clock, plan, ram, admission_control);
        recovery.ask_the_device().await?;
        match recovery.find_superblock(options).await? {
            Some((zone, superblock, notes)) => recovery.recover(zone, superblock, notes).await,
            None => recovery.format(options).await,
        }
    }
}

/// The state of an opening.
struct Recovery {
    device: SharedDevice,
    clock: Clock,
    plan: Plan,
    ram: RamPlan,
    admission_control: AdmissionControl,
    states: Arc<ZoneStates>,
    shards: Vec<Shard>,
    report: RecoveryReport,
    next_sequence: u64,
    next_generation: u32,
    /// The highest epoch read from any metadata zone, complete or not.
    epoch_max: u64,
    losers: Vec<Note>,
    marks: Vec<Mark>,
    /// Zones that the device counts as active.
    still_active: HashSet<ZoneId>,
    /// Zones that are read-only or offline.
    unwritable: BTreeMap<ZoneId, ZoneState>,
    /// Zones whose values must not come back: the header is neither valid nor blank, or
    /// the values were dropped.
    suspect: Vec<ZoneId>,
    /// Offsets of records and their sequences, by zone.
    sequences: HashMap<ZoneId, Vec<(u32, Sequence)>>,
    /// The same for the last zone whose records were compared with newer ones, for lookups.
    compared: Option<(ZoneId, HashMap<u32, Sequence>)>,
    /// The taken slots, if the layout is slots.
    slots: Option<SlotMap>,
}

type Found1 = (ZoneId, Superblock, Vec<Note>);

impl Recovery {
    fn new(
        device: SharedDevice,
        clock: Clock,
        plan: Plan,
        ram: RamPlan,
        admission_control: AdmissionControl,
    ) -> Self {
        let shard_ram = ram.bytes / u64::from(plan.shards);
        let item = plan.chunk_bytes.min(ram.value_bytes_max).max(4096);
        let shards = (0..plan.shards)
            .map(|_| {
                let index = match plan.slots {
                    Some(_) => ShardIndex::over_slots(&plan.geometry),
                    None => ShardIndex::new(&plan.geometry, plan.eviction == Eviction::Clru),
                };
                Shard::new(index, shard_ram, item)
            })
            .collect();
        let states = ZoneStates::new(plan.geometry.zone_count);
        let slots = plan
            .slots
            .map(|geometry| SlotMap::new(geometry, plan.geometry.zone_count));
        Recovery {
            device,
            clock,
            plan,
            ram,
            admission_control,
            states,
            shards,
            report: RecoveryReport::default(),
            next_sequence: 1,
            next_generation: 1,
            epoch_max: 0,
            losers: Vec::new(),
            marks: Vec::new(),
            still_active: HashSet::new(),
            unwritable: BTreeMap::new(),
            suspect: Vec::new(),
            sequences: HashMap::new(),
            compared: None,
            slots,
        }
    }

    /// Learns the states of the device's zones.
    async fn ask_the_device(&mut self) -> Result<(), OpenError> {
        let report = self.device.report().await?;
        let active = report
            .iter()
            .filter(|zone| matches!(zone.state, ZoneState::Open | ZoneState::Closed));
        self.still_active = active.map(|zone| zone.zone).collect();
        self.unwritable = unwritable_in(report);
        Ok(())
    }

    async fn format(
        mut self,
        options: OpenOptions,
    ) -> Result<(Arc<Engine>, RecoveryReport), OpenError> {
        let created_unix_s = self.clock.unix_seconds();
        let (id, seed) = match options.seed {
            // A new id each time: records of an earlier cache on the device must be unreadable.
            Some(seed) => (
                u128::from(seed) | u128::from(created_unix_s) << 64 | 1 << 127,
                seed,
            ),
            None => rand::rng().random(),
        };
        let superblock = Superblock {
            id: CacheId(id.to_le_bytes()),
            hash_seed: HashSeed(seed),
            created_unix_s,
            epoch: 1,
            plan: self.plan.format(),
        };
        for zone in self.plan.data_zones() {
            self.states.mark_unknown(zone);
        }
        self.report.formatted = true;
        // The other zone may hold an older cache's superblock with a higher epoch.
        self.device.reset(METADATA[1]).await?;
        self.start(METADATA[0], superblock, Vec::new(), Vec::new())
            .await
    }

    async fn recover(
        mut self,
        zone: ZoneId,
        superblock: Superblock,
        notes: Vec<Note>,
    ) -> Result<(Arc<Engine>, RecoveryReport), OpenError> {
        self.marks = marks_in(&notes);
        let mut superblock = superblock;
        let lives = if self.report.journal_damaged {
            // Nothing of a zone whose reset fails can be read under another id.
            let id = u128::from_le_bytes(superblock.id.0).wrapping_add(DAMAGED_ID_STEP);
            superblock.id = CacheId(id.to_le_bytes());
            Vec::new()
        } else {
            self.read_headers(superblock.id, &dropped_in(&notes))
                .await?
        };
        if let Some(geometry) = self.plan.slots {
            return self
                .recover_slots(geometry, zone, superblock, &notes, lives)
                .await;
        }
        let Digest {
            full,
            closed,
            tombstones,
        } = self.digest(&notes);
        let lives_by_zone = lives.iter().map(|header| header.life);
        let current: HashMap<ZoneId, Generation> = lives_by_zone
            .map(|life| (life.zone, life.generation))
            .collect();
        let mut filled = Vec::new();
        let mut contents = futures::stream::iter(lives)
            .map(|header| {
                let (device, plan) = (Arc::clone(&self.device), self.plan.clone());
                let noted = match (closed.get(&header.life), full.get(&header.life)) {
                    (Some(&end), _) => JournalState::Closed(end),
                    (None, Some(&(offset, records))) => JournalState::Full(offset, records),
                    (None, None) => JournalState::Open,
                };
                async move { read_zone(device, plan, superblock.id, header.life, noted).await }
            })
            .buffered(PARALLEL)
            .collect::<Vec<_>>()
            .await;
        for content in contents.drain(..) {
            let content = content?;
            self.enter_zone(&content, &tombstones).await?;
            if content.scanned {
                // A later record may be readable the next time, after its key was deleted.
                self.losers.push(Note::ZoneClosed {
                    life: content.life,
                    end_offset: content.used_bytes,
                });
            }
            filled.push((
                content.life,
                content.used_bytes,
                content.records.len() as u32,
            ));
        }
        // Zones that are dropped still, or again, are noted when resets were tried.
        let notes = notes.into_iter();
        let notes = notes.filter(|note| !matches!(note, Note::ZoneDropped { .. }));
        let generation_of = |zone| current.get(&zone).copied().unwrap_or(Generation(0));
        let kept = filter_notes(notes.collect(), generation_of);
        // Higher than an abandoned attempt's epoch too: a reset may leave its
        // blocks after the new ones.
        let superblock = Superblock {
            epoch: self.epoch_max + 1,
            ..superblock
        };
        self.start(other(zone), superblock, kept, filled).await
    }

    /// True if the zone is read: not if it is offline, nor over slots if it is read-only,
    /// because its tables could not change.
    fn is_read(&self, zone: ZoneId) -> bool {
        match self.unwritable.get(&zone) {
            Some(ZoneState::ReadOnly) => self.plan.slots.is_none(),
            Some(_) => false,
            None => true,
        }
    }

    /// This cache's zone headers, in the order in which the zones were opened, without
    /// those of lives that were dropped.
    async fn read_headers(
        &mut self,
        id: CacheId,
        dropped: &HashMap<ZoneId, Generation>,
    ) -> Result<Vec<ZoneHeader>, OpenError> {
        let block_size = self.plan.geometry.block_size as usize;
        let device = &self.device;
        let is_read = |zone| self.is_read(zone);
        let headers: Vec<_> = futures::stream::iter(self.plan.data_zones())
            .map(|zone| async move {
                if !is_read(zone) {
                    return Err(false);
                }
                match device
                    .read(Address::new(zone, 0), device.allocate(block_size))
                    .await
                {
                    Ok(buf) => ZoneHeader::decode(id, zone, &buf)
                        .map_err(|error| error == LayoutError::Blank),
                    Err(_) => Err(false),
                }
            })
            .buffered(PARALLEL)
            .collect()
            .await;
        let mut lives = Vec::new();
        for (zone, header) in self.plan.data_zones().zip(headers) {
            match header {
                Ok(header) => {
                    let generation = header.life.generation;
                    self.next_generation = self.next_generation.max(generation.0.saturating_add(1));
                    self.next_sequence = self.next_sequence.max(header.opened_sequence.0);
                    match dropped.get(&zone) {
                        Some(&last) if generation <= last => {
                            self.states.mark_unknown(zone);
                            self.suspect.push(zone);
                        }
                        _ => lives.push(header),
                    }
                }
                Err(blank) => {
                    self.states.mark_unknown(zone);
                    if !blank {
                        self.suspect.push(zone);
                    }
                }
            }
        }
        lives.sort_by_key(|header| header.life.generation);
        Ok(lives)
    }

    fn digest(&mut self, notes: &[Note]) -> Digest {
        let Digest {
            mut full,
            mut closed,
            mut tombstones,
        } = Digest::default();
        for note in notes {
            match *note {
                Note::ZoneFull {
                    life,
                    summary_offset,
                    records,
                } => {
                    full.insert(life, (summary_offset, records));
                }
                Note::ZoneClosed { life, end_offset } => {
                    let end = closed.entry(life).or_insert(end_offset);
                    *end = end_offset.min(*end);
                }
                Note::Tombstone {
                    life,
                    hash,
                    sequence,
                } => {
                    let newest = tombstones
                        .entry((life.zone, life.generation, hash))
                        .or_insert(sequence);
                    *newest = (*newest).max(sequence);
                    self.next_sequence = self.next_sequence.max(sequence.0 + 1);
                }
                Note::GenerationFloor { generation } => {
                    self.next_generation = self.next_generation.max(generation.0);
                }
                Note::UseNoted { sequence } => {
                    self.next_sequence = self.next_sequence.max(sequence.0.saturating_add(1));
                }
                Note::CheckpointEnd { .. }
                | Note::SlotUse { .. }
                | Note::ZoneDropped { .. }
                | Note::Mark(_) => {}
            }
        }
        Digest {
            full,
            closed,
            tombstones,
        }
    }

    async fn enter_zone(
        &mut self,
        content: &ZoneContent,
        tombstones: &Tombstones,
    ) -> Result<(), OpenError> {
        let life = content.life;
        self.states
            .open(life.zone, life.generation, u64::from(life.generation.0));
        if content.scanned {
            self.report.zones_scanned += 1;
            // A device with zone states would count it as active forever.
            if self.still_active.contains(&life.zone) {
                self.device.finish(life.zone).await?;
            }
        } else {
            self.report.zones_from_summaries += 1;
        }
        let sequences = content
            .records
            .iter()
            .map(|r| (r.block, r.sequence))
            .collect();
        self.sequences.insert(life.zone, sequences);
        for record in &content.records {
            self.next_sequence = self.next_sequence.max(record.sequence.0 + 1);
            let dead = tombstones.get(&(life.zone, life.generation, record.hash));
            if dead.is_some_and(|&up_to| record.sequence <= up_to) {
                self.report.dead_records += 1;
                self.states.add_tombstone(life.zone);
                continue;
            }
            self.enter(life, record);
        }
        Ok(())
    }

    fn enter(&mut self, life: ZoneLife, record: &SummaryEntry) {
        let entry = Entry {
            place: place(record, life, self.plan.geometry.block_size),
            len: record.value_bytes,
            checksum: record.checksum,
            expiry_unix_s: record.expiry_unix_s,
        };
        let index = floe_core::hash::fast_range(record.hash.0, self.shards.len());
        let replaced = match self.shards[index].index.insert(record.hash, entry) {
            Ok(replaced) => replaced,
            Err(floe_core::chunk::IndexFull) => {
                return self.add_tombstone(life, record.hash, record.sequence);
            }
        };
        self.states.add_live(&entry);
        let Some(Found::Live(old)) = replaced else {
            self.report.records += 1;
            return;
        };
        // Two records of one key: the crash came between a write and the older
        // record's tombstone.
        self.report.superseded_records += 1;
        self.states.remove_live(&old);
        let old_life = self.states.life(old.place.zone);
        let old_sequence = self.sequence_at(old.place);
        let (loser, sequence) = if old_sequence > record.sequence {
            if self.shards[index].index.insert(record.hash, old).is_ok() {
                self.states.remove_live(&entry);
                self.states.add_live(&old);
            }
            (life, record.sequence)
        } else {
            (old_life, old_sequence)
        };
        if loser == life && old_life == life {
            // Both are in one zone: a tombstone up to the lower sequence covers
            // only the older one.
            self.add_tombstone(life, record.hash, old_sequence.min(record.sequence));
        } else {
            self.add_tombstone(loser, record.hash, sequence);
        }
        self.states.add_tombstone(loser.zone);
    }

    /// Adds a tombstone for a record that must not be found the next time.
    fn add_tombstone(&mut self, life: ZoneLife, hash: KeyHash, sequence: Sequence) {
        self.losers.push(Note::Tombstone {
            life,
            hash,
            sequence,
        });
    }

    /// The sequence of the record at `at`, which the index lacks.
    fn sequence_at(&mut self, at: Address) -> Sequence {
        let zone = at.zone;
        if self
            .compared
            .as_ref()
            .is_none_or(|(known, _)| *known != zone)
        {
            let sequences = self
                .sequences
                .get(&zone)
                .into_iter()
                .flatten()
                .copied()
                .collect();
            self.compared = Some((zone, sequences));
        }
        let block = (at.offset / u64::from(self.plan.geometry.block_size)) as u32;
        let known = self
            .compared
            .as_ref()
            .and_then(|(_, known)| known.get(&block));
        // Every entry was added together with its sequence.
        known.copied().unwrap_or_default()
    }

    /// Starts a new metadata zone and the background tasks.
    async fn start(
        mut self,
        metadata: ZoneId,
        superblock: Superblock,
        mut notes: Vec<Note>,
        filled: Vec<(ZoneLife, u64, u32)>,
    ) -> Result<(Arc<Engine>, RecoveryReport), OpenError> {
        if self.report.journal_damaged {
            self.suspect = self.plan.data_zones().collect();
        }
        notes.append(&mut self.losers);
        let floor = Generation(self.next_generation);
        self.reset_suspect(&mut notes).await;
        notes.retain(|note| !matches!(note, Note::GenerationFloor { .. } | Note::Mark(_)));
        notes.push(Note::GenerationFloor { generation: floor });
        notes.extend(self.marks.iter().copied().map(Note::Mark));
        let (id, seed) = (superblock.id, superblock.hash_seed);
        let (journal, journal_task) = Journal::begin(
            Start {
                device: Arc::clone(&self.device),
                clock: self.clock.clone(),
                durability: self.plan.durability,
                superblock,
                zone: metadata,
            },
            Arc::clone(&self.states),
            Checkpoint {
                notes,
                generation_floor: floor,
            },
        )
        .await?;
        let mut zones = self.zone_table(floor, filled);
        for &zone in self.unwritable.keys() {
            zones.retire(zone);
        }
        if !self.unwritable.is_empty() {
            say_unwritable(&self.device.describe(), &self.unwritable);
        }
        let env = Arc::new(Environment::new(
            self.device,
            self.clock,
            self.plan,
            (id, seed),
            self.next_sequence,
        ));
        add(&env.counters.zones_retired, self.unwritable.len() as u64);
        let index = Index::new(Arc::clone(&env), self.shards, self.states, self.ram);
        let base = Base {
            index: Arc::new(index),
            journal: Arc::new(journal),
            zones: Arc::new(Zones::new(
                Arc::clone(&env),
                zones,
                self.unwritable.keys().copied().collect(),
            )),
            env,
        };
        let placement = match self.slots {
            Some(map) => Placement::Slots(SlotStore::new(&base, map)),
            None => Placement::Log(Log::new(&base)),
        };
        let admission = self.admission_control;
        let engine = Engine::start(base, placement, admission, self.marks, journal_task);
        Ok((engine, self.report))
    }

    /// Resets the zones whose values must not come back: a header that is unreadable now may
    /// be readable the next time. Those that cannot be reset are noted as dropped, with
    /// every generation that may have been used.
    async fn reset_suspect(&mut self, notes: &mut Vec<Note>) {
        for zone in std::mem::take(&mut self.suspect) {
            if !self.unwritable.contains_key(&zone) {
                let Err(error) = self.device.reset(zone).await else {
                    continue;
                };
                tracing::warn!(%error, %zone, "a zone with an unreadable header could not be reset; its values are dropped");
            }
            self.states.mark_unknown(zone);
            let last = Generation(self.next_generation - 1);
            if last >= Generation::FIRST {
                let life = ZoneLife::new(zone, last);
                notes.push(Note::ZoneDropped { life });
            }
        }
    }

    /// The zone table, with records in the zones of `filled`.
    fn zone_table(&self, floor: Generation, filled: Vec<(ZoneLife, u64, u32)>) -> ZoneTable {
        let policy = match self.plan.eviction {
            Eviction::Zplru | Eviction::Clru => ZonePolicy::Zplru,
            Eviction::Fifo => ZonePolicy::Fifo,
            Eviction::Sieve => ZonePolicy::sieve(),
        };
        let gc_reserve = match self.plan.eviction {
            Eviction::Clru => {
                let at_once = zones_at_once(self.plan.data_zones().count() as u32);
                (at_once / 2).clamp(1, self.plan.water.high.max(2) - 1)
            }
            _ => 0,
        };
        let mut zones = ZoneTable::new(&self.plan, floor, policy, gc_reserve);
        for (life, used_bytes, records) in filled {
            match self.slots {
                None => zones.recovered(life.zone, life.generation, used_bytes, records),
                Some(_) => zones.recovered_slots(life.zone, life.generation),
            }
        }
        zones
    }
}

/// The last lives of zones that were dropped.
fn dropped_in(notes: &[Note]) -> HashMap<ZoneId, Generation> {
    let mut dropped = HashMap::new();
    for note in notes {
        if let Note::ZoneDropped { life } = *note {
            let last = dropped.entry(life.zone).or_insert(life.generation);
            *last = life.generation.max(*last);
        }
    }
    dropped
}

/// The marks of the notes that count.
fn marks_in(notes: &[Note]) -> Vec<Mark> {
    let marks = notes.iter().filter_map(|note| match note {
        Note::Mark(mark) => Some(*mark),
        _ => None,
    });
    live_marks(marks.collect())
}

/// The journal's notes about zones and records.
#[derive(Default)]
struct Digest {
    /// Offsets of full zones' summaries, and their numbers of entries.
    full: HashMap<ZoneLife, (u64, u32)>,
    /// Verified ends of zones without a summary.
    closed: HashMap<ZoneLife, u64>,
    tombstones: Tombstones,
}

type Tombstones = HashMap<(ZoneId, Generation, KeyHash), Sequence>;
