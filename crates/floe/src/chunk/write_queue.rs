//! Small values that wait for a batch, in the order of their puts.

use std::collections::VecDeque;
use std::sync::Arc;

use floe_core::layout::SmallBatchPlan;
use futures::FutureExt as _;
use futures::future::{Shared, join_all};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::shard::{Batch, Pending};

/// The queue of one cache.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    block_size: u32,
    batch_bytes: u64,
    state: Mutex<State>,
    /// Notified when the first value is queued, while a batch is due, and at the end.
    wake: Notify,
}

#[derive(Debug)]
struct State {
    records: VecDeque<Arc<Pending>>,
    bytes: u64,
    /// A flush waits for the records.
    is_urgent: bool,
    /// There is no task any more that takes records.
    is_closed: bool,
    /// Shared by every record since the last flush; the receiver wakes when all are dropped.
    unwritten: Arc<oneshot::Sender<()>>,
    written: oneshot::Receiver<()>,
    /// The same of earlier flushes, as long as one of their records is left.
    earlier: Vec<Shared<oneshot::Receiver<()>>>,
}

impl WriteQueue {
    pub(crate) fn new(block_size: u32, batch_bytes: u64) -> Self {
        let (unwritten, written) = oneshot::channel();
        let state = State {
            records: VecDeque::new(),
            bytes: 0,
            is_urgent: false,
            is_closed: false,
            unwritten: Arc::new(unwritten),
            written,
            earlier: Vec::new(),
        };
        WriteQueue {
            block_size,
            batch_bytes,
            state: Mutex::new(state),
            wake: Notify::new(),
        }
    }

    /// Held by a new record until it is published or dropped.
    pub(crate) fn unwritten(&self) -> Arc<oneshot::Sender<()>> {
        Arc::clone(&self.state.lock().unwritten)
    }

    /// False if no task would ever take the record.
    #[must_use]
    pub(crate) fn push(&self, record: Arc<Pending>) -> bool {
        let mut state = self.state.lock();
        if state.is_closed {
            return false;
        }
        let is_first = state.records.is_empty();
        state.bytes += bytes_of(&record);
        state.records.push_back(record);
        let wakes = is_first || self.is_due(&state);
        drop(state);
        if wakes {
            self.wake.notify_one();
        }
        true
    }

    /// Takes no more records. Returns those that no task will take.
    pub(crate) fn close(&self) -> Batch {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.records.drain(..).collect()
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits until every record that began before the call is published or dropped.
    pub(crate) async fn drain(&self) {
        let (unwritten, written) = oneshot::channel();
        let earlier = {
            let mut state = self.state.lock();
            state.is_urgent = !state.records.is_empty();
            drop(std::mem::replace(&mut state.unwritten, Arc::new(unwritten)));
            let previous = std::mem::replace(&mut state.written, written);
            // Another flush may still wait, or have been given up.
            state.earlier.retain(|flush| flush.peek().is_none());
            state.earlier.push(previous.shared());
            state.earlier.clone()
        };
        self.wake.notify_one();
        // The senders are never used: a channel closes when the last of its records is dropped.
        join_all(earlier).await;
    }

    /// Waits for records; returns whether their batch must be written at once.
    /// `None` once there are none and the engine `is_stopped`.
    pub(crate) async fn wait(&self, is_stopped: impl Fn() -> bool) -> Option<bool> {
        loop {
            let woken = self.wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            {
                let state = self.state.lock();
                if !state.records.is_empty() {
                    return Some(self.is_due(&state));
                }
            }
            if is_stopped() {
                return None;
            }
            woken.await;
        }
    }

    /// Waits until the records fill a batch, or a flush waits for them.
    pub(crate) async fn wait_until_due(&self) {
        loop {
            self.wake.notified().await;
            if self.is_due(&self.state.lock()) {
                return;
            }
        }
    }

    fn is_due(&self, state: &State) -> bool {
        state.is_urgent || state.bytes >= self.batch_bytes
    }

    /// Takes the oldest records that fit one batch.
    pub(crate) fn take_batch(&self) -> Batch {
        let mut state = self.state.lock();
        let mut fill = SmallBatchPlan::new(self.block_size, self.batch_bytes as u32);
        let mut records = Vec::new();
        while let Some(record) = state.records.front() {
            if !fill.try_add(record.key.len(), record.value.len()) && !records.is_empty() {
                break;
            }
            state.bytes -= bytes_of(record);
            records.extend(state.records.pop_front());
        }
        if state.records.is_empty() {
            state.is_urgent = false;
        }
        records
    }
}

fn bytes_of(record: &Pending) -> u64 {
    (record.key.len() + record.value.len()) as u64
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::{Context, Wake, Waker};

    use bytes::Bytes;
    use floe_core::hash::KeyHash;
    use floe_core::layout::Sequence;
    use futures::FutureExt as _;

    use super::*;
    use crate::chunk::write_buffer::WriteBuffer;

    fn queue() -> WriteQueue {
        WriteQueue::new(4096, 64 << 10)
    }

    fn record(queue: &WriteQueue, hash: u64, value_bytes: usize) -> Arc<Pending> {
        let room = WriteBuffer::new(1024).try_reserve(1).unwrap();
        Arc::new(Pending {
            hash: KeyHash(hash),
            key: b"key".as_slice().into(),
            value: Bytes::from(vec![0; value_bytes]).into(),
            sequence: Sequence(hash),
            expiry_unix_s: 0,
            _room: room,
            _unwritten: queue.unwritten(),
        })
    }

    #[test]
    fn batches_take_the_oldest_records_that_fit() {
        let queue = queue();
        let half = queue.batch_bytes as usize / 2;
        for hash in 0..3 {
            assert!(queue.push(record(&queue, hash, half)));
        }
        let batches = [queue.take_batch(), queue.take_batch(), queue.take_batch()];
        let hashes: Vec<Vec<u64>> = batches
            .iter()
            .map(|batch| batch.iter().map(|record| record.hash.0).collect())
            .collect();
        assert_eq!(hashes.concat(), [0, 1, 2]);
        assert!(!hashes[0].is_empty() && hashes[0].len() < 3);
    }

    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn only_the_first_value_and_a_full_batch_wake_the_task() {
        let queue = queue();
        let wakes = Arc::new(Wakes(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let mut first = Box::pin(queue.wait(|| false));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(queue.push(record(&queue, 1, 100)));
        assert_eq!(wakes.0.load(Relaxed), 1);
        drop(first);

        let mut due = Box::pin(queue.wait_until_due());
        assert!(due.as_mut().poll(&mut context).is_pending());
        for hash in 2..100 {
            assert!(queue.push(record(&queue, hash, 100)));
        }
        assert_eq!(wakes.0.load(Relaxed), 1);
        assert!(queue.push(record(&queue, 100, queue.batch_bytes as usize)));
        assert_eq!(wakes.0.load(Relaxed), 2);
        assert!(due.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn a_batch_is_due_when_it_is_full_or_a_flush_waits() {
        let queue = queue();
        assert!(queue.wait(|| false).now_or_never().is_none());
        assert_eq!(queue.wait(|| true).now_or_never(), Some(None));
        assert!(queue.push(record(&queue, 1, 100)));
        assert_eq!(queue.wait(|| false).now_or_never(), Some(Some(false)));
        let mut drained = Box::pin(queue.drain());
        assert!((&mut drained).now_or_never().is_none());
        assert_eq!(queue.wait(|| false).now_or_never(), Some(Some(true)));
        drop(queue.take_batch());
        assert!(drained.now_or_never().is_some());
        assert!(queue.push(record(&queue, 2, queue.batch_bytes as usize)));
        assert_eq!(queue.wait(|| false).now_or_never(), Some(Some(true)));
    }

    #[test]
    fn each_flush_waits_for_all_earlier_records_and_no_later_one() {
        let queue = queue();
        let early = record(&queue, 1, 100);
        let mut flushes: Vec<_> = (0..3).map(|_| Box::pin(queue.drain())).collect();
        for flush in &mut flushes {
            assert!(flush.now_or_never().is_none());
        }
        // One is given up.
        drop(flushes.remove(0));
        let late = record(&queue, 2, 100);
        drop(early);
        assert!(
            flushes
                .into_iter()
                .all(|flush| flush.now_or_never().is_some())
        );
        assert!(queue.drain().now_or_never().is_none());
        drop(late);
        assert!(queue.drain().now_or_never().is_some());
        assert!(queue.state.lock().earlier.len() <= 2);
    }

    #[test]
    fn a_closed_queue_gives_its_records_up() {
        let queue = queue();
        assert!(queue.push(record(&queue, 1, 100)));
        let mut drained = Box::pin(queue.drain());
        assert!((&mut drained).now_or_never().is_none());
        let left = queue.close();
        assert_eq!(left.len(), 1);
        assert!(!queue.push(record(&queue, 2, 100)));
        drop(left);
        assert!(drained.now_or_never().is_some());
    }
}
