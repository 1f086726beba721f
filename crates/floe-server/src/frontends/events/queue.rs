//! Notifications in a queue.
//!
//! A queue gives each message to one of its readers, in any order and at any time. So its
//! notifications only say what has changed. That they arrive is told by heartbeats: messages
//! that the server puts into its queue. One that comes back within the timeout counts, from when
//! it was sent. One that comes back late ends the trust in what was validated before. So does a
//! request for messages that fails, since the queue may have handed some out. One that does not
//! come back, or the heartbeat of another server, tells that something else reads the queue. Then
//! the server trusts the queue only after a long time without such a sign.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use floe::origin::{MessageQueue, OriginError, QueueMessage};
use floe_core::Tick;
use floe_device::Clock;
use futures::future::join_all;
use parking_lot::Mutex;

use super::heartbeat::{HEARTBEATS_PER_TIMEOUT, Heartbeat, random_name};
use super::operation::{Backoff, Operation, PAUSE, within};
use super::receiver::Receiver;

/// The setting that names the queue.
const SETTING: &str = "events.queue";

/// Requests for messages at a time.
const READERS: usize = 4;

/// The time that a request for messages may take; the queue waits 20 s of it.
const RECEIVE_LIMIT: Duration = Duration::from_secs(30);

/// The time of other requests.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// Timeouts without a heartbeat of another server after which a queue is this server's alone:
/// it gets half of the heartbeats of one that reads too.
const TIMEOUTS_OF_DISTRUST: u32 = 8;

/// A reader of a queue.
pub(super) struct Consumer {
    queue: Arc<dyn MessageQueue>,
    clock: Clock,
    name: String,
    /// The silence that ends the mode.
    timeout: Duration,
    others: Mutex<Others>,
    receive: Operation,
    delete: Operation,
    send: Operation,
}

/// Signs of other readers of the queue.
#[derive(Debug, Default)]
struct Others {
    /// When the queue got the earliest heartbeat of this run that came back, in milliseconds by
    /// its clock.
    own_first_ms: Option<u64>,
    /// When it got the newest one of another run.
    newest_ms: Option<u64>,
    /// Nothing is heard before this time.
    distrusted_until: Tick,
    /// When the heartbeats were sent that have not come back, in nanoseconds.
    under_way: VecDeque<u64>,
}

impl Consumer {
    pub(super) fn new(queue: Arc<dyn MessageQueue>, clock: Clock, timeout: Duration) -> Self {
        Consumer {
            queue,
            name: random_name(),
            clock,
            timeout,
            others: Mutex::default(),
            receive: Operation::new(SETTING, "receive"),
            delete: Operation::new(SETTING, "delete"),
            send: Operation::new(SETTING, "send"),
        }
    }

    /// Failed requests by their kind.
    pub(super) fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [&self.receive, &self.delete, &self.send];
        all.map(Operation::failures).into_iter()
    }

    /// Reads until it is dropped. Messages that are not processed by then are delivered again.
    pub(super) async fn run(&self, receiver: &Receiver) {
        let readers = (0..READERS).map(|_| self.read(receiver));
        futures::join!(join_all(readers), self.send_heartbeats(receiver));
    }

    async fn read(&self, receiver: &Receiver) {
        let mut backoff = Backoff::new();
        loop {
            let begun = self.clock.now();
            let received = self.within(RECEIVE_LIMIT, self.queue.receive()).await;
            let Some(messages) = self.receive.note(received) else {
                receiver.cache.miss_notification();
                self.forget_heartbeats();
                self.clock.sleep(backoff.next_pause()).await;
                continue;
            };
            backoff.reset();
            let is_empty = messages.is_empty();
            let all_done = self.process(receiver, messages).await;
            // A queue that does not wait, or delivers at once what was not deleted.
            let is_hasty = is_empty && self.clock.now().since(begun) < PAUSE;
            if is_hasty || !all_done {
                self.clock.sleep(PAUSE).await;
            }
        }
    }

    /// Processes and deletes messages; false if some will be delivered again.
    async fn process(&self, receiver: &Receiver, messages: Vec<QueueMessage>) -> bool {
        let count = messages.len();
        let mut done = Vec::with_capacity(count);
        for message in messages {
            if self.process_one(receiver, &message).await {
                done.push(message);
            }
        }
        if done.is_empty() {
            return count == 0;
        }
        let deleted = self.within(REQUEST_LIMIT, self.queue.delete(&done)).await;
        self.delete.note(deleted).is_some() && done.len() == count
    }

    /// False if the message must be delivered again. One that is not understood need not be:
    /// the cache trusts nothing from before it.
    async fn process_one(&self, receiver: &Receiver, message: &QueueMessage) -> bool {
        match Heartbeat::read(message.body.as_bytes()) {
            Some(heartbeat) => {
                self.hear(receiver, &heartbeat, message.sent_unix_ms);
                true
            }
            None => {
                let taken = receiver.take(message.body.as_bytes(), false).await;
                receiver.counted(taken).0 != StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    fn hear(&self, receiver: &Receiver, heartbeat: &Heartbeat, sent_ms: Option<u64>) {
        let is_own = heartbeat.is_of(&self.name);
        let now = self.clock.now_with_sleep();
        let mut others = self.others.lock();
        let newest_of_others = match is_own {
            true => {
                let sent_ms = sent_ms.unwrap_or(0);
                let first = others.own_first_ms.unwrap_or(sent_ms);
                others.own_first_ms = Some(first.min(sent_ms));
                others
                    .under_way
                    .retain(|sent| *sent != heartbeat.nanoseconds());
                others.newest_ms.take()
            }
            // A queue that tells no times is taken for shared.
            false => Some(sent_ms.unwrap_or(u64::MAX)),
        };
        let is_shared = match (newest_of_others, others.own_first_ms) {
            // Others may be of an earlier run of this server: its first heartbeat will tell.
            (Some(newest), None) => {
                others.newest_ms = others.newest_ms.max(Some(newest));
                return;
            }
            (Some(newest), Some(first)) => newest > first,
            (None, _) => false,
        };
        if is_shared {
            self.distrust(&mut others, receiver);
        }
        if !is_own || now < others.distrusted_until {
            return;
        }
        drop(others);
        heartbeat.count(receiver, &self.clock, self.timeout);
    }

    /// The queue is not this server's alone.
    fn distrust(&self, others: &mut Others, receiver: &Receiver) {
        others.distrusted_until = self.clock.now_with_sleep() + self.timeout * TIMEOUTS_OF_DISTRUST;
        receiver.cache.miss_notification();
        receiver.refused.add(1);
        tracing::error!(
            "something else reads the queue of events.queue, and each reader gets a part of the \
             notifications; give every server a queue of its own, for instance behind SNS"
        );
    }

    /// After a failure nothing tells whether those that do not come back are lost.
    fn forget_heartbeats(&self) {
        self.others.lock().under_way.clear();
    }

    /// Looks for a heartbeat that did not come back: another reader has it.
    fn miss_lost_heartbeats(&self, receiver: &Receiver) {
        let now = self.clock.now_with_sleep();
        let mut others = self.others.lock();
        let is_lost = |sent: &u64| now.since(Tick(*sent)) > self.timeout;
        if others.under_way.front().is_some_and(is_lost) {
            others.under_way.retain(|sent| !is_lost(sent));
            self.distrust(&mut others, receiver);
        }
    }

    async fn send_heartbeats(&self, receiver: &Receiver) {
        let interval = self.timeout / HEARTBEATS_PER_TIMEOUT;
        let mut backoff = Backoff::new();
        loop {
            self.miss_lost_heartbeats(receiver);
            let heartbeat = Heartbeat::new(&self.name, &self.clock);
            let body = heartbeat.body();
            self.others
                .lock()
                .under_way
                .push_back(heartbeat.nanoseconds());
            let sent = self.within(REQUEST_LIMIT, self.queue.send(&body)).await;
            match self.send.note(sent) {
                Some(()) => {
                    backoff.reset();
                    self.clock.sleep(interval).await;
                }
                None => {
                    self.forget_heartbeats();
                    self.clock.sleep(backoff.next_pause().min(interval)).await;
                }
            }
        }
    }

    async fn within<T>(
        &self,
        limit: Duration,
        request: impl Future<Output = Result<T, OriginError>>,
    ) -> Result<T, OriginError> {
        within(&self.clock, limit, OriginError::Timeout, request).await
    }
}
