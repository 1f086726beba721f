//! A large value in a slot: writes the payload, then the descriptor, then the index.

use std::sync::Arc;

use floe_core::layout::{LargeDescriptor, SlotEntry, ValueKind, ZoneLife};
use floe_core::slots::SlotId;
use floe_device::{Address, IoBuf, OpFuture};
use tokio::sync::OwnedSemaphorePermit;

use super::SlotStore;
use crate::chunk::flash_value::Published;
use crate::chunk::stats::add;
use crate::chunk::write_error::WriteError;
use crate::error::CacheError;
use crate::slots::Settled;

/// A large value that is written to a slot, which it holds from its first piece on.
#[derive(Debug)]
pub(crate) struct SlotStream {
    store: Arc<SlotStore>,
    slot: Option<SlotHold>,
}

/// The slot of a large value that is being written; freed on drop.
#[derive(Debug)]
struct SlotHold {
    store: Arc<SlotStore>,
    slot: SlotId,
    life: ZoneLife,
    /// Set until the slot is published or withdrawn.
    held: Option<OwnedSemaphorePermit>,
}

impl SlotStream {
    pub(crate) fn new(store: &Arc<SlotStore>) -> Self {
        SlotStream {
            store: Arc::clone(store),
            slot: None,
        }
    }

    /// The life of the value's zone; the first call waits for a slot. `None` if
    /// there will be none.
    pub(crate) async fn reserve(&mut self) -> Option<ZoneLife> {
        if self.slot.is_none() {
            self.slot = self.store.hold_slot().await;
        }
        self.slot.as_ref().map(|hold| hold.life)
    }

    /// Starts to write `buf` at `offset` of the value.
    pub(crate) fn send(&self, offset: u64, buf: IoBuf) -> Result<OpFuture<Address>, WriteError> {
        let hold = self.slot.as_ref().ok_or(WriteError::Unplaced)?;
        let at = Address::new(hold.slot.zone, self.payload_offset(hold) + offset);
        let (device, handle) = (&self.store.base.env.device, self.store.payload_placement());
        let done = device.write(at, buf.freeze(), handle);
        Ok(OpFuture::new(async move { done.await.map(|()| at) }))
    }

    /// Handles a failed write: the slot is withdrawn.
    pub(crate) fn fail(&mut self, error: &WriteError) {
        tracing::warn!(%error, "a large value could not be written");
        add(&self.store.base.env.counters.write_errors, 1);
        if let Some(mut hold) = self.slot.take() {
            hold.held = None;
            self.store.map.lock().withdraw(hold.slot);
            let zones = &self.store.base.zones;
            zones.notify_changed();
            if let WriteError::Device(error) = error {
                zones.note_unwritable(hold.slot.zone, error);
            }
            self.store.note_shortage(error.is_no_space());
        }
    }

    /// Writes the descriptor and publishes the value. The older value's
    /// invalidation is then as durable as `relaxed` requires. `None` if the
    /// value is not stored.
    pub(crate) async fn publish(
        &mut self,
        mut descriptor: LargeDescriptor,
        relaxed: bool,
    ) -> Result<Option<Published>, CacheError> {
        let store = Arc::clone(&self.store);
        let Some(hold) = &self.slot else {
            return Ok(None);
        };
        // Replaced by the sequence in the table, which is drawn when the value is published.
        descriptor.sequence = store.base.env.draw_sequence();
        let block = self.payload_offset(hold) / u64::from(store.base.env.block_size());
        descriptor.piece_blocks = vec![block as u32];
        let checksum = match store.write_descriptor(&descriptor, hold).await {
            Ok(checksum) => checksum,
            Err(error) => {
                self.fail(&error);
                return Ok(None);
            }
        };
        let Some(hold) = self.slot.take() else {
            return Ok(None);
        };
        let (is_entered, in_tables) = store.replace(hold, &descriptor, checksum);
        store.settle(in_tables, relaxed).await?;
        // As in a log, an acknowledged value is written; if its table fails,
        // the next start loses it.
        let _ = store.tables.settle(Settled::Written).await;
        Ok(is_entered.then(|| Published {
            descriptor: Arc::new(descriptor),
            checksum,
        }))
    }

    /// Frees the slot once `writes`, whose writer was dropped, are complete.
    pub(crate) fn abandon(&mut self, writes: Vec<OpFuture<Address>>) {
        let Some(mut hold) = self.slot.take() else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // Without a runtime nothing can wait for the writes: the slot stays
            // taken until the next start.
            hold.held = None;
            return;
        };
        runtime.spawn(async move {
            for write in writes {
                // A free slot may hold any bytes.
                let _ = write.await;
            }
            drop(hold);
        });
    }

    fn payload_offset(&self, hold: &SlotHold) -> u64 {
        self.store.geometry.payload_offset(hold.slot.slot)
    }
}

impl SlotStore {
    async fn hold_slot(self: &Arc<Self>) -> Option<SlotHold> {
        let permit = Arc::clone(&self.large).acquire_owned().await.ok()?;
        let run = self.take(1).await?;
        let slot = run.ids().next()?;
        Some(SlotHold {
            store: Arc::clone(self),
            slot,
            life: self.base.index.states().life(slot.zone),
            held: Some(permit),
        })
    }

    async fn write_descriptor(
        &self,
        descriptor: &LargeDescriptor,
        hold: &SlotHold,
    ) -> Result<u32, WriteError> {
        let env = &self.base.env;
        let block_size = env.block_size();
        let mut buf = env.device.allocate(descriptor.encoded_bytes(block_size));
        let (_, checksum) = descriptor.encode(env.id, hold.life, block_size, &mut buf)?;
        let at = Address::new(hold.slot.zone, self.geometry.slot_offset(hold.slot.slot));
        let handle = self.payload_placement();
        env.device.write(at, buf.freeze(), handle).await?;
        Ok(checksum)
    }

    /// Publishes the described value in place of its key's older one. Returns
    /// whether the index had room, and whether table changes were queued for
    /// the older one.
    fn replace(
        &self,
        mut hold: SlotHold,
        descriptor: &LargeDescriptor,
        checksum: u32,
    ) -> (bool, bool) {
        let mut shard = self.base.index.shard_of(descriptor.hash).lock();
        let replaced_up_to = self.base.env.draw_sequence();
        let (_, in_tables) = self.invalidate(&mut shard, descriptor.hash, replaced_up_to);
        let entry = SlotEntry {
            hash: descriptor.hash,
            sequence: self.base.env.draw_sequence(),
            value_bytes: descriptor.value_bytes as u32,
            checksum,
            expiry_unix_s: descriptor.expiry_unix_s,
            kind: ValueKind::Large,
            key_bytes: descriptor.key.len() as u16,
        };
        hold.held = None;
        (self.enter(&mut shard, hold.slot, entry), in_tables)
    }

    /// Waits until queued changes are durable, if there are any; if `relaxed`,
    /// only if too many are queued.
    pub(crate) async fn settle(&self, in_tables: bool, relaxed: bool) -> Result<(), CacheError> {
        match (in_tables, relaxed) {
            (false, _) => Ok(()),
            (true, false) => self.tables.settle(Settled::Durable).await,
            (true, true) => {
                self.tables.settle_later().await;
                Ok(())
            }
        }
    }
}

impl Drop for SlotHold {
    fn drop(&mut self) {
        if self.held.is_some() {
            self.store.give_back(&[self.slot]);
        }
    }
}
