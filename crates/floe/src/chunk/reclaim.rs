//! Making room: evicting whole zones, or chunks one by one with host GC.
//!
//! One task reclaims one zone at a time, from the high water mark to the low
//! one. Writers that find no zone wait for it: that is the foreground.

use std::sync::Arc;
use std::time::Duration;

use floe_core::chunk::{Durability, Entry, Eviction, Found, ZonePhase};
use floe_core::hash::KeyHash;
use floe_core::layout::{
    LayoutError, NewRecord, Note, RecordFlags, SMALL_MAX_BYTES, Sequence, SmallBatchEncoder,
    SmallBatchPlan, SummaryEntry, ValueKind, ZoneLife, small_checksum,
};
use floe_core::{Tick, ZoneId};
use floe_device::Address;

use super::lookup::FlashValue;
use super::place::Purpose;
use super::scan::{ScannedRecord, scan_zone};
use super::stats::add;
use super::write::WriteError;
use super::zone_state::ZoneStates;
use super::{Engine, LargeReader, LargeWriter};
use crate::error::CacheError;

/// How long zones without space below the device rest before they are tried again.
const WITHDRAWN_REST: Duration = Duration::from_secs(60);

impl Engine {
    /// Reclaims whenever woken, until the engine stops.
    pub(super) async fn run_reclaim(self: Arc<Self>) {
        let mut retry_at = None;
        while !self.is_stopped() {
            tokio::select! {
                biased;
                () = self.reclaim_wake.notified() => {}
                () = self.journal.pressure().risen() => {}
                () = self.wait_until(retry_at) => {}
            }
            retry_at = self.restore_withdrawn(retry_at);
            if self.journal.pressure().take_starved() {
                // Its notes take little: what one zone gives back is enough.
                self.zones.lock().out_of_space(None);
            }
            if let Some(slots) = self.slots() {
                self.evict_slots(slots);
            } else if self.free_zones() <= self.plan.water.high || self.journal.pressure().is_high()
            {
                self.reclaim_to_low_water().await;
            }
        }
    }

    async fn wait_until(&self, at: Option<Tick>) {
        match at {
            Some(at) => self.clock.sleep(at.since(self.clock.now())).await,
            None => std::future::pending().await,
        }
    }

    /// Puts zones back that were withdrawn for want of space, if it is time.
    /// Returns when it will be.
    fn restore_withdrawn(&self, retry_at: Option<Tick>) -> Option<Tick> {
        let now = self.clock.now();
        let mut zones = self.zones.lock();
        match retry_at {
            _ if !zones.any_withdrawn() => None,
            None => Some(now + WITHDRAWN_REST),
            Some(at) if now < at => Some(at),
            Some(_) => {
                let restored = zones.restore_withdrawn();
                tracing::info!(
                    zones = restored,
                    "looking whether there is space for all zones"
                );
                self.space.notify_waiters();
                None
            }
        }
    }

    async fn reclaim_to_low_water(self: &Arc<Self>) {
        while !self.is_stopped() {
            let enough = self.free_zones() >= self.plan.water.low;
            if enough && !self.journal.pressure().is_high() {
                return;
            }
            if !self.reclaim_one(enough).await {
                return;
            }
        }
    }

    fn free_zones(&self) -> u32 {
        self.zones.lock().free_zones()
    }

    /// Frees one zone; false if there is none to free now.
    async fn reclaim_one(self: &Arc<Self>, for_the_journal: bool) -> bool {
        if for_the_journal {
            let worst = self
                .zones
                .lock()
                .full_zones()
                .max_by_key(|&zone| self.states.deaths(zone));
            return match worst.filter(|&zone| self.states.deaths(zone) > 0) {
                Some(zone) => self.evict_zone(zone).await,
                None => false,
            };
        }
        if self.plan.eviction == Eviction::Clru {
            return self.collect_one().await;
        }
        let victim = self.zones.lock().choose_victim(
            |zone| self.states.last_access(zone),
            |zone| self.states.live_records(zone),
        );
        match victim {
            Some(zone) => self.evict_zone(zone).await,
            None => false,
        }
    }

    /// Empties a full zone. Until its bytes are gone from flash its entries
    /// stay in the index as ghosts, so that whoever writes one of its keys
    /// journals the death of what still lies there.
    async fn evict_zone(self: &Arc<Self>, zone: ZoneId) -> bool {
        self.zones.lock().begin_evict(zone);
        self.states.start_evicting(zone);
        let mut dropped = 0;
        for shard in &self.shards {
            dropped += shard.lock().index.begin_evict(zone);
        }
        self.states.wait_unpinned(zone).await;
        let gone = match self.device.reset(zone).await {
            Ok(()) if self.plan.durability == Durability::Power => self.device.flush().await,
            result => result,
        };
        if let Err(error) = gone {
            tracing::warn!(%error, %zone, "a zone could not be emptied and is not used any more");
            self.retire(zone);
            return true;
        }
        for shard in &self.shards {
            shard.lock().index.end_evict(zone);
        }
        self.states.emptied(zone);
        self.journal.pressure().relieve(self.states.deaths(zone));
        self.zones.lock().end_evict(zone);
        add(&self.counters.zones_evicted, 1);
        add(&self.counters.records_evicted, dropped as u64);
        self.space.notify_waiters();
        true
    }

    /// CLRU: makes enough garbage by evicting chunks, then moves what is live
    /// in the emptiest zone elsewhere and empties it.
    async fn collect_one(self: &Arc<Self>) -> bool {
        let capacity = self.plan.geometry.zone_capacity;
        let live_most = capacity - capacity * u64::from(self.plan.gc_garbage_percent) / 100;
        let Some((mut zone, mut live)) = self.emptiest_zone() else {
            return false;
        };
        if live > live_most {
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
            let Some(now) = self.emptiest_zone() else {
                return false;
            };
            (zone, live) = now;
        }
        if live > 0
            && let Err(error) = self.relocate_zone(zone).await
        {
            tracing::warn!(%error, %zone, "host GC could not move everything");
            if matches!(error, GcError::Cache(_)) {
                // Copies may be on flash that could not be noted as dead: the originals' entries must stay.
                return false;
            }
            // What was not moved is evicted with its zone: forgotten, never wrong.
        }
        let done = self.evict_zone(zone).await;
        // If it could not be emptied the originals are still on flash, and every
        // death of one of their keys must go on being noted there.
        if self.zones.lock().info(zone).phase == ZonePhase::Empty {
            self.end_relocating();
        }
        done
    }

    fn emptiest_zone(&self) -> Option<(ZoneId, u64)> {
        let zones = self.zones.lock();
        zones
            .full_zones()
            .map(|zone| (zone, self.states.live_bytes(zone)))
            .min_by_key(|&(zone, live)| (live, zone))
    }

    async fn relocate_zone(self: &Arc<Self>, zone: ZoneId) -> Result<(), GcError> {
        let life = self.states.life(zone);
        self.start_relocating(zone);
        let scan = scan_zone(
            &self.device,
            &self.plan,
            self.id,
            life,
            self.plan.geometry.zone_capacity,
        )
        .await?;
        let mut batch: Vec<Moved> = Vec::new();
        let mut fill =
            SmallBatchPlan::new(self.plan.geometry.block_size, self.plan.batch_bytes as u32);
        for record in scan.records {
            let Some(from) = self.live_at(&record, life) else {
                continue;
            };
            if from.len as usize > SMALL_MAX_BYTES {
                self.move_large(&record, from, life).await?;
                continue;
            }
            let Some(moved) = self.read_for_move(record, from, life).await else {
                continue;
            };
            if !fill.try_add(moved.key.len(), moved.payload.len()) {
                self.append_moved(&std::mem::take(&mut batch), &fill)
                    .await?;
                fill = SmallBatchPlan::new(
                    self.plan.geometry.block_size,
                    self.plan.batch_bytes as u32,
                );
                // A single record always fits: it was in a batch of this size before.
                let _ = fill.try_add(moved.key.len(), moved.payload.len());
            }
            batch.push(moved);
        }
        if !batch.is_empty() {
            self.append_moved(&batch, &fill).await?;
        }
        Ok(())
    }

    fn live_at(&self, record: &ScannedRecord, life: ZoneLife) -> Option<Entry> {
        let shard = self.shard_of(record.summary.hash).lock();
        match shard.index.get(record.summary.hash)? {
            Found::Live(entry)
                if entry.place == record.place(life, self.plan.geometry.block_size) =>
            {
                Some(entry)
            }
            _ => None,
        }
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
        batch: &[Moved],
        plan: &SmallBatchPlan,
    ) -> Result<(), GcError> {
        let bytes = plan.batch_bytes() as u64;
        let placement = self
            .place_for(Purpose::HostGc, bytes, batch.len() as u32)
            .await
            .ok_or(GcError::NoZone)?;
        let life = placement.life();
        // From here a copy may reach flash there: deaths of these keys are noted there, too.
        self.start_relocating(life.zone);
        let mut buf = self.device.allocate(plan.batch_bytes());
        let mut encoder = SmallBatchEncoder::new(plan, self.id, life, &mut buf)?;
        let mut placed = Vec::with_capacity(batch.len());
        for moved in batch {
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
            LargeReader::open(Arc::clone(self), &record.key, value, 0..len).await
        else {
            return Ok(());
        };
        let mut writer =
            LargeWriter::relocation(Arc::clone(self), &record.key, from, record.summary.sequence);
        while let Some(part) = reader.next().await {
            let Ok(part) = part else { return Ok(()) };
            writer.write(part).await?;
        }
        writer.finish().await?;
        add(&self.counters.gc_records, 1);
        add(&self.counters.gc_bytes, len);
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
