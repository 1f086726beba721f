//! Large values wait here for their turn to stream in; see
//! [`floe_core::chunk::Streams`] for when that is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use floe_core::Tick;
use floe_core::chunk::{NotNow, Plan, StreamId, Streams};
use floe_device::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

/// Whose turn it is.
#[derive(Debug)]
pub(crate) struct Turns {
    streams: Mutex<Streams>,
    /// Its only permit belongs to whoever is next: first come, first served.
    next: Semaphore,
    /// A piece landed, or a stream ended.
    changed: Notify,
    closed: AtomicBool,
}

/// A large value's leave to stream in; over when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    stream: StreamId,
    bytes: u64,
}

impl Turns {
    pub(crate) fn new(plan: &Plan) -> Arc<Self> {
        let capacity = plan.data_zones().count() as u64 * plan.geometry.zone_capacity;
        Arc::new(Turns {
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

    /// Waits for the turn of a value of `bytes`, and says whether it had to;
    /// `None` once the engine stops. Whoever waits must hold nothing that a
    /// value whose turn it is may need.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        clock: &Clock,
        bytes: u64,
    ) -> Option<(Turn, Waited)> {
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
                Ok(turn) => return Some((turn, waited)),
                Err(NotNow { retry_at }) => {
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

    /// Waits until all are served that wait now. As those that wait for their
    /// turn, whoever calls must hold nothing that one of them may need.
    pub(crate) async fn pass(&self) {
        // Closed when the engine stops: then nobody waits any more.
        drop(self.next.acquire().await);
    }

    fn begin(self: &Arc<Self>, bytes: u64, now: Tick) -> Result<Turn, NotNow> {
        let stream = self.streams.lock().begin(bytes, now)?;
        Ok(Turn {
            turns: Arc::clone(self),
            stream,
            bytes,
        })
    }

    /// Nobody's turn comes any more.
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

/// Whether somebody had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waited(pub(crate) bool);

async fn until(clock: &Clock, at: Option<Tick>) {
    match at {
        Some(at) => clock.sleep(at.since(clock.now())).await,
        None => std::future::pending().await,
    }
}

impl Turn {
    /// A piece of `bytes` is on its way to the device.
    pub(crate) fn sent(&self, bytes: u64) {
        self.turns.streams.lock().sent(self.stream, bytes);
    }

    /// A piece of `bytes` landed or failed.
    pub(crate) fn landed(&self, bytes: u64) {
        self.turns.streams.lock().landed(self.stream, bytes);
        self.turns.changed.notify_waiters();
    }

    /// Whoever writes this value is waited for, from `now` on.
    pub(crate) fn idle(&self, now: Tick) {
        self.turns.streams.lock().idle(self.stream, now);
        self.turns.changed.notify_waiters();
    }

    /// Whoever writes this value brought something.
    pub(crate) fn busy(&self) {
        self.turns.streams.lock().busy(self.stream);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.streams.lock().end(self.stream, self.bytes);
        self.turns.changed.notify_waiters();
    }
}
