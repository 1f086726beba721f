//! Writes small values into slots: first the payload, then the table entry,
//! which is queued when the index publishes the value.
//!
//! A crash in between loses the value, or finds an entry whose checksum differs
//! from the bytes. Both are misses.

use std::collections::VecDeque;
use std::sync::Arc;

use floe_core::layout::{SlotEntry, ValueKind, ZoneLife, small_checksum};
use floe_core::slots::{SlotId, SlotRun};
use floe_device::{Address, DeviceError, OpFuture};

use super::SlotStore;
use crate::chunk::shard::{Batch, Pending};
use crate::chunk::stats::add;
use crate::chunk::write_error::ATTEMPTS;
use crate::slots::Settled;

/// Attempts to write a value into one slot before the slot is withdrawn.
const TRIES: usize = 2;

/// Slots that are being written. Those that are left when it is dropped are not
/// used again: their task panicked, and a write into them may still land.
struct HeldSlots<'a> {
    store: &'a SlotStore,
    slots: VecDeque<SlotId>,
}

impl Drop for HeldSlots<'_> {
    fn drop(&mut self) {
        if !self.slots.is_empty() {
            let mut map = self.store.map.lock();
            self.slots.iter().for_each(|&slot| map.withdraw(slot));
            drop(map);
            // A write may wait for a slot that will never be free.
            self.store.base.zones.notify_changed();
        }
    }
}

impl SlotStore {
    /// Writes small values into slots. Returns the records that no slot accepted.
    pub(crate) async fn write_batch(self: &Arc<Self>, mut records: Batch) -> Batch {
        let mut attempts = 0;
        while attempts < ATTEMPTS && !records.is_empty() {
            records = self.write_once(records).await;
            // All unwritable zones are retired now, so the next attempt meets none.
            match self.base.zones.take_unwritable() {
                Some((zone, state)) => self.retire_unwritable(zone, state).await,
                None => attempts += 1,
            }
        }
        // The caller's write permit is returned only now, which bounds the
        // tables' pending writes.
        let _ = self.tables.settle(Settled::Written).await;
        records
    }

    /// Writes `rest` once. Returns the records whose write failed.
    async fn write_once(self: &Arc<Self>, mut rest: Batch) -> Batch {
        let mut failed = Vec::new();
        loop {
            self.base.index.retain_newest(&mut rest);
            if rest.is_empty() {
                return failed;
            }
            let Some(first) = self.take(rest.len()).await else {
                failed.append(&mut rest);
                return failed;
            };
            // Other free slots are written concurrently; a wait never holds slots.
            let mut writes = Vec::new();
            let mut next = Some(first);
            while let Some(run) = next {
                let records = rest.drain(..run.slots.len()).collect();
                writes.push(self.write_run(run, records));
                next = if rest.is_empty() {
                    None
                } else {
                    self.try_take(rest.len())
                };
            }
            for mut records in futures::future::join_all(writes).await {
                failed.append(&mut records);
            }
        }
    }

    /// Writes one record into each slot of `run`. Returns those that failed.
    async fn write_run(&self, run: SlotRun, records: Batch) -> Batch {
        let life = self.base.index.states().life(run.zone);
        let ids: Vec<SlotId> = run.ids().collect();
        let mut writes = Vec::new();
        let mut start = 0;
        while start < records.len() {
            let end = start + self.neighbours(&records[start..]);
            let write = self.start_write(ids[start], &records[start..end]);
            writes.push((start..end, write));
            start = end;
        }
        let mut failed = Vec::new();
        let mut held = HeldSlots {
            store: self,
            slots: ids.iter().copied().collect(),
        };
        for (range, write) in writes {
            let (ids, records) = (&ids[range.clone()], &records[range]);
            let written = self.retry(write.await, ids[0], records).await;
            held.slots.drain(..ids.len());
            match written {
                Ok(()) => {
                    for (record, &slot) in records.iter().zip(ids) {
                        self.publish(record, slot, life);
                    }
                }
                Err(error) => {
                    self.withdraw_slots(ids, &error);
                    failed.extend_from_slice(records);
                }
            }
        }
        failed
    }

    /// Repeats a failed write.
    async fn retry(
        &self,
        mut written: Result<(), DeviceError>,
        first: SlotId,
        records: &[Arc<Pending>],
    ) -> Result<(), DeviceError> {
        for _ in 1..TRIES {
            if let Err(error) = &written
                && error.unwritable().is_none()
            {
                tracing::warn!(%error, zone = %first.zone, "a write into slots failed and is retried");
                add(&self.base.env.counters.write_errors, 1);
                written = self.start_write(first, records).await;
            }
        }
        written
    }

    /// Withdraws `slots` after a permanent write failure.
    fn withdraw_slots(&self, slots: &[SlotId], error: &DeviceError) {
        tracing::warn!(%error, zone = %slots[0].zone, "a write into slots failed; its values move to other slots");
        add(&self.base.env.counters.write_errors, 1);
        {
            let mut map = self.map.lock();
            slots.iter().for_each(|&slot| map.withdraw(slot));
        }
        self.base.zones.note_unwritable(slots[0].zone, error);
        self.note_shortage(error.is_no_space());
        // A write may wait for a slot that will never be free.
        self.base.zones.notify_changed();
    }

    /// If the storage below the device is full, undivided zones have no space
    /// either: withdraws them, so that slots in use are evicted and rewritten.
    pub(super) fn note_shortage(&self, is_no_space: bool) {
        if is_no_space {
            self.base.zones.withdraw_unwritten();
        }
    }

    /// The number of `records` that leave no gap when they are written next to each other.
    fn neighbours(&self, records: &[Arc<Pending>]) -> usize {
        let slot_bytes = self.geometry.slot_bytes;
        let most = (self.base.env.plan.batch_bytes / slot_bytes).max(1) as usize;
        let fills = |record: &Arc<Pending>| {
            let bytes = self
                .base
                .env
                .plan
                .geometry
                .round_up(record.value.len() as u64);
            self.geometry.descriptor_bytes == 0 && bytes == slot_bytes
        };
        let full = records.iter().take(most - 1).take_while(|r| fills(r));
        // The record after the last full one may be shorter.
        (full.count() + 1).min(records.len())
    }

    fn start_write(&self, first: SlotId, records: &[Arc<Pending>]) -> OpFuture<()> {
        let slot_bytes = self.geometry.slot_bytes as usize;
        let last = records.last().map_or(0, |record| record.value.len());
        let bytes = self.base.env.plan.geometry.round_up(last as u64) as usize
            + records.len().saturating_sub(1) * slot_bytes;
        if bytes == 0 {
            return OpFuture::ready(Ok(()));
        }
        let mut buf = self.base.env.device.allocate(bytes);
        for (number, record) in records.iter().enumerate() {
            let start = number * slot_bytes;
            let end = start + record.value.len();
            buf[start..end].copy_from_slice(&record.value);
            let padded = (start + slot_bytes).min(bytes);
            buf[end..padded].fill(0);
        }
        let at = Address::new(first.zone, self.geometry.payload_offset(first.slot));
        let handle = self.payload_placement();
        self.base.env.device.write(at, buf.freeze(), handle)
    }

    /// Publishes a written record and queues its table entry, unless it was replaced meanwhile.
    fn publish(&self, record: &Arc<Pending>, slot: SlotId, life: ZoneLife) {
        let checksum = small_checksum(&record.key, life.generation, &record.value);
        let mut shard = self.base.index.shard_of(record.hash).lock();
        if !shard.take_pending(record) {
            drop(shard);
            self.give_back(&[slot]);
            return;
        }
        let entry = SlotEntry {
            hash: record.hash,
            sequence: record.sequence,
            value_bytes: record.value.len() as u32,
            checksum,
            expiry_unix_s: record.expiry_unix_s,
            kind: ValueKind::Small,
            key_bytes: record.key.len() as u16,
        };
        if !self.enter(&mut shard, slot, entry) {
            self.base.index.discard(&mut shard, record);
        }
    }
}
