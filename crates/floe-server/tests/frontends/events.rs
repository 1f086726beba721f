//! Notifications that a queue keeps.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use floe::Origin;
use floe::object::{Consistency, ObjectConfig};
use floe::origin::{MessageQueue, OriginError, QueueMessage, RequestConfig};
use floe_device::Clock;
use floe_server::EventsConfig;
use parking_lot::Mutex;
use serde_json::Value;

use crate::support::{MemoryOrigin, Rig, rig_of};

pub(crate) const RECORD: &str =
    r#"{"Records":[{"s3":{"bucket":{"name":"bucket"},"object":{"key":"key"}}}]}"#;

/// A queue in memory, whose readers get a message each.
struct Queue {
    clock: Clock,
    waiting: Mutex<VecDeque<QueueMessage>>,
    deleted: Mutex<Vec<String>>,
    /// Heartbeats of the server.
    heartbeats: Mutex<Vec<String>>,
    /// Requests that fail from now on.
    faults: AtomicU64,
    /// Another reader takes the next heartbeat.
    loses: AtomicBool,
}

/// By the clock of the queue, the time of the first heartbeat of the server.
const FIRST_MS: u64 = 1_000;

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Queue {
            clock: Clock::real(),
            waiting: Mutex::default(),
            deleted: Mutex::default(),
            heartbeats: Mutex::default(),
            faults: AtomicU64::new(0),
            loses: AtomicBool::new(false),
        })
    }

    /// Adds a message, and waits until it was processed.
    async fn process(&self, message: &str, sent_unix_ms: u64) {
        self.deleted.lock().clear();
        self.waiting.lock().push_back(QueueMessage {
            receipt: message.into(),
            body: message.into(),
            sent_unix_ms: Some(sent_unix_ms),
        });
        let is_deleted = || self.deleted.lock().iter().any(|one| one == message);
        until("the message is deleted", is_deleted).await;
    }

    fn check(&self) -> Result<(), OriginError> {
        let take = |faults: u64| faults.checked_sub(1);
        match self.faults.fetch_update(Relaxed, Relaxed, take) {
            Ok(_) => Err(OriginError::Unreachable("by the test".into())),
            Err(_) => Ok(()),
        }
    }

    /// The server's first heartbeat, sent so many seconds earlier by its wall clock.
    fn heartbeat(&self, seconds_earlier: u64) -> String {
        let heartbeats = self.heartbeats.lock();
        let mut heartbeat: Value = serde_json::from_str(&heartbeats[0]).unwrap();
        let sent = heartbeat["unix_seconds"].as_u64().unwrap();
        heartbeat["unix_seconds"] = (sent - seconds_earlier).into();
        heartbeat.to_string()
    }
}

#[async_trait::async_trait]
impl MessageQueue for Queue {
    async fn receive(&self) -> Result<Vec<QueueMessage>, OriginError> {
        self.check()?;
        // As a queue that waits for messages.
        for _ in 0..200 {
            let message = self.waiting.lock().pop_front();
            if let Some(message) = message {
                return Ok(vec![message]);
            }
            self.clock.sleep(Duration::from_millis(5)).await;
        }
        Ok(Vec::new())
    }

    async fn delete(&self, messages: &[QueueMessage]) -> Result<(), OriginError> {
        match self.check() {
            Ok(()) => {
                let receipts = messages.iter().map(|message| message.receipt.clone());
                self.deleted.lock().extend(receipts);
                Ok(())
            }
            // They are delivered again.
            Err(error) => {
                self.waiting.lock().extend(messages.iter().cloned());
                Err(error)
            }
        }
    }

    async fn send(&self, body: &str) -> Result<(), OriginError> {
        self.check()?;
        let sent = FIRST_MS + self.heartbeats.lock().len() as u64;
        self.heartbeats.lock().push(body.to_owned());
        if self.loses.swap(false, Relaxed) {
            return Ok(());
        }
        self.waiting.lock().push_back(QueueMessage {
            receipt: body.into(),
            body: body.into(),
            sent_unix_ms: Some(sent),
        });
        Ok(())
    }
}

/// A server that reads a queue, and has got its first heartbeat back.
async fn heard(timeout_seconds: u64) -> (Arc<Queue>, Rig) {
    let queue = Queue::new();
    let origin = Arc::new(MemoryOrigin::default());
    *origin.queue.lock() = Some(Arc::clone(&queue) as Arc<dyn MessageQueue>);
    let config = EventsConfig {
        queue: "of the test".into(),
        ..EventsConfig::default()
    };
    let rig = events_rig(origin, timeout_seconds, config).await;
    until("its own heartbeat", || rig.cache.is_notified()).await;
    (queue, rig)
}

/// A server in mode `events`, whose origin holds `bucket/key`.
pub(crate) async fn events_rig(
    origin: Arc<MemoryOrigin>,
    timeout_seconds: u64,
    events: EventsConfig,
) -> Rig {
    let clock = Clock::real();
    origin.store("bucket", "key", "first");
    let guarded = Origin::from_backend(origin.clone(), RequestConfig::default(), clock.clone());
    let config = ObjectConfig {
        consistency: Consistency::Events,
        events_timeout_seconds: timeout_seconds,
        ..ObjectConfig::default()
    };
    rig_of(guarded.unwrap(), origin, clock, config, |config| {
        config.events = Some(events);
    })
    .await
}

pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let clock = Clock::real();
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        clock.sleep(Duration::from_millis(10)).await;
    }
    panic!("not within 30 s: {what}");
}

/// So that no second heartbeat comes while a test looks.
pub(crate) const LONG_SECONDS: u64 = 3_600;

#[tokio::test]
async fn messages_of_a_queue_take_the_place_of_requests() {
    let (queue, rig) = heard(LONG_SECONDS).await;
    let read = async || rig.get("/bucket/key", &[]).await.text().to_owned();
    assert_eq!(read().await, "first");
    rig.origin.store("bucket", "key", "second");
    assert_eq!(read().await, "first");
    queue.process(RECORD, FIRST_MS).await;
    assert!(rig.cache.is_notified());
    assert_eq!(read().await, "second");

    // One that cannot be understood may be about any object.
    rig.origin.store("bucket", "key", "third");
    queue.process("[]", FIRST_MS).await;
    assert!(!rig.cache.is_notified());
    assert_eq!(read().await, "third");

    // A notification may be late: it says nothing about others.
    queue.process(RECORD, FIRST_MS).await;
    assert!(!rig.cache.is_notified());
    queue.process(&queue.heartbeat(0), FIRST_MS).await;
    assert!(rig.cache.is_notified());
}

#[tokio::test]
async fn a_queue_that_fails_may_have_lost_messages() {
    let (queue, rig) = heard(LONG_SECONDS).await;
    queue.faults.store(6, Relaxed);
    until("failures", || queue.faults.load(Relaxed) == 0).await;
    assert!(!rig.cache.is_notified());
    queue.process(RECORD, FIRST_MS).await;
}

#[tokio::test]
async fn a_late_heartbeat_tells_that_messages_are_late() {
    // A heartbeat of this run is not from before the machine started.
    const SECONDS: u64 = 60;
    let (queue, rig) = heard(SECONDS).await;
    let late = queue.heartbeat(SECONDS + 10);
    queue.process(&late, FIRST_MS).await;
    assert!(!rig.cache.is_notified());
    let timely = queue.heartbeat(SECONDS - 10);
    queue.process(&timely, FIRST_MS).await;
    assert!(rig.cache.is_notified());
}

#[tokio::test]
async fn a_queue_that_another_server_reads_is_not_relied_on() {
    let (queue, rig) = heard(LONG_SECONDS).await;
    // Its clock does not matter.
    let of_another = r#"{"floe":"another","unix_seconds":1,"nanoseconds":1}"#;
    // One that an earlier run of this server left.
    queue.process(of_another, FIRST_MS - 1).await;
    assert!(rig.cache.is_notified());
    queue.process(of_another, FIRST_MS + 1).await;
    assert!(!rig.cache.is_notified());
    let own = queue.heartbeat(0);
    queue.process(&own, FIRST_MS + 2).await;
    assert!(!rig.cache.is_notified());
}

/// Something takes a heartbeat, and puts none of its own into the queue.
#[tokio::test]
async fn a_queue_that_a_silent_reader_shares_is_not_relied_on() {
    let (queue, rig) = heard(4).await;
    queue.loses.store(true, Relaxed);
    until("a lost heartbeat", || !queue.loses.load(Relaxed)).await;
    // Later ones come back, until the lost one is missed.
    until("the loss", || !rig.cache.is_notified()).await;
    // It is no silence: further ones come back, and do not count for long.
    let sent = queue.heartbeats.lock().len();
    until("two more", || queue.heartbeats.lock().len() >= sent + 2).await;
    assert!(!rig.cache.is_notified());
}

#[tokio::test]
async fn a_queue_that_goes_silent_is_not_relied_on() {
    let (queue, rig) = heard(1).await;
    queue.faults.store(u64::MAX, Relaxed);
    until("the silence", || !rig.cache.is_notified()).await;
}
