//! Errors of reads and writes through the object cache.

use std::sync::Arc;

use crate::error::CacheError;
use crate::origin::OriginError;

/// Why an object operation failed. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The origin rejected the request or failed.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// The cache failed at a step that correctness needs, such as a durable invalidation.
    #[error(transparent)]
    Cache(Arc<CacheError>),
    /// The object changed at the origin during the read. Retry.
    #[error("the object changed at the origin while it was read; read it again")]
    Changed,
    /// The range begins past the end of the object.
    #[error("the range begins past the object's {size} bytes")]
    RangeNotSatisfiable {
        /// Bytes of the object.
        size: u64,
    },
    /// A shutdown stopped the fetch.
    #[error("the fetch was stopped before it ended")]
    Stopped,
}

impl ObjectError {
    /// True if the origin's state, not a failure, caused this: no such object, no such range.
    pub fn is_negative(&self) -> bool {
        matches!(
            self,
            ObjectError::RangeNotSatisfiable { .. }
                | ObjectError::Origin(
                    OriginError::NotFound(_)
                        | OriginError::NoSuchBucket(_)
                        | OriginError::RangeNotSatisfiable { .. }
                )
        )
    }
}

impl From<CacheError> for ObjectError {
    fn from(error: CacheError) -> Self {
        ObjectError::Cache(Arc::new(error))
    }
}
