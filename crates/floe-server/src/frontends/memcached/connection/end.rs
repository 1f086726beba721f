//! The end of a connection.

use std::io;

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// The client left, or asked to.
    Closed,
    /// The server stops.
    Draining,
    /// The client said nothing for too long.
    Idle,
    /// The client took nothing, or did not send what it announced, for too long.
    Stalled,
    /// The client took an answer, or sent a value, below the least rate.
    Slow,
    /// The client was the slowest while memory was short.
    Evicted,
    /// The server stops, and the client is in the middle of something.
    CutOff,
    /// Not a client of memcached.
    Junk,
    /// The network failed.
    Broken(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        End::Broken(error)
    }
}
