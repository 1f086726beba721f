//! What the faces count: relaxed atomics, rendered when scraped.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What happened to the connections of one face.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounters {
    /// Accepted.
    pub(crate) opened: Counter,
    /// Ended, for whatever reason.
    pub(crate) closed: Counter,
    /// Ended by an error of the client, the network or an answer.
    pub(crate) broken: Counter,
    /// Ended because the client took nothing for too long.
    pub(crate) stalled: Counter,
    /// Ended by the deadline of a shutdown.
    pub(crate) aborted: Counter,
    /// Times that accepting waited because all connections were in use.
    pub(crate) waits: Counter,
    /// Connections that could not be accepted.
    pub(crate) accept_errors: Counter,
}
