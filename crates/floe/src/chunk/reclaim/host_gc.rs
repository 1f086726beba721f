//! Host GC: under CLRU in a log, chunks are evicted one by one, and a zone's
//! remaining values are moved before the zone is evicted.
//!
//! Several zones are collected concurrently, and several records of a zone,
//! within fixed limits: each copy is a read and a write, which wait behind
//! those of users.

use std::sync::Arc;

use bytes::Bytes;
use floe_core::ZoneId;
use floe_core::chunk::{Entry, LargeReads};
use floe_core::hash::KeyHash;
use floe_core::layout::{
    NewRecord, Note, RecordFlags, SMALL_MAX_BYTES, Sequence, SmallBatchPlan, ZoneLife,
    small_checksum,
};
use floe_device::DeviceError;
use futures::StreamExt as _;
use futures::stream::{self, FuturesUnordered};

use crate::chunk::base::Base;
use crate::chunk::flash_value::FlashValue;
use crate::chunk::large::{LargeReader, LargeValues, LargeWriter};
use crate::chunk::log::{Log, LogStream, Moving, Purpose, Relocation};
use crate::chunk::scan::{ScannedRecord, scan_zone};
use crate::chunk::stats::add;
use crate::chunk::value_stream::ValueStream;
use crate::chunk::write_buffer::WriteBuffer;
use crate::chunk::write_error::WriteError;
use crate::chunk::zone_state::ZoneStates;
use crate::error::CacheError;
use crate::value::PutOutcome;

/// Most zones that are collected concurrently.
const ZONES_AT_ONCE: u32 = 4;
/// Small records of one zone that are read concurrently.
const READS_AT_ONCE: usize = 16;
/// Large values of one zone that are moved concurrently.
const LARGE_AT_ONCE: usize = 2;
/// The number of emptiest zones among which the one with the fewest bytes to copy is chosen.
const CANDIDATES: usize = 32;
/// Batches that fit the buffer of moved values.
const BUFFERED_BATCHES: u64 = 16;

/// Concurrent collections for `data_zones`.
pub(crate) fn zones_at_once(data_zones: u32) -> u32 {
    (data_zones / 32).clamp(1, ZONES_AT_ONCE)
}

/// The collector of a log.
#[derive(Debug)]
pub(super) struct HostGc {
    base: Base,
    log: Arc<Log>,
    large: Arc<LargeValues>,
    /// Memory for large values that are moved.
    buffer: Arc<WriteBuffer>,
}

impl HostGc {
    pub(super) fn new(base: &Base, log: &Arc<Log>, large: &Arc<LargeValues>) -> Self {
        let buffer_bytes = BUFFERED_BATCHES * base.env.plan.batch_bytes.max(1 << 20);
        HostGc {
            base: base.clone(),
            log: Arc::clone(log),
            large: Arc::clone(large),
            buffer: Arc::new(WriteBuffer::new(buffer_bytes)),
        }
    }

    /// Collects zones until enough are free; false if no more could be freed.
    pub(super) async fn collect_to_low_water(&self) -> bool {
        let at_once = zones_at_once(self.base.env.plan.data_zones().count() as u32) as usize;
        let mut busy: Vec<ZoneId> = Vec::new();
        let mut running = FuturesUnordered::new();
        let mut go_on = true;
        loop {
            while go_on
                && busy.len() < at_once
                && !self.base.env.is_stopped()
                && self.lacks_zones(busy.len())
            {
                let Some(zone) = self.choose_zone(&busy) else {
                    break;
                };
                busy.push(zone);
                running.push(async move { (zone, self.collect(zone).await) });
            }
            let Some((zone, done)) = running.next().await else {
                return go_on && !self.lacks_zones(0);
            };
            busy.retain(|&z| z != zone);
            go_on &= done;
        }
    }

    /// True if more zones are needed, given that `busy` collections free about
    /// half a zone each.
    fn lacks_zones(&self, busy: usize) -> bool {
        busy / 2 < self.base.zones.lacking() as usize
    }

    /// Chooses the zone with the fewest bytes to copy. If even that has little
    /// garbage, first evicts chunks.
    fn choose_zone(&self, busy: &[ZoneId]) -> Option<ZoneId> {
        let capacity = self.base.env.plan.geometry.zone_capacity;
        let live_most =
            capacity - capacity * u64::from(self.base.env.plan.gc_garbage_percent) / 100;
        let (copied, zone) = self.cheapest_zone(busy)?;
        if copied <= live_most {
            return Some(zone);
        }
        let shards = self.base.index.shards();
        let chunk_share = capacity / shards.len() as u64;
        for shard in shards {
            let mut shard = shard.lock();
            self.evict(|gone| {
                shard.index.evict_least_recent(chunk_share, gone);
            });
        }
        self.cheapest_zone(busy).map(|(_, zone)| zone)
    }

    /// Counts the chunks that `evict` evicts.
    fn evict(&self, evict: impl FnOnce(&mut dyn FnMut(Entry))) {
        let mut count = 0;
        evict(&mut |entry| {
            self.base.index.states().remove_live(&entry);
            count += 1;
        });
        add(&self.base.env.counters.chunks_evicted, count);
    }

    /// Among the emptiest zones that are not `busy`, the one with the fewest
    /// bytes to copy, and their number.
    fn cheapest_zone(&self, busy: &[ZoneId]) -> Option<(u64, ZoneId)> {
        let mut emptiest = self.log.full_zones();
        emptiest.retain(|(_, zone)| !busy.contains(zone));
        emptiest.sort_unstable();
        emptiest.truncate(CANDIDATES);
        let zones = emptiest.into_iter().map(|(_, zone)| zone);
        zones.map(|zone| (self.warm_bytes(zone), zone)).min()
    }

    fn warm_bytes(&self, zone: ZoneId) -> u64 {
        let shards = self.base.index.shards().iter();
        shards
            .map(|shard| shard.lock().index.warm_bytes(zone))
            .sum()
    }

    /// Evicts the cold values of `zone`, moves the others and evicts the zone.
    /// False if the zone must stay as it is.
    async fn collect(&self, zone: ZoneId) -> bool {
        for shard in self.base.index.shards() {
            let mut shard = shard.lock();
            self.evict(|gone| {
                shard.index.evict_cold(zone, gone);
            });
        }
        let relocation = self.log.relocate_from(zone);
        if self.base.index.states().live_bytes(zone) > 0
            && let Err(error) = self.move_zone(zone, &relocation).await
        {
            tracing::warn!(%error, %zone, "host GC could not move everything");
            if matches!(error, GcError::Cache(_)) {
                // Copies may be on flash without tombstones, so the originals'
                // entries must stay.
                return false;
            }
            // A value that was not moved is evicted with its zone.
        }
        self.log.evict_relocated(zone, &relocation).await;
        true
    }

    async fn move_zone(&self, zone: ZoneId, relocation: &Arc<Relocation>) -> Result<(), GcError> {
        let (device, plan) = (&self.base.env.device, &self.base.env.plan);
        let life = self.base.index.states().life(zone);
        let end = plan.geometry.zone_capacity;
        let scan = scan_zone(device, plan, self.base.env.id, life, end).await?;
        let mut small = Vec::new();
        let mut large = Vec::new();
        for record in scan.records {
            let place = record.place(life, self.base.env.block_size());
            let Some(from) = self.base.index.live_at(record.summary.hash, place) else {
                continue;
            };
            match from.len as usize > SMALL_MAX_BYTES {
                true => large.push((record, from)),
                false => small.push((record, from)),
            }
        }
        self.move_all_large(large, life, relocation).await?;
        self.move_all_small(small, life, relocation).await
    }

    /// Completes every move: a copy whose writer was dropped would have neither
    /// an entry nor a tombstone.
    async fn move_all_large(
        &self,
        records: Vec<(ScannedRecord, Entry)>,
        life: ZoneLife,
        relocation: &Arc<Relocation>,
    ) -> Result<(), GcError> {
        let mut moves =
            stream::iter(records)
                .map(|(record, from)| async move {
                    self.move_large(&record, from, life, relocation).await
                })
                .buffer_unordered(LARGE_AT_ONCE);
        let mut result = Ok(());
        while let Some(moved) = moves.next().await {
            result = result.and(moved);
        }
        result
    }

    /// Reads run ahead of the appends, which are sequential.
    async fn move_all_small(
        &self,
        records: Vec<(ScannedRecord, Entry)>,
        life: ZoneLife,
        relocation: &Relocation,
    ) -> Result<(), GcError> {
        let batch_bytes = self.base.env.plan.batch_bytes as u32;
        let empty = || SmallBatchPlan::new(self.base.env.block_size(), batch_bytes);
        let mut reads = stream::iter(records)
            .map(|(record, from)| self.read_for_move(record, from, life))
            .buffered(READS_AT_ONCE);
        let mut batch: Vec<Moved> = Vec::new();
        let mut fill = empty();
        while let Some(moved) = reads.next().await {
            let Some(moved) = moved else { continue };
            if !fill.try_add(moved.key.len(), moved.payload.len()) {
                let whole = std::mem::take(&mut batch);
                let bytes = fill.batch_bytes() as u64;
                self.append_moved(whole, bytes, relocation).await?;
                fill = empty();
                // A single record always fits: it was in a batch of this size before.
                let _ = fill.try_add(moved.key.len(), moved.payload.len());
            }
            batch.push(moved);
        }
        if batch.is_empty() {
            return Ok(());
        }
        let bytes = fill.batch_bytes() as u64;
        self.append_moved(batch, bytes, relocation).await
    }

    async fn read_for_move(
        &self,
        record: ScannedRecord,
        from: Entry,
        life: ZoneLife,
    ) -> Option<Moved> {
        let (env, hash) = (&self.base.env, record.summary.hash);
        let padded = env.plan.geometry.round_up(u64::from(from.len)) as usize;
        let buf = env.device.allocate(padded);
        let payload = match env.device.read(from.place, buf).await {
            Ok(buf) => buf.into_bytes().slice(..from.len as usize),
            Err(error) => {
                tracing::warn!(%error, "host GC could not read a value; it is dropped");
                add(&env.counters.read_errors, 1);
                self.base.index.quarantine(hash, from);
                return None;
            }
        };
        if small_checksum(&record.key, life.generation, &payload) != from.checksum {
            add(&env.counters.checksum_errors, 1);
            self.base.index.quarantine(hash, from);
            return None;
        }
        Some(Moved {
            hash,
            sequence: record.summary.sequence,
            key: record.key,
            payload,
            from,
        })
    }

    async fn append_moved(
        &self,
        mut batch: Vec<Moved>,
        bytes: u64,
        relocation: &Relocation,
    ) -> Result<(), GcError> {
        let count = batch.len() as u32;
        let reserved = self.log.reserve(Purpose::HostGc, bytes, count).await;
        let reservation = reserved.ok_or(GcError::NoZone)?;
        let life = reservation.life();
        // From here on a copy may reach this zone, so tombstones of these keys
        // are written for it too.
        relocation.add(life.zone);
        // A value that was removed earlier is not copied: its tombstone covers
        // only the original.
        batch.retain(|moved| {
            self.base
                .index
                .live_at(moved.hash, moved.from.place)
                .is_some()
        });
        if batch.is_empty() {
            return Ok(());
        }
        let records: Vec<NewRecord<'_>> = batch.iter().map(Moved::as_record).collect();
        let placed = match self.log.append(&reservation, &records).await {
            Ok(placed) => placed,
            Err(error) => {
                reservation.fail(&error);
                let notes = batch.iter().map(|moved| moved.tombstone(life));
                self.base.journal.commit(notes.collect()).await?;
                return Err(error.into());
            }
        };
        let mut dead = Vec::new();
        for (moved, placed) in batch.iter().zip(&placed) {
            let to = self.log.entry(life, placed);
            if !self.base.index.relocate(moved.hash, moved.from, to) {
                dead.push(moved.tombstone(life));
            }
        }
        add(&self.base.env.counters.gc_records, batch.len() as u64);
        add(&self.base.env.counters.gc_bytes, bytes);
        // Copies of replaced values need tombstones before the original's entry is removed.
        self.base.journal.commit(dead).await?;
        Ok(())
    }

    async fn move_large(
        &self,
        record: &ScannedRecord,
        from: Entry,
        life: ZoneLife,
        relocation: &Arc<Relocation>,
    ) -> Result<(), GcError> {
        let (key, len) = (&*record.key, u64::from(from.len));
        let states = &**self.base.index.states();
        let Some(pin) = ZoneStates::pin(states, life.zone, life.generation) else {
            return Ok(());
        };
        let value = FlashValue {
            hash: record.summary.hash,
            entry: from,
            generation: life.generation,
            pin,
        };
        let (large, order) = (Arc::clone(&self.large), LargeReads::First);
        let Some(mut reader) = LargeReader::open(large, key, value, 0..len, order).await else {
            return Ok(());
        };
        let moving = Moving {
            from,
            sequence: record.summary.sequence,
            relocation: Arc::clone(relocation),
        };
        let footprint_bytes = self.base.env.plan.large_footprint(key.len(), len);
        let stream = LogStream::new(&self.log, footprint_bytes, Some(moving));
        let stream = ValueStream::Log(stream);
        let mut writer = LargeWriter::copy(&self.large, key, from, stream, &self.buffer);
        while let Some(part) = reader.next().await {
            let Ok(part) = part else { return Ok(()) };
            writer.write(part).await?;
        }
        if writer.finish().await? == PutOutcome::Stored {
            add(&self.base.env.counters.gc_records, 1);
            add(&self.base.env.counters.gc_bytes, len);
        }
        Ok(())
    }
}

/// A small record that host GC moves.
struct Moved {
    hash: KeyHash,
    sequence: Sequence,
    key: Vec<u8>,
    payload: Bytes,
    from: Entry,
}

impl Moved {
    fn as_record(&self) -> NewRecord<'_> {
        NewRecord {
            hash: self.hash,
            sequence: self.sequence,
            expiry_unix_s: self.from.expiry_unix_s,
            flags: RecordFlags::default(),
            key: &self.key,
            payload: &self.payload,
        }
    }

    /// For the copy in `life`.
    fn tombstone(&self, life: ZoneLife) -> Note {
        Note::Tombstone {
            life,
            hash: self.hash,
            sequence: self.sequence,
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum GcError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error("there is no zone to move values into")]
    NoZone,
}
