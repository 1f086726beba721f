//! The chunk engine's flow: carries the decisions of `floe_core::chunk` out on
//! a device.
//!
//! | file | what happens there |
//! |---|---|
//! | `lookup.rs` | a get, from shard to flash and back into the RAM tier |
//! | `write.rs` | small values: buffered, batched, appended |
//! | `large.rs` | large values: streamed in pieces, read in pieces |
//! | `place.rs` | finding room: open zones, headers, closing, summaries |
//! | `reclaim.rs` | eviction between the water marks, host GC |
//! | `journal.rs` | deaths made durable; superblock and journal zones |
//! | `recover.rs` | from flash to a running engine |
//!
//! **No lock is held across an await; every pool and queue is bounded.**

mod journal;
mod large;
mod lookup;
mod place;
mod reclaim;
mod recover;
mod shard;
mod stats;
mod write;
mod zone_state;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use floe_core::ZoneId;
use floe_core::chunk::{Found, Plan, ZonePhase, ZoneTable};
use floe_core::hash::{HashSeed, KeyHash, fast_range};
use floe_core::layout::{CacheId, KEY_MAX_BYTES, Note, Sequence, SummaryEntry};
use floe_device::{Clock, SharedDevice};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use crate::error::CacheError;
use journal::{Journal, JournalCounters};
use large::DescriptorCache;
use shard::{Pending, Shard};
use stats::ChunkCounters;
use write::WriteQueue;
use zone_state::ZoneStates;

pub(crate) use large::{LargeReader, LargeWriter};
pub(crate) use lookup::Lookup;
pub(crate) use recover::OpenOptions;
pub use recover::{OpenError, RecoveryReport};
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
    id: CacheId,
    seed: HashSeed,
    shards: Box<[Mutex<Shard>]>,
    sequence: AtomicU64,
    zones: Mutex<ZoneTable>,
    states: Arc<ZoneStates>,
    /// Records of zones that are not closed yet, for their summaries.
    unclosed: Box<[Mutex<Vec<SummaryEntry>>]>,
    /// Zones whose live records host GC is copying: a death of one of their
    /// keys must be noted there too, for the original is still on flash.
    relocating: Mutex<HashSet<ZoneId>>,
    /// A zone was opened, closed, freed or retired.
    space: Notify,
    /// Free zones are low, or somebody waits for one.
    reclaim_wake: Notify,
    /// Room in the write buffer.
    room: Arc<Semaphore>,
    /// The same for values that host GC moves.
    gc_room: Arc<Semaphore>,
    write_permits: Arc<Semaphore>,
    queue: WriteQueue,
    journal: Journal,
    descriptors: DescriptorCache,
    counters: ChunkCounters,
    journal_counters: Arc<JournalCounters>,
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
        if len > self.plan.chunk_bytes {
            return Err(CacheError::ValueTooLarge {
                len,
                limit: self.plan.chunk_bytes,
            });
        }
        Ok(())
    }

    /// Takes whatever `shard` holds of `hash` out of service, because a write
    /// or delete of sequence `at` replaces it. Returns whether anything was
    /// served, and the notes that must be durable before the replacement is
    /// acknowledged.
    fn displace(&self, shard: &mut Shard, hash: KeyHash, at: Sequence) -> (bool, Vec<Note>) {
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
                was_served |= !shard::is_expired(entry.expiry_unix_s, self.clock.unix_seconds());
                self.states
                    .remove_live(entry.place.zone, u64::from(entry.len));
            }
            let life = self.states.life(entry.place.zone);
            notes.push(death(life.zone, life.generation));
            for &zone in self
                .relocating
                .lock()
                .iter()
                .filter(|&&z| z != entry.place.zone)
            {
                let life = self.states.life(zone);
                notes.push(death(life.zone, life.generation));
            }
        }
        (was_served, notes)
    }

    /// Forgets `key`; says whether it was there. When this returns `Ok`, no
    /// crash brings it back.
    pub(crate) async fn delete(&self, key: &[u8]) -> Result<bool, CacheError> {
        self.check_key(key)?;
        let hash = self.hash(key);
        let (was_served, notes) = {
            let mut shard = self.shard_of(hash).lock();
            let at = self.next_sequence();
            self.displace(&mut shard, hash, at)
        };
        if was_served {
            stats::add(&self.counters.deletes, 1);
        }
        self.journal.commit(notes).await?;
        Ok(was_served)
    }

    /// Waits until everything accepted so far is on flash and stable.
    pub(crate) async fn flush(&self) -> Result<(), CacheError> {
        self.queue.landed().await;
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
        self.close_open_zones().await;
        let flushed = flushed.and(
            self.device
                .flush()
                .await
                .map_err(|e| CacheError::NotDurable(e.to_string())),
        );
        self.journal.close().await;
        self.stop_tasks();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            // A task that panicked has said so; closing goes on.
            let _ = task.await;
        }
        flushed
    }

    /// Tells background tasks to end, without waiting.
    pub(crate) fn stop_tasks(&self) {
        self.stopping.store(true, SeqCst);
        // Whoever waits for room in the write buffer is told that the cache is closed.
        self.room.close();
        self.space.notify_waiters();
        self.reclaim_wake.notify_one();
        self.queue.wake();
    }

    pub(crate) fn stats(&self) -> EngineStats {
        let mut counts = self.counters.snapshot();
        counts.journal_notes = self.journal_counters.notes.load(Relaxed);
        counts.journal_moves = self.journal_counters.moves.load(Relaxed);
        let mut stats = EngineStats {
            counts,
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
        let zones = self.zones.lock();
        stats.zones_free = u64::from(zones.free_zones());
        stats.zones_full = zones.full_zones().count() as u64;
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
                let info = zones.info(zone);
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
    /// Zones that are empty.
    pub zones_free: u64,
    /// Zones that are full.
    pub zones_full: u64,
    /// Zones out of use after a failure.
    pub zones_retired: u64,
    /// All zones, two of them for metadata.
    pub zones_total: u64,
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
    /// Bytes written or promised.
    pub used_bytes: u64,
    /// Records written.
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
