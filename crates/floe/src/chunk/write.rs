//! Small values: acknowledged into the write buffer, gathered into batches,
//! appended, and only then entered into the index.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use floe_core::chunk::Entry;
use floe_core::hash::KeyHash;
use floe_core::layout::{
    LayoutError, NewRecord, Note, RecordFlags, SMALL_MAX_BYTES, SmallBatchEncoder, SmallBatchPlan,
    SummaryEntry, ValueKind, ZoneLife,
};
use floe_device::{Address, IoData};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};

use super::place::Placement;
use super::shard::{Pending, PendingSlot};
use super::stats::add;
use super::{Engine, LargeWriter, PENDING_BYTES, room_units};
use crate::error::CacheError;
use crate::value::{PutOptions, PutOutcome};

/// Appends of one batch that are tried, each in another zone, before its values are given up.
pub(super) const ATTEMPTS: usize = 4;

/// Values waiting for a batch.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    state: Mutex<QueueState>,
    /// Something was queued, or somebody is in a hurry.
    wake: Notify,
}

#[derive(Debug)]
struct QueueState {
    records: VecDeque<Arc<Pending>>,
    bytes: u64,
    urgent: bool,
    /// Shared by every record queued since the last flush; when all are gone the receiver wakes.
    landing: Arc<oneshot::Sender<()>>,
    landed: oneshot::Receiver<()>,
}

impl WriteQueue {
    pub(crate) fn new() -> Self {
        let (landing, landed) = oneshot::channel();
        let state = QueueState {
            records: VecDeque::new(),
            bytes: 0,
            urgent: false,
            landing: Arc::new(landing),
            landed,
        };
        WriteQueue {
            state: Mutex::new(state),
            wake: Notify::new(),
        }
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    fn landing(&self) -> Arc<oneshot::Sender<()>> {
        Arc::clone(&self.state.lock().landing)
    }

    fn push(&self, record: Arc<Pending>) {
        let mut state = self.state.lock();
        state.bytes += (record.key.len() + record.value.len()) as u64;
        state.records.push_back(record);
        drop(state);
        self.wake.notify_one();
    }

    /// Waits until every record queued before the call has landed or was given up.
    pub(crate) async fn landed(&self) {
        let (landing, landed) = oneshot::channel();
        let previous = {
            let mut state = self.state.lock();
            state.urgent = !state.records.is_empty();
            drop(std::mem::replace(&mut state.landing, Arc::new(landing)));
            std::mem::replace(&mut state.landed, landed)
        };
        self.wake.notify_one();
        // The sender is never used: it closes when the last record that holds it is dropped.
        let _ = previous.await;
    }
}

impl Engine {
    /// Accepts a whole value. Waits while the write buffer is full.
    pub(crate) async fn put(
        self: &Arc<Self>,
        key: &[u8],
        value: Bytes,
        options: PutOptions,
    ) -> Result<PutOutcome, CacheError> {
        if value.len() <= SMALL_MAX_BYTES {
            return self.put_small(key, value, options).await;
        }
        let mut writer = LargeWriter::new(Arc::clone(self), key, value.len() as u64, options);
        writer.write(value).await?;
        writer.finish().await
    }

    async fn put_small(
        self: &Arc<Self>,
        key: &[u8],
        value: Bytes,
        options: PutOptions,
    ) -> Result<PutOutcome, CacheError> {
        let bytes = (key.len() + value.len()) as u64;
        let room = self.reserve_buffer(bytes + PENDING_BYTES).await?;
        let hash = self.hash(key);
        let expiry_unix_s = self.expiry(options);
        let (record, deaths) = {
            let mut shard = self.shard_of(hash).lock();
            // Two steps, so that a death note written for what this replaces can never cover this.
            let replaced_up_to = self.next_sequence();
            let sequence = self.next_sequence();
            let (_, deaths) = self.invalidate(&mut shard, hash, replaced_up_to);
            let record = Arc::new(Pending {
                hash,
                key: key.into(),
                value: value.clone(),
                sequence,
                expiry_unix_s,
                _room: room,
                _landing: self.queue.landing(),
            });
            if value.len() as u64 <= self.ram.value_bytes_max {
                shard.ram_insert(hash, key, value, expiry_unix_s);
            }
            shard.pending.insert(
                hash,
                PendingSlot {
                    record: Arc::clone(&record),
                    life: None,
                },
            );
            (record, deaths)
        };
        self.queue.push(record);
        add(&self.counters.puts, 1);
        add(&self.counters.put_bytes, bytes);
        self.settle_as(deaths, options.relaxed).await?;
        Ok(PutOutcome::Stored)
    }

    /// Room in the write buffer for `bytes`; waits for it.
    pub(super) async fn reserve_buffer(
        &self,
        bytes: u64,
    ) -> Result<OwnedSemaphorePermit, CacheError> {
        let units = room_units(bytes.min(self.plan.write_buffer_bytes));
        Arc::clone(&self.room)
            .acquire_many_owned(units)
            .await
            .map_err(|_| CacheError::Closed)
    }

    pub(super) fn expiry(&self, options: PutOptions) -> u32 {
        options.ttl.map_or(0, |ttl| {
            let at = self
                .clock
                .unix_seconds()
                .saturating_add(ttl.as_secs().max(1));
            u32::try_from(at).unwrap_or(u32::MAX)
        })
    }

    /// Gathers batches until the engine stops and the queue is empty.
    pub(super) async fn run_writer(self: Arc<Self>) {
        loop {
            let Some(first_urgent) = self.wait_for_records().await else {
                return;
            };
            if !first_urgent {
                self.wait_for_company().await;
            }
            let Ok(permit) = Arc::clone(&self.write_permits).acquire_owned().await else {
                return;
            };
            let records = self.take_batch();
            if records.is_empty() {
                continue;
            }
            let engine = Arc::clone(&self);
            tokio::spawn(async move {
                match engine.slots() {
                    None => engine.append_batch(records).await,
                    Some(slots) => engine.write_to_slots(slots, records).await,
                }
                drop(permit);
            });
        }
    }

    /// Waits for the queue to hold something; says whether somebody is in a hurry.
    async fn wait_for_records(&self) -> Option<bool> {
        loop {
            let woken = self.queue.wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            {
                let state = self.queue.state.lock();
                if !state.records.is_empty() {
                    return Some(state.urgent || state.bytes >= self.plan.batch_bytes);
                }
            }
            // Not as soon as closing begins: flushing still needs its writer.
            if self.is_stopped() {
                return None;
            }
            woken.await;
        }
    }

    /// Lets a batch fill up for the configured time at most.
    async fn wait_for_company(&self) {
        let deadline = self
            .clock
            .sleep(Duration::from_nanos(self.plan.flush_delay_ns));
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                biased;
                () = &mut deadline => return,
                () = self.queue.wake.notified() => {
                    let state = self.queue.state.lock();
                    if state.urgent || state.bytes >= self.plan.batch_bytes {
                        return;
                    }
                }
            }
        }
    }

    /// As many queued records as fit one batch.
    fn take_batch(&self) -> Vec<Arc<Pending>> {
        let mut state = self.queue.state.lock();
        let mut fill =
            SmallBatchPlan::new(self.plan.geometry.block_size, self.plan.batch_bytes as u32);
        let mut records = Vec::new();
        while let Some(record) = state.records.front() {
            if !fill.try_add(record.key.len(), record.value.len()) && !records.is_empty() {
                break;
            }
            state.bytes -= (record.key.len() + record.value.len()) as u64;
            records.extend(state.records.pop_front());
        }
        if state.records.is_empty() {
            state.urgent = false;
        }
        records
    }

    /// Appends a batch, in another zone when one fails, and enters its records into the index.
    async fn append_batch(self: &Arc<Self>, mut records: Vec<Arc<Pending>>) {
        for _ in 0..ATTEMPTS {
            records.retain(|record| self.is_wanted(record));
            if records.is_empty() {
                return;
            }
            let bytes = self.batch_plan(&records).batch_bytes() as u64;
            let Some(placement) = self.place(bytes, records.len() as u32).await else {
                break;
            };
            let life = placement.life();
            // From here the records' bytes may reach flash in this life of this zone.
            records.retain(|record| self.assign_zone(record, life));
            if records.is_empty() {
                continue;
            }
            match self.try_append(&records, &placement).await {
                Ok(()) => return,
                Err(error) => self.append_failed(&records, placement, &error).await,
            }
        }
        for record in records {
            self.give_up(&record);
        }
    }

    fn batch_plan(&self, records: &[Arc<Pending>]) -> SmallBatchPlan {
        let mut plan = SmallBatchPlan::new(self.plan.geometry.block_size, u32::MAX);
        for record in records {
            // They fitted when the batch was taken; a record that does not is refused by the encoder.
            let _ = plan.try_add(record.key.len(), record.value.len());
        }
        plan
    }

    async fn try_append(
        &self,
        records: &[Arc<Pending>],
        placement: &Placement,
    ) -> Result<(), WriteError> {
        let life = placement.life();
        let (data, mut summaries) = self.encode_batch(records, life)?;
        let at = self
            .device
            .append(life.zone, data, placement.handle())
            .await?;
        add(&self.counters.batches, 1);
        let first_block = (at.offset / u64::from(self.plan.geometry.block_size)) as u32;
        for summary in &mut summaries {
            summary.block += first_block;
        }
        self.list_records(life.zone, &summaries);
        for (record, summary) in records.iter().zip(&summaries) {
            self.publish(record, life, summary);
        }
        Ok(())
    }

    /// Whether `record` still is the newest value of its key.
    pub(super) fn is_wanted(&self, record: &Arc<Pending>) -> bool {
        let shard = self.shard_of(record.hash).lock();
        let wanted = shard
            .pending
            .get(&record.hash)
            .is_some_and(|slot| Arc::ptr_eq(&slot.record, record));
        if !wanted {
            add(&self.counters.puts_superseded, 1);
        }
        wanted
    }

    /// Notes where `record` is going, unless it is no longer wanted.
    fn assign_zone(&self, record: &Arc<Pending>, life: ZoneLife) -> bool {
        let mut shard = self.shard_of(record.hash).lock();
        match shard.pending.get_mut(&record.hash) {
            Some(slot) if Arc::ptr_eq(&slot.record, record) => {
                slot.life = Some(life);
                true
            }
            _ => {
                add(&self.counters.puts_superseded, 1);
                false
            }
        }
    }

    /// A record is on flash: serve it from there, unless it was replaced meanwhile
    /// (whoever replaced it has noted its death in this life).
    fn publish(&self, record: &Arc<Pending>, life: ZoneLife, summary: &SummaryEntry) {
        let mut shard = self.shard_of(record.hash).lock();
        let current = shard
            .pending
            .get(&record.hash)
            .is_some_and(|slot| Arc::ptr_eq(&slot.record, record));
        if !current {
            return;
        }
        shard.pending.remove(&record.hash);
        let entry = Entry {
            place: Address::new(
                life.zone,
                u64::from(summary.block) * u64::from(self.plan.geometry.block_size),
            ),
            len: summary.value_bytes,
            checksum: summary.checksum,
            expiry_unix_s: record.expiry_unix_s,
        };
        match shard.index.insert(record.hash, entry) {
            Ok(_) => self.states.add_live(life.zone, u64::from(entry.len)),
            Err(floe_core::chunk::IndexFull) => {
                // It is on flash, where only a scan finds it.
                drop(self.journal.hold(vec![Note::Death {
                    life,
                    hash: record.hash,
                    sequence: record.sequence,
                }]));
                self.refuse(record.hash, &mut shard, entry.len);
            }
        }
    }

    pub(super) fn refuse(&self, hash: KeyHash, shard: &mut super::Shard, len: u32) {
        shard.ram_remove(hash);
        add(&self.counters.puts_dropped, 1);
        add(&self.counters.put_bytes_dropped, u64::from(len));
    }

    /// No zone took `record`: it is forgotten, and counted.
    pub(super) fn give_up(&self, record: &Arc<Pending>) {
        let mut shard = self.shard_of(record.hash).lock();
        if shard
            .pending
            .get(&record.hash)
            .is_some_and(|slot| Arc::ptr_eq(&slot.record, record))
        {
            shard.pending.remove(&record.hash);
            self.refuse(record.hash, &mut shard, record.value.len() as u32);
        }
    }

    fn encode_batch(
        &self,
        records: &[Arc<Pending>],
        life: ZoneLife,
    ) -> Result<(IoData, Vec<SummaryEntry>), LayoutError> {
        let block = self.plan.geometry.block_size;
        let plan = self.batch_plan(records);
        let mut buf = self.device.allocate(plan.batch_bytes());
        let mut encoder = SmallBatchEncoder::new(&plan, self.id, life, &mut buf)?;
        let mut summaries = Vec::with_capacity(records.len());
        for record in records {
            let placed = encoder.push(&NewRecord {
                hash: record.hash,
                sequence: record.sequence,
                expiry_unix_s: record.expiry_unix_s,
                flags: RecordFlags::default(),
                key: &record.key,
                payload: &record.value,
            })?;
            summaries.push(SummaryEntry {
                hash: record.hash,
                sequence: record.sequence,
                block: placed.payload_offset / block,
                value_bytes: record.value.len() as u32,
                checksum: placed.checksum,
                expiry_unix_s: record.expiry_unix_s,
                kind: ValueKind::Small,
                key_bytes: record.key.len() as u16,
            });
        }
        encoder.finish()?;
        Ok((buf.freeze(), summaries))
    }

    /// An append failed after its bytes may have reached flash: the records'
    /// deaths in that life are noted, the zone is retired.
    async fn append_failed(
        self: &Arc<Self>,
        records: &[Arc<Pending>],
        placement: Placement,
        error: &WriteError,
    ) {
        tracing::warn!(%error, zone = %placement.life().zone, "an append failed; its values move to another zone");
        add(&self.counters.write_errors, 1);
        let life = placement.life();
        placement.fail(error);
        let notes = records
            .iter()
            .map(|r| Note::Death {
                life,
                hash: r.hash,
                sequence: r.sequence,
            })
            .collect();
        if let Err(error) = self.journal.commit(notes).await {
            tracing::warn!(%error, "the failed append's records could not be noted as dead");
        }
    }
}

/// Why a batch did not get onto flash.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Device(#[from] floe_device::DeviceError),
    #[error("encoding: {0}")]
    Layout(#[from] LayoutError),
}

impl WriteError {
    /// Whether there was no space left below the device.
    pub(super) fn is_no_space(&self) -> bool {
        matches!(self, WriteError::Device(error) if error.is_no_space())
    }
}
