//! The client of one bucket.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;

/// Parts of an upload: S3's limit.
pub(super) const PART_NUMBER_MAX: u64 = 10_000;

/// The client of one bucket.
pub(super) struct Bucket {
    pub(super) objects: Arc<dyn ObjectStore>,
    pub(super) lists: Option<Arc<dyn PaginatedListStore>>,
    pub(super) uploads: Option<Arc<dyn MultipartStore>>,
}
