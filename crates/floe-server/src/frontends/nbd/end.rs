//! The end of a connection.

use std::io;

/// The reason why a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// The client disconnected.
    Closed,
    /// The server is shutting down.
    Draining,
    /// A transfer made no progress for too long.
    Stalled,
    /// The transfer was slow while memory was short.
    Slow,
    /// The server is shutting down, and a transfer did not finish in time.
    Aborted,
    /// The client does not speak the NBD protocol.
    Junk,
    /// The network failed.
    Broken(io::Error),
}
