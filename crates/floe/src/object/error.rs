//! What can go wrong when an object is read or written through the cache.

use std::sync::Arc;

use crate::error::CacheError;
use crate::origin::OriginError;

/// Why an object operation failed. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The origin said no, or said nothing.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// The cache could not do what the law needs, such as make an invalidation durable.
    #[error(transparent)]
    Cache(Arc<CacheError>),
    /// The object changed at the origin while it was read. Ask again.
    #[error("the object changed at the origin while it was read; read it again")]
    Changed,
    /// The range begins past the end of the object.
    #[error("the range begins past the object's {size} bytes")]
    RangeNotSatisfiable {
        /// Bytes of the object.
        size: u64,
    },
    /// The fetch was stopped, such as by a shutdown.
    #[error("the fetch was stopped before it ended")]
    Stopped,
}

impl ObjectError {
    /// Whether this is an answer rather than a failure: no such object, no such range.
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
