//! The order of fences: numbers by which writes wait for them.
//!
//! A write that sends a fence waits for it. A write that reuses earlier fences
//! waits until all up to the last of them are durable, by the number of the
//! last durable one. So a fence's number and its place in the queue must be
//! assigned under one lock. Otherwise a fence with a higher number could enter
//! the queue first, and a lower one count as durable too early.

use super::lock::Mutex;

/// Assigns numbers to fences.
#[derive(Debug, Default)]
pub(super) struct Order {
    last: Mutex<u64>,
}

impl Order {
    /// Numbers a fence and queues it with `queue`, which must not wait. Returns
    /// its result and the number.
    pub(super) fn queue<T>(&self, queue: impl FnOnce(u64) -> T) -> (T, u64) {
        let mut last = self.last.lock();
        *last += 1;
        (queue(*last), *last)
    }

    /// The number of the last queued fence; 0 if there is none.
    pub(super) fn last(&self) -> u64 {
        *self.last.lock()
    }
}
