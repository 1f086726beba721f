//! The chunk engine's flow: carries the decisions of `floe_core::chunk` out on
//! a device.
//!
//! | file | what happens there |
//! |---|---|
//! | `lookup.rs` | a get, from shard to flash and back into the RAM tier |
//! | `admission.rs` | which values are written at all |
//! | `write.rs` | small values: buffered, batched, appended |
//! | `large.rs`, `large_read.rs` | large values: streamed in pieces, read in pieces |
//! | `stream_scheduler.rs` | when a large value may stream in |
//! | `place.rs` | finding room: open zones, headers, closing, summaries |
//! | `reclaim.rs` | eviction between the water marks |
//! | `host_gc.rs` | CLRU in a log: chunks evicted one by one, the rest of a zone moved |
//! | `space.rs` | a log of batches, or slots: what is different and what is not |
//! | `slots/` | values in slots that are written again in place |
//! | `journal.rs`, `deaths.rs` | deaths made durable in the metadata log |
//! | `recover.rs`, `scan.rs` | from flash to a running engine |
//!
//! **No lock is held across an await; every pool and queue is bounded.**

mod admission;
mod deaths;
mod host_gc;
mod journal;
mod large;
mod large_read;
mod lookup;
mod opening;
mod place;
mod reclaim;
mod recover;
mod scan;
mod shard;
mod slots;
mod space;
mod stats;
mod stream_scheduler;
mod write;
mod zone_state;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use floe_core::ZoneId;
use floe_core::chunk::{Found, Plan, ZonePhase, ZoneTable};
use floe_core::hash::{HashSeed, KeyHash, fast_range};
use floe_core::layout::{CacheId, KEY_MAX_BYTES, Note, Sequence};
use floe_core::policy::admission::AdmissionStatistics;
use floe_core::slots::slot_at;
use floe_device::{Clock, SharedDevice};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use crate::error::CacheError;
use journal::Journal;
use large_read::{DescriptorCache, Reading};
use shard::{Pending, Shard};
use slots::{Change, Settled, SlotSpace};
use space::{Deaths, LogSpace, Space};
use stats::ChunkCounters;
use stream_scheduler::StreamScheduler;
use write::WriteQueue;
use zone_state::ZoneStates;

pub(crate) use admission::AdmissionControl;
pub(crate) use large::LargeWriter;
pub(crate) use large_read::LargeReader;
pub(crate) use lookup::{Lookup, RamLookup};
pub(crate) use opening::OpenOptions;
pub use opening::{OpenError, RecoveryReport};
pub use stats::ChunkCounts;

/// Permits of the write-buffer semaphore are this many bytes each.
const ROOM_UNIT_BYTES: u64 = 1024;

/// The RAM tier's share of a chunk engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RamPlan {
    /// Bytes over all shards.
    pub(crate) bytes: u64,
    /// Longest value admitted.
    pub(crate) value_bytes_max: u64,
}

/// A running chunk engine.
pub(crate) struct Engine {
    device: SharedDevice,
    clock: Clock,
    plan: Plan,
    ram: RamPlan,
    admission_control: AdmissionControl,
    id: CacheId,
    seed: HashSeed,
    shards: Box<[Mutex<Shard>]>,
    sequence: AtomicU64,
    zones: Mutex<ZoneTable>,
    states: Arc<ZoneStates>,
    placement: Space,
    /// A zone was opened, closed, freed or retired.
    space: Notify,
    /// How often reclaim freed nothing while nothing else was under way.
    futile_reclaims: AtomicU64,
    /// Free zones are low, or somebody waits for one.
    reclaim_wake: Notify,
    /// Room in the write buffer.
    room: Arc<Semaphore>,
    write_permits: Arc<Semaphore>,
    queue: WriteQueue,
    /// Large values that stream in, and those that wait for it.
    streams: Arc<StreamScheduler>,
    journal: Journal,
    descriptors: DescriptorCache,
    /// What readers of large values read before it is asked for.
    read_ahead: Arc<Semaphore>,
    reading: Reading,
    counters: ChunkCounters,
    stopping: AtomicBool,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("device", &self.device.describe())
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Changes what the RAM tier may hold, over all shards; says whether there is one.
    pub(crate) fn resize_ram(&self, bytes: u64) -> bool {
        let each = bytes / self.shards.len() as u64;
        self.shards
            .iter()
            .all(|shard| shard.lock().resize_ram(each))
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn device(&self) -> &SharedDevice {
        &self.device
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::of(self.seed, key)
    }

    fn shard_of(&self, hash: KeyHash) -> &Mutex<Shard> {
        // The index keeps the low 48 bits; the shard is chosen by the others.
        &self.shards[fast_range(hash.0, self.shards.len())]
    }

    fn next_sequence(&self) -> Sequence {
        Sequence(self.sequence.fetch_add(1, Relaxed))
    }

    fn check_key(&self, key: &[u8]) -> Result<(), CacheError> {
        if self.stopping.load(Relaxed) {
            return Err(CacheError::Closed);
        }
        if key.len() > KEY_MAX_BYTES {
            return Err(CacheError::KeyTooLong {
                len: key.len(),
                limit: KEY_MAX_BYTES,
            });
        }
        Ok(())
    }

    /// Whether a value of `len` bytes may be stored under `key`.
    pub(crate) fn check_entry(&self, key: &[u8], len: u64) -> Result<(), CacheError> {
        self.check_key(key)?;
        if len > self.plan.value_bytes_max {
            return Err(CacheError::ValueTooLarge {
                len,
                limit: self.plan.value_bytes_max,
            });
        }
        Ok(())
    }

    /// Takes whatever `shard` holds of `hash` out of service, because a write
    /// or delete of sequence `at` replaces it. Returns whether anything was
    /// served, and what must be durable before the replacement is acknowledged.
    fn invalidate(&self, shard: &mut Shard, hash: KeyHash, at: Sequence) -> (bool, Deaths) {
        match &self.placement {
            Space::Log(log) => self.invalidate_in_log(log, shard, hash, at),
            Space::Slots(slots) => self.invalidate_in_slots(slots, shard, hash, at),
        }
    }

    /// What is served from a slot becomes a ghost until its table entry is gone.
    fn invalidate_in_slots(
        &self,
        slots: &SlotSpace,
        shard: &mut Shard,
        hash: KeyHash,
        up_to: Sequence,
    ) -> (bool, Deaths) {
        let mut was_served = shard.ram_remove(hash);
        // Its table entry is queued only when it lands: until then no crash brings it back.
        was_served |= shard.pending.remove(&hash).is_some();
        let Some(found) = shard.index.get(hash) else {
            return (was_served, Deaths::default());
        };
        let (entry, frees) = match found {
            Found::Live(entry) => {
                was_served |= !shard::has_expired(entry.expiry_unix_s, &self.clock);
                self.states
                    .remove_live(entry.place.zone, u64::from(entry.len));
                shard.index.ghost(hash);
                (entry, true)
            }
            Found::Ghost(entry) => (entry, false),
        };
        if let Some(slot) = slot_at(&slots.geometry, entry.place) {
            slots.tables.push(Change::Clear {
                slot,
                hash,
                up_to,
                frees,
            });
        }
        let deaths = Deaths {
            in_tables: true,
            ..Deaths::default()
        };
        (was_served, deaths)
    }

    fn invalidate_in_log(
        &self,
        log: &LogSpace,
        shard: &mut Shard,
        hash: KeyHash,
        at: Sequence,
    ) -> (bool, Deaths) {
        let mut notes = Vec::new();
        let mut was_served = shard.ram_remove(hash);
        let death = |zone: ZoneId, generation| {
            self.states.add_death(zone);
            Note::Death {
                life: floe_core::layout::ZoneLife::new(zone, generation),
                hash,
                sequence: at,
            }
        };
        if let Some(slot) = shard.pending.remove(&hash) {
            was_served = true;
            if let Some(life) = slot.life {
                notes.push(death(life.zone, life.generation));
            }
        }
        if let Some(found) = shard.index.remove(hash) {
            let entry = found.entry();
            if let Found::Live(entry) = found {
                was_served |= !shard::has_expired(entry.expiry_unix_s, &self.clock);
                self.states
                    .remove_live(entry.place.zone, u64::from(entry.len));
            }
            let life = self.states.life(entry.place.zone);
            notes.push(death(life.zone, life.generation));
            for &zone in log
                .relocating
                .lock()
                .keys()
                .filter(|&&z| z != entry.place.zone)
            {
                let life = self.states.life(zone);
                notes.push(death(life.zone, life.generation));
            }
        }
        // Under the shard's lock: whoever is next must find them.
        self.journal.owe(&notes);
        let deaths = Deaths {
            notes: self.journal.owed(hash),
            ..Deaths::default()
        };
        (was_served, deaths)
    }

    /// Forgets `key`; says whether it was there. When this returns `Ok`, no
    /// crash brings it back.
    pub(crate) async fn remove(&self, key: &[u8]) -> Result<bool, CacheError> {
        self.check_key(key)?;
        let hash = self.hash(key);
        let (was_served, deaths) = {
            let mut shard = self.shard_of(hash).lock();
            let at = self.next_sequence();
            self.invalidate(&mut shard, hash, at)
        };
        if was_served {
            stats::add(&self.counters.deletes, 1);
        }
        self.settle(deaths).await?;
        Ok(was_served)
    }

    /// Waits until everything accepted so far is on flash and stable.
    pub(crate) async fn flush(&self) -> Result<(), CacheError> {
        self.queue.landed().await;
        if let Some(slots) = self.slots() {
            slots.tables.settle(Settled::Written).await?;
        }
        self.device
            .flush()
            .await
            .map_err(|e| CacheError::NotDurable(e.to_string()))
    }

    /// Flushes, writes the summaries of open zones, and stops the background tasks.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<(), CacheError> {
        if self.stopping.swap(true, SeqCst) {
            return Ok(());
        }
        let flushed = self.flush().await;
        if self.slots().is_none() {
            self.close_open_zones().await;
        }
        let flushed = flushed.and(
            self.device
                .flush()
                .await
                .map_err(|e| CacheError::NotDurable(e.to_string())),
        );
        if let Some(slots) = self.slots() {
            self.note_uses(slots).await;
        }
        self.journal.close().await;
        self.stop_tasks();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            // A task that panicked has said so; closing goes on.
            let _ = task.await;
        }
        flushed
    }

    /// Starts the background tasks.
    fn start_tasks(self: &Arc<Self>) {
        let mut tasks = self.tasks.lock();
        tasks.push(tokio::spawn(Arc::clone(self).run_writer()));
        tasks.push(tokio::spawn(Arc::clone(self).run_reclaim()));
        if self.slots().is_some() {
            tasks.push(tokio::spawn(Arc::clone(self).run_tables()));
            tasks.push(tokio::spawn(Arc::clone(self).run_use_notes()));
        }
        self.reclaim_wake.notify_one();
    }

    /// Tells background tasks to end, without waiting.
    pub(crate) fn stop_tasks(&self) {
        self.stopping.store(true, SeqCst);
        // Whoever waits for room in the write buffer is told that the cache is closed.
        self.room.close();
        self.streams.close();
        self.space.notify_waiters();
        self.reclaim_wake.notify_one();
        self.queue.wake();
        if let Some(slots) = self.slots() {
            slots.tables.wake();
            slots.uses.stop();
        }
    }

    pub(crate) fn stats(&self) -> EngineStats {
        let mut counts = self.counters.snapshot();
        counts.journal_records = self.journal.counters().notes.load(Relaxed);
        counts.journal_moves = self.journal.counters().moves.load(Relaxed);
        let mut stats = EngineStats {
            counts,
            admission: self.admission_statistics(),
            ..EngineStats::default()
        };
        for shard in &self.shards {
            let shard = shard.lock();
            stats.live_records += shard.index.live() as u64;
            stats.index_entries += shard.index.entries() as u64;
            stats.index_bytes += shard.index.memory_bytes() as u64;
            stats.ram_bytes += shard.ram_bytes();
            stats.ram_values += shard.ram_len() as u64;
            stats.pending_records += shard.pending.len() as u64;
        }
        stats.promised_bytes = self.streams.promised_bytes();
        if let Some(slots) = self.slots() {
            let counts = self.slot_counts(slots);
            stats.index_bytes += counts.memory_bytes;
            stats.slots_total = counts.total;
            stats.slots_free = counts.free;
            stats.slots_withdrawn = counts.withdrawn;
        }
        let zones = self.zones.lock();
        stats.zones_free = u64::from(zones.free_zones());
        stats.zones_full = match self.slots() {
            None => zones.full_zones().count() as u64,
            Some(slots) => zones
                .in_phase(ZonePhase::Open)
                .filter(|&zone| slots.free_in(zone) == 0)
                .count() as u64,
        };
        stats.zones_retired = zones.in_phase(ZonePhase::Retired).count() as u64;
        stats.zones_total = u64::from(self.plan.geometry.zone_count);
        stats
    }

    /// Every data zone at a glance.
    pub(crate) fn zone_stats(&self) -> Vec<ZoneStats> {
        let zones = self.zones.lock();
        self.plan
            .data_zones()
            .map(|zone| {
                let mut info = zones.info(zone);
                if let (Some(slots), ZonePhase::Open) = (self.slots(), info.phase) {
                    info.records = slots.geometry.slots - slots.free_in(zone);
                    info.used_bytes = slots.geometry.slots_offset
                        + u64::from(info.records) * slots.geometry.slot_bytes;
                }
                ZoneStats {
                    zone: zone.0,
                    phase: info.phase,
                    generation: info.generation.0,
                    used_bytes: info.used_bytes,
                    records: info.records,
                    live_records: self.states.live_records(zone),
                    live_bytes: self.states.live_bytes(zone),
                    deaths: self.states.deaths(zone),
                }
            })
            .collect()
    }
}

/// Gauges and counts of a chunk engine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct EngineStats {
    /// Counts since it was opened.
    pub counts: ChunkCounts,
    /// What the admission policy decided; all zero where everything is admitted.
    pub admission: AdmissionStatistics,
    /// Values that are served from flash.
    pub live_records: u64,
    /// Records that cost index memory: served ones, and others whose zone was not emptied yet.
    pub index_entries: u64,
    /// Bytes of the index, counted from its live structures.
    pub index_bytes: u64,
    /// Bytes of the RAM tier, keys, values and overhead.
    pub ram_bytes: u64,
    /// Values in the RAM tier.
    pub ram_values: u64,
    /// Values in write buffers.
    pub pending_records: u64,
    /// Bytes promised to large values that are streaming in.
    pub promised_bytes: u64,
    /// Zones that are empty.
    pub zones_free: u64,
    /// Zones that are full; over slots, those without a free one.
    pub zones_full: u64,
    /// Zones out of use after a failure.
    pub zones_retired: u64,
    /// All zones, two of them for metadata.
    pub zones_total: u64,
    /// Slots of all zones; 0 for a log, as are the next two.
    pub slots_total: u64,
    /// Slots that are free.
    pub slots_free: u64,
    /// Slots out of use after a failure.
    pub slots_withdrawn: u64,
}

/// One data zone at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ZoneStats {
    /// Its number.
    pub zone: u32,
    /// Where it is in its life.
    pub phase: ZonePhase,
    /// Which life.
    pub generation: u32,
    /// Bytes written or promised; over slots, those of slots that are taken.
    pub used_bytes: u64,
    /// Records written; over slots, slots that are taken.
    pub records: u32,
    /// Records that are served.
    pub live_records: u32,
    /// Bytes of values that are served.
    pub live_bytes: u64,
    /// Deaths noted in the journal for this life.
    pub deaths: u32,
}

fn room_units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(ROOM_UNIT_BYTES)).unwrap_or(u32::MAX)
}

/// What a pending record costs beside its key and value.
const PENDING_BYTES: u64 = size_of::<Pending>() as u64 + 64;
