//! Notifications in a queue.
//!
//! A queue gives each message to one of its readers. If two servers read the same one, each
//! hears of a part of the changes. So a server puts heartbeats with a name of its own into its
//! queue. Only one that comes back in time says that notifications arrive, and that of another
//! server says that some do not. A reader that waits and gets nothing has heard nothing: the
//! queue may hold messages back.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::http::StatusCode;
use floe::origin::{MessageQueue, OriginError, QueueMessage};
use floe_core::Tick;
use floe_device::Clock;
use futures::future::join_all;
use serde::{Deserialize, Serialize};

use super::receiver::Receiver;
use crate::metrics::Counter;

/// Requests for messages at a time.
const READERS: usize = 4;

/// The time that a request for messages may take; the queue waits 20 s of it.
const RECEIVE_LIMIT: Duration = Duration::from_secs(30);

/// The time of other requests.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// The pause after a failure, and its limit after several.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Heartbeats within the silence that ends the mode.
const HEARTBEATS_PER_TIMEOUT: u32 = 4;

/// A heartbeat, as a message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Heartbeat {
    /// The random name of a run of a server.
    floe: String,
    /// By the wall clock.
    unix_seconds: u64,
    /// By the clock of that run.
    nanoseconds: u64,
}

/// A reader of a queue.
pub(super) struct Consumer {
    queue: Arc<dyn MessageQueue>,
    clock: Clock,
    name: String,
    started_unix_seconds: u64,
    /// The silence that ends the mode.
    timeout: Duration,
    is_failing: AtomicBool,
    pub(super) failures: Counter,
}

impl Consumer {
    pub(super) fn new(queue: Arc<dyn MessageQueue>, clock: Clock, timeout: Duration) -> Self {
        Consumer {
            queue,
            name: format!("{:032x}", rand::random::<u128>()),
            started_unix_seconds: clock.unix_seconds(),
            clock,
            timeout,
            is_failing: AtomicBool::new(false),
            failures: Counter::default(),
        }
    }

    /// Reads until it is dropped. A message whose taking that ends is delivered again.
    pub(super) async fn run(&self, receiver: &Receiver) {
        let readers = (0..READERS).map(|_| self.read(receiver));
        futures::join!(join_all(readers), self.beat());
    }

    async fn read(&self, receiver: &Receiver) {
        let mut pause = PAUSE;
        loop {
            match self.within(RECEIVE_LIMIT, self.queue.receive()).await {
                Ok(messages) => {
                    pause = PAUSE;
                    self.take(receiver, messages).await;
                }
                Err(_) => {
                    self.clock.sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn take(&self, receiver: &Receiver, messages: Vec<QueueMessage>) {
        let mut taken = Vec::new();
        for message in messages {
            if self.hear(receiver, &message.body).await {
                taken.push(message);
            }
        }
        if !taken.is_empty() {
            // Those that are not deleted come again, which does no harm.
            let _ = self.within(REQUEST_LIMIT, self.queue.delete(&taken)).await;
        }
    }

    /// True if the message need not come again. One that cannot be understood need not either:
    /// nothing from before it counts any more.
    async fn hear(&self, receiver: &Receiver, body: &str) -> bool {
        let Ok(heartbeat) = serde_json::from_str::<Heartbeat>(body) else {
            let (status, _) = receiver.counted(receiver.take(body.as_bytes()).await);
            return status != StatusCode::SERVICE_UNAVAILABLE;
        };
        if heartbeat.floe == self.name {
            let age = self.clock.now().since(Tick(heartbeat.nanoseconds));
            // A queue that delivers late may do so with other messages, too.
            if age <= self.timeout {
                receiver.counted(receiver.take(b"").await);
            }
        } else if heartbeat.unix_seconds > self.started_unix_seconds {
            receiver.cache.miss_notification();
            receiver.refused.add(1);
            tracing::error!(
                "another server reads the queue of events.queue, and each gets a part of the \
                 notifications; give every server a queue of its own, for instance behind SNS"
            );
        }
        true
    }

    async fn beat(&self) {
        loop {
            let heartbeat = Heartbeat {
                floe: self.name.clone(),
                unix_seconds: self.clock.unix_seconds(),
                nanoseconds: self.clock.now().0,
            };
            let body = serde_json::to_string(&heartbeat).unwrap_or_default();
            let _ = self.within(REQUEST_LIMIT, self.queue.send(&body)).await;
            let pause = self.timeout / HEARTBEATS_PER_TIMEOUT;
            self.clock.sleep(pause).await;
        }
    }

    /// Counts a failure, and logs the first one of several.
    async fn within<T>(
        &self,
        limit: Duration,
        request: impl Future<Output = Result<T, OriginError>>,
    ) -> Result<T, OriginError> {
        let result = tokio::select! {
            biased;
            result = request => result,
            () = self.clock.sleep(limit) => Err(OriginError::Timeout(limit)),
        };
        match &result {
            Ok(_) => {
                if self.is_failing.swap(false, Relaxed) {
                    tracing::info!("the queue of notifications answers again");
                }
            }
            Err(error) => {
                self.failures.add(1);
                if !self.is_failing.swap(true, Relaxed) {
                    tracing::warn!(%error, "the queue of notifications fails; it is tried again");
                }
            }
        }
        result
    }
}
