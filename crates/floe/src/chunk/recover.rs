//! From flash to a running engine.
//!
//! The newest complete metadata zone says which zones are full and which
//! records are dead; summaries say what full zones hold; only zones without a
//! summary are scanned, from descriptor to descriptor. Of zones of slots the
//! tables are read instead. Then a new metadata
//! zone is started, so that the old one is never appended to again.

mod slots;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use floe_core::ZoneId;
use floe_core::chunk::{ConfigError, Entry, Eviction, Found, Plan, ShardIndex, SlotMap, ZoneTable};
use floe_core::hash::{HashSeed, KeyHash};
use floe_core::layout::{
    BatchHeader, BatchKind, CacheId, Generation, Identified, LargeDescriptor, LayoutError, Note,
    PlanMismatch, Sequence, SmallBatch, SummaryEntry, SummaryPage, SummaryShape, Superblock,
    ValueKind, ZoneHeader, ZoneLife, identify,
};
use floe_core::policy::zone::ZonePolicy;
use floe_device::{Address, Clock, DeviceError, SharedDevice, ZoneState};
use futures::StreamExt;
use parking_lot::Mutex;
use rand::RngExt;
use tokio::sync::{Notify, Semaphore};

use super::journal::{Journal, JournalError, JournalTask, METADATA, filter_notes, scan_journal};
use super::large::descriptor_cache;
use super::shard::Shard;
use super::slots::SlotSpace;
use super::space::{LogSpace, Space};
use super::write::WriteQueue;
use super::zone_state::ZoneStates;
use super::{Engine, ROOM_UNIT_BYTES, RamPlan};

/// Zones whose headers or summaries are read at once.
const PARALLEL: usize = 16;
/// First read of a batch's descriptor region; a longer region takes a second read.
const DESCRIPTOR_GUESS_BYTES: u64 = 16 << 10;
/// Bytes at the device's start that must be blank before it is formatted unasked.
const FOREIGN_CHECK_BYTES: u64 = 64 << 10;

/// Why a cache could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting cannot work on this device.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device failed.
    #[error("the cache device failed: {0}")]
    Device(#[from] DeviceError),
    /// The device holds something that is not a Floe cache.
    #[error(
        "{device} holds data that Floe did not write; `floe format --force` wipes it, or choose another path or device"
    )]
    ForeignData {
        /// The device.
        device: String,
    },
    /// The device holds a Floe cache of another shape.
    #[error(
        "{device} holds a Floe cache of another plan: {mismatch}; change the setting back, or reformat with `floe format` (the cached data is lost, nothing else)"
    )]
    OtherPlan {
        /// The device.
        device: String,
        /// What differs.
        mismatch: PlanMismatch,
    },
    /// A newer Floe wrote this cache.
    #[error("{device} was written by a newer Floe: {source}")]
    NewerFormat {
        /// The device.
        device: String,
        /// The versions.
        source: LayoutError,
    },
    /// The metadata zones could not be written.
    #[error("the cache's metadata could not be written: {0}")]
    Metadata(String),
}

impl From<JournalError> for OpenError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Device(error) => OpenError::Device(error),
            other => OpenError::Metadata(other.to_string()),
        }
    }
}

/// What opening a cache found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RecoveryReport {
    /// The device was blank and was formatted.
    pub formatted: bool,
    /// The journal was damaged: to be safe everything was forgotten.
    pub journal_damaged: bool,
    /// Zones whose summaries were read.
    pub zones_from_summaries: u32,
    /// Zones that were scanned.
    pub zones_scanned: u32,
    /// Records that are served again.
    pub records: u64,
    /// Records that were found dead in the journal.
    pub dead_records: u64,
    /// Older records of keys that had a newer one.
    pub superseded_records: u64,
}

/// What a new cache needs besides its plan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenOptions {
    /// Wipe whatever the device holds.
    pub(crate) format: bool,
    /// Makes identity and hash seed deterministic, for simulations.
    pub(crate) seed: Option<u64>,
}

/// A record found on flash.
pub(super) struct ScannedRecord {
    pub(super) summary: SummaryEntry,
    pub(super) key: Vec<u8>,
}

impl ScannedRecord {
    pub(super) fn place(&self, life: ZoneLife, block_size: u32) -> Address {
        place(&self.summary, life, block_size)
    }
}

fn place(summary: &SummaryEntry, life: ZoneLife, block_size: u32) -> Address {
    Address::new(life.zone, u64::from(summary.block) * u64::from(block_size))
}

impl Engine {
    /// Opens the cache on `device`, formatting it if it is blank.
    pub(crate) async fn open(
        device: SharedDevice,
        clock: Clock,
        plan: Plan,
        ram: RamPlan,
        options: OpenOptions,
    ) -> Result<(Arc<Engine>, RecoveryReport), OpenError> {
        let mut recovery = Recovery::new(device, clock, plan, ram);
        match recovery.find_superblock(options).await? {
            Some((zone, superblock, notes)) => recovery.recover(zone, superblock, notes).await,
            None => recovery.format(options).await,
        }
    }
}

/// Everything that is known while opening.
struct Recovery {
    device: SharedDevice,
    clock: Clock,
    plan: Plan,
    ram: RamPlan,
    states: Arc<ZoneStates>,
    shards: Vec<Shard>,
    report: RecoveryReport,
    next_sequence: u64,
    next_generation: u32,
    /// The highest epoch read from any metadata zone, complete or not.
    epoch_max: u64,
    losers: Vec<Note>,
    /// Zones that the device counts as active.
    still_active: HashSet<ZoneId>,
    /// Zones whose header is neither sound nor blank.
    doubtful: Vec<ZoneId>,
    /// Where records lie and their sequences, zone by zone.
    sequences: HashMap<ZoneId, Vec<(u32, Sequence)>>,
    /// The same of the last zone whose records had to be compared with newer ones, to look up.
    compared: Option<(ZoneId, HashMap<u32, Sequence>)>,
    /// Which slots are taken, if there are slots.
    slots: Option<SlotMap>,
}

type Found1 = (ZoneId, Superblock, Vec<Note>);

impl Recovery {
    fn new(device: SharedDevice, clock: Clock, plan: Plan, ram: RamPlan) -> Self {
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
            states,
            shards,
            report: RecoveryReport::default(),
            next_sequence: 1,
            next_generation: 1,
            epoch_max: 0,
            losers: Vec::new(),
            still_active: HashSet::new(),
            doubtful: Vec::new(),
            sequences: HashMap::new(),
            compared: None,
            slots,
        }
    }

    /// The newest complete metadata zone, or `None` if the device may be formatted.
    async fn find_superblock(&mut self, options: OpenOptions) -> Result<Option<Found1>, OpenError> {
        if options.format {
            return Ok(None);
        }
        let mut found = Vec::new();
        let mut blank = true;
        for zone in METADATA {
            let len = FOREIGN_CHECK_BYTES.min(self.plan.geometry.zone_capacity);
            // Not skipped when it cannot be read: it may be the newer of the two.
            let buf = self.device.allocate(len as usize);
            let buf = self.device.read(Address::new(zone, 0), buf).await?;
            match Superblock::decode(&buf) {
                Ok(superblock) => found.push((zone, superblock)),
                Err(source @ LayoutError::UnsupportedVersion { .. }) => {
                    return Err(OpenError::NewerFormat {
                        device: self.device.describe(),
                        source,
                    });
                }
                // Half-written by a format or a journal move that a crash cut off.
                Err(_) if matches!(identify(&buf), Identified::Claims(_)) => {}
                Err(_) => blank &= buf.iter().all(|&byte| byte == 0),
            }
        }
        found.sort_by_key(|(_, superblock)| std::cmp::Reverse(superblock.epoch));
        self.epoch_max = found.first().map_or(0, |(_, superblock)| superblock.epoch);
        if let Some((_, superblock)) = found.first()
            && let Some(mismatch) = superblock.mismatch(&self.plan.format())
        {
            return Err(OpenError::OtherPlan {
                device: self.device.describe(),
                mismatch,
            });
        }
        for (zone, superblock) in found {
            let scan = scan_journal(&self.device, &self.plan, &superblock, zone).await?;
            if scan.damaged {
                tracing::error!(
                    "the journal is damaged; everything cached is forgotten, so that nothing dead returns"
                );
                self.report.journal_damaged = true;
                return Ok(Some((zone, superblock, Vec::new())));
            }
            if scan.complete {
                return Ok(Some((zone, superblock, scan.notes)));
            }
        }
        if blank {
            Ok(None)
        } else {
            Err(OpenError::ForeignData {
                device: self.device.describe(),
            })
        }
    }

    async fn format(
        mut self,
        options: OpenOptions,
    ) -> Result<(Arc<Engine>, RecoveryReport), OpenError> {
        let (id, seed) = match options.seed {
            Some(seed) => (u128::from(seed) | 1 << 127, seed),
            None => {
                let mut random = rand::rng();
                (random.random::<u128>(), random.random::<u64>())
            }
        };
        let superblock = Superblock {
            id: CacheId(id.to_le_bytes()),
            hash_seed: HashSeed(seed),
            created_unix_s: self.clock.unix_seconds(),
            epoch: 1,
            plan: self.plan.format(),
        };
        for zone in self.plan.data_zones() {
            self.states.mark_unknown(zone);
        }
        self.report.formatted = true;
        // The other one may hold an older cache's superblock with a higher epoch.
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
        let lives = if self.report.journal_damaged {
            Vec::new()
        } else {
            self.read_headers(superblock.id).await?
        };
        if let Some(geometry) = self.plan.slots {
            return self
                .recover_slots(geometry, zone, superblock, &notes, lives)
                .await;
        }
        let active = |state| matches!(state, ZoneState::Open | ZoneState::Closed);
        let report = self.device.report().await?;
        self.still_active = report
            .into_iter()
            .filter(|r| active(r.state))
            .map(|r| r.zone)
            .collect();
        let Digest {
            full,
            closed,
            deaths,
        } = self.digest(&notes);
        let current: HashSet<ZoneLife> = lives.iter().map(|header| header.life).collect();
        let mut filled = Vec::new();
        let mut contents = futures::stream::iter(lives)
            .map(|header| {
                let (device, plan) = (Arc::clone(&self.device), self.plan.clone());
                let noted = match (closed.get(&header.life), full.get(&header.life)) {
                    (Some(&end), _) => Noted::Closed(end),
                    (None, Some(&(offset, records))) => Noted::Full(offset, records),
                    (None, None) => Noted::Open,
                };
                async move { read_zone(device, plan, superblock.id, header.life, noted).await }
            })
            .buffered(PARALLEL)
            .collect::<Vec<_>>()
            .await;
        for content in contents.drain(..) {
            let content = content?;
            self.enter_zone(&content, &deaths).await?;
            if content.scanned {
                // What stands behind may be readable the next time, when its keys have been deleted.
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
        let kept = filter_notes(notes, |life| current.contains(life));
        // Above an abandoned attempt's too, whose blocks a reset may have left behind the new ones.
        let superblock = Superblock {
            epoch: self.epoch_max + 1,
            ..superblock
        };
        let next = METADATA[1 - zone.index()];
        self.start(next, superblock, kept, filled).await
    }

    /// Zone headers of this cache, in the order in which the zones were opened.
    async fn read_headers(&mut self, id: CacheId) -> Result<Vec<ZoneHeader>, OpenError> {
        let block_size = self.plan.geometry.block_size as usize;
        let device = &self.device;
        let headers: Vec<_> = futures::stream::iter(self.plan.data_zones())
            .map(|zone| async move {
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
                    self.next_generation = self
                        .next_generation
                        .max(header.life.generation.0.saturating_add(1));
                    self.next_sequence = self.next_sequence.max(header.opened_sequence.0);
                    lives.push(header);
                }
                Err(blank) => {
                    self.states.mark_unknown(zone);
                    if !blank {
                        self.doubtful.push(zone);
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
            mut deaths,
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
                Note::Death {
                    life,
                    hash,
                    sequence,
                } => {
                    let newest = deaths
                        .entry((life.zone, life.generation, hash))
                        .or_insert(sequence);
                    *newest = (*newest).max(sequence);
                    self.next_sequence = self.next_sequence.max(sequence.0 + 1);
                }
                Note::GenerationFloor { generation } => {
                    self.next_generation = self.next_generation.max(generation.0);
                }
                Note::CheckpointEnd { .. } => {}
            }
        }
        Digest {
            full,
            closed,
            deaths,
        }
    }

    async fn enter_zone(
        &mut self,
        content: &ZoneContent,
        deaths: &Deaths,
    ) -> Result<(), OpenError> {
        let life = content.life;
        self.states
            .open(life.zone, life.generation, u64::from(life.generation.0));
        if content.scanned {
            self.report.zones_scanned += 1;
            // A device that keeps zone states would count it as active for ever.
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
            let dead = deaths.get(&(life.zone, life.generation, record.hash));
            if dead.is_some_and(|&up_to| record.sequence <= up_to) {
                self.report.dead_records += 1;
                self.states.add_death(life.zone);
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
            Err(floe_core::chunk::IndexFull) => return,
        };
        self.states.add_live(life.zone, u64::from(entry.len));
        let Some(Found::Live(old)) = replaced else {
            self.report.records += 1;
            return;
        };
        // Two records of one key: a crash came between a write and the note that the older is dead.
        self.report.superseded_records += 1;
        self.states.remove_live(old.place.zone, u64::from(old.len));
        let old_life = self.states.life(old.place.zone);
        let old_sequence = self.sequence_at(old.place);
        let (loser, sequence) = if old_sequence > record.sequence {
            if self.shards[index].index.insert(record.hash, old).is_ok() {
                self.states.remove_live(life.zone, u64::from(entry.len));
                self.states.add_live(old.place.zone, u64::from(old.len));
            }
            (life, record.sequence)
        } else {
            (old_life, old_sequence)
        };
        if loser == life && old_life == life {
            // Both in one zone: a note up to the lower sequence leaves the higher alone.
            let lower = old_sequence.min(record.sequence);
            self.losers.push(Note::Death {
                life,
                hash: record.hash,
                sequence: lower,
            });
        } else {
            self.losers.push(Note::Death {
                life: loser,
                hash: record.hash,
                sequence,
            });
        }
        self.states.add_death(loser.zone);
    }

    /// The sequence of the record at `at`, which the index does not keep.
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
        // Every entry of the index was entered together with its sequence.
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
            for zone in self.plan.data_zones() {
                self.device.reset(zone).await?;
            }
        }
        // A header that could not be made out may be readable the next time, and its zone would come back.
        for &zone in &self.doubtful {
            if let Err(error) = self.device.reset(zone).await {
                tracing::warn!(%error, %zone, "a zone with an unreadable header could not be reset");
            }
        }
        notes.append(&mut self.losers);
        let floor = Generation(self.next_generation);
        notes.retain(|note| !matches!(note, Note::GenerationFloor { .. }));
        notes.push(Note::GenerationFloor { generation: floor });
        let (id, seed) = (superblock.id, superblock.hash_seed);
        let task = JournalTask::begin(
            Arc::clone(&self.device),
            self.plan.clone(),
            superblock,
            Arc::clone(&self.states),
            metadata,
            notes,
        )
        .await?;
        let policy = match self.plan.eviction {
            Eviction::Zplru | Eviction::Clru => ZonePolicy::Zplru,
            Eviction::Fifo => ZonePolicy::Fifo,
            Eviction::Sieve => ZonePolicy::sieve(),
        };
        let gc_reserve = u32::from(self.plan.eviction == Eviction::Clru);
        let mut zones = ZoneTable::new(&self.plan, floor, policy, gc_reserve);
        for (life, used_bytes, records) in filled {
            match self.slots {
                None => zones.recovered(life.zone, life.generation, used_bytes, records),
                Some(_) => zones.recovered_slots(life.zone, life.generation),
            }
        }
        let placement = match self.slots {
            Some(map) => Space::Slots(Box::new(SlotSpace::new(&self.plan, map))),
            None => Space::Log(LogSpace::new(
                self.plan.geometry.zone_count,
                self.plan.batch_bytes,
            )),
        };
        let journal_counters = task.counters();
        let (journal, journal_task) = Journal::start(task, floor);
        let engine = Arc::new(Engine {
            shards: self.shards.into_iter().map(Mutex::new).collect(),
            sequence: AtomicU64::new(self.next_sequence),
            zones: Mutex::new(zones),
            states: self.states,
            placement,
            space: Notify::new(),
            reclaim_wake: Notify::new(),
            room: Arc::new(Semaphore::new(
                (self.plan.write_buffer_bytes / ROOM_UNIT_BYTES) as usize,
            )),
            write_permits: Arc::new(Semaphore::new(self.plan.write_depth as usize)),
            queue: WriteQueue::new(),
            journal_counters,
            journal,
            tasks: Mutex::new(vec![journal_task]),
            descriptors: descriptor_cache(),
            counters: Default::default(),
            stopping: AtomicBool::new(false),
            device: self.device,
            clock: self.clock,
            plan: self.plan,
            ram: self.ram,
            id,
            seed,
        });
        let writer = tokio::spawn(Arc::clone(&engine).run_writer());
        let reclaim = tokio::spawn(Arc::clone(&engine).run_reclaim());
        engine.tasks.lock().extend([writer, reclaim]);
        if engine.slots().is_some() {
            let tables = tokio::spawn(Arc::clone(&engine).run_tables());
            engine.tasks.lock().push(tables);
        }
        engine.reclaim_wake.notify_one();
        Ok((engine, self.report))
    }
}

/// What the journal says about zones and records.
#[derive(Default)]
struct Digest {
    /// Where the summaries of full zones are, and how many entries they have.
    full: HashMap<ZoneLife, (u64, u32)>,
    /// Up to where zones without a summary are believed.
    closed: HashMap<ZoneLife, u64>,
    deaths: Deaths,
}

/// What the journal says about one zone that is in use.
enum Noted {
    Full(u64, u32),
    Closed(u64),
    Open,
}

type Deaths = HashMap<(ZoneId, Generation, KeyHash), Sequence>;

struct ZoneContent {
    life: ZoneLife,
    records: Vec<SummaryEntry>,
    used_bytes: u64,
    scanned: bool,
}

async fn read_zone(
    device: SharedDevice,
    plan: Plan,
    id: CacheId,
    life: ZoneLife,
    noted: Noted,
) -> Result<ZoneContent, DeviceError> {
    if let Noted::Full(offset, count) = noted {
        match read_summary(&device, &plan, id, life, offset, count).await {
            Some(records) => {
                let used_bytes = plan.geometry.zone_capacity;
                return Ok(ZoneContent {
                    life,
                    records,
                    used_bytes,
                    scanned: false,
                });
            }
            None => {
                tracing::warn!(zone = %life.zone, "a zone's summary cannot be read; scanning the zone")
            }
        }
    }
    let end = match noted {
        Noted::Closed(end) => end,
        _ => plan.geometry.zone_capacity,
    };
    let scan = scan_zone(&device, &plan, id, life, end).await?;
    let records = scan
        .records
        .into_iter()
        .map(|record| record.summary)
        .collect();
    Ok(ZoneContent {
        life,
        records,
        used_bytes: scan.end,
        scanned: true,
    })
}

async fn read_summary(
    device: &SharedDevice,
    plan: &Plan,
    id: CacheId,
    life: ZoneLife,
    offset: u64,
    count: u32,
) -> Option<Vec<SummaryEntry>> {
    let shape = SummaryShape::new(count as usize, plan.geometry.block_size);
    if offset.checked_add(shape.total_bytes() as u64)? > plan.geometry.zone_capacity {
        return None;
    }
    let mut entries = Vec::with_capacity(count as usize);
    for page in 0..shape.pages() {
        let at = Address::new(life.zone, offset + shape.page_offset(page) as u64);
        let buf = device
            .read(at, device.allocate(shape.page_bytes(page)))
            .await
            .ok()?;
        entries.extend(
            SummaryPage::decode(id, life, shape, page, &buf)
                .ok()?
                .entries(),
        );
    }
    Some(entries)
}

/// What a walk from descriptor to descriptor found.
pub(super) struct ZoneScan {
    pub(super) records: Vec<ScannedRecord>,
    /// Where the last intact batch ends.
    pub(super) end: u64,
}

/// Walks a zone's batches until the first that is not intact or starts at
/// `end` or behind.
pub(super) async fn scan_zone(
    device: &SharedDevice,
    plan: &Plan,
    id: CacheId,
    life: ZoneLife,
    end: u64,
) -> Result<ZoneScan, DeviceError> {
    let geometry = &plan.geometry;
    let block_size = geometry.block_size;
    let mut scan = ZoneScan {
        records: Vec::new(),
        end: u64::from(block_size),
    };
    while scan.end < end.min(geometry.zone_capacity) {
        let start = scan.end;
        let guess = geometry
            .round_up(DESCRIPTOR_GUESS_BYTES)
            .min(geometry.zone_capacity - start);
        // An unreadable block ends the walk as a torn one does: what lies behind is forgotten.
        let Ok(mut buf) = device
            .read(
                Address::new(life.zone, start),
                device.allocate(guess as usize),
            )
            .await
        else {
            break;
        };
        let Ok(header) = BatchHeader::decode(id, life, block_size, &buf) else {
            break;
        };
        let region = u64::from(header.descriptor_bytes);
        if start + u64::from(header.batch_bytes) > geometry.zone_capacity {
            break;
        }
        if region > guess {
            match device
                .read(
                    Address::new(life.zone, start),
                    device.allocate(region as usize),
                )
                .await
            {
                Ok(longer) => buf = longer,
                Err(_) => break,
            }
        }
        if !collect_batch(
            &header,
            id,
            life,
            block_size,
            start,
            &buf,
            &mut scan.records,
        ) {
            break;
        }
        scan.end = start + u64::from(header.batch_bytes);
    }
    Ok(scan)
}

fn collect_batch(
    header: &BatchHeader,
    id: CacheId,
    life: ZoneLife,
    block_size: u32,
    start: u64,
    region: &[u8],
    records: &mut Vec<ScannedRecord>,
) -> bool {
    let first_block = (start / u64::from(block_size)) as u32;
    match header.kind {
        BatchKind::Piece(_) => true,
        BatchKind::Small { .. } => {
            match SmallBatch::decode(id, life, block_size, region) {
                Ok(batch) => {
                    records.extend(batch.records().filter(|r| !r.flags.void).map(|r| {
                        ScannedRecord {
                            summary: SummaryEntry {
                                hash: r.hash,
                                sequence: r.sequence,
                                block: first_block + r.payload_offset / block_size,
                                value_bytes: r.payload_bytes,
                                checksum: r.checksum,
                                expiry_unix_s: r.expiry_unix_s,
                                kind: ValueKind::Small,
                                key_bytes: r.key.len() as u16,
                            },
                            key: r.key.to_vec(),
                        }
                    }));
                    true
                }
                Err(_) => false,
            }
        }
        BatchKind::Large { .. } => match LargeDescriptor::decode(id, life, block_size, region) {
            Ok((d, checksum)) => {
                records.push(ScannedRecord {
                    summary: SummaryEntry {
                        hash: d.hash,
                        sequence: d.sequence,
                        block: first_block,
                        value_bytes: d.value_bytes as u32,
                        checksum,
                        expiry_unix_s: d.expiry_unix_s,
                        kind: ValueKind::Large,
                        key_bytes: d.key.len() as u16,
                    },
                    key: d.key,
                });
                true
            }
            Err(_) => false,
        },
    }
}
