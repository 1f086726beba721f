//! Values into slots: payload first, then the table entry, which is queued at
//! the moment at which the index serves the value.
//!
//! A crash in between forgets the value, or finds an entry whose checksum is
//! not that of what lies there. Both are misses.

use std::sync::Arc;

use floe_core::chunk::Entry;
use floe_core::hash::KeyHash;
use floe_core::layout::{
    LargeDescriptor, RecordFlags, Sequence, SlotEntry, ValueKind, ZoneLife, small_checksum,
};
use floe_core::slots::{SlotId, SlotRun};
use floe_device::{Address, IoBuf, OpFuture, Placement as Handle};
use tokio::sync::OwnedSemaphorePermit;

use super::super::shard::Pending;
use super::super::stats::add;
use super::super::write::{ATTEMPTS, WriteError};
use super::super::{Engine, Space};
use super::{Change, Settled, SlotSpace};

/// Writes of a value into one slot before it is out of use.
const TRIES: usize = 2;

impl Engine {
    /// Writes small values into slots; what no slot takes is given up.
    pub(in crate::chunk) async fn write_to_slots(
        self: &Arc<Self>,
        slots: &SlotSpace,
        mut records: Vec<Arc<Pending>>,
    ) {
        for _ in 0..ATTEMPTS {
            records = self.write_once(slots, records).await;
            if records.is_empty() {
                break;
            }
        }
        for record in records {
            self.give_up(&record);
        }
        // The records' room is given back only now, which bounds what the tables have to write.
        let _ = slots.tables.settle(Settled::Written).await;
    }

    /// Returns the records whose write failed.
    async fn write_once(
        self: &Arc<Self>,
        slots: &SlotSpace,
        mut rest: Vec<Arc<Pending>>,
    ) -> Vec<Arc<Pending>> {
        let mut failed = Vec::new();
        loop {
            rest.retain(|record| self.is_wanted(record));
            if rest.is_empty() {
                return failed;
            }
            let Some(first) = self.take_slots(slots, rest.len()).await else {
                failed.append(&mut rest);
                return failed;
            };
            // What else is free is written at the same time; nobody waits while holding slots.
            let mut writes = Vec::new();
            let mut next = Some(first);
            while let Some(run) = next {
                let records = rest.drain(..run.slots.len()).collect();
                writes.push(self.write_run(slots, run, records));
                next = if rest.is_empty() {
                    None
                } else {
                    self.try_take_slots(slots, rest.len())
                };
            }
            for mut records in futures::future::join_all(writes).await {
                failed.append(&mut records);
            }
        }
    }

    /// Writes one record into each slot of `run`. Returns those that failed.
    async fn write_run(
        &self,
        slots: &SlotSpace,
        run: SlotRun,
        records: Vec<Arc<Pending>>,
    ) -> Vec<Arc<Pending>> {
        let life = self.states.life(run.zone);
        let ids: Vec<SlotId> = run.ids().collect();
        let mut writes = Vec::new();
        let mut start = 0;
        while start < records.len() {
            let end = start + self.neighbours(slots, &records[start..]);
            let data = self.start_write(slots, ids[start], &records[start..end]);
            writes.push((start..end, data));
            start = end;
        }
        let mut failed = Vec::new();
        for (range, done) in writes {
            let mut written = done.await;
            for _ in 1..TRIES {
                if let Err(error) = &written {
                    tracing::warn!(%error, zone = %run.zone, "a write into slots failed and is tried again");
                    add(&self.counters.write_errors, 1);
                    written = self
                        .start_write(slots, ids[range.start], &records[range.clone()])
                        .await;
                }
            }
            match written {
                Ok(()) => {
                    for index in range {
                        self.publish_in_slot(slots, &records[index], ids[index], life);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, zone = %run.zone, "a write into slots failed; its values move to others");
                    add(&self.counters.write_errors, 1);
                    for index in range {
                        slots.map.lock().withdraw(ids[index]);
                        failed.push(Arc::clone(&records[index]));
                    }
                    self.note_no_space(error.is_no_space());
                    // Perhaps those were the last ones that somebody waited for.
                    self.space.notify_waiters();
                }
            }
        }
        failed
    }

    /// Where a write failed for want of space below the device, zones that were
    /// never divided have none either: they go out of use, and slots that were
    /// written before are evicted and written again.
    pub(in crate::chunk) fn note_no_space(&self, no_space: bool) {
        if no_space {
            let withdrawn = self.zones.lock().withdraw_unwritten();
            self.note_withdrawn(withdrawn);
            self.reclaim_wake.notify_one();
        }
    }

    /// How many of `records`, written side by side, leave no gap between them.
    fn neighbours(&self, slots: &SlotSpace, records: &[Arc<Pending>]) -> usize {
        let slot_bytes = slots.geometry.slot_bytes;
        let most = (self.plan.batch_bytes / slot_bytes).max(1) as usize;
        let fills = |record: &Arc<Pending>| {
            slots.geometry.descriptor_bytes == 0
                && self.plan.geometry.round_up(record.value.len() as u64) == slot_bytes
        };
        let full = records.iter().take(most - 1).take_while(|r| fills(r));
        // The one behind the last full one may be shorter.
        (full.count() + 1).min(records.len())
    }

    fn start_write(
        &self,
        slots: &SlotSpace,
        first: SlotId,
        records: &[Arc<Pending>],
    ) -> OpFuture<()> {
        let slot_bytes = slots.geometry.slot_bytes as usize;
        let last = records.last().map_or(0, |record| record.value.len());
        let bytes = self.plan.geometry.round_up(last as u64) as usize
            + records.len().saturating_sub(1) * slot_bytes;
        if bytes == 0 {
            return OpFuture::ready(Ok(()));
        }
        let mut buf = self.device.allocate(bytes);
        for (number, record) in records.iter().enumerate() {
            let start = number * slot_bytes;
            let end = start + record.value.len();
            buf[start..end].copy_from_slice(&record.value);
            let padded = (start + slot_bytes).min(bytes);
            buf[end..padded].fill(0);
        }
        let at = Address::new(first.zone, slots.geometry.payload_offset(first.slot));
        self.device.write(at, buf.freeze(), self.slot_handle())
    }

    /// Payloads and metadata get different placement handles where there are any.
    pub(in crate::chunk) fn slot_handle(&self) -> Handle {
        Handle(u16::from(self.plan.geometry.placement_handles >= 2))
    }

    /// A record's payload is written: serve it from there and queue its table
    /// entry, unless it was replaced meanwhile.
    fn publish_in_slot(
        &self,
        slots: &SlotSpace,
        record: &Arc<Pending>,
        slot: SlotId,
        life: ZoneLife,
    ) {
        let checksum = small_checksum(&record.key, life.generation, &record.value);
        let mut shard = self.shard_of(record.hash).lock();
        let current = shard
            .pending
            .get(&record.hash)
            .is_some_and(|pending| Arc::ptr_eq(&pending.record, record));
        if !current {
            drop(shard);
            self.give_slots_back(slots, &[slot]);
            return;
        }
        shard.pending.remove(&record.hash);
        let entry = SlotEntry {
            hash: record.hash,
            sequence: record.sequence,
            value_bytes: record.value.len() as u32,
            checksum,
            expiry_unix_s: record.expiry_unix_s,
            kind: ValueKind::Small,
            key_bytes: record.key.len() as u16,
        };
        if !self.enter_slot(slots, &mut shard, slot, entry) {
            self.refuse(record.hash, &mut shard, entry.value_bytes);
        }
    }

    /// Makes `entry` in `slot` the live value of its key, whose former one was
    /// invalidated. False if the index is full.
    fn enter_slot(
        &self,
        slots: &SlotSpace,
        shard: &mut super::super::Shard,
        slot: SlotId,
        entry: SlotEntry,
    ) -> bool {
        let known = Entry {
            place: slots.place(slot, entry.kind),
            len: entry.value_bytes,
            checksum: entry.checksum,
            expiry_unix_s: entry.expiry_unix_s,
        };
        if shard.index.insert(entry.hash, known).is_err() {
            self.give_slots_back(slots, &[slot]);
            return false;
        }
        self.states.add_live(slot.zone, u64::from(known.len));
        slots.tables.push(Change::Set { slot, entry });
        true
    }

    /// A slot for a large value; waits for one. `None` when there never will be one.
    pub(in crate::chunk) async fn hold_slot(self: &Arc<Self>) -> Option<SlotHold> {
        let Space::Slots(slots) = &self.placement else {
            return None;
        };
        let permit = Arc::clone(&slots.large).acquire_owned().await.ok()?;
        let run = self.take_slots(slots, 1).await?;
        let slot = SlotId {
            zone: run.zone,
            slot: run.slots.start,
        };
        Some(SlotHold {
            engine: Arc::clone(self),
            slot,
            life: self.states.life(slot.zone),
            held: Some(permit),
        })
    }
}

/// A slot that a large value is being written into.
#[derive(Debug)]
pub(in crate::chunk) struct SlotHold {
    engine: Arc<Engine>,
    slot: SlotId,
    life: ZoneLife,
    /// Until the slot has been entered or is out of use.
    held: Option<OwnedSemaphorePermit>,
}

/// What is written into a large value's slot, besides its bytes.
pub(in crate::chunk) struct LargeValue {
    pub(in crate::chunk) hash: KeyHash,
    pub(in crate::chunk) key: Vec<u8>,
    pub(in crate::chunk) len: u64,
    pub(in crate::chunk) expiry_unix_s: u32,
    pub(in crate::chunk) stream: Sequence,
    pub(in crate::chunk) unit_checksums: Vec<u32>,
}

impl SlotHold {
    pub(in crate::chunk) fn life(&self) -> ZoneLife {
        self.life
    }

    fn space(&self) -> Option<&SlotSpace> {
        match &self.engine.placement {
            Space::Slots(slots) => Some(slots),
            Space::Log(_) => None,
        }
    }

    fn payload_offset(&self) -> u64 {
        self.space()
            .map_or(0, |slots| slots.geometry.payload_offset(self.slot.slot))
    }

    /// Starts to write `buf` at `offset` of the value.
    pub(in crate::chunk) fn write(&self, offset: u64, buf: IoBuf) -> OpFuture<Address> {
        let at = Address::new(self.slot.zone, self.payload_offset() + offset);
        let handle = self.engine.slot_handle();
        let done = self.engine.device.write(at, buf.freeze(), handle);
        OpFuture::new(async move { done.await.map(|()| at) })
    }

    /// Writes the descriptor of the value whose payload is written.
    pub(in crate::chunk) async fn describe(
        &self,
        value: LargeValue,
    ) -> Result<(Arc<LargeDescriptor>, u32), WriteError> {
        let engine = &self.engine;
        let block_size = engine.plan.geometry.block_size;
        let descriptor = LargeDescriptor {
            hash: value.hash,
            // What is newest is decided by the table's, which is taken when the value is entered.
            sequence: engine.next_sequence(),
            stream: value.stream,
            key: value.key,
            value_bytes: value.len,
            expiry_unix_s: value.expiry_unix_s,
            flags: RecordFlags::default(),
            piece_bytes: engine.plan.piece_bytes,
            piece_blocks: vec![(self.payload_offset() / u64::from(block_size)) as u32],
            unit_checksums: value.unit_checksums,
        };
        let mut buf = engine.device.allocate(descriptor.encoded_bytes(block_size));
        let (_, checksum) = descriptor.encode(engine.id, self.life, block_size, &mut buf)?;
        let offset = self
            .space()
            .map_or(0, |slots| slots.geometry.slot_offset(self.slot.slot));
        let at = Address::new(self.slot.zone, offset);
        engine
            .device
            .write(at, buf.freeze(), engine.slot_handle())
            .await?;
        Ok((Arc::new(descriptor), checksum))
    }

    /// Makes the described value the newest of its key and waits until what it
    /// replaced is as dead as `relaxed` asks for. False if the index is full.
    pub(in crate::chunk) async fn enter(
        mut self,
        descriptor: &LargeDescriptor,
        checksum: u32,
        relaxed: bool,
    ) -> Result<bool, crate::error::CacheError> {
        let engine = Arc::clone(&self.engine);
        let Space::Slots(slots) = &engine.placement else {
            return Ok(false);
        };
        let (entered, deaths) = {
            let mut shard = engine.shard_of(descriptor.hash).lock();
            let replaced_up_to = engine.next_sequence();
            let (_, deaths) = engine.invalidate(&mut shard, descriptor.hash, replaced_up_to);
            let entry = SlotEntry {
                hash: descriptor.hash,
                sequence: engine.next_sequence(),
                value_bytes: descriptor.value_bytes as u32,
                checksum,
                expiry_unix_s: descriptor.expiry_unix_s,
                kind: ValueKind::Large,
                key_bytes: descriptor.key.len() as u16,
            };
            self.held = None;
            let entered = engine.enter_slot(slots, &mut shard, self.slot, entry);
            (entered, deaths)
        };
        engine.settle_as(deaths, relaxed).await?;
        // As with a log, what is acknowledged is written; a table that fails costs it its next start.
        let _ = slots.tables.settle(Settled::Written).await;
        Ok(entered)
    }

    /// The slot could not be written: it is not used again.
    pub(in crate::chunk) fn fail(mut self) {
        self.held = None;
        if let Some(slots) = self.space() {
            slots.map.lock().withdraw(self.slot);
        }
        self.engine.space.notify_waiters();
    }

    /// Gives the slot back once `writes`, which nobody waits for, are over.
    pub(in crate::chunk) fn abandon(self, writes: Vec<OpFuture<Address>>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // Nobody can wait: the slot stays taken until the next start.
            let mut hold = self;
            hold.held = None;
            return;
        };
        runtime.spawn(async move {
            for write in writes {
                // Whether it worked does not matter to a slot that is free.
                let _ = write.await;
            }
            drop(self);
        });
    }
}

impl Drop for SlotHold {
    fn drop(&mut self) {
        if self.held.is_some()
            && let Some(slots) = self.space()
        {
            self.engine.give_slots_back(slots, &[self.slot]);
        }
    }
}
