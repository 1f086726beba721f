//! Queues of messages about changes at an origin.

use async_trait::async_trait;

use super::error::OriginError;

/// A message of a queue.
#[derive(Clone, PartialEq, Eq)]
pub struct QueueMessage {
    /// Its text.
    pub body: String,
    /// The name by which [`MessageQueue::delete`] deletes it; valid for a limited time.
    pub receipt: String,
    /// The time at which it was sent, in milliseconds by the queue's clock, if the queue says so.
    pub sent_unix_ms: Option<u64>,
}

impl std::fmt::Debug for QueueMessage {
    /// Hides the text, which names objects.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QueueMessage({} bytes)", self.body.len())
    }
}

/// A queue that keeps messages until they are deleted, and may deliver one more than once.
/// Callers bound the time of each request.
#[async_trait]
pub trait MessageQueue: Send + Sync {
    /// Waits up to 20 s for messages, and returns a few of them, or none.
    ///
    /// # Errors
    /// The queue cannot be reached, or refuses.
    async fn receive(&self) -> Result<Vec<QueueMessage>, OriginError>;

    /// Deletes received messages. Others are delivered again after a time that the queue sets.
    ///
    /// # Errors
    /// As [`receive`](Self::receive); some may be deleted.
    async fn delete(&self, messages: &[QueueMessage]) -> Result<(), OriginError>;

    /// Adds a message.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    async fn send(&self, body: &str) -> Result<(), OriginError>;
}
