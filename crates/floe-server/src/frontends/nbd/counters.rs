//! Counters of the NBD frontend. Each thread has its own, so that counting
//! touches no shared cache line; readers add them up.

use super::protocol::Errno;
use super::protocol::request::Command;
use crate::metrics::{Count, ThreadLatency};

/// Results of a request: success, or one of [`Errno::ALL`].
const RESULTS: usize = 1 + Errno::ALL.len();

/// The counters of one thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    /// Connections accepted.
    pub(super) opened: Count,
    /// Connections closed at once because too many were open.
    pub(super) rejected: Count,
    /// Connections that could not be accepted.
    pub(super) accept_errors: Count,
    /// Connections ended by the deadline of a shutdown.
    pub(super) aborted: Count,
    /// Connections ended by an invalid protocol or a network error.
    pub(super) broken: Count,
    /// Connections ended because the handshake or a transfer stalled.
    pub(super) stalled: Count,
    /// Connections ended because their transfer was slow while memory was short.
    pub(super) slow: Count,
    /// Requests begun and ended.
    pub(super) begun: Count,
    pub(super) ended: Count,
    /// Bytes over all connections.
    pub(super) received_bytes: Count,
    pub(super) sent_bytes: Count,
    requests: [[Count; RESULTS]; Command::ALL.len()],
    latencies: [ThreadLatency; Command::ALL.len()],
}

/// The names of all results.
pub(super) fn results() -> impl Iterator<Item = &'static str> {
    std::iter::once("ok").chain(Errno::ALL.map(Errno::name))
}

impl Counters {
    /// Counts a request with its result.
    pub(super) fn request(&self, command: Command, error: Option<Errno>) {
        let result = error.map_or(0, |errno| {
            1 + Errno::ALL
                .iter()
                .position(|other| *other == errno)
                .unwrap_or(0)
        });
        self.requests[command as usize][result].add(1);
    }

    /// Requests of a command, in the order of [`results`].
    pub(super) fn requests(&self, command: Command) -> impl Iterator<Item = u64> {
        self.requests[command as usize].iter().map(Count::get)
    }

    pub(super) fn latency(&self, command: Command) -> &ThreadLatency {
        &self.latencies[command as usize]
    }
}
