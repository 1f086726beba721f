//! Cache-only buckets as an origin.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;

use super::commit::Change;
use super::row::Row;
use super::shared::Shared;
use super::{CacheOnly, body, upload};
use crate::origin::uploads::PendingUpload;
use crate::origin::{
    Attributes, Backend, BucketInfo, CompleteRequest, DeleteCondition, GetRequest, ListPage,
    ListRequest, ObjectKey, ObjectMeta, OriginBody, OriginError, OriginRead, PartInfo, PartRequest,
    PendingParts, PutRequest, PutResponse, UploadInfo, check_conditions, clip,
};

impl Shared {
    /// The bytes of a range. Asked only for chunks that a reader did not find, so an object
    /// without one of them is forgotten.
    async fn bytes(
        self: &Arc<Self>,
        name: &ObjectKey,
        row: &Row,
        range: Range<u64>,
    ) -> Result<OriginBody, OriginError> {
        let first = range.start / row.chunk_size;
        let chunks = first..range.end.div_ceil(row.chunk_size);
        let mut keys = chunks.zip(row.chunk_keys(name, first));
        if keys.any(|(_, key)| matches!(self.store.contains(&key), Ok(false))) {
            let change = Change::Forget {
                name: name.clone(),
                number: row.number,
            };
            self.names.change(change).await?;
            return Err(OriginError::NotFound(name.to_string()));
        }
        let lost = OriginError::ShortBody {
            expected: range.end,
            received: range.start,
        };
        Ok(body::read(&self.store, name, row, range, lost).boxed())
    }
}

fn length_of(length: Option<u64>) -> Result<u64, OriginError> {
    length.ok_or_else(|| OriginError::Rejected {
        status: 411,
        message: "a cache-only bucket takes uploads of a known length only".into(),
    })
}

/// Finds the parts of an upload that are still whole.
fn part_infos(
    name: ObjectKey,
    id: String,
) -> impl FnOnce(&Shared) -> Result<PendingParts, OriginError> {
    move |shared| {
        let upload = shared.upload(&name, &id)?;
        let parts = shared.names.parts(&id)?.into_iter();
        let kept = parts.filter(|(_, row)| !shared.names.is_gone(&name, row));
        let info = |(number, row): (u32, Row)| PartInfo {
            number,
            etag: row.meta.client_etag().map(str::to_owned),
            size: row.meta.size,
            last_modified: row.meta.last_modified,
            headers: row.meta.attributes.headers,
        };
        Ok(PendingParts {
            headers: upload.attributes.headers,
            parts: kept.map(info).collect(),
        })
    }
}

#[async_trait]
impl Backend for CacheOnly {
    async fn get(&self, key: &ObjectKey, request: GetRequest) -> Result<OriginRead, OriginError> {
        let row = self.shared.find(key)?;
        check_conditions(&row.meta, &request)?;
        let range = clip(request.range, row.meta.size)?;
        let body = match range.is_empty() {
            true => futures::stream::empty().boxed(),
            false => self.shared.bytes(key, &row, range.clone()).await?,
        };
        Ok(OriginRead {
            meta: row.meta,
            range,
            from_cache: None,
            body,
        })
    }

    async fn head(&self, key: &ObjectKey, request: GetRequest) -> Result<ObjectMeta, OriginError> {
        let meta = self.shared.find(key)?.meta;
        check_conditions(&meta, &request)?;
        Ok(meta)
    }

    async fn put(&self, key: &ObjectKey, request: PutRequest) -> Result<PutResponse, OriginError> {
        request.attributes.require_standard()?;
        let size = length_of(request.length)?;
        self.shared.check_early(key, request.condition.as_ref())?;
        let row = self.shared.new_row(key, size, request.attributes)?;
        let mut written = body::write(&self.shared, key, row, request.body).await?;
        written.add_headers(request.late_headers.get().into_iter().flatten().cloned());
        let condition = request.condition;
        self.shared.commit(key, written, condition, None).await
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), OriginError> {
        self.delete_if(key, &DeleteCondition::default()).await
    }

    async fn delete_if(
        &self,
        key: &ObjectKey,
        condition: &DeleteCondition,
    ) -> Result<(), OriginError> {
        self.shared.bucket(key.bucket())?;
        let change = Change::Delete {
            name: key.clone(),
            condition: condition.clone(),
        };
        self.shared.names.change(change).await?;
        self.shared.confirmed()
    }

    async fn list_uploads(&self, bucket: &str) -> Result<Vec<UploadInfo>, OriginError> {
        self.shared.bucket(bucket)?;
        let bucket = bucket.to_owned();
        self.shared
            .blocking(move |shared| shared.names.uploads(&bucket))
            .await
    }

    async fn list(&self, bucket: &str, request: ListRequest) -> Result<ListPage, OriginError> {
        self.shared.bucket(bucket)?;
        let bucket = bucket.to_owned();
        self.shared
            .blocking(move |shared| shared.names.page(&bucket, &request))
            .await
    }

    async fn list_buckets(&self) -> Result<Vec<BucketInfo>, OriginError> {
        Ok(self.buckets())
    }

    async fn head_bucket(&self, bucket: &str) -> Result<(), OriginError> {
        self.shared.bucket(bucket).map(drop)
    }

    async fn create_bucket(&self, bucket: &str) -> Result<(), OriginError> {
        Err(OriginError::BucketExists(bucket.to_owned()))
    }

    async fn delete_bucket(&self, _: &str) -> Result<(), OriginError> {
        Err(OriginError::Unsupported(
            "delete a cache-only bucket, which object.cache_only names; delete its objects".into(),
        ))
    }

    fn lists_parts(&self) -> bool {
        true
    }

    async fn list_parts(&self, key: &ObjectKey, upload: &str) -> Result<PendingParts, OriginError> {
        let infos = part_infos(key.clone(), upload.to_owned());
        self.shared.blocking(infos).await
    }

    async fn upload_part(
        &self,
        key: &ObjectKey,
        part: PartRequest,
    ) -> Result<PutResponse, OriginError> {
        let upload = self.shared.upload(key, &part.upload)?;
        let size = length_of(part.length)?;
        let row = self.shared.new_row(key, size, Attributes::default())?;
        let mut written = body::write(&self.shared, key, row, part.body).await?;
        written.add_headers(part.late_headers.get().into_iter().flatten().cloned());
        let etag = written.row().meta.content_etag.clone();
        let change = Change::Part {
            id: part.upload,
            number: part.number,
            upload,
            row: Box::new(written.row().clone()),
        };
        written.keep_if(self.shared.names.change(change)).await?;
        Ok(PutResponse { etag })
    }

    async fn complete_upload(
        &self,
        key: &ObjectKey,
        request: CompleteRequest,
    ) -> Result<PutResponse, OriginError> {
        self.shared.complete(key, request).await
    }

    async fn create_upload(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
    ) -> Result<String, OriginError> {
        self.shared.check_key(key)?;
        attributes.require_standard()?;
        let now_unix_s = self.shared.clock.unix_seconds();
        let id = upload::new_id(now_unix_s);
        let change = Change::Begin {
            id: id.clone(),
            upload: PendingUpload::new(key, attributes),
            oldest: upload::id_of_oldest(now_unix_s),
        };
        self.shared.names.change(change).await?;
        Ok(id)
    }

    async fn abort_upload(&self, key: &ObjectKey, upload: &str) -> Result<(), OriginError> {
        self.shared.upload(key, upload)?;
        let id = upload.to_owned();
        self.shared.names.change(Change::Abort { id }).await
    }
}
