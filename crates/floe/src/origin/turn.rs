//! Turns: permits of an origin's queues.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::fair::FairHeld;
use super::stats::{Counters, Queue};

/// A permit for one upload, before it begins. A caller that reads the body from
/// this origin takes it first: a read that waited for it would hold a request's
/// turn meanwhile.
pub struct UploadTurn(pub(super) Turn);

impl fmt::Debug for UploadTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UploadTurn").finish_non_exhaustive()
    }
}

/// A permit for one request.
pub(super) struct Turn {
    counters: Arc<Counters>,
    queue: Queue,
    _held: FairHeld,
}

impl Turn {
    pub(super) fn new(held: FairHeld, counters: &Arc<Counters>, queue: Queue) -> Self {
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
