//! Schedules large values that stream in; see
//! [`floe_core::chunk::Streams`] for the rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use floe_core::Tick;
use floe_core::chunk::{Backoff, Plan, StreamId, Streams};
use floe_device::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

/// Permits for large values to stream in.
#[derive(Debug)]
pub(crate) struct StreamScheduler {
    streams: Mutex<Streams>,
    /// Its only permit belongs to the next value in line: first come, first served.
    next: Semaphore,
    /// A piece was written, or a stream ended.
    changed: Notify,
    closed: AtomicBool,
}

/// Permission for one large value to stream in, until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    scheduler: Arc<StreamScheduler>,
    stream: StreamId,
    bytes: u64,
}

impl StreamScheduler {
    pub(crate) fn new(plan: &Plan) -> Arc<Self> {
        let capacity = plan.data_zones().count() as u64 * plan.geometry.zone_capacity;
        Arc::new(StreamScheduler {
            streams: Mutex::new(Streams::new(
                capacity,
                plan.write_buffer_bytes,
                u64::from(plan.stream_bytes()),
            )),
            next: Semaphore::new(1),
            changed: Notify::new(),
            closed: AtomicBool::new(false),
        })
    }

    /// Waits for the permit of a value of `bytes`, and says whether it had to;
    /// `None` once the engine stops. The caller must hold nothing that a value
    /// with a permit may need.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        clock: &Clock,
        bytes: u64,
    ) -> Option<(StreamPermit, Waited)> {
        let mut waited = Waited(false);
        let _next = match self.next.try_acquire() {
            Ok(next) => next,
            Err(_) => {
                waited = Waited(true);
                self.next.acquire().await.ok()?
            }
        };
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the question, so that an answer in between is not missed.
            changed.as_mut().enable();
            if self.closed.load(SeqCst) {
                return None;
            }
            match self.begin(bytes, clock.now()) {
                Ok(permit) => return Some((permit, waited)),
                Err(Backoff { retry_at }) => {
                    waited = Waited(true);
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = until(clock, retry_at) => {}
                    }
                }
            }
        }
    }

    /// Waits until every value that waits now has its permit. The caller must
    /// hold nothing that one of them may need.
    pub(crate) async fn pass(&self) {
        // Closed when the engine stops: no value waits then.
        drop(self.next.acquire().await);
    }

    fn begin(self: &Arc<Self>, bytes: u64, now: Tick) -> Result<StreamPermit, Backoff> {
        let stream = self.streams.lock().begin(bytes, now)?;
        Ok(StreamPermit {
            scheduler: Arc::clone(self),
            stream,
            bytes,
        })
    }

    /// Grants no permit any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.next.close();
        self.changed.notify_waiters();
    }

    /// Bytes promised to values that are streaming in.
    pub(crate) fn promised_bytes(&self) -> u64 {
        self.streams.lock().promised_bytes()
    }
}

/// Whether the value had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waited(pub(crate) bool);

async fn until(clock: &Clock, at: Option<Tick>) {
    match at {
        Some(at) => clock.sleep(at.since(clock.now())).await,
        None => std::future::pending().await,
    }
}

impl StreamPermit {
    /// A piece of `bytes` is on its way to the device.
    pub(crate) fn sent(&self, bytes: u64) {
        self.scheduler.streams.lock().sent(self.stream, bytes);
    }

    /// A piece of `bytes` was written, or failed.
    pub(crate) fn written(&self, bytes: u64) {
        self.scheduler.streams.lock().written(self.stream, bytes);
        self.scheduler.changed.notify_waiters();
    }

    /// Marks the stream idle as of `now`: its source is stalled.
    pub(crate) fn idle(&self, now: Tick) {
        self.scheduler.streams.lock().idle(self.stream, now);
        self.scheduler.changed.notify_waiters();
    }

    /// Marks the stream busy: its source brought bytes.
    pub(crate) fn busy(&self) {
        self.scheduler.streams.lock().busy(self.stream);
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.scheduler.streams.lock().end(self.stream, self.bytes);
        self.scheduler.changed.notify_waiters();
    }
}
