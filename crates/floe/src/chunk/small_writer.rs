//! Small values: acknowledged into the write buffer, gathered into batches,
//! written, and only then entered into the index.
//!
//! A panic in the gathering task poisons the writer: values stay in the write
//! buffer, which fills up. A panic in the task of one batch leaves the values of
//! that batch in the write buffer. They are served from there, and a flush waits
//! for them for ever.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::base::Base;
use super::environment::Environment;
use super::index::Index;
use super::placement::Placement;
use super::shard::{PENDING_BYTES, Pending, PendingSlot};
use super::stats::add;
use super::write_buffer::WriteBuffer;
use super::write_queue::WriteQueue;
use crate::error::CacheError;
use crate::value::PutOptions;

/// The writer of small values.
#[derive(Debug)]
pub(crate) struct SmallWriter {
    env: Arc<Environment>,
    index: Arc<Index>,
    placement: Placement,
    buffer: Arc<WriteBuffer>,
    queue: WriteQueue,
    /// One for each batch that is being written.
    permits: Arc<Semaphore>,
}

impl SmallWriter {
    pub(crate) fn new(base: &Base, placement: &Placement, buffer: &Arc<WriteBuffer>) -> Arc<Self> {
        let Base { env, index, .. } = base.clone();
        Arc::new(SmallWriter {
            queue: WriteQueue::new(env.block_size(), env.plan.batch_bytes),
            permits: Arc::new(Semaphore::new(env.plan.write_depth as usize)),
            placement: placement.clone(),
            buffer: Arc::clone(buffer),
            env,
            index,
        })
    }

    /// Accepts a value; waits while the write buffer is full.
    pub(crate) async fn put(
        &self,
        key: &[u8],
        value: Bytes,
        options: PutOptions,
    ) -> Result<(), CacheError> {
        let bytes = (key.len() + value.len()) as u64;
        let room = self.buffer.reserve(bytes + PENDING_BYTES).await?;
        let (hash, expiry_unix_s) = (self.env.hash(key), self.env.expiry(options));
        let (record, tombstones) = {
            let mut shard = self.index.shard_of(hash).lock();
            // Two sequences, so that a tombstone for the replaced value never covers this one.
            let replaced_up_to = self.env.draw_sequence();
            let sequence = self.env.draw_sequence();
            let (_, tombstones) = self.placement.invalidate(&mut shard, hash, replaced_up_to);
            let record = Arc::new(Pending {
                hash,
                key: key.into(),
                value: value.clone(),
                sequence,
                expiry_unix_s,
                _room: room,
                _unwritten: self.queue.unwritten(),
            });
            self.index
                .keep_in_ram(&mut shard, hash, key, value, expiry_unix_s);
            let pending = PendingSlot {
                record: Arc::clone(&record),
                life: None,
            };
            shard.pending.insert(hash, pending);
            (record, tombstones)
        };
        self.queue.push(record);
        add(&self.env.counters.puts, 1);
        add(&self.env.counters.put_bytes, bytes);
        self.placement.settle(tombstones, options.relaxed).await
    }

    /// Waits until every value accepted before the call is written or given up.
    pub(crate) async fn drain(&self) {
        self.queue.drain().await;
    }

    /// Lets the task notice that the engine has stopped.
    pub(crate) fn wake(&self) {
        self.queue.wake();
    }

    /// Gathers batches until the engine has stopped and the queue is empty.
    pub(crate) async fn run(self: Arc<Self>) {
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
                for record in writer.placement.write_batch(batch).await {
                    writer.index.give_up(&record);
                }
                drop(permit);
            });
        }
    }
}
