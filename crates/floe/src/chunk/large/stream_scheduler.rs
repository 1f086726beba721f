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
    /// Held by the value that is next in line: first come, first served.
    next: Semaphore,
    /// Notified when a piece was written or a stream ended.
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

    /// Waits for a permit for a value of `bytes`, and returns whether it had to
    /// wait; `None` once the engine stops. The caller must hold nothing that a
    /// value with a permit may need.
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
            // Registered before the check, so no change is lost.
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

    /// Waits until every value that is waiting now has a permit. The caller
    /// must hold nothing that one of them may need.
    pub(crate) async fn pass(&self) {
        // Closed when the engine stops: then no value waits.
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

    /// Grants no further permits.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.next.close();
        self.changed.notify_waiters();
    }

    /// Bytes reserved for streaming values.
    pub(crate) fn promised_bytes(&self) -> u64 {
        self.streams.lock().promised_bytes()
    }
}

/// True if the value had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waited(pub(crate) bool);

async fn until(clock: &Clock, at: Option<Tick>) {
    match at {
        Some(at) => clock.sleep(at.since(clock.now())).await,
        None => std::future::pending().await,
    }
}

impl StreamPermit {
    /// Records that a piece of `bytes` was sent to the device.
    pub(crate) fn sent(&self, bytes: u64) {
        self.scheduler.streams.lock().sent(self.stream, bytes);
    }

    /// Records that a piece of `bytes` was written or failed.
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

#[cfg(test)]
mod tests {
    use floe_core::Geometry;
    use floe_core::chunk::ChunkConfig;
    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::*;

    /// Of a cache of 48 MiB, of which one value may be promised a quarter.
    fn scheduler() -> Arc<StreamScheduler> {
        let geometry = Geometry::in_place(14, 4 << 20);
        let plan = Plan::new(&ChunkConfig::default(), &geometry);
        StreamScheduler::new(&plan.expect("the plan fits"))
    }

    const MOST: u64 = 12 << 20;

    type Waiting<'a> = BoxFuture<'a, Option<(StreamPermit, Waited)>>;

    /// A value of `bytes` that has to wait.
    fn wait<'a>(scheduler: &'a Arc<StreamScheduler>, clock: &'a Clock, bytes: u64) -> Waiting<'a> {
        let mut waiting = scheduler.wait(clock, bytes).boxed();
        assert!((&mut waiting).now_or_never().is_none());
        waiting
    }

    #[test]
    fn values_get_their_permits_in_the_order_in_which_they_came() {
        let (scheduler, clock) = (scheduler(), Clock::real());
        let first = scheduler.wait(&clock, MOST).now_or_never().flatten();
        let (permit, waited) = first.expect("nothing streams in");
        assert_eq!(waited, Waited(false));
        let second = wait(&scheduler, &clock, MOST);
        // It would fit, but another value is before it.
        let third = wait(&scheduler, &clock, 1);
        drop(permit);
        let (permit, waited) = second.now_or_never().flatten().expect("the first ended");
        assert_eq!(waited, Waited(true));
        drop(permit);
        assert!(third.now_or_never().flatten().is_some());
        assert_eq!(scheduler.promised_bytes(), 0);
    }

    #[test]
    fn a_cancelled_wait_lets_the_next_value_pass() {
        let (scheduler, clock) = (scheduler(), Clock::real());
        let permit = scheduler.wait(&clock, MOST).now_or_never().flatten();
        let second = wait(&scheduler, &clock, MOST);
        let mut third = wait(&scheduler, &clock, MOST);
        drop(second);
        assert!((&mut third).now_or_never().is_none());
        drop(permit);
        assert!(third.now_or_never().flatten().is_some());
    }

    #[test]
    fn closing_ends_all_waits() {
        let (scheduler, clock) = (scheduler(), Clock::real());
        let permit = scheduler.wait(&clock, MOST).now_or_never().flatten();
        let second = wait(&scheduler, &clock, MOST);
        let third = wait(&scheduler, &clock, MOST);
        scheduler.close();
        assert!(second.now_or_never().is_some_and(|permit| permit.is_none()));
        assert!(third.now_or_never().is_some_and(|permit| permit.is_none()));
        assert!(scheduler.pass().now_or_never().is_some());
        drop(permit);
        assert_eq!(scheduler.promised_bytes(), 0);
    }
}
