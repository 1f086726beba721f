//! Host GC: under CLRU in a log, chunks are evicted one by one, and what is
//! left of a zone is moved elsewhere before the zone is emptied.
//!
//! Several zones are collected at once, and several of a zone's records, all
//! within fixed bounds: a copy is a read and a write, both of which wait
//! behind the users' own.

use std::sync::Arc;

use floe_core::ZoneId;
use floe_core::chunk::{Entry, Found, ZonePhase};
use floe_core::hash::KeyHash;
use floe_core::layout::{
    LayoutError, NewRecord, Note, RecordFlags, SMALL_MAX_BYTES, Sequence, SmallBatchEncoder,
    SmallBatchPlan, SummaryEntry, ValueKind, ZoneLife, small_checksum,
};
use floe_device::Address;
use futures::StreamExt as _;
use futures::stream::{self, FuturesUnordered};
use parking_lot::Mutex;

use super::lookup::FlashValue;
use super::place::Purpose;
use super::scan::{ScannedRecord, scan_zone};
use super::stats::add;
use super::write::WriteError;
use super::zone_state::ZoneStates;
use super::{Engine, LargeReader, LargeWriter};
use crate::error::CacheError;
use crate::value::PutOutcome;

/// Zones that are collected at once at most.
const ZONES_AT_ONCE: u32 = 4;
/// Small records of one zone that are read at once.
const READS_AT_ONCE: usize = 16;
/// Large values of one zone that are moved at once.
const LARGE_AT_ONCE: usize = 2;
/// The emptiest zones, of which the one with the least to copy is collected.
const CANDIDATES: usize = 32;

/// How many of `data_zones` are collected at once.
pub(super) fn zones_at_once(data_zones: u32) -> u32 {
    (data_zones / 32).clamp(1, ZONES_AT_ONCE)
}

/// The zones that one collection copies from and to. Until the originals are
/// gone from flash, every death of one of their keys is noted in all of them.
#[derive(Debug)]
pub(super) struct Relocation {
    engine: Arc<Engine>,
    zones: Mutex<Vec<ZoneId>>,
}

impl Relocation {
    fn from(engine: &Arc<Engine>, zone: ZoneId) -> Arc<Self> {
        let relocation = Arc::new(Relocation {
            engine: Arc::clone(engine),
            zones: Mutex::new(Vec::new()),
        });
        relocation.also(zone);
        relocation
    }

    pub(super) fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.engine)
    }

    /// Copies may be in `zone` from now on.
    pub(super) fn also(&self, zone: ZoneId) {
        let mut zones = self.zones.lock();
        if !zones.contains(&zone) {
            zones.push(zone);
            self.engine.start_relocating(zone);
        }
    }

    /// The originals are gone. A collection that fails never gets here: what
    /// it copied may lie on flash twice until the cache is opened again.
    fn end(&self) {
        self.engine.end_relocating(&self.zones.lock());
    }
}

impl Engine {
    /// Collects zones until enough are free; false if no more could be.
    pub(super) async fn collect_to_low_water(self: &Arc<Self>) -> bool {
        let at_once = zones_at_once(self.plan.data_zones().count() as u32) as usize;
        let mut busy: Vec<ZoneId> = Vec::new();
        let mut running = FuturesUnordered::new();
        let mut go_on = true;
        loop {
            while go_on
                && busy.len() < at_once
                && !self.is_stopped()
                && self.lacks_zones(busy.len())
            {
                let Some(zone) = self.choose_zone_to_collect(&busy) else {
                    break;
                };
                busy.push(zone);
                let engine = Arc::clone(self);
                running.push(async move { (zone, engine.collect(zone).await) });
            }
            let Some((zone, done)) = running.next().await else {
                return go_on && !self.lacks_zones(0);
            };
            busy.retain(|&z| z != zone);
            go_on &= done;
        }
    }

    /// Whether zones are missing, if `busy` collections give about half a zone each.
    fn lacks_zones(&self, busy: usize) -> bool {
        busy / 2 < self.lacking_zones() as usize
    }

    /// The zone with the least to copy; makes garbage first, by evicting
    /// chunks, if even that has little.
    fn choose_zone_to_collect(&self, busy: &[ZoneId]) -> Option<ZoneId> {
        let capacity = self.plan.geometry.zone_capacity;
        let live_most = capacity - capacity * u64::from(self.plan.gc_garbage_percent) / 100;
        let (zone, copied) = self.cheapest_zone(busy)?;
        if copied <= live_most {
            return Some(zone);
        }
        let chunk_share = capacity / self.shards.len() as u64;
        for shard in &self.shards {
            let mut count = 0;
            shard.lock().index.evict_least_recent(chunk_share, |entry| {
                self.states
                    .remove_live(entry.place.zone, u64::from(entry.len));
                count += 1;
            });
            add(&self.counters.chunks_evicted, count);
        }
        self.cheapest_zone(busy).map(|(zone, _)| zone)
    }

    /// Of the emptiest zones that are not `busy`, the one with the fewest
    /// bytes to copy, and how many those are.
    fn cheapest_zone(&self, busy: &[ZoneId]) -> Option<(ZoneId, u64)> {
        let mut emptiest: Vec<(u64, ZoneId)> = {
            let zones = self.zones.lock();
            zones
                .full_zones()
                .filter(|zone| !busy.contains(zone))
                .map(|zone| (self.states.live_bytes(zone), zone))
                .collect()
        };
        emptiest.sort_unstable();
        emptiest.truncate(CANDIDATES);
        emptiest
            .into_iter()
            .map(|(_, zone)| (self.warm_bytes(zone), zone))
            .min()
            .map(|(copied, zone)| (zone, copied))
    }

    fn warm_bytes(&self, zone: ZoneId) -> u64 {
        let shards = self.shards.iter();
        shards
            .map(|shard| shard.lock().index.warm_bytes(zone))
            .sum()
    }

    /// Drops what is cold in `zone`, moves the rest elsewhere and empties it.
    /// False if it must stay as it is.
    async fn collect(self: &Arc<Self>, zone: ZoneId) -> bool {
        for shard in &self.shards {
            let mut count = 0;
            shard.lock().index.evict_cold(zone, |entry| {
                self.states.remove_live(zone, u64::from(entry.len));
                count += 1;
            });
            add(&self.counters.chunks_evicted, count);
        }
        let relocation = Relocation::from(self, zone);
        if self.states.live_bytes(zone) > 0
            && let Err(error) = self.relocate_zone(zone, &relocation).await
        {
            tracing::warn!(%error, %zone, "host GC could not move everything");
            if matches!(error, GcError::Cache(_)) {
                // Copies may be on flash that could not be noted as dead: the originals' entries must stay.
                return false;
            }
            // What was not moved is evicted with its zone: forgotten, never wrong.
        }
        self.evict_zones(&[zone]).await;
        // If it could not be emptied the originals are still on flash, and every
        // death of one of their keys must go on being noted there.
        if self.zones.lock().info(zone).phase == ZonePhase::Empty {
            relocation.end();
        }
        true
    }

    async fn relocate_zone(
        self: &Arc<Self>,
        zone: ZoneId,
        relocation: &Arc<Relocation>,
    ) -> Result<(), GcError> {
        let life = self.states.life(zone);
        let scan = scan_zone(
            &self.device,
            &self.plan,
            self.id,
            life,
            self.plan.geometry.zone_capacity,
        )
        .await?;
        let mut small = Vec::new();
        let mut large = Vec::new();
        for record in scan.records {
            let Some(from) = self.live_at(&record, life) else {
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

    /// Every move is seen to its end: a copy whose writer was dropped halfway
    /// would be one that nobody knows of.
    async fn move_all_large(
        self: &Arc<Self>,
        records: Vec<(ScannedRecord, Entry)>,
        life: ZoneLife,
        relocation: &Arc<Relocation>,
    ) -> Result<(), GcError> {
        let mut moves = stream::iter(records)
            .map(|(record, from)| {
                let engine = Arc::clone(self);
                let relocation = Arc::clone(relocation);
                async move { engine.move_large(&record, from, life, relocation).await }
            })
            .buffer_unordered(LARGE_AT_ONCE);
        let mut result = Ok(());
        while let Some(moved) = moves.next().await {
            result = result.and(moved);
        }
        result
    }

    /// Reads run ahead of the appends, which go one by one.
    async fn move_all_small(
        self: &Arc<Self>,
        records: Vec<(ScannedRecord, Entry)>,
        life: ZoneLife,
        relocation: &Relocation,
    ) -> Result<(), GcError> {
        let empty =
            || SmallBatchPlan::new(self.plan.geometry.block_size, self.plan.batch_bytes as u32);
        let mut reads = stream::iter(records)
            .map(|(record, from)| {
                let engine = Arc::clone(self);
                async move { engine.read_for_move(record, from, life).await }
            })
            .buffered(READS_AT_ONCE);
        let mut batch: Vec<Moved> = Vec::new();
        let mut fill = empty();
        while let Some(moved) = reads.next().await {
            let Some(moved) = moved else { continue };
            if !fill.try_add(moved.key.len(), moved.payload.len()) {
                let whole = std::mem::take(&mut batch);
                self.append_moved(whole, fill.batch_bytes() as u64, relocation)
                    .await?;
                fill = empty();
                // A single record always fits: it was in a batch of this size before.
                let _ = fill.try_add(moved.key.len(), moved.payload.len());
            }
            batch.push(moved);
        }
        if !batch.is_empty() {
            self.append_moved(batch, fill.batch_bytes() as u64, relocation)
                .await?;
        }
        Ok(())
    }

    fn live_at(&self, record: &ScannedRecord, life: ZoneLife) -> Option<Entry> {
        let place = record.place(life, self.plan.geometry.block_size);
        self.live_entry(record.summary.hash, place)
    }

    fn live_entry(&self, hash: KeyHash, place: Address) -> Option<Entry> {
        match self.shard_of(hash).lock().index.get(hash)? {
            Found::Live(entry) if entry.place == place => Some(entry),
            _ => None,
        }
    }

    /// Whether a value is still served from `place`.
    pub(super) fn is_live_at(&self, hash: KeyHash, place: Address) -> bool {
        self.live_entry(hash, place).is_some()
    }

    async fn read_for_move(
        &self,
        record: ScannedRecord,
        from: Entry,
        life: ZoneLife,
    ) -> Option<Moved> {
        let bytes = self.plan.geometry.round_up(u64::from(from.len)) as usize;
        let buf = match self
            .device
            .read(from.place, self.device.allocate(bytes))
            .await
        {
            Ok(buf) => buf.into_bytes().slice(..from.len as usize),
            Err(error) => {
                tracing::warn!(%error, "host GC could not read a value; it is forgotten");
                add(&self.counters.read_errors, 1);
                self.quarantine(record.summary.hash, from);
                return None;
            }
        };
        if small_checksum(&record.key, life.generation, &buf) != from.checksum {
            add(&self.counters.checksum_errors, 1);
            self.quarantine(record.summary.hash, from);
            return None;
        }
        Some(Moved {
            hash: record.summary.hash,
            sequence: record.summary.sequence,
            key: record.key,
            payload: buf,
            from,
        })
    }

    async fn append_moved(
        self: &Arc<Self>,
        mut batch: Vec<Moved>,
        bytes: u64,
        relocation: &Relocation,
    ) -> Result<(), GcError> {
        let placement = self
            .place_for(Purpose::HostGc, bytes, batch.len() as u32)
            .await
            .ok_or(GcError::NoZone)?;
        let life = placement.life();
        // From here a copy may reach flash there: deaths of these keys are noted there, too.
        relocation.also(life.zone);
        // What died before is not copied: its death speaks of the original alone.
        batch.retain(|moved| self.is_live_at(moved.hash, moved.from.place));
        if batch.is_empty() {
            return Ok(());
        }
        let mut plan = SmallBatchPlan::new(self.plan.geometry.block_size, u32::MAX);
        for moved in &batch {
            // They fitted when all were there.
            let _ = plan.try_add(moved.key.len(), moved.payload.len());
        }
        let mut buf = self.device.allocate(plan.batch_bytes());
        let mut encoder = SmallBatchEncoder::new(&plan, self.id, life, &mut buf)?;
        let mut placed = Vec::with_capacity(batch.len());
        for moved in &batch {
            placed.push(encoder.push(&NewRecord {
                hash: moved.hash,
                sequence: moved.sequence,
                expiry_unix_s: moved.from.expiry_unix_s,
                flags: RecordFlags::default(),
                key: &moved.key,
                payload: &moved.payload,
            })?);
        }
        encoder.finish()?;
        let at = match self
            .device
            .append(life.zone, buf.freeze(), placement.handle())
            .await
        {
            Ok(at) => at,
            Err(error) => {
                let error = WriteError::from(error);
                placement.fail(&error);
                let notes = batch
                    .iter()
                    .map(|m| Note::Death {
                        life,
                        hash: m.hash,
                        sequence: m.sequence,
                    })
                    .collect();
                self.journal.commit(notes).await?;
                return Err(error.into());
            }
        };
        let block = u64::from(self.plan.geometry.block_size);
        let mut dead = Vec::new();
        for (moved, placed) in batch.iter().zip(placed) {
            let offset = at.offset + u64::from(placed.payload_offset);
            let to = Entry {
                place: Address::new(life.zone, offset),
                checksum: placed.checksum,
                ..moved.from
            };
            let summary = SummaryEntry {
                hash: moved.hash,
                sequence: moved.sequence,
                block: (offset / block) as u32,
                value_bytes: to.len,
                checksum: to.checksum,
                expiry_unix_s: to.expiry_unix_s,
                kind: ValueKind::Small,
                key_bytes: moved.key.len() as u16,
            };
            self.list_records(life.zone, &[summary]);
            if self
                .shard_of(moved.hash)
                .lock()
                .index
                .relocate(moved.hash, moved.from.place, to)
            {
                self.states
                    .remove_live(moved.from.place.zone, u64::from(to.len));
                self.states.add_live(life.zone, u64::from(to.len));
            } else {
                dead.push(Note::Death {
                    life,
                    hash: moved.hash,
                    sequence: moved.sequence,
                });
            }
        }
        add(&self.counters.gc_records, batch.len() as u64);
        add(&self.counters.gc_bytes, bytes);
        // Copies of what was replaced meanwhile must be dead before the original's entry is gone.
        self.journal.commit(dead).await?;
        Ok(())
    }

    async fn move_large(
        self: &Arc<Self>,
        record: &ScannedRecord,
        from: Entry,
        life: ZoneLife,
        relocation: Arc<Relocation>,
    ) -> Result<(), GcError> {
        let Some(pin) = ZoneStates::pin(&*self.states, life.zone, life.generation) else {
            return Ok(());
        };
        let value = FlashValue {
            hash: record.summary.hash,
            entry: from,
            generation: life.generation,
            pin,
        };
        let len = u64::from(from.len);
        let Some(mut reader) =
            LargeReader::open_now(Arc::clone(self), &record.key, value, 0..len).await
        else {
            return Ok(());
        };
        let sequence = record.summary.sequence;
        let mut writer = LargeWriter::relocation(relocation, &record.key, from, sequence);
        while let Some(part) = reader.next().await {
            let Ok(part) = part else { return Ok(()) };
            writer.write(part).await?;
        }
        if writer.finish().await? == PutOutcome::Stored {
            add(&self.counters.gc_records, 1);
            add(&self.counters.gc_bytes, len);
        }
        Ok(())
    }
}

/// A small record that host GC moves.
struct Moved {
    hash: KeyHash,
    sequence: Sequence,
    key: Vec<u8>,
    payload: bytes::Bytes,
    from: Entry,
}

#[derive(Debug, thiserror::Error)]
enum GcError {
    #[error(transparent)]
    Device(#[from] floe_device::DeviceError),
    #[error("encoding: {0}")]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error("there is no zone to move values into")]
    NoZone,
}
