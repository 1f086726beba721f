//! Failures of connections to NATS.

use std::io;
use std::time::Duration;

/// Why a connection to NATS could not be opened, or ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum NatsError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("there was no answer within {0:?}")]
    Timeout(Duration),
    #[error("the server closed the connection")]
    Closed,
    #[error("the server shuts down")]
    ShutsDown,
    #[error("the server refuses: {0:?}")]
    Refused(String),
    #[error("the server does not speak the protocol of NATS: {0}")]
    Protocol(&'static str),
    #[error("a message is longer than 1 MiB")]
    TooLong,
    #[error("events.nats_credentials: {0}")]
    Credentials(String),
    #[error("a heartbeat is lost, so messages before it may be lost too")]
    Lost,
    #[error("no heartbeat came back within {0:?}")]
    Silent(Duration),
}
