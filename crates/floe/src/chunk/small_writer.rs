//! Small values: acknowledged into the write buffer, gathered into batches,
//! written, and only then entered into the index.
//!
//! A panic in the task of one batch poisons the values of that batch: they are
//! forgotten and counted as dropped, and the next flush fails. A panic in the
//! gathering task does the same to all values that wait, and poisons the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use floe_core::chunk::{Entry, Found};
use floe_core::hash::KeyHash;
use floe_core::layout::{Note, Sequence};
use tokio::sync::Semaphore;

use super::base::Base;
use super::environment::Environment;
use super::index::Index;
use super::journal::Journal;
use super::placement::Placement;
use super::shard::{Batch, PENDING_BYTES, Pending, PendingSlot};
use super::stats::add;
use super::tombstones::Tombstones;
use super::write_buffer::{BufferRoom, WriteBuffer};
use super::write_queue::WriteQueue;
use crate::abort::OnAbort;
use crate::error::CacheError;

/// Most appends in flight, which keeps a drive busy.
const WRITE_DEPTH: usize = 8;

/// How a value is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    /// See [`Entry::expiry_unix_s`](floe_core::chunk::Entry::expiry_unix_s).
    pub(crate) expiry_unix_s: u32,
    /// See [`PutOptions::relaxed`](crate::value::PutOptions::relaxed).
    pub(crate) is_relaxed: bool,
    /// The value is on flash already, with this entry, and is written again unless it has changed
    /// since. It does not count as a put, and the RAM tier keeps it only if it had it.
    pub(crate) again: Option<Entry>,
}

/// A put of a small value that was begun.
#[derive(Debug)]
pub(crate) struct Begun {
    /// Those of what it replaces.
    pub(crate) tombstones: Tombstones,
    /// False if no task will write the value any more.
    pub(crate) is_queued: bool,
}

/// The writer of small values.
#[derive(Debug)]
pub(crate) struct SmallWriter {
    env: Arc<Environment>,
    index: Arc<Index>,
    journal: Arc<Journal>,
    placement: Placement,
    buffer: Arc<WriteBuffer>,
    queue: WriteQueue,
    /// One permit per batch that is being written.
    permits: Arc<Semaphore>,
    /// Times that a task gave values up, and how many of them a flush has reported.
    abandoned: AtomicU64,
    reported: AtomicU64,
}

impl SmallWriter {
    pub(crate) fn new(base: &Base, placement: &Placement, buffer: &Arc<WriteBuffer>) -> Arc<Self> {
        let Base {
            env,
            index,
            journal,
            ..
        } = base.clone();
        Arc::new(SmallWriter {
            queue: WriteQueue::new(env.block_size(), env.plan.batch_bytes),
            permits: Arc::new(Semaphore::new(WRITE_DEPTH)),
            placement: placement.clone(),
            buffer: Arc::clone(buffer),
            abandoned: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            env,
            index,
            journal,
        })
    }

    /// Accepts a value; waits while the write buffer is full.
    pub(crate) async fn put(
        &self,
        key: &[u8],
        value: Bytes,
        write: Write,
    ) -> Result<(), CacheError> {
        let room = self.room_for(key.len() + value.len()).await?;
        self.put_into(room, key, value, write).await.map(drop)
    }

    /// Room for a key and value of so many bytes; waits while the write buffer is full.
    pub(crate) async fn room_for(&self, bytes: usize) -> Result<BufferRoom, CacheError> {
        let reserved = self.buffer.reserve(bytes as u64 + PENDING_BYTES).await;
        reserved.map_err(|_| self.env.write_error())
    }

    /// Room for a key and value of so many bytes, if it is there now.
    pub(crate) fn room_now(&self, bytes: usize) -> Option<BufferRoom> {
        self.buffer.try_reserve(bytes as u64 + PENDING_BYTES)
    }

    /// As [`put`](Self::put), into room that the caller has. False if the value that was to be
    /// written again is no longer the newest of its key.
    pub(crate) async fn put_into(
        &self,
        room: BufferRoom,
        key: &[u8],
        value: Bytes,
        write: Write,
    ) -> Result<bool, CacheError> {
        let Some(begun) = self.begin_put(room, key, value, write) else {
            return Ok(false);
        };
        let settled = self.placement.settle(begun.tombstones, write.is_relaxed);
        settled.await?;
        match begun.is_queued {
            true => Ok(true),
            false => Err(self.env.write_error()),
        }
    }

    /// Accepts a value into room that the caller has. What it replaces is invalid, and until its
    /// tombstones are settled a crash may bring that back. `None` if the value that was to be
    /// written again is no longer the newest of its key.
    pub(crate) fn begin_put(
        &self,
        room: BufferRoom,
        key: &[u8],
        value: Bytes,
        write: Write,
    ) -> Option<Begun> {
        let bytes = (key.len() + value.len()) as u64;
        let (hash, expiry_unix_s) = (self.env.hash(key), write.expiry_unix_s);
        let (record, tombstones) = {
            let mut shard = self.index.shard_of(hash).lock();
            if let Some(entry) = write.again
                && (shard.pending.contains_key(&hash)
                    || shard.index.get(hash) != Some(Found::Live(entry)))
            {
                return None;
            }
            // Two sequences, so that a tombstone of the replaced value never covers this one.
            let replaced_up_to = self.env.draw_sequence();
            let sequence = self.env.draw_sequence();
            let is_kept = write.again.is_none() || shard.ram_contains(hash, key, &self.env.clock);
            let (_, tombstones) = self.placement.invalidate(&mut shard, hash, replaced_up_to);
            let record = Arc::new(Pending {
                hash,
                key: key.into(),
                value: value.clone().into(),
                sequence,
                expiry_unix_s,
                _room: room,
                _unwritten: self.queue.unwritten(),
            });
            if is_kept {
                self.index
                    .keep_in_ram(&mut shard, hash, key, value.into(), expiry_unix_s);
            }
            let pending = PendingSlot {
                record: Arc::clone(&record),
                life: None,
            };
            shard.pending.insert(hash, pending);
            (record, tombstones)
        };
        let is_queued = self.queue.push(Arc::clone(&record));
        if !is_queued {
            self.index.give_up(&record);
        }
        if write.again.is_none() {
            add(&self.env.counters.puts, 1);
            add(&self.env.counters.put_bytes, bytes);
        }
        Some(Begun {
            tombstones,
            is_queued,
        })
    }

    /// Waits until every value accepted before the call is written or dropped.
    /// Fails if a task that panicked gave values up and no call that began later has reported it.
    pub(crate) async fn drain(&self) -> Result<(), CacheError> {
        let (reported, before) = (self.reported.load(SeqCst), self.abandoned.load(SeqCst));
        self.queue.drain().await;
        // A value that a task gives up meanwhile may belong to a later flush, which reports it too.
        self.reported.fetch_max(before, SeqCst);
        match self.abandoned.load(SeqCst) > reported {
            true => Err(CacheError::NotDurable(
                "a task that wrote values panicked; they are forgotten".into(),
            )),
            false => Ok(()),
        }
    }

    /// Wakes the task, to let it end.
    pub(crate) fn wake(&self) {
        self.queue.wake();
    }

    /// Collects batches until the engine has stopped and the queue is empty.
    pub(crate) async fn run(self: Arc<Self>) {
        // However the task ends: no other takes records.
        let _close = OnAbort::new(|| self.close_queue());
        while let Some(is_urgent) = self.queue.wait(|| self.env.is_stopped()).await {
            if !is_urgent {
                let delay = Duration::from_nanos(self.env.plan.flush_delay_ns);
                tokio::select! {
                    biased;
                    () = self.env.clock.sleep(delay) => {}
                    () = self.queue.wait_until_due() => {}
                }
            }
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
                return;
            };
            let batch = self.queue.take_batch();
            if batch.is_empty() {
                continue;
            }
            let writer = Arc::clone(&self);
            tokio::spawn(async move {
                writer.write(batch).await;
                drop(permit);
            });
        }
    }

    async fn write(&self, batch: Batch) {
        // Not the records themselves, whose room is given back as soon as they are written.
        let records: Vec<_> = batch.iter().map(|r| (r.hash, r.sequence)).collect();
        let abandoned = OnAbort::new(|| self.abandon(records));
        for record in self.placement.write_batch(batch).await {
            self.index.give_up(&record);
        }
        abandoned.done();
    }

    fn close_queue(&self) {
        let records = self.queue.close();
        if !records.is_empty() {
            self.abandon(records.iter().map(|r| (r.hash, r.sequence)));
        }
    }

    /// Gives up those of `records` that are still pending: the task that was to
    /// write them is gone.
    fn abandon(&self, records: impl IntoIterator<Item = (KeyHash, Sequence)>) {
        self.abandoned.fetch_add(1, SeqCst);
        for (hash, sequence) in records {
            let mut shard = self.index.shard_of(hash).lock();
            let Some(slot) = shard.take_pending_at(hash, sequence) else {
                continue;
            };
            if let Some(life) = slot.life {
                // It may be on flash, where only a scan finds it. Under the shard's lock: the key's
                // next write or delete must find the tombstone.
                self.index.states().add_tombstone(life.zone);
                drop(self.journal.hold(vec![Note::Tombstone {
                    life,
                    hash,
                    sequence,
                }]));
            }
            self.index.discard(&mut shard, &slot.record);
        }
    }
}
