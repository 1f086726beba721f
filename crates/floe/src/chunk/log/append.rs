//! Batches of small values: appended, then published in the index.

use std::sync::Arc;

use floe_core::chunk::{Entry, IndexFull};
use floe_core::layout::{
    NewRecord, Note, RecordFlags, SmallBatchEncoder, SmallBatchPlan, SummaryEntry, ValueKind,
    ZoneLife,
};
use floe_device::Address;

use super::{Log, Purpose, Reservation};
use crate::chunk::shard::{Batch, Pending};
use crate::chunk::stats::add;
use crate::chunk::write_error::{ATTEMPTS, WriteError};

impl Log {
    /// Appends a batch, retrying in other zones, and publishes its records.
    /// Returns the records that no zone accepted.
    pub(crate) async fn append_batch(self: &Arc<Self>, mut records: Batch) -> Batch {
        let mut attempts = 0;
        while attempts < ATTEMPTS {
            self.base.index.retain_newest(&mut records);
            if records.is_empty() {
                break;
            }
            let lengths = records.iter().map(|r| (r.key.len(), r.value.len()));
            let bytes = self.batch_plan(lengths).batch_bytes() as u64;
            let count = records.len() as u32;
            let Some(reservation) = self.reserve(Purpose::User, bytes, count).await else {
                break;
            };
            let life = reservation.life();
            self.base.index.assign_zone(&mut records, life);
            if records.is_empty() {
                break;
            }
            let new: Vec<NewRecord<'_>> = records.iter().map(new_record).collect();
            match self.append(&reservation, &new).await {
                Ok(placed) => {
                    add(&self.base.env.counters.batches, 1);
                    for (record, placed) in records.iter().zip(&placed) {
                        self.publish(record, life, placed);
                    }
                    return Vec::new();
                }
                Err(error) => {
                    self.append_failed(&records, reservation, &error).await;
                    // All unwritable zones are retired now, so the next attempt meets none.
                    attempts += usize::from(!self.leave_unwritable(life.zone, &error).await);
                }
            }
        }
        records
    }

    /// Appends `records` as one batch, and adds them to the zone's summary.
    /// Returns the place of each record.
    pub(crate) async fn append(
        &self,
        reservation: &Reservation,
        records: &[NewRecord<'_>],
    ) -> Result<Vec<SummaryEntry>, WriteError> {
        let (device, life) = (&self.base.env.device, reservation.life());
        let block = self.base.env.block_size();
        let plan = self.batch_plan(records.iter().map(|r| (r.key.len(), r.payload.len())));
        let mut buf = device.allocate(plan.batch_bytes());
        let mut encoder = SmallBatchEncoder::new(&plan, self.base.env.id, life, &mut buf)?;
        let mut placed = Vec::with_capacity(records.len());
        for record in records {
            let payload = encoder.push(record)?;
            placed.push(SummaryEntry {
                hash: record.hash,
                sequence: record.sequence,
                block: payload.payload_offset / block,
                value_bytes: record.payload.len() as u32,
                checksum: payload.checksum,
                expiry_unix_s: record.expiry_unix_s,
                kind: ValueKind::Small,
                key_bytes: record.key.len() as u16,
            });
        }
        encoder.finish()?;
        let placement = reservation.placement();
        let at = device.append(life.zone, buf.freeze(), placement).await?;
        let first_block = (at.offset / u64::from(block)) as u32;
        for record in &mut placed {
            record.block += first_block;
        }
        self.list_records(life.zone, &placed);
        Ok(placed)
    }

    /// Publishes a record, unless it was replaced: then the replacement has
    /// added a tombstone for this life.
    fn publish(&self, record: &Arc<Pending>, life: ZoneLife, placed: &SummaryEntry) {
        let mut shard = self.base.index.shard_of(record.hash).lock();
        if !shard.take_pending(record) {
            return;
        }
        let entry = self.entry(life, placed);
        if let Err(IndexFull) = self.base.index.insert(&mut shard, record.hash, entry) {
            // The record is on flash without an index entry; only a scan would find it.
            drop(self.base.journal.hold(vec![tombstone(record, life)]));
            self.base.index.discard(&mut shard, record);
        }
    }

    /// The layout of a batch of records with these lengths of key and value.
    fn batch_plan(&self, lengths: impl Iterator<Item = (usize, usize)>) -> SmallBatchPlan {
        let mut plan = SmallBatchPlan::new(self.base.env.block_size(), u32::MAX);
        for (key_bytes, value_bytes) in lengths {
            // They fitted when the batch was taken; the encoder rejects others.
            let _ = plan.try_add(key_bytes, value_bytes);
        }
        plan
    }

    /// The index entry of a record in `life`.
    pub(crate) fn entry(&self, life: ZoneLife, placed: &SummaryEntry) -> Entry {
        let offset = u64::from(placed.block) * u64::from(self.base.env.block_size());
        Entry {
            place: Address::new(life.zone, offset),
            len: placed.value_bytes,
            checksum: placed.checksum,
            expiry_unix_s: placed.expiry_unix_s,
        }
    }

    /// Handles a failed append, whose bytes may have reached flash: closes the
    /// zone, and commits tombstones of the records in that life before they are
    /// written elsewhere.
    async fn append_failed(
        &self,
        records: &[Arc<Pending>],
        reservation: Reservation,
        error: &WriteError,
    ) {
        let life = reservation.life();
        tracing::warn!(%error, zone = %life.zone, "an append failed; its values move to another zone");
        add(&self.base.env.counters.write_errors, 1);
        reservation.fail(error);
        let notes = records.iter().map(|record| tombstone(record, life));
        if let Err(error) = self.base.journal.commit(notes.collect()).await {
            tracing::warn!(%error, "the tombstones of a failed append could not be written");
        }
    }
}

fn new_record(record: &Arc<Pending>) -> NewRecord<'_> {
    NewRecord {
        hash: record.hash,
        sequence: record.sequence,
        expiry_unix_s: record.expiry_unix_s,
        flags: RecordFlags::default(),
        key: &record.key,
        payload: &record.value,
    }
}

fn tombstone(record: &Pending, life: ZoneLife) -> Note {
    Note::Tombstone {
        life,
        hash: record.hash,
        sequence: record.sequence,
    }
}
