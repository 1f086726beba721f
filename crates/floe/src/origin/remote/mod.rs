//! Remote stores: S3 and compatible ones, Google Cloud Storage, Azure and web
//! servers, through the `object_store` crate; what it cannot say to S3, `s3` says. Its own
//! retries are off: [`Origin`](super::Origin) retries, with the cache's clock and counters.

mod bucket;
mod convert;
mod open;
pub(super) mod redirect;
mod s3;
mod service;
#[cfg(test)]
mod tests;
mod upload;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderValue};
use object_store::list::PaginatedListOptions;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMultipartOptions};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;

use super::backend::{Backend, no_queues};
use super::config::OriginConfig;
use super::config_error::OriginConfigError;
use super::error::OriginError;
use super::forward::{ForwardAnswer, ForwardBody, ForwardHead, Signing};
use super::kind::OriginKind;
use super::queue::MessageQueue;
use super::types::{
    Attributes, BucketInfo, CompleteRequest, GetRequest, ListPage, ListRequest, ListedObject,
    ObjectKey, ObjectMeta, OriginBody, OriginRead, PartRequest, PutRequest, PutResponse,
};
use bucket::Bucket;
use s3::{S3Client, SqsQueue};
use service::{is_not_partial, meaning};
use upload::{Leftover, UploadLimits};

/// Most clients to keep, one per bucket.
const BUCKETS_MAX: usize = 1024;

/// Paths of S3 servers that are no buckets: the interfaces of MinIO's and Ceph's administrators.
const NO_BUCKETS: [&str; 2] = ["admin", "minio"];

/// A remote store.
pub(super) struct RemoteOrigin {
    config: OriginConfig,
    buckets: Mutex<HashMap<String, Arc<Bucket>>>,
    limits: UploadLimits,
    /// The client of an S3 origin.
    s3: Option<S3Client>,
}

impl RemoteOrigin {
    /// Checks the settings without contacting the store.
    ///
    /// # Errors
    /// The settings do not allow a client.
    pub(super) fn open(config: &OriginConfig) -> Result<Self, OriginConfigError> {
        let origin = RemoteOrigin {
            limits: UploadLimits::new(
                config.part_size.bytes(),
                config.max_part_size.bytes(),
                config.upload_memory.bytes(),
            ),
            s3: match config.kind {
                OriginKind::S3 => Some(S3Client::open(config)?),
                _ => None,
            },
            config: config.clone(),
            buckets: Mutex::new(HashMap::new()),
        };
        // The bucket's name does not matter for the check.
        open::bucket(&origin.config, "bucket")
            .map_err(|error| OriginConfigError::Open(error.to_string()))?;
        Ok(origin)
    }

    /// The origin's name of a bucket.
    fn mapped<'a>(&'a self, asked: &'a str) -> Result<&'a str, OriginError> {
        let unknown = || OriginError::NoSuchBucket(asked.to_owned());
        let name = match self.config.buckets.get(asked) {
            Some(mapped) => mapped.as_str(),
            None if self.config.buckets.is_empty() => asked,
            None => return Err(unknown()),
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        let is_name = (1..=255).contains(&name.len()) && name.bytes().all(plain);
        // In a URL's path `.` and `..` are relative segments.
        if !is_name || name == "." || name == ".." {
            return Err(unknown());
        }
        if self.s3.is_some() && self.config.buckets.is_empty() && NO_BUCKETS.contains(&name) {
            return Err(OriginError::AccessDenied(format!(
                "/{name} is the path of an administrator's interface on some servers of S3; if it \
                 is a bucket, name it in origin.buckets"
            )));
        }
        Ok(name)
    }

    /// An object of S3, and the client that reads it.
    fn s3_object(&self, key: &ObjectKey) -> Result<Option<(&S3Client, ObjectKey)>, OriginError> {
        let Some(s3) = &self.s3 else {
            return Ok(None);
        };
        let bucket = self.mapped(key.bucket())?;
        Ok(Some((s3, ObjectKey::new(bucket, key.key()))))
    }

    /// The client of an object's bucket, and the object's path in it.
    fn object(&self, key: &ObjectKey) -> Result<(Arc<Bucket>, Path), OriginError> {
        Ok((self.bucket(key.bucket())?, convert::path(key)?))
    }

    fn bucket(&self, asked: &str) -> Result<Arc<Bucket>, OriginError> {
        let name = self.mapped(asked)?;
        if let Some(bucket) = self.buckets.lock().get(name) {
            return Ok(Arc::clone(bucket));
        }
        let bucket = Arc::new(open::bucket(&self.config, name).map_err(|e| meaning(e, asked))?);
        let mut buckets = self.buckets.lock();
        if buckets.len() >= BUCKETS_MAX {
            buckets.clear();
        }
        buckets.insert(name.to_owned(), Arc::clone(&bucket));
        Ok(bucket)
    }

    /// Reads a range from a web server without range support, by skipping the
    /// rest of the object.
    async fn get_without_range(
        &self,
        bucket: &Bucket,
        key: &ObjectKey,
        request: &GetRequest,
    ) -> Result<OriginRead, OriginError> {
        let whole = GetRequest {
            range: None,
            ..request.clone()
        };
        let path = convert::path(key)?;
        let result = bucket
            .objects
            .get_opts(&path, convert::options(&whole, false))
            .await
            .map_err(|error| meaning(error, &key.to_string()))?;
        let meta = convert::meta(&result.meta, &result.attributes);
        let from_cache = service::from_cache(&result);
        let range = super::emulated::clip(request.range.clone(), meta.size)?;
        let body = cut(stream(result, key), range.clone());
        Ok(OriginRead {
            meta,
            range,
            from_cache,
            body,
        })
    }
}

fn stream(result: object_store::GetResult, key: &ObjectKey) -> OriginBody {
    let name = key.to_string();
    let body = result.into_stream();
    Box::pin(body.map_err(move |error| meaning(error, &name)))
}

/// The part `range` of a body that begins at offset 0.
fn cut(body: OriginBody, range: std::ops::Range<u64>) -> OriginBody {
    let pieces = body.scan(0u64, move |position, item| {
        let piece = item.map(|bytes: Bytes| {
            let begin = *position;
            *position += bytes.len() as u64;
            // Both offsets are within the piece, whose length is a usize.
            let from = range.start.clamp(begin, *position) - begin;
            let to = range.end.clamp(begin, *position) - begin;
            (begin < range.end).then(|| bytes.slice(from as usize..to.max(from) as usize))
        });
        futures::future::ready(piece.transpose())
    });
    Box::pin(pieces.try_filter(|piece| futures::future::ready(!piece.is_empty())))
}

#[async_trait]
impl Backend for RemoteOrigin {
    async fn get(&self, key: &ObjectKey, request: GetRequest) -> Result<OriginRead, OriginError> {
        if let Some((s3, target)) = self.s3_object(key)? {
            return s3.get(&target, &request).await;
        }
        let (bucket, path) = self.object(key)?;
        let get = bucket
            .objects
            .get_opts(&path, convert::options(&request, false));
        match get.await {
            Ok(result) => Ok(OriginRead {
                meta: convert::meta(&result.meta, &result.attributes),
                range: result.range.clone(),
                from_cache: service::from_cache(&result),
                body: stream(result, key),
            }),
            Err(error) if is_not_partial(&error) => {
                self.get_without_range(&bucket, key, &request).await
            }
            Err(error) => Err(meaning(error, &key.to_string())),
        }
    }

    async fn head(&self, key: &ObjectKey, request: GetRequest) -> Result<ObjectMeta, OriginError> {
        if let Some((s3, target)) = self.s3_object(key)? {
            return s3.head(&target, &request).await;
        }
        let (bucket, path) = self.object(key)?;
        let result = bucket
            .objects
            .get_opts(&path, convert::options(&request, true))
            .await
            .map_err(|error| meaning(error, &key.to_string()))?;
        Ok(convert::meta(&result.meta, &result.attributes))
    }

    fn outlives_runtimes(&self) -> bool {
        self.s3.is_some()
    }

    fn visible_bucket(&self, name: &str) -> Option<String> {
        if self.config.buckets.is_empty() {
            return Some(name.to_owned());
        }
        let mut named = self.config.buckets.iter();
        let named = named.find(|(_, of_origin)| *of_origin == name);
        named.map(|(visible, _)| visible.clone())
    }

    fn queue(&self, url: &str) -> Result<Arc<dyn MessageQueue>, OriginError> {
        match self.s3 {
            Some(_) => Ok(Arc::new(SqsQueue::open(&self.config, url)?)),
            None => Err(no_queues()),
        }
    }

    fn forwards(&self, bucket: Option<&str>) -> bool {
        // The service has buckets that clients must not see where the settings name some.
        self.s3.is_some() && (bucket.is_some() || self.config.buckets.is_empty())
    }

    fn signed_host(&self) -> Result<String, OriginError> {
        let unsupported = |what: &str| Err(OriginError::Unsupported(what.to_owned()));
        match &self.s3 {
            None => unsupported("verify the signatures of S3 clients; only an S3 service does"),
            Some(_) if !self.config.buckets.is_empty() => unsupported(
                "verify clients' own signatures under the names of origin.buckets; remove them",
            ),
            Some(s3) => s3.signed_host(),
        }
    }

    async fn forward(
        &self,
        mut head: ForwardHead,
        body: Option<ForwardBody>,
    ) -> Result<ForwardAnswer, OriginError> {
        let Some(s3) = &self.s3 else {
            return Err(OriginError::Unsupported("take requests of S3".into()));
        };
        let bucket = match &head.bucket {
            Some(bucket) => Some(self.mapped(bucket)?.to_owned()),
            None if self.forwards(None) => None,
            None => {
                return Err(OriginError::Unsupported(
                    "take requests to the service itself, since origin.buckets names its buckets"
                        .into(),
                ));
            }
        };
        if !matches!(head.signing, Signing::Client(_)) {
            self.map_sources(&mut head.headers)?;
        }
        s3.forward(head, bucket, body).await
    }

    async fn put(&self, key: &ObjectKey, request: PutRequest) -> Result<PutResponse, OriginError> {
        self.check_writable()?;
        let (bucket, path) = self.object(key)?;
        upload::put(&bucket, path, &key.to_string(), request, &self.limits).await
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), OriginError> {
        self.check_writable()?;
        let bucket = self.bucket(key.bucket())?;
        let deleted = bucket.objects.delete(&convert::path(key)?).await;
        match deleted.map_err(|error| meaning(error, &key.to_string())) {
            Err(OriginError::NotFound(_)) => Ok(()),
            result => result,
        }
    }

    async fn list(&self, bucket: &str, request: ListRequest) -> Result<ListPage, OriginError> {
        let client = self.bucket(bucket)?;
        let lists = client
            .lists
            .as_ref()
            .ok_or_else(|| OriginError::Unsupported("list objects".into()))?;
        if request.max_keys == 0 {
            return Ok(ListPage::default());
        }
        let options = PaginatedListOptions {
            offset: request.start_after,
            delimiter: request.delimiter.clone().map(Into::into),
            max_keys: Some(request.max_keys),
            page_token: request.continuation,
            ..PaginatedListOptions::default()
        };
        let prefix = Some(request.prefix.as_str()).filter(|prefix| !prefix.is_empty());
        let page = lists
            .list_paginated(prefix, options)
            .await
            .map_err(|error| meaning(error, bucket))?;
        Ok(list_page(page, request.delimiter.as_deref()))
    }

    async fn list_buckets(&self) -> Result<Vec<BucketInfo>, OriginError> {
        if self.config.buckets.is_empty() {
            return match &self.s3 {
                Some(s3) => s3.list_buckets().await,
                None => Err(OriginError::Unsupported(
                    "list buckets; name them in origin.buckets".into(),
                )),
            };
        }
        let names = self.config.buckets.keys();
        Ok(names
            .map(|name| BucketInfo {
                name: name.clone(),
                created: None,
            })
            .collect())
    }

    async fn head_bucket(&self, bucket: &str) -> Result<(), OriginError> {
        if self.config.kind == OriginKind::Http {
            return self.bucket(bucket).map(drop);
        }
        let request = ListRequest {
            max_keys: 1,
            ..ListRequest::default()
        };
        self.list(bucket, request).await.map(drop)
    }

    async fn create_upload(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
    ) -> Result<String, OriginError> {
        let uploads = self.uploads(key)?;
        let options = PutMultipartOptions {
            attributes: convert::attributes_to_store(&attributes)?,
            ..PutMultipartOptions::default()
        };
        uploads
            .create_multipart_opts(&convert::path(key)?, options)
            .await
            .map_err(|error| meaning(error, &key.to_string()))
    }

    async fn upload_part(
        &self,
        key: &ObjectKey,
        part: PartRequest,
    ) -> Result<PutResponse, OriginError> {
        let uploads = self.uploads(key)?;
        let most = self.limits.part_bytes_max;
        let too_long = || OriginError::Rejected {
            status: 413,
            message: format!(
                "a part may have {most} bytes; send smaller ones, or raise origin.max_part_size"
            ),
        };
        let length = part.length;
        if length.is_some_and(|length| length > most) {
            return Err(too_long());
        }
        let mut body = Leftover::new(part.body);
        // One byte more, to detect a body that is too long.
        let limit = length.unwrap_or(most).saturating_add(1);
        let gathered = self.limits.gather(&mut body, limit.min(most)).await?;
        if length.is_none() && gathered.bytes == most {
            return Err(too_long());
        }
        body.check_length(length)?;
        let index = part.number as usize - 1;
        let sent = uploads
            .put_part(
                &convert::path(key)?,
                &part.upload,
                index,
                gathered.payload(),
            )
            .await
            .map_err(|error| meaning(error, &key.to_string()))?;
        Ok(PutResponse {
            etag: Some(sent.content_id),
        })
    }

    async fn complete_upload(
        &self,
        key: &ObjectKey,
        request: CompleteRequest,
    ) -> Result<PutResponse, OriginError> {
        let uploads = self.uploads(key)?;
        let CompleteRequest { upload, parts, .. } = request;
        if request.condition.is_some() {
            let what = "complete multipart uploads on a condition";
            return Err(OriginError::Unsupported(what.into()));
        }
        let gap = parts
            .iter()
            .zip(1..)
            .find(|(part, number)| part.number != *number);
        if let Some((part, _)) = gap {
            return Err(OriginError::InvalidPart(format!(
                "part {} follows a gap; through this origin parts are numbered 1, 2, 3 …",
                part.number
            )));
        }
        let parts = parts.into_iter().map(|part| PartId {
            content_id: part.etag,
        });
        let result = uploads
            .complete_multipart(&convert::path(key)?, &upload, parts.collect())
            .await
            .map_err(|error| meaning(error, &key.to_string()))?;
        Ok(PutResponse { etag: result.e_tag })
    }

    async fn abort_upload(&self, key: &ObjectKey, upload: &str) -> Result<(), OriginError> {
        let uploads = self.uploads(key)?;
        let id = upload.to_owned();
        uploads
            .abort_multipart(&convert::path(key)?, &id)
            .await
            .map_err(|error| meaning(error, &key.to_string()))
    }
}

impl RemoteOrigin {
    /// Names the buckets that a request copies from as the origin does.
    fn map_sources(&self, headers: &mut HeaderMap) -> Result<(), OriginError> {
        if self.config.buckets.is_empty() {
            return Ok(());
        }
        for name in ["x-amz-copy-source", "x-amz-rename-source"] {
            let Some(source) = headers.get(name) else {
                continue;
            };
            let unclear = || OriginError::Rejected {
                status: 400,
                message: format!("{name} must be a bucket and a key"),
            };
            let source = source.to_str().map_err(|_| unclear())?;
            let source = source.strip_prefix('/').unwrap_or(source);
            let (bucket, key) = match source.split_once('/') {
                Some((bucket, key)) => (bucket, format!("/{key}")),
                // The slash may be encoded as well.
                None => {
                    let at = source
                        .to_ascii_uppercase()
                        .find("%2F")
                        .ok_or_else(unclear)?;
                    (&source[..at], source[at..].to_owned())
                }
            };
            let path = percent_decode_str(&key).decode_utf8_lossy();
            let path = path.split('?').next().unwrap_or_default();
            if path.split('/').any(|part| part == "." || part == "..") {
                return Err(unclear());
            }
            let mapped = format!("{}{key}", self.mapped(bucket)?);
            let value = HeaderValue::from_str(&mapped).map_err(|_| unclear())?;
            headers.insert(name, value);
        }
        Ok(())
    }

    fn check_writable(&self) -> Result<(), OriginError> {
        match self.config.kind {
            OriginKind::Http => Err(OriginError::Unsupported(
                "be written: a web server is read only".into(),
            )),
            _ => Ok(()),
        }
    }

    fn uploads(&self, key: &ObjectKey) -> Result<Arc<dyn MultipartStore>, OriginError> {
        self.check_writable()?;
        let bucket = self.bucket(key.bucket())?;
        bucket
            .uploads
            .clone()
            .ok_or_else(|| OriginError::Unsupported("take multipart uploads".into()))
    }
}

fn list_page(page: object_store::list::PaginatedListResult, delimiter: Option<&str>) -> ListPage {
    let objects = page.result.objects.into_iter().map(|object| ListedObject {
        last_modified: convert::last_modified(&object),
        key: object.location.to_string(),
        size: object.size,
        etag: object.e_tag,
    });
    // A `Path` drops its last slash.
    let end = if delimiter == Some("/") { "/" } else { "" };
    let prefixes = page.result.common_prefixes.into_iter();
    let mut listed = ListPage {
        objects: objects.collect(),
        common_prefixes: prefixes.map(|prefix| format!("{prefix}{end}")).collect(),
        next: page.page_token,
    };
    listed
        .objects
        .sort_unstable_by(|one, other| one.key.cmp(&other.key));
    listed.common_prefixes.sort_unstable();
    listed
}
