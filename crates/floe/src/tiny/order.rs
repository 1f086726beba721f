//! The order of fences: numbers by which others wait for them.
//!
//! Whoever sends a fence waits for that one. Whoever relies on fences that
//! others sent before waits until all up to the last of them are durable, and
//! all that is known then is the number of the last one that is. So numbers
//! must be given in the order in which fences are queued: the number and the
//! place in the queue come under one lock. Were they two steps, a fence could
//! be overtaken between them by one with a higher number, and be taken for
//! durable before it is.

use super::lock::Mutex;

/// Gives fences their numbers.
#[derive(Debug, Default)]
pub(super) struct Order {
    last: Mutex<u64>,
}

impl Order {
    /// Numbers a fence and queues it; `queue` waits for nothing. Returns its
    /// result and the number.
    pub(super) fn queue<T>(&self, queue: impl FnOnce(u64) -> T) -> (T, u64) {
        let mut last = self.last.lock();
        *last += 1;
        (queue(*last), *last)
    }

    /// The number of the last fence that was queued; zero if none was.
    pub(super) fn last(&self) -> u64 {
        *self.last.lock()
    }
}
