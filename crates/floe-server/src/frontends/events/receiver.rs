//! The receiver of messages, over HTTP, from a queue or from NATS.

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use floe::object::{ObjectCache, ObjectKey};
use floe_device::Clock;
use tokio::sync::Semaphore;

use super::notification;
use crate::metrics::Counter;
use crate::net;

/// Most bytes of a message.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Messages in memory.
const MESSAGES_AT_ONCE: usize = 8;

/// The time that a sender may take for a message.
const MESSAGE_TIME: Duration = Duration::from_secs(10);

/// Takes messages, and tells the cache of the objects that they name.
pub(super) struct Receiver {
    pub(super) cache: ObjectCache,
    pub(super) clock: Clock,
    token: String,
    /// Messages that are taken at once; others wait unread.
    places: Arc<Semaphore>,
    pub(super) messages: Counter,
    pub(super) refused: Counter,
    pub(super) objects: Counter,
}

impl Receiver {
    pub(super) fn new(cache: ObjectCache, clock: Clock, token: String) -> Self {
        Receiver {
            cache,
            clock,
            token,
            places: Arc::new(Semaphore::new(MESSAGES_AT_ONCE)),
            messages: Counter::default(),
            refused: Counter::default(),
            objects: Counter::default(),
        }
    }

    /// Counts a message by its answer.
    pub(super) fn counted(&self, answer: (StatusCode, String)) -> (StatusCode, String) {
        let counter = match answer.0 {
            StatusCode::OK => &self.messages,
            _ => &self.refused,
        };
        counter.add(1);
        answer
    }

    /// Takes a message over HTTP.
    pub(super) async fn receive(self: &Arc<Self>, request: Request) -> (StatusCode, String) {
        // Before a byte of the message is read.
        if !self.is_authorized(request.headers()) {
            let problem = "the token is not that of events.token\n";
            return (StatusCode::FORBIDDEN, problem.into());
        }
        // The semaphore is never closed.
        let place = Arc::clone(&self.places).acquire_owned().await;
        let body = to_bytes(request.into_body(), MESSAGE_BYTES_MAX);
        let body = tokio::select! {
            biased;
            body = body => body,
            () = self.clock.sleep(MESSAGE_TIME) => {
                self.cache.miss_notification();
                return (StatusCode::REQUEST_TIMEOUT, "the message did not end\n".into());
            }
        };
        let Ok(body) = body else {
            self.cache.miss_notification();
            let problem = "the message broke off, or is longer than 1 MiB\n";
            return (StatusCode::PAYLOAD_TOO_LARGE, problem.into());
        };
        // A sender that leaves does not stop it, and cannot begin it more often.
        let receiver = Arc::clone(self);
        let taken = tokio::spawn(async move {
            let answer = receiver.take(&body, true).await;
            drop(place);
            answer
        });
        taken.await.unwrap_or_else(|_| {
            self.cache.miss_notification();
            (StatusCode::INTERNAL_SERVER_ERROR, "stopped\n".to_owned())
        })
    }

    /// Takes a message; the status is that of its answer. `is_timely` tells that it comes from
    /// its sender at once, so that it also says that others would arrive.
    pub(super) async fn take(&self, body: &[u8], is_timely: bool) -> (StatusCode, String) {
        let objects = match notification::changed_objects(body) {
            Ok(objects) => objects,
            Err(problem) => {
                self.cache.miss_notification();
                tracing::warn!(problem, "a notification was refused");
                return (StatusCode::BAD_REQUEST, problem + "\n");
            }
        };
        let origin = self.cache.origin();
        let visible = objects.iter().filter_map(|(bucket, key)| {
            Some(ObjectKey::new(origin.visible_bucket(bucket)?, key.as_str()))
        });
        let keys: Vec<ObjectKey> = visible.collect();
        if keys.is_empty() && !objects.is_empty() {
            // It says nothing about whether changes of the buckets that clients see are heard.
            let (bucket, _) = &objects[0];
            tracing::warn!(
                bucket,
                "a notification is of a bucket that origin.buckets does not name"
            );
            return (StatusCode::OK, "another bucket\n".into());
        }
        self.objects.add(keys.len() as u64);
        let noted = match is_timely {
            true => self.cache.notify(keys).await,
            false => self.cache.note_changes(keys).await,
        };
        match noted {
            Ok(()) => (StatusCode::OK, "ok\n".into()),
            Err(error) => {
                tracing::error!(%error, "a notification could not be taken");
                (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
            }
        }
    }

    fn is_authorized(&self, headers: &HeaderMap) -> bool {
        self.token.is_empty() || net::has_secret(headers, &self.token)
    }
}
