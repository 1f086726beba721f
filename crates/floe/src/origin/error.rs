//! Errors of an origin, in as many kinds as frontends have responses.

use std::sync::Arc;
use std::time::Duration;

/// An error of an origin. Cheap to clone: all waiting callers of one fetch receive it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OriginError {
    /// The object does not exist.
    #[error("the origin has no object {0:?}")]
    NotFound(String),
    /// The bucket does not exist.
    #[error("the origin has no bucket {0:?}")]
    NoSuchBucket(String),
    /// The bucket to create exists already.
    #[error("the origin already has a bucket {0:?}")]
    BucketExists(String),
    /// The bucket to delete has objects.
    #[error("the origin's bucket {0:?} is not empty; delete its objects first")]
    BucketNotEmpty(String),
    /// The name is not a valid bucket name.
    #[error(
        "{0:?} is not a valid bucket name: use 3 to 63 lower-case letters, digits, dots and hyphens, \
         with a letter or digit at both ends"
    )]
    InvalidBucketName(String),
    /// The multipart upload does not exist.
    #[error("the origin has no upload {0:?}")]
    NoSuchUpload(String),
    /// A part of a finished upload is missing or has another entity tag.
    #[error("the parts of the upload are invalid: {0}")]
    InvalidPart(String),
    /// The parts of a finished upload are not in ascending order of their numbers.
    #[error("the parts must be in ascending order of their numbers")]
    InvalidPartOrder,
    /// The caller already has this version
    /// ([`if_none_match`](super::GetRequest::if_none_match)).
    #[error("the object was not modified")]
    NotModified,
    /// A condition of the request failed.
    #[error("the condition of the request failed at the origin")]
    PreconditionFailed,
    /// The range begins past the end of the object.
    #[error("the range begins past the end of the object")]
    RangeNotSatisfiable {
        /// Bytes of the object, if known.
        size: Option<u64>,
    },
    /// The origin rejected the credentials or the operation (HTTP 401, 403).
    #[error("the origin denies access: {0}")]
    AccessDenied(String),
    /// The key is invalid at this kind of origin.
    #[error("{key:?} is not a valid key at this origin: {reason}")]
    InvalidKey {
        /// The key.
        key: String,
        /// The reason.
        reason: String,
    },
    /// The origin rejected the request for another reason (HTTP 4xx).
    #[error("the origin rejected the request ({status}): {message}")]
    Rejected {
        /// HTTP status.
        status: u16,
        /// The origin's message.
        message: String,
    },
    /// This kind of origin does not support the operation.
    #[error("this origin cannot {0}")]
    Unsupported(String),
    /// The origin failed (HTTP 5xx, 429).
    #[error("the origin failed ({status}): {message}")]
    Server {
        /// HTTP status.
        status: u16,
        /// The origin's message.
        message: String,
    },
    /// No response, or no progress of the body, in time.
    #[error("the origin did not respond within {0:?}")]
    Timeout(Duration),
    /// The origin is unreachable: connection refused or reset, name not resolved.
    #[error("the origin cannot be reached: {0}")]
    Unreachable(String),
    /// The body ended early.
    #[error("the origin sent {received} bytes of {expected}")]
    ShortBody {
        /// Bytes announced.
        expected: u64,
        /// Bytes received.
        received: u64,
    },
    /// The queue for this origin is full, or the wait in it was too long.
    #[error(
        "too many requests wait for the origin ({0}); raise max_concurrent, max_uploads or max_queued \
         in [origin.requests]"
    )]
    Overloaded(&'static str),
    /// The client's upload broke off, or did not have the announced length.
    #[error("the upload is incomplete: {0}")]
    BadUpload(String),
    /// The origin's files failed.
    #[error("the origin's storage failed: {0}")]
    Io(Arc<std::io::Error>),
    /// The origin's response is invalid.
    #[error("the origin's response is invalid: {0}")]
    Protocol(String),
}

impl OriginError {
    /// True if the same request may succeed if repeated.
    pub fn is_retriable(&self) -> bool {
        match self {
            OriginError::Server { .. }
            | OriginError::Timeout(_)
            | OriginError::Unreachable(_)
            | OriginError::ShortBody { .. } => true,
            OriginError::Io(error) => matches!(
                error.kind(),
                std::io::ErrorKind::Interrupted
                    | std::io::ErrorKind::TimedOut
                    | std::io::ErrorKind::ConnectionReset
                    | std::io::ErrorKind::ConnectionAborted
            ),
            _ => false,
        }
    }

    /// True if the origin failed, rather than rejected the request.
    pub fn is_outage(&self) -> bool {
        self.is_retriable() || matches!(self, OriginError::Overloaded(_) | OriginError::Io(_))
    }
}

impl From<std::io::Error> for OriginError {
    fn from(error: std::io::Error) -> Self {
        OriginError::Io(Arc::new(error))
    }
}
