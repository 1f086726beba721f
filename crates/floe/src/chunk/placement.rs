//! The placement of values: a log of batches, or slots written in place.
//!
//! Both share shards, write buffer, RAM tier, lookups and streaming. The
//! implementations, `log/` and `slots/`, own the rest.

use std::sync::Arc;

use floe_core::ZoneId;
use floe_core::chunk::{Entry, Found, Plan, ZoneInfo, ZonePhase, ZoneTable};
use floe_core::hash::KeyHash;
use floe_core::layout::{SMALL_MAX_BYTES, Sequence};
use floe_device::ZoneState;
use tokio::task::JoinHandle;

use super::index::Index;
use super::log::{Log, LogStream};
use super::shard::{Batch, Shard};
use super::slots::{SlotStore, SlotStream};
use super::stats::EngineStats;
use super::tombstones::Tombstones;
use super::value_stream::ValueStream;
use crate::error::CacheError;
use crate::slots::Settled;

/// The placement of a cache's values.
#[derive(Clone, Debug)]
pub(crate) enum Placement {
    /// Batches appended to zones, which are evicted or collected as a whole.
    Log(Arc<Log>),
    /// Chunks in slots.
    Slots(Arc<SlotStore>),
}

impl Placement {
    /// Invalidates the value of `hash` in `shard`, because a write or delete of
    /// sequence `at` replaces it. Returns whether there was one, and the
    /// changes that must be durable before the replacement is acknowledged.
    pub(crate) fn invalidate(
        &self,
        shard: &mut Shard,
        hash: KeyHash,
        at: Sequence,
    ) -> (bool, Tombstones) {
        match self {
            Placement::Log(log) => {
                let (was_served, notes) = log.invalidate(shard, hash, at);
                (was_served, Tombstones::Notes(log.hold(notes)))
            }
            Placement::Slots(store) => {
                let (was_served, in_tables) = store.invalidate(shard, hash, at);
                (was_served, Tombstones::InTables(in_tables))
            }
        }
    }

    /// Makes the tombstones as durable as configured. If `relaxed`, waits only
    /// if too many changes are queued.
    pub(crate) async fn settle(
        &self,
        tombstones: Tombstones,
        relaxed: bool,
    ) -> Result<(), CacheError> {
        match (self, tombstones) {
            (Placement::Log(log), Tombstones::Notes(Some(notes))) => {
                log.settle(notes.take(), relaxed).await
            }
            (Placement::Slots(store), Tombstones::InTables(any)) => {
                store.settle(any, relaxed).await
            }
            _ => Ok(()),
        }
    }

    /// Writes and publishes a batch of small values. Returns those that found no place.
    pub(crate) async fn write_batch(&self, records: Batch) -> Batch {
        match self {
            Placement::Log(log) => log.append_batch(records).await,
            Placement::Slots(store) => store.write_batch(records).await,
        }
    }

    /// Retires all unwritable zones, of which `zone` is one.
    pub(crate) async fn retire_unwritable(&self, zone: ZoneId, state: ZoneState) {
        match self {
            Placement::Log(log) => log.retire_unwritable(zone, state).await,
            Placement::Slots(store) => store.retire_unwritable(zone, state).await,
        }
    }

    /// Starts a large value that takes `footprint_bytes` in a log.
    pub(crate) fn stream(&self, footprint_bytes: u64) -> ValueStream {
        match self {
            Placement::Log(log) => ValueStream::Log(LogStream::new(log, footprint_bytes, None)),
            Placement::Slots(store) => ValueStream::Slot(SlotStream::new(store)),
        }
    }

    /// Bytes of a value on flash, without its share of common structures.
    pub(crate) fn flash_bytes(&self, plan: &Plan, key_bytes: usize, len: u64) -> u64 {
        match self {
            Placement::Log(_) if len > SMALL_MAX_BYTES as u64 => {
                plan.large_footprint(key_bytes, len)
            }
            _ => plan.geometry.round_up(len.max(1)),
        }
    }

    /// Records the first hit of a value on flash after a long time.
    pub(crate) fn note_use(&self) {
        if let Placement::Slots(store) = self {
            store.note_use();
        }
    }

    /// Turns a value into a ghost that was neither deleted nor overwritten: its
    /// bytes stay on flash.
    pub(crate) fn ghost(&self, index: &Index, shard: &mut Shard, hash: KeyHash, entry: Entry) {
        index.ghost(shard, hash, entry);
        if let Placement::Slots(store) = self {
            store.release(entry.place);
        }
    }

    /// Quarantines a value that is unreadable.
    pub(crate) fn quarantine(&self, index: &Index, hash: KeyHash, entry: Entry) {
        if index.quarantine(hash, entry)
            && let Placement::Slots(store) = self
        {
            store.release(entry.place);
        }
    }

    /// True if the place of `entry` may have been reused since the lookup: then
    /// its bytes are not damaged.
    pub(crate) fn was_reused(&self, index: &Index, hash: KeyHash, entry: Entry) -> bool {
        match self {
            // The pin prevents a reset.
            Placement::Log(_) => false,
            Placement::Slots(_) => {
                index.shard_of(hash).lock().index.get(hash) != Some(Found::Live(entry))
            }
        }
    }

    /// Waits until the tables that recovery reads have all written values.
    pub(crate) async fn flush(&self) -> Result<(), CacheError> {
        match self {
            Placement::Log(_) => Ok(()),
            Placement::Slots(store) => store.tables().settle(Settled::Written).await,
        }
    }

    /// Writes notes for a warm and fast restart, after the last flush.
    pub(crate) async fn close(&self) {
        match self {
            Placement::Log(log) => log.close_open_zones().await,
            Placement::Slots(store) => store.note_uses().await,
        }
    }

    /// Starts the background tasks.
    pub(crate) fn start(&self) -> Vec<JoinHandle<()>> {
        match self {
            Placement::Log(_) => Vec::new(),
            Placement::Slots(store) => vec![
                tokio::spawn(crate::slots::run(Arc::clone(store))),
                tokio::spawn(Arc::clone(store).run_use_notes()),
            ],
        }
    }

    /// Wakes the background tasks, to let them end.
    pub(crate) fn stop(&self) {
        if let Placement::Slots(store) = self {
            store.stop();
        }
    }

    /// Adds the placement's gauges.
    pub(crate) fn measure(&self, zones: &ZoneTable, stats: &mut EngineStats) {
        match self {
            Placement::Log(_) => stats.zones_full = zones.full_zones().count() as u64,
            Placement::Slots(store) => store.measure(zones, stats),
        }
    }

    /// The state of a data zone.
    pub(crate) fn zone_info(&self, zones: &ZoneTable, zone: ZoneId) -> ZoneInfo {
        let mut info = zones.info(zone);
        if let (Placement::Slots(store), ZonePhase::Open) = (self, info.phase) {
            (info.records, info.used_bytes) = store.used(zone);
        }
        info
    }
}
