//! Errors of NBD connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use floe_device::{DeviceError, DeviceErrorKind, Operation};

use super::address::NbdAddress;

/// Bytes of a server that break the protocol.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it breaks the NBD protocol: {0}")]
pub(super) struct Junk(pub(super) &'static str);

/// Why a connection ended or did not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Junk(#[from] Junk),
    #[error("it rejects the export: {0}")]
    Rejected(String),
    #[error("the export cannot be used: {0}")]
    Unusable(String),
    #[error("it has not answered for {0:?}")]
    Stalled(Duration),
    #[error("the export has another size")]
    Resized,
}

/// Why an export cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenNbdError {
    /// The certificates cannot be read.
    #[error("the certificates of {address} cannot be used: {source}")]
    Tls {
        /// The address.
        address: NbdAddress,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server cannot be reached, or its export cannot be used.
    #[error("the NBD server of {export} cannot be used: {cause}")]
    Server {
        /// The address or the name of the export.
        export: String,
        /// The cause.
        cause: String,
    },
}

/// An error that a server answers with.
#[derive(Clone, Debug)]
pub(super) struct ServerError {
    pub(super) number: u32,
    pub(super) reason: String,
}

impl ServerError {
    pub(super) fn of(self, operation: Operation) -> DeviceError {
        const NO_SPACE: u32 = 28;
        let kind = match self.number {
            NO_SPACE => DeviceErrorKind::NoSpace,
            number => DeviceErrorKind::Io(io::Error::other(format!(
                "the NBD server answers with error {number} {}",
                self.reason
            ))),
        };
        DeviceError::new(operation, None, kind)
    }
}

/// The error of an operation that no server has answered.
pub(super) fn unanswered(operation: Operation, why: &Arc<str>) -> DeviceError {
    let error = io::Error::other(why.to_string());
    DeviceError::new(operation, None, DeviceErrorKind::Io(error))
}
