//! The chunk engine's driver: carries out the decisions of `floe_core::chunk`
//! on a device. [`Engine`] consists of parts; each owns its state and documents
//! what a panic in it poisons.
//!
//! | part | content |
//! |---|---|
//! | `environment.rs` | device, clock, plan, identity, sequences, counters |
//! | `index.rs`, `shard.rs`, `zone_state.rs` | the newest value of each key and its place |
//! | `held_bytes.rs` | callers' bytes in memory |
//! | `journal.rs`, `tombstones.rs`, `pressure.rs` | tombstones made durable; the metadata zones |
//! | `zones.rs` | the zone table and its waiters |
//! | `placement.rs` | the layout of values: `log/` or `slots/` |
//! | `admission.rs` | the admission policy |
//! | `small_writer.rs`, `write_queue.rs`, `write_buffer.rs` | small values: buffered, batched, written |
//! | `large/` | large values: written and read in pieces |
//! | `reclaim/` | frees space between the watermarks |
//! | `lookup.rs` | lookups, from the shard to flash and back into the RAM tier |
//! | `upcoming.rs` | the values of the zones that are evicted next |
//! | `recover.rs`, `recover/`, `scan.rs` | opening: format or recovery |
//!
//! A part uses those above it in this table. **No lock is held across an await;
//! every pool and queue is bounded.**
//!
//! **A panic in a background task (journal, gatherer, reclaimer, tables, use
//! notes) poisons the engine**: writes fail with [`CacheError::Poisoned`] instead
//! of waiting for the task. Lookups go on, and so do deletes as long as the task
//! that makes them durable runs.

mod admission;
mod base;
mod environment;
mod flash_value;
mod held_bytes;
mod index;
mod journal;
mod large;
mod log;
mod lookup;
mod opening;
mod placement;
mod pressure;
mod reclaim;
mod recover;
mod scan;
mod shard;
mod slots;
mod small_writer;
mod stats;
#[cfg(test)]
mod tests;
mod tombstones;
mod unwritable;
mod upcoming;
mod value_stream;
mod write_buffer;
mod write_error;
mod write_queue;
mod zone_state;
mod zones;

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use floe_core::chunk::{Plan, ZonePhase};
use floe_core::layout::{KEY_MAX_BYTES, Mark, NOTE_BYTES, Note, SMALL_MAX_BYTES};
use floe_device::{Clock, SendableMemory, SharedDevice};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::error::CacheError;
use crate::metadata_log::Batch;
use crate::value::{NewValue, PutOptions, PutOutcome};
use base::Base;
use environment::Environment;
use flash_value::FlashValue;
use index::Index;
use journal::Journal;
use large::LargeValues;
use placement::Placement;
use reclaim::Reclaimer;
use small_writer::{SmallWriter, Write};
use stats::add;
use write_buffer::WriteBuffer;
use zones::Zones;

pub(crate) use admission::AdmissionControl;
pub(crate) use index::RamPlan;
pub(crate) use journal::live_marks;
pub(crate) use large::{LargeReader, LargeWriter};
pub(crate) use lookup::{Lookup, RamLookup};
pub(crate) use opening::OpenOptions;
pub use opening::{OpenError, RecoveryReport};
pub use stats::{ChunkCounts, EngineStats, ZoneStats};
pub(crate) use tombstones::Tombstones;
pub(crate) use upcoming::{StoredValue, Whereabouts};

/// Most marks, on any device.
const MARKS_MAX: usize = 1 << 16;

/// A running chunk engine.
pub(crate) struct Engine {
    env: Arc<Environment>,
    index: Arc<Index>,
    journal: Arc<Journal>,
    zones: Arc<Zones>,
    placement: Placement,
    admission: AdmissionControl,
    buffer: Arc<WriteBuffer>,
    small: Arc<SmallWriter>,
    large: Arc<LargeValues>,
    /// The marks that recovery found.
    marks: Vec<Mark>,
    /// Watches the background tasks.
    watch: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("device", &self.env.device.describe())
            .field("id", &self.env.id)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Creates the parts that write, over a cache's placement, and starts the background tasks.
    fn start(
        base: Base,
        placement: Placement,
        admission: AdmissionControl,
        marks: Vec<Mark>,
        journal_task: JoinHandle<()>,
    ) -> Arc<Self> {
        let buffer = Arc::new(WriteBuffer::new(base.env.plan.write_buffer_bytes));
        let small = SmallWriter::new(&base, &placement, &buffer);
        let large = LargeValues::new(&base, &placement, &buffer);
        let reclaimer = Reclaimer::new(&base, &placement, &large);
        let mut tasks = vec![
            journal_task,
            tokio::spawn(Arc::clone(&small).run()),
            tokio::spawn(reclaimer.run()),
        ];
        tasks.extend(placement.start());
        base.zones.wake_reclaimer();
        let Base {
            env,
            index,
            journal,
            zones,
        } = base;
        let engine = Arc::new(Engine {
            env,
            index,
            journal,
            zones,
            placement,
            admission,
            buffer,
            small,
            large,
            marks,
            watch: Mutex::default(),
        });
        let watch = tokio::spawn(watch(Arc::downgrade(&engine), tasks));
        *engine.watch.lock() = Some(watch);
        engine
    }

    /// A background task panicked: no write may wait for it.
    fn poison(&self) {
        tracing::error!(
            "a background task panicked: the cache takes no writes until it is reopened"
        );
        self.env.poison();
        self.buffer.close();
        self.large.stop();
        self.zones.notify_changed();
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.env.plan
    }

    pub(crate) fn device(&self) -> &SharedDevice {
        &self.env.device
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.env.clock
    }

    /// Resizes the RAM tier of all shards; false if there is none.
    pub(crate) fn resize_ram(&self, bytes: u64) -> bool {
        self.index.resize_ram(bytes)
    }

    fn check_key(&self, key: &[u8]) -> Result<(), CacheError> {
        if self.env.is_closing() {
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

    /// Checks that a value of `len` bytes may be stored under `key`.
    pub(crate) fn check_entry(&self, key: &[u8], len: u64) -> Result<(), CacheError> {
        self.check_key(key)?;
        if self.env.is_poisoned() {
            return Err(CacheError::Poisoned);
        }
        let limit = self.env.plan.value_bytes_max;
        if len > limit {
            return Err(CacheError::ValueTooLarge { len, limit });
        }
        Ok(())
    }

    /// True if the admission policy admits a value of `len` bytes. Called once
    /// per write; a rejected value must be [declined](Self::decline).
    pub(crate) fn admits(&self, key: &[u8], len: u64) -> bool {
        let env = &self.env;
        self.admission.admits(
            || env.hash(key),
            || self.placement.flash_bytes(&env.plan, key.len(), len),
            || env.clock.now(),
        )
    }

    /// Accepts a whole value, for flash or only for memory.
    pub(crate) async fn offer(
        &self,
        key: &[u8],
        value: Bytes,
        options: PutOptions,
    ) -> Result<PutOutcome, CacheError> {
        if self.admits(key, value.len() as u64) {
            self.put(key, value, options).await
        } else {
            self.decline(key, Some(value), options).await
        }
    }

    /// Accepts a whole value. Waits while the write buffer is full.
    pub(crate) async fn put(
        &self,
        key: &[u8],
        value: Bytes,
        options: PutOptions,
    ) -> Result<PutOutcome, CacheError> {
        if value.len() <= SMALL_MAX_BYTES {
            let write = Write {
                expiry_unix_s: self.env.expiry(options),
                is_relaxed: options.relaxed,
                again: None,
            };
            self.small.put(key, value, write).await?;
            return Ok(PutOutcome::Stored);
        }
        let mut writer = self.write_large(key, value.len() as u64, options);
        writer.write(value).await?;
        writer.finish().await
    }

    /// Accepts a whole value as far as that needs no wait. Returns the tombstones of what it
    /// replaces; `None` if nothing was done.
    pub(crate) fn begin_offer(&self, put: &NewValue<'_>) -> Result<Option<Tombstones>, CacheError> {
        let (key, len, options) = (put.key, put.len(), put.options);
        let room = match len > SMALL_MAX_BYTES {
            true => None,
            false => self.small.room_now(key.len() + len),
        };
        let Some(room) = room else {
            return Ok(None);
        };
        let value = Bytes::from(put.parts.concat());
        if !self.admits(key, len as u64) {
            return Ok(Some(self.begin_decline(key, Some(value), options)));
        }
        let write = Write {
            expiry_unix_s: self.env.expiry(options),
            is_relaxed: options.relaxed,
            again: None,
        };
        let begun = self.small.begin_put(room, key, value, write);
        // Only one that is written again may be none.
        let Some(begun) = begun else {
            return Ok(None);
        };
        match begun.is_queued {
            true => Ok(Some(begun.tombstones)),
            false => Err(self.env.write_error()),
        }
    }

    /// Starts to write a large value of `len` bytes.
    pub(crate) fn write_large(&self, key: &[u8], len: u64, options: PutOptions) -> LargeWriter {
        LargeWriter::new(&self.large, key, len, options)
    }

    /// See [`Index::sendable`].
    pub(crate) fn sendable(&self) -> Option<&Arc<SendableMemory>> {
        self.index.sendable()
    }

    /// See [`Index::make_sendable`].
    pub(crate) fn make_sendable(&self, key: &[u8], bytes: Bytes) -> Bytes {
        self.index.make_sendable(self.env.hash(key), bytes)
    }

    /// Starts to read `range` of a large value. `None` if it cannot be read.
    pub(crate) async fn read_large(
        &self,
        key: &[u8],
        value: FlashValue<'_>,
        range: Range<u64>,
    ) -> Option<LargeReader> {
        let order = self.env.plan.large_reads;
        LargeReader::open(Arc::clone(&self.large), key, value, range, order).await
    }

    /// Replaces the value of `key` by a declined one. The RAM tier serves it,
    /// if its bytes are given and not too long.
    pub(crate) async fn decline(
        &self,
        key: &[u8],
        value: Option<Bytes>,
        options: PutOptions,
    ) -> Result<PutOutcome, CacheError> {
        let tombstones = self.begin_decline(key, value, options);
        self.placement.settle(tombstones, options.relaxed).await?;
        Ok(PutOutcome::RamOnly)
    }

    /// As [`decline`](Self::decline), up to its wait.
    fn begin_decline(&self, key: &[u8], value: Option<Bytes>, options: PutOptions) -> Tombstones {
        let hash = self.env.hash(key);
        let expiry_unix_s = self.env.expiry(options);
        let mut shard = self.index.shard_of(hash).lock();
        let replaced_up_to = self.env.draw_sequence();
        let (_, tombstones) = self.placement.invalidate(&mut shard, hash, replaced_up_to);
        if let Some(value) = value {
            self.index
                .keep_in_ram(&mut shard, hash, key, value.into(), expiry_unix_s);
        }
        tombstones
    }

    /// Removes `key`; returns whether there was a value. After `Ok`, no crash brings it back.
    pub(crate) async fn remove(&self, key: &[u8]) -> Result<bool, CacheError> {
        let (was_served, tombstones) = self.begin_remove(key)?;
        self.settle(tombstones).await?;
        Ok(was_served)
    }

    /// Removes `key`; returns whether there was a value, and what is to be settled.
    pub(crate) fn begin_remove(&self, key: &[u8]) -> Result<(bool, Tombstones), CacheError> {
        self.check_key(key)?;
        let hash = self.env.hash(key);
        let (was_served, tombstones) = {
            let mut shard = self.index.shard_of(hash).lock();
            let at = self.env.draw_sequence();
            self.placement.invalidate(&mut shard, hash, at)
        };
        if was_served {
            add(&self.env.counters.deletes, 1);
        }
        Ok((was_served, tombstones))
    }

    /// Waits until no crash brings back what these tombstones bury.
    pub(crate) async fn settle(&self, tombstones: Tombstones) -> Result<(), CacheError> {
        self.placement.settle(tombstones, false).await
    }

    /// The marks that recovery found.
    pub(crate) fn recovered_marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Most marks that may count at once: they take an eighth of a metadata zone.
    pub(crate) fn marks_max(&self) -> usize {
        let bytes = self.env.device.geometry().zone_capacity / 8;
        MARKS_MAX.min(bytes as usize / NOTE_BYTES)
    }

    /// Makes marks durable.
    pub(crate) async fn commit_marks(&self, marks: &[Mark]) -> Result<(), CacheError> {
        if self.env.is_closing() {
            return Err(CacheError::Closed);
        }
        let notes = marks.iter().copied().map(Note::Mark);
        self.journal.commit(notes.collect()).await
    }

    /// Begins a batch of writes and deletes, whose tombstones share a group of the journal. `None`
    /// over slots, whose tables keep them.
    pub(crate) fn batch(&self) -> Option<Batch> {
        match self.placement {
            Placement::Log(_) => Some(self.journal.batch()),
            Placement::Slots(_) => None,
        }
    }

    /// Waits until all values accepted so far are durable on flash.
    pub(crate) async fn flush(&self) -> Result<(), CacheError> {
        let written = self.small.drain().await;
        self.placement.flush().await?;
        self.flush_device().await?;
        written
    }

    async fn flush_device(&self) -> Result<(), CacheError> {
        let flushed = self.env.device.flush().await;
        flushed.map_err(|error| CacheError::NotDurable(error.to_string()))
    }

    /// Flushes, writes summaries for a fast restart, and stops the background tasks.
    pub(crate) async fn close(&self) -> Result<(), CacheError> {
        if !self.env.begin_closing() {
            return Ok(());
        }
        let flushed = self.flush().await;
        self.placement.close().await;
        let flushed = flushed.and(self.flush_device().await);
        self.journal.close().await;
        self.stop_tasks();
        let watch = self.watch.lock().take();
        if let Some(watch) = watch {
            // It ends with the last of the tasks.
            let _ = watch.await;
        }
        flushed
    }

    /// Ends background tasks, without waiting.
    pub(crate) fn stop_tasks(&self) {
        self.env.begin_closing();
        // Writers that wait for room must get an error before the tasks end.
        self.buffer.close();
        self.env.stop();
        self.large.stop();
        self.zones.notify_changed();
        self.zones.wake_reclaimer();
        self.small.wake();
        self.placement.stop();
    }

    pub(crate) fn stats(&self) -> EngineStats {
        let mut stats = EngineStats {
            counts: self.env.counters.snapshot(),
            admission: self.admission.statistics(),
            promised_bytes: self.large.promised_bytes(),
            ..EngineStats::default()
        };
        let journal = self.journal.counters();
        stats.counts.journal_records = journal.notes.load(Relaxed);
        stats.counts.journal_moves = journal.moves.load(Relaxed);
        self.index.measure(&mut stats);
        let table = self.zones.lock();
        self.placement.measure(&table, &mut stats);
        stats.zones_free = u64::from(table.free_zones());
        stats.zones_retired = table.in_phase(ZonePhase::Retired).count() as u64;
        stats.zones_total = u64::from(self.env.plan.geometry.zone_count);
        stats
    }

    /// The state of every data zone.
    pub(crate) fn zone_stats(&self) -> Vec<ZoneStats> {
        let table = self.zones.lock();
        let states = self.index.states();
        let zones = self.env.plan.data_zones();
        let at_a_glance = |zone| {
            let info = self.placement.zone_info(&table, zone);
            ZoneStats {
                zone: zone.0,
                phase: info.phase,
                generation: info.generation.0,
                used_bytes: info.used_bytes,
                records: info.records,
                live_records: states.live_records(zone),
                live_bytes: states.live_bytes(zone),
                tombstones: states.tombstones(zone),
            }
        };
        zones.map(at_a_glance).collect()
    }
}

/// Waits for the background tasks; one that panics poisons the engine.
async fn watch(engine: Weak<Engine>, tasks: Vec<JoinHandle<()>>) {
    let mut tasks: FuturesUnordered<_> = tasks.into_iter().collect();
    while let Some(ended) = tasks.next().await {
        if ended.is_err_and(|error| error.is_panic())
            && let Some(engine) = engine.upgrade()
        {
            engine.poison();
        }
    }
}
