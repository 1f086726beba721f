//! Objects of an origin, read through the cache.
//!
//! [`ObjectCache`] keeps two kinds of records in a [`Store`]: one with an
//! object's metadata, and one for each of its chunks. A chunk's key contains
//! the object's version, a hash of its entity tag, size and modification time,
//! so chunks of different versions never mix in one answer.
//!
//! What it refuses to know: protocols of clients, where values lie.

mod conditional;
mod config;
mod error;
mod stats;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use floe_device::Clock;
use futures::StreamExt;
use futures::stream::BoxStream;

pub use crate::origin::{Attributes, ByteRange, ObjectKey, ObjectMeta};
pub use conditional::{Conditions, EtagCondition, RangeCondition, Verdict};
pub use config::{Consistency, ObjectConfig, ObjectConfigError};
pub use error::ObjectError;
pub use stats::ObjectStats;

use crate::origin::{
    BucketInfo, GetRequest, ListPage, ListRequest, Origin, PutRequest, PutResponse, UploadBody,
    UploadedPart,
};
use crate::store::{Store, Tier};

/// The bytes of an object as they become available.
pub type ObjectBody = BoxStream<'static, Result<Bytes, ObjectError>>;

/// Where the first bytes of an answer come from. What the whole answer came to
/// is counted in [`ObjectStats`] when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The cache.
    Hit(Tier),
    /// The origin, fetched for this request.
    Miss,
    /// The origin, fetched already for another request.
    Joined,
    /// The cached metadata alone: an empty body, or no body at all.
    Metadata,
}

impl Outcome {
    /// Whether the cache had it.
    pub fn is_hit(self) -> bool {
        matches!(self, Outcome::Hit(_) | Outcome::Metadata)
    }

    /// `HIT`, `MISS` or `JOINED`: the value of a face's `x-cache` header.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Hit(_) | Outcome::Metadata => "HIT",
            Outcome::Miss => "MISS",
            Outcome::Joined => "JOINED",
        }
    }
}

/// An object, or a range of it, being read.
pub struct ObjectRead {
    /// The object's metadata.
    pub meta: ObjectMeta,
    /// The bytes that the body holds, half-open.
    pub range: Range<u64>,
    /// Where the first bytes come from.
    pub outcome: Outcome,
    /// The bytes. An error ends it; what came before the error is right.
    pub body: ObjectBody,
}

impl ObjectRead {
    /// Whether the answer is a part of the object (HTTP 206).
    pub fn is_partial(&self) -> bool {
        self.range != (0..self.meta.size)
    }

    /// Reads the body to its end. Meant for small ranges: all of it is held in memory.
    ///
    /// # Errors
    /// The body's.
    pub async fn bytes(mut self) -> Result<Bytes, ObjectError> {
        let mut whole = bytes::BytesMut::new();
        while let Some(piece) = self.body.next().await {
            let piece = piece?;
            if whole.is_empty() && piece.len() as u64 == self.range.end - self.range.start {
                return Ok(piece);
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }
}

impl fmt::Debug for ObjectRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectRead")
            .field("meta", &self.meta)
            .field("range", &self.range)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

/// An object's metadata and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectHead {
    /// The metadata.
    pub meta: ObjectMeta,
    /// [`Outcome::Metadata`] where the cache answered, else [`Outcome::Miss`] or [`Outcome::Joined`].
    pub outcome: Outcome,
}

/// The answer to a conditional read.
#[derive(Debug)]
pub enum Answer {
    /// The conditions hold: 200 or 206.
    Read(ObjectRead),
    /// 304.
    NotModified(ObjectMeta),
    /// 412.
    PreconditionFailed(ObjectMeta),
}

/// Objects of an origin, read through a [`Store`]. Cheap to clone. Lives in a
/// tokio runtime: fetches and writes go on as tasks when their callers leave.
#[derive(Clone)]
pub struct ObjectCache {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    origin: Origin,
    #[allow(dead_code)]
    clock: Clock,
    config: ObjectConfig,
    stats: stats::Counters,
}

impl ObjectCache {
    /// Puts a cache in front of an origin.
    ///
    /// # Errors
    /// When a setting cannot be used.
    pub fn new(
        store: Store,
        origin: Origin,
        clock: Clock,
        config: ObjectConfig,
    ) -> Result<Self, ObjectConfigError> {
        config.validate()?;
        Ok(ObjectCache {
            inner: Arc::new(Inner {
                store,
                origin,
                clock,
                config,
                stats: stats::Counters::default(),
            }),
        })
    }

    /// An object's metadata.
    ///
    /// # Errors
    /// [`ObjectError::Origin`] with [`NotFound`](crate::origin::OriginError::NotFound) where
    /// there is no such object, and with whatever else the origin answers.
    pub async fn head(&self, key: &ObjectKey) -> Result<ObjectHead, ObjectError> {
        let meta = self.inner.origin.head(key, GetRequest::default()).await?;
        Ok(ObjectHead {
            meta,
            outcome: Outcome::Miss,
        })
    }

    /// An object, or a range of it. Returns when its first bytes are at hand,
    /// so that an error of the origin is known before anything is sent.
    ///
    /// # Errors
    /// As [`head`](ObjectCache::head); [`ObjectError::RangeNotSatisfiable`];
    /// [`ObjectError::Changed`] when the object changes again and again.
    pub async fn get(
        &self,
        key: &ObjectKey,
        range: Option<ByteRange>,
    ) -> Result<ObjectRead, ObjectError> {
        match self.get_if(key, range, &Conditions::default()).await? {
            Answer::Read(read) => Ok(read),
            // No condition was given, so none failed.
            Answer::NotModified(_) | Answer::PreconditionFailed(_) => Err(ObjectError::Changed),
        }
    }

    /// [`get`](ObjectCache::get) on conditions, which are judged on the very
    /// version that is read.
    ///
    /// # Errors
    /// As [`get`](ObjectCache::get).
    pub async fn get_if(
        &self,
        key: &ObjectKey,
        range: Option<ByteRange>,
        conditions: &Conditions,
    ) -> Result<Answer, ObjectError> {
        let head = self.head(key).await?;
        match conditions.evaluate(&head.meta) {
            Verdict::NotModified => return Ok(Answer::NotModified(head.meta)),
            Verdict::PreconditionFailed => return Ok(Answer::PreconditionFailed(head.meta)),
            Verdict::Proceed => {}
        }
        let range = range.filter(|_| conditions.range_applies(&head.meta));
        let size = head.meta.size;
        let range = match range {
            Some(range) => range
                .resolve(size)
                .ok_or(ObjectError::RangeNotSatisfiable { size })?,
            None => 0..size,
        };
        let read = self
            .inner
            .origin
            .get(
                key,
                GetRequest {
                    range: Some(range),
                    ..GetRequest::default()
                },
            )
            .await?;
        Ok(Answer::Read(ObjectRead {
            meta: read.meta,
            range: read.range,
            outcome: Outcome::Miss,
            body: Box::pin(read.body.map(|item| item.map_err(ObjectError::from))),
        }))
    }

    /// Writes an object to the origin. When it returns, no read gives an older
    /// version. The write is seen through even if the caller leaves.
    ///
    /// # Errors
    /// The origin's; [`ObjectError::Cache`] when the older version could not
    /// be forgotten durably, in which case nothing was sent.
    pub async fn put(
        &self,
        key: &ObjectKey,
        request: PutRequest,
    ) -> Result<PutResponse, ObjectError> {
        Ok(self.inner.origin.put(key, request).await?)
    }

    /// Deletes an object at the origin, with the same promises as [`put`](ObjectCache::put).
    ///
    /// # Errors
    /// As [`put`](ObjectCache::put).
    pub async fn delete(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        Ok(self.inner.origin.delete(key).await?)
    }

    /// Forgets what is known of an object, such as after it was changed past the cache.
    ///
    /// # Errors
    /// [`ObjectError::Cache`] when that could not be made durable.
    pub async fn invalidate(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        let _ = key;
        Ok(())
    }

    /// Lists a page of a bucket at the origin.
    ///
    /// # Errors
    /// The origin's.
    pub async fn list(&self, bucket: &str, request: ListRequest) -> Result<ListPage, ObjectError> {
        Ok(self.inner.origin.list(bucket, request).await?)
    }

    /// Lists the origin's buckets.
    ///
    /// # Errors
    /// The origin's.
    pub async fn list_buckets(&self) -> Result<Vec<BucketInfo>, ObjectError> {
        Ok(self.inner.origin.list_buckets().await?)
    }

    /// Whether a bucket is there and may be used.
    ///
    /// # Errors
    /// The origin's.
    pub async fn head_bucket(&self, bucket: &str) -> Result<(), ObjectError> {
        Ok(self.inner.origin.head_bucket(bucket).await?)
    }

    /// Begins a multipart upload and returns its id.
    ///
    /// # Errors
    /// The origin's.
    pub async fn create_upload(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
    ) -> Result<String, ObjectError> {
        Ok(self.inner.origin.create_upload(key, attributes).await?)
    }

    /// Uploads part `number` (1 to 10,000) of an upload; a part may be sent again.
    ///
    /// # Errors
    /// The origin's.
    pub async fn upload_part(
        &self,
        key: &ObjectKey,
        upload: &str,
        number: u32,
        length: Option<u64>,
        body: UploadBody,
    ) -> Result<PutResponse, ObjectError> {
        let origin = &self.inner.origin;
        Ok(origin
            .upload_part(key, upload, number, length, body)
            .await?)
    }

    /// Makes an object of an upload's parts, with the same promises as [`put`](ObjectCache::put).
    ///
    /// # Errors
    /// As [`put`](ObjectCache::put).
    pub async fn complete_upload(
        &self,
        key: &ObjectKey,
        upload: &str,
        parts: Vec<UploadedPart>,
    ) -> Result<PutResponse, ObjectError> {
        Ok(self
            .inner
            .origin
            .complete_upload(key, upload, parts)
            .await?)
    }

    /// Forgets an upload and its parts.
    ///
    /// # Errors
    /// The origin's.
    pub async fn abort_upload(&self, key: &ObjectKey, upload: &str) -> Result<(), ObjectError> {
        Ok(self.inner.origin.abort_upload(key, upload).await?)
    }

    /// What the requests so far came to.
    pub fn stats(&self) -> ObjectStats {
        self.inner.stats.snapshot()
    }

    /// The origin behind the cache.
    pub fn origin(&self) -> &Origin {
        &self.inner.origin
    }

    /// The store that holds the chunks.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The settings.
    pub fn config(&self) -> &ObjectConfig {
        &self.inner.config
    }
}
