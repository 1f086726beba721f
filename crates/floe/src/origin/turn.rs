//! Turns in the queues of an origin.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::stats::{Counters, Queue};
use crate::limit::Held;

/// One of the uploads that may run at once, before it begins. What reads the
/// body from this origin takes its turn first: a read that waits for a turn to
/// upload would keep other readers from theirs.
pub struct UploadTurn(pub(super) Turn);

impl fmt::Debug for UploadTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UploadTurn").finish_non_exhaustive()
    }
}

/// One of the requests that may run at once.
pub(super) struct Turn {
    counters: Arc<Counters>,
    queue: Queue,
    _held: Held,
}

impl Turn {
    pub(super) fn new(held: Held, counters: &Arc<Counters>, queue: Queue) -> Self {
        counters.queue(queue).in_flight.fetch_add(1, Relaxed);
        Turn {
            counters: Arc::clone(counters),
            queue,
            _held: held,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let queue = self.counters.queue(self.queue);
        queue.in_flight.fetch_sub(1, Relaxed);
    }
}
