//! Notifications that a queue keeps.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use floe::Origin;
use floe::object::{Consistency, ObjectConfig};
use floe::origin::{MessageQueue, OriginError, QueueMessage, RequestConfig};
use floe_device::Clock;
use floe_server::EventsConfig;
use parking_lot::Mutex;

use crate::support::{MemoryOrigin, Rig, rig_of};

const RECORD: &str = r#"{"Records":[{"s3":{"bucket":{"name":"bucket"},"object":{"key":"key"}}}]}"#;

/// A queue in memory, whose readers get a message each.
struct Queue {
    clock: Clock,
    waiting: Mutex<VecDeque<String>>,
    deleted: Mutex<Vec<String>>,
    /// Requests that fail from now on.
    faults: AtomicU64,
}

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Queue {
            clock: Clock::real(),
            waiting: Mutex::default(),
            deleted: Mutex::default(),
            faults: AtomicU64::new(0),
        })
    }

    fn push(&self, message: &str) {
        self.waiting.lock().push_back(message.into());
    }

    fn check(&self) -> Result<(), OriginError> {
        let take = |faults: u64| faults.checked_sub(1);
        match self.faults.fetch_update(Relaxed, Relaxed, take) {
            Ok(_) => Err(OriginError::Unreachable("by the test".into())),
            Err(_) => Ok(()),
        }
    }

    fn has_deleted(&self, message: &str) -> bool {
        self.deleted.lock().iter().any(|one| one == message)
    }
}

#[async_trait::async_trait]
impl MessageQueue for Queue {
    async fn receive(&self) -> Result<Vec<QueueMessage>, OriginError> {
        self.check()?;
        self.clock.sleep(Duration::from_millis(5)).await;
        let message = self.waiting.lock().pop_front();
        let message = message.map(|body| QueueMessage {
            receipt: body.clone(),
            body,
        });
        Ok(message.into_iter().collect())
    }

    async fn delete(&self, messages: &[QueueMessage]) -> Result<(), OriginError> {
        let receipts = messages.iter().map(|message| message.receipt.clone());
        match self.check() {
            Ok(()) => self.deleted.lock().extend(receipts),
            // They are delivered again.
            Err(error) => {
                self.waiting.lock().extend(receipts);
                return Err(error);
            }
        }
        Ok(())
    }

    async fn send(&self, body: &str) -> Result<(), OriginError> {
        self.check()?;
        self.push(body);
        Ok(())
    }
}

/// A server that reads a queue, and nothing over HTTP.
async fn rig(queue: &Arc<Queue>, timeout_seconds: u64) -> Rig {
    let clock = Clock::real();
    let origin = Arc::new(MemoryOrigin::default());
    *origin.queue.lock() = Some(Arc::clone(queue) as Arc<dyn MessageQueue>);
    origin.store("bucket", "key", "first");
    let guarded = Origin::from_backend(origin.clone(), RequestConfig::default(), clock.clone());
    let config = ObjectConfig {
        consistency: Consistency::Events,
        events_timeout_seconds: timeout_seconds,
        ..ObjectConfig::default()
    };
    rig_of(guarded.unwrap(), origin, clock, config, |config| {
        config.events = Some(EventsConfig {
            queue: "of the test".into(),
            ..EventsConfig::default()
        });
    })
    .await
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let clock = Clock::real();
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        clock.sleep(Duration::from_millis(10)).await;
    }
    panic!("not within 30 s: {what}");
}

#[tokio::test]
async fn messages_of_a_queue_take_the_place_of_requests() {
    let queue = Queue::new();
    let rig = rig(&queue, 60).await;
    until("its own heartbeat", || rig.cache.is_notified()).await;
    let read = async || rig.get("/bucket/key", &[]).await.text().to_owned();
    assert_eq!(read().await, "first");
    rig.origin.store("bucket", "key", "second");
    assert_eq!(read().await, "first");
    // Failures of the queue delay a message, and lose none.
    queue.faults.store(6, Relaxed);
    queue.push(RECORD);
    until("the message", || queue.has_deleted(RECORD)).await;
    assert_eq!(read().await, "second");

    // One that cannot be understood may be about any object.
    rig.origin.store("bucket", "key", "third");
    queue.push("[]");
    until("the message", || queue.has_deleted("[]")).await;
    assert!(!rig.cache.is_notified());
    assert_eq!(read().await, "third");
}

#[tokio::test]
async fn a_queue_that_is_silent_or_shared_is_not_relied_on() {
    // A heartbeat comes back at once, and the next one is due in 15 s.
    let queue = Queue::new();
    let rig = rig(&queue, 60).await;
    until("its own heartbeat", || rig.cache.is_notified()).await;
    let beat = |unix_seconds: u64| {
        let name = "0".repeat(32);
        format!(r#"{{"floe":"{name}","unix_seconds":{unix_seconds},"nanoseconds":1}}"#)
    };
    // One that an earlier run left.
    let left = beat(Clock::real().unix_seconds() - 3_600);
    queue.push(&left);
    until("the heartbeat", || queue.has_deleted(&left)).await;
    assert!(rig.cache.is_notified());
    let of_another = beat(Clock::real().unix_seconds() + 60);
    queue.push(&of_another);
    until("the heartbeat", || queue.has_deleted(&of_another)).await;
    assert!(!rig.cache.is_notified());

    // A queue that takes heartbeats and returns none.
    let sink = Queue::new();
    let rig = self::rig(&sink, 1).await;
    until("its own heartbeat", || rig.cache.is_notified()).await;
    sink.faults.store(u64::MAX, Relaxed);
    until("the silence", || !rig.cache.is_notified()).await;
}
