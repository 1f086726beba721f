//! A multipart upload that replaces a cached object.

use async_trait::async_trait;
use floe::ObjectCache;
use floe::object::ObjectKey;
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, PutResult, UploadPart};

use crate::convert::{error_from_floe, generic};

/// Parts go to the store; completing the upload invalidates the cached object.
#[derive(Debug)]
pub(crate) struct CachedUpload {
    pub(crate) objects: ObjectCache,
    pub(crate) key: ObjectKey,
    pub(crate) location: Path,
    /// The store's upload; `None` once a task completes it.
    pub(crate) upload: Option<Box<dyn MultipartUpload>>,
}

/// The caller of `complete` left, or the task panicked.
const GONE: &str = "the upload was completed by a caller that did not wait for the result";

#[async_trait]
impl MultipartUpload for CachedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match &mut self.upload {
            Some(upload) => upload.put_part(data),
            None => Box::pin(async { Err(generic(GONE)) }),
        }
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        let mut upload = self.upload.take().ok_or_else(|| generic(GONE))?;
        let completed = self.objects.change(vec![self.key.clone()], async move {
            let result = upload.complete().await;
            (upload, result)
        });
        let (upload, result) = completed
            .await
            .map_err(|error| error_from_floe(error, &self.location))?;
        self.upload = Some(upload);
        result
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        match &mut self.upload {
            Some(upload) => upload.abort().await,
            None => Err(generic(GONE)),
        }
    }
}
