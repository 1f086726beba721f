//! What can go wrong at an origin, kept apart so that frontends can say what it means.

use std::sync::Arc;
use std::time::Duration;

/// Why an origin did not do what was asked. Cheap to clone: one failed fetch
/// is told to everybody who waited for it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OriginError {
    /// There is no such object.
    #[error("the origin has no object {0:?}")]
    NotFound(String),
    /// There is no such bucket.
    #[error("the origin has no bucket {0:?}")]
    NoSuchBucket(String),
    /// The bucket that is to be made is there already.
    #[error("the origin has a bucket {0:?} already")]
    BucketExists(String),
    /// The name cannot be a bucket's.
    #[error(
        "{0:?} cannot be a bucket: 3 to 63 lower-case letters, digits, dots and hyphens can, \
         with a letter or digit at both ends"
    )]
    InvalidBucketName(String),
    /// There is no such multipart upload.
    #[error("the origin knows no upload {0:?}")]
    NoSuchUpload(String),
    /// A part of a finished upload is missing, out of order, or has another entity tag.
    #[error("the parts of the upload do not fit: {0}")]
    InvalidPart(String),
    /// The object is what the caller has already ([`if_none_match`](super::GetRequest::if_none_match)).
    #[error("the object was not modified")]
    NotModified,
    /// A condition on the request does not hold.
    #[error("the condition of the request does not hold at the origin")]
    PreconditionFailed,
    /// The range lies past the end of the object.
    #[error("the range begins past the end of the object")]
    RangeNotSatisfiable {
        /// Bytes of the object, where known.
        size: Option<u64>,
    },
    /// The origin refuses the credentials or the operation (HTTP 401, 403).
    #[error("the origin denies access: {0}")]
    AccessDenied(String),
    /// The key cannot be an object at this kind of origin.
    #[error("{key:?} cannot be an object at this origin: {reason}")]
    InvalidKey {
        /// The key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The origin refuses the request for another reason (HTTP 4xx).
    #[error("the origin refuses the request ({status}): {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What the origin says.
        message: String,
    },
    /// This kind of origin cannot do that.
    #[error("this origin cannot {0}")]
    Unsupported(String),
    /// The origin failed (HTTP 5xx, 429).
    #[error("the origin failed ({status}): {message}")]
    Server {
        /// HTTP status.
        status: u16,
        /// What the origin says.
        message: String,
    },
    /// No answer, or no progress of the body, in time.
    #[error("the origin did not answer within {0:?}")]
    Timeout(Duration),
    /// The origin cannot be reached: connection refused or reset, name not resolved.
    #[error("the origin cannot be reached: {0}")]
    Unreachable(String),
    /// The body ended too early.
    #[error("the origin sent {received} bytes of {expected}")]
    ShortBody {
        /// Bytes announced.
        expected: u64,
        /// Bytes that came.
        received: u64,
    },
    /// The queue for this origin is full, or the wait in it was too long.
    #[error(
        "too many requests wait for the origin ({0}); raise max_concurrent, max_uploads or max_queued \
         in [origin.requests]"
    )]
    Overloaded(&'static str),
    /// The client's upload broke off, or had another length than announced.
    #[error("the upload is incomplete: {0}")]
    BadUpload(String),
    /// The origin's files failed.
    #[error("the origin's storage failed: {0}")]
    Io(Arc<std::io::Error>),
    /// The origin's answer makes no sense.
    #[error("the origin's answer cannot be understood: {0}")]
    Protocol(String),
}

impl OriginError {
    /// Whether the same request may succeed when it is made again.
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

    /// Whether this says that the origin is ill, rather than that the request is wrong.
    pub fn is_outage(&self) -> bool {
        self.is_retriable() || matches!(self, OriginError::Overloaded(_) | OriginError::Io(_))
    }
}

impl From<std::io::Error> for OriginError {
    fn from(error: std::io::Error) -> Self {
        OriginError::Io(Arc::new(error))
    }
}
