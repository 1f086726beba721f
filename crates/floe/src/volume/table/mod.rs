//! The table of blocks on the cache device, and the log of its changes.
//!
//! | file | content |
//! |---|---|
//! | `log.rs` | batches of records, one after another in a ring |
//! | `checkpoint.rs` | moving records from the log to the table's pages |
//! | `recover.rs` | opening both |
//! | `read.rs` | reading the blocks that an earlier run left |
//! | `grow.rs` | moving the table to where a larger one has room |
//! | `intents.rs` | the write-intent bitmap |
//! | `disk.rs` | the device, and the places of things on it |
//!
//! A record is enqueued once its block's data has been written, so a batch never
//! names data that is not on the device. Two things can be waited for. A record that
//! is *written* survives the death of the process. One that is *stable* survives a
//! power loss: a commit flushes the device, and writes a batch that says so
//! durably. After a power loss recovery follows stable batches only.
//!
//! Must not depend on: volumes, requests, policies.

mod checkpoint;
mod disk;
mod grow;
mod intents;
mod log;
mod read;
mod recover;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use floe_core::layout::volume::{
    BlockBatch, BlockRecord, VolumeEntry, VolumeFormatPlan, VolumeSuperblock,
};
use floe_core::volume::Extent;
use floe_device::DeviceError;
use parking_lot::Mutex;
use tokio::sync::MutexGuard;

use super::error::VolumeError;
use super::finish::Finish;
use intents::Intents;
pub(super) use intents::Writer;
use log::Log;

pub(crate) use checkpoint::{ByPage, COPIES_BYTES};
pub(crate) use disk::Disk;
pub(crate) use read::Trust;
pub(super) use read::{Found, FoundBlock, Unread};
pub(crate) use recover::{Boot, following, read_log};
pub(super) use recover::{Opened, format, open, read_superblock};

/// A number of records: all those that were enqueued before.
pub(super) type Ticket = u64;

/// The table of blocks of an open cache.
#[derive(Debug)]
pub(super) struct BlockTable {
    /// The device. Growing the cache changes the plan.
    disk: Mutex<Disk>,
    places_offset: u64,
    /// Records whose data has been written, and that wait for a batch.
    queue: Mutex<Queue>,
    /// The end of the log. Held while a batch is written.
    log: tokio::sync::Mutex<Log>,
    /// One checkpoint at a time.
    checkpoint: tokio::sync::Mutex<()>,
    /// Commits begun. One has ended when the lock of the log is free.
    commits: AtomicU64,
    /// The last record that answers of changes wait for.
    needed: AtomicU64,
    intents: Arc<Intents>,
    /// Nothing is written any more.
    is_closed: AtomicBool,
    /// The first failure, after which nothing is written any more.
    failure: Mutex<Option<Arc<str>>>,
    has_failed: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    records: Vec<BlockRecord>,
    /// Records ever enqueued, and those of them that are in the log or stable.
    enqueued: Ticket,
    written: Ticket,
    stable: Ticket,
}

impl BlockTable {
    fn new(disk: Disk, superblock: VolumeSuperblock) -> Self {
        BlockTable {
            intents: Arc::new(Intents::new(&superblock.intents)),
            is_closed: AtomicBool::new(false),
            log: tokio::sync::Mutex::new(Log::new(disk.clone(), superblock)),
            places_offset: disk.plan.places_offset,
            disk: Mutex::new(disk),
            queue: Mutex::default(),
            checkpoint: tokio::sync::Mutex::new(()),
            commits: AtomicU64::new(0),
            needed: AtomicU64::new(0),
            failure: Mutex::new(None),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Byte offset of the first place on the device.
    pub(super) fn places_offset(&self) -> u64 {
        self.places_offset
    }

    fn disk(&self) -> Disk {
        self.disk.lock().clone()
    }

    /// The layout of the device.
    pub(super) fn plan(&self) -> VolumeFormatPlan {
        self.disk.lock().plan
    }

    /// Adds records, all of whose data has been written. To be called under the lock
    /// that guards their blocks, so that records of one block keep their order.
    pub(super) fn enqueue(&self, records: impl IntoIterator<Item = BlockRecord>) -> Ticket {
        let mut queue = self.queue.lock();
        if self.has_failed.load(SeqCst) {
            // None is written any more.
            return queue.enqueued;
        }
        let before = queue.records.len();
        queue.records.extend(records);
        queue.enqueued += (queue.records.len() - before) as u64;
        queue.enqueued
    }

    /// Notes that answers wait for the records before `ticket`.
    pub(super) fn need(&self, ticket: Ticket) {
        self.needed.fetch_max(ticket, SeqCst);
    }

    /// The last ticket that answers wait for.
    pub(super) fn needed(&self) -> Ticket {
        self.needed.load(SeqCst)
    }

    /// Records that are not stable yet.
    pub(super) fn unstable(&self) -> u64 {
        let queue = self.queue.lock();
        queue.enqueued - queue.stable
    }

    /// Waits until the records before `ticket` survive the death of the process.
    pub(super) async fn written(self: &Arc<Self>, ticket: Ticket) -> Result<(), VolumeError> {
        if self.queue.lock().written < ticket {
            let table = Arc::clone(self);
            // Records that have left the queue reach the log even if the caller goes.
            Finish::new(async move { table.write_until(ticket).await }).await?;
        }
        self.check()
    }

    async fn write_until(self: &Arc<Self>, ticket: Ticket) -> Result<(), VolumeError> {
        while self.queue.lock().written < ticket {
            let mut log = self.log_with_room().await?;
            let records = {
                let mut queue = self.queue.lock();
                if queue.written >= ticket {
                    break;
                }
                queue.take()
            };
            let count = records.len() as u64;
            self.watch(log.append(records, false).await)?;
            self.queue.lock().written += count;
            self.checkpoint_ahead(&log);
        }
        Ok(())
    }

    /// Makes all records that were enqueued before the call, and all writes to the
    /// device that had ended, survive a power loss. Calls at one time share a commit.
    pub(super) async fn commit(self: &Arc<Self>) -> Result<(), VolumeError> {
        let table = Arc::clone(self);
        Finish::new(async move { table.commit_all().await }).await
    }

    async fn commit_all(self: &Arc<Self>) -> Result<(), VolumeError> {
        let seen = self.commits.load(SeqCst);
        let ticket = self.queue.lock().enqueued;
        let before_last_batch = ticket.saturating_sub(BlockBatch::RECORDS_MAX as u64);
        self.write_until(before_last_batch).await?;
        let mut log = self.log_with_room().await?;
        if self.commits.load(SeqCst) > seen && self.queue.lock().stable >= ticket {
            // One began after the call, had all its records, and has ended.
            return self.check();
        }
        self.commits.fetch_add(1, SeqCst);
        let records = self.queue.lock().take();
        let count = records.len() as u64;
        self.watch(log.append(records, true).await)?;
        {
            let mut queue = self.queue.lock();
            queue.written += count;
            queue.stable = queue.written;
        }
        self.checkpoint_ahead(&log);
        Ok(())
    }

    /// Counts a write to blocks of `extent` until the result is dropped. To be called before
    /// [`BlockTable::intend`].
    pub(super) fn begin_write(&self, extent: Extent) -> Writer {
        Writer::new(&self.intents, extent)
    }

    /// True if all write-intent bits of `extent` are durable.
    pub(super) fn has_intents(&self, extent: Extent) -> bool {
        self.intents.has_all(extent)
    }

    /// Makes the write-intent bits of `extent` durable, before a write to blocks there.
    pub(super) async fn intend(self: &Arc<Self>, extent: Extent) -> Result<(), VolumeError> {
        if self.has_intents(extent) {
            return Ok(());
        }
        self.intents
            .in_order(|intents| self.enqueue(intents.missing(extent)));
        self.commit().await?;
        self.intents.set(extent);
        Ok(())
    }

    /// Bits of areas that had no writer since the last call, and have none.
    pub(super) fn idle_intents(&self) -> Vec<u32> {
        self.intents.idle()
    }

    /// Clears those of the `idle` bits whose areas still had no writer: both devices have
    /// the earlier writes durably.
    pub(super) fn settle_intents(&self, idle: &[u32]) {
        self.intents.in_order(|intents| {
            let cleared = idle.iter().copied().filter(|bit| intents.clear(*bit));
            self.enqueue(cleared.map(|bit| BlockRecord::Settled { bit }));
        });
    }

    /// The log, once it has room for everything that is in the queue.
    async fn log_with_room(self: &Arc<Self>) -> Result<MutexGuard<'_, Log>, VolumeError> {
        loop {
            self.check()?;
            let log = self.log.lock().await;
            if self.is_closed.load(SeqCst) {
                return Err(VolumeError::Closed);
            }
            if log.has_room() {
                return Ok(log);
            }
            drop(log);
            self.checkpoint().await?;
        }
    }

    /// Starts a checkpoint when the log is half full, unless one runs.
    fn checkpoint_ahead(self: &Arc<Self>, log: &Log) {
        if log.is_half_full() && self.checkpoint.try_lock().is_ok() {
            let table = Arc::clone(self);
            tokio::spawn(async move {
                if let Err(error) = table.checkpoint().await {
                    tracing::error!(%error, "the log of blocks cannot be moved to the table");
                }
            });
        }
    }

    /// Remembers a failure: the log cannot be written any more.
    fn watch<T>(&self, result: Result<T, DeviceError>) -> Result<T, VolumeError> {
        result.map_err(|error| {
            self.fail(&error);
            VolumeError::cache(error)
        })
    }

    /// Remembers that the table cannot be written any more, and why.
    pub(super) fn fail(&self, error: &dyn std::error::Error) -> VolumeError {
        let reason: Arc<str> = error.to_string().into();
        self.failure.lock().get_or_insert(Arc::clone(&reason));
        self.has_failed.store(true, SeqCst);
        VolumeError::Table(reason)
    }

    /// Notes in the superblock that every block is as its backing device says, and that
    /// all else is durable: a clean stop, with the stamps in `volumes`.
    pub(super) async fn close(
        self: &Arc<Self>,
        volumes: Vec<VolumeEntry>,
    ) -> Result<(), VolumeError> {
        let table = Arc::clone(self);
        Finish::new(async move { table.write_clean_stop(volumes).await }).await
    }

    async fn write_clean_stop(&self, volumes: Vec<VolumeEntry>) -> Result<(), VolumeError> {
        // One that runs writes to the device.
        let _checkpoint = self.checkpoint.lock().await;
        self.is_closed.store(true, SeqCst);
        self.change_superblock(|superblock| {
            superblock.is_clean = true;
            superblock.witness = 0;
            superblock.intents.fill(0);
            superblock.volumes = volumes;
        })
        .await
    }

    /// Writes nothing any more, once the call has ended.
    pub(super) async fn stop(&self) {
        let _no_checkpoint = self.checkpoint.lock().await;
        let _no_batch = self.log.lock().await;
        self.is_closed.store(true, SeqCst);
    }

    /// Changes the list of volumes, durably.
    pub(super) async fn set_volumes(&self, volumes: Vec<VolumeEntry>) -> Result<(), VolumeError> {
        self.change_superblock(|superblock| superblock.volumes = volumes)
            .await
    }

    /// Changes the number of the witness, durably.
    pub(super) async fn set_witness(&self, witness: u32) -> Result<(), VolumeError> {
        self.change_superblock(|superblock| superblock.witness = witness)
            .await
    }

    /// Changes the superblock, durably.
    async fn change_superblock(
        &self,
        change: impl FnOnce(&mut VolumeSuperblock),
    ) -> Result<(), VolumeError> {
        self.check()?;
        let mut log = self.log.lock().await;
        let result = log.write_superblock(change).await;
        self.watch(result)
    }

    /// Fails if the log cannot be written any more.
    pub(super) fn check(&self) -> Result<(), VolumeError> {
        if !self.has_failed.load(SeqCst) {
            return Ok(());
        }
        let reason = self.failure.lock().clone().unwrap_or_default();
        Err(VolumeError::Table(reason))
    }
}

impl Queue {
    /// Takes the oldest records, one batch at most.
    fn take(&mut self) -> Vec<BlockRecord> {
        if self.records.len() <= BlockBatch::RECORDS_MAX {
            return std::mem::take(&mut self.records);
        }
        let rest = self.records.split_off(BlockBatch::RECORDS_MAX);
        std::mem::replace(&mut self.records, rest)
    }
}
