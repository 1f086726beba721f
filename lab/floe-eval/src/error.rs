//! Errors of evaluations.

use std::path::PathBuf;

use crate::trace::TraceError;
use crate::workload::{WorkloadError, WorkloadFileError};

/// The reason why a bench, replay, experiment or report stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The workload is invalid.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The workload file cannot be used.
    #[error(transparent)]
    WorkloadFile(#[from] WorkloadFileError),
    /// The trace cannot be used.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// An option is invalid.
    #[error("{option}: {reason}")]
    Option {
        /// The option.
        option: &'static str,
        /// The fault and the cure.
        reason: String,
    },
    /// The cache returned bytes that are not the object's, which must never
    /// happen.
    #[error(
        "WRONG BYTES: object {key} differs from its origin at offset {offset}; this is a bug of the cache, please report it with the configuration and seed"
    )]
    WrongBytes {
        /// The object.
        key: String,
        /// Offset of the first wrong byte.
        offset: u64,
    },
    /// The cache returned another number of bytes than the object's range has.
    #[error(
        "WRONG LENGTH: object {key} gave {given} bytes instead of {wanted}; this is a bug of the cache, please report it with the configuration and seed"
    )]
    WrongLength {
        /// The object.
        key: String,
        /// Number of expected bytes.
        wanted: u64,
        /// Number of returned bytes.
        given: u64,
    },
    /// A running server returned other bytes than were written.
    #[error(
        "WRONG VALUE: {key} from the server: {what}; either the server is wrong, or its objects were not written by `floe bench` (or made up by an emulated origin) with this seed"
    )]
    ServerLied {
        /// The object.
        key: String,
        /// The fault.
        what: String,
    },
    /// A running server cannot be used.
    #[error("cannot use {server}: {reason}")]
    Server {
        /// The server.
        server: String,
        /// The fault and the cure.
        reason: String,
    },
    /// Ctrl-C came before the measurement.
    #[error("interrupted before anything was measured")]
    Interrupted,
    /// Most requests failed.
    #[error("{failed} of {requests} requests failed; the first: {first}")]
    TooManyFailures {
        /// Number of failed requests.
        failed: u64,
        /// Number of requests.
        requests: u64,
        /// The first failure.
        first: String,
    },
    /// A client's task panicked.
    #[error("a client stopped unexpectedly: {0}")]
    Client(String),
    /// The device cannot be opened.
    #[error("cannot open the device")]
    Device(#[from] floe_device::OpenDeviceError),
    /// The cache cannot be opened or used.
    #[error("cannot use the cache: {0}")]
    Cache(String),
    /// The origin's configuration cannot be used.
    #[error("cannot use the origin")]
    Origin(#[from] floe::origin::OriginConfigError),
    /// A required file is not on this machine.
    #[error(
        "there is no {path}; put it beside the experiment, or set FLOE_TRACES to the folder it is in"
    )]
    Absent {
        /// The file.
        path: PathBuf,
    },
    /// An experiment file cannot be understood.
    #[error("experiment {path}: {reason}")]
    Experiment {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// A case of an experiment failed.
    #[error(
        "case `{case}` failed; the cases that are done are kept in {}, go on with --resume {}: {source}",
        .folder.display(),
        .folder.display()
    )]
    Case {
        /// The case.
        case: String,
        /// The folder of the other cases.
        folder: PathBuf,
        /// Why.
        source: Box<EvalError>,
    },
    /// Virtual time stopped: a deadlock, or the limit.
    #[error("virtual time came to a halt")]
    VirtualTime(#[from] floe_device::virtual_time::VirtualTimeError),
    /// A result cannot be read.
    #[error("results {path}: {reason}")]
    Results {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {path}")]
    File {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl EvalError {
    /// The cache cannot be used because of `error`.
    pub(crate) fn cache(error: &(dyn std::error::Error + 'static)) -> Self {
        EvalError::Cache(chain(error))
    }

    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> EvalError {
        let path = path.into();
        move |source| EvalError::File {
            action,
            path,
            source,
        }
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
