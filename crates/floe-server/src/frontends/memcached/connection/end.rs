//! The end of a connection.

use std::io;

/// The reason why a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// The client closed it, or sent `quit`.
    Closed,
    /// The server is shutting down.
    Draining,
    /// The client sent no request for too long.
    Idle,
    /// A transfer made no progress for too long.
    Stalled,
    /// A transfer was below the least rate.
    Slow,
    /// The transfer was the slowest while memory was short.
    Evicted,
    /// The server is shutting down, and a transfer did not finish in time.
    CutOff,
    /// The client does not speak memcached's protocol.
    Junk,
    /// The network failed.
    Broken(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        End::Broken(error)
    }
}
