//! Origins: the stores behind the cache, where misses go.
//!
//! [`Origin`] is a [`Backend`] for one kind of store with bounded concurrency,
//! timeouts, retries and statistics.
//!
//! **Panics.** A panic in a [`Backend`] reaches the caller of that request and
//! poisons nothing: the request's place among the concurrent ones is free again.
//!
//! Must not depend on caching, chunks, versions or client protocols.

mod backend;
mod client;
mod config;
mod config_error;
pub(crate) mod digest;
pub mod directory;
pub mod emulated;
mod error;
pub(crate) mod fair;
#[cfg(test)]
mod fair_tests;
mod forward;
mod guard;
mod hexadecimal;
mod kind;
mod lock;
pub(crate) mod page;
mod parts;
mod queue;
mod remote;
mod request_id;
mod stats;
mod turn;
mod types;
pub(crate) mod uploads;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use floe_device::Clock;
use futures::future::Either;

pub use backend::Backend;
pub use client::Client;
pub use config::{OriginConfig, RequestConfig, Secret};
pub use config_error::OriginConfigError;
pub use error::OriginError;
pub use forward::{
    ForwardAnswer, ForwardBody, ForwardHead, ForwardRequest, OriginKeys, PayloadHash, SignedTarget,
    Signing, remove_connection_headers,
};
pub use kind::OriginKind;
pub use parts::PartSizes;
pub use queue::{MessageQueue, QueueMessage};
pub use request_id::OriginRequestId;
pub(crate) use request_id::for_caller;
pub use stats::{LATENCY_BOUNDS_MS, OperationStats, OriginOperation, OriginReason, OriginStats};
pub use turn::UploadTurn;
pub use types::{
    Attributes, BoxError, BucketInfo, ByteRange, CompleteRequest, DeleteCondition, GetRequest,
    Headers, LateHeaders, ListPage, ListRequest, ListedObject, ObjectKey, ObjectMeta, OriginBody,
    OriginRead, PartInfo, PartRequest, PendingParts, PutCondition, PutRequest, PutResponse,
    UploadBody, UploadInfo, UploadedPart,
};
pub(crate) use types::{debug_fields, require_bucket_name};

use directory::DirectoryOrigin;
use emulated::EmulatedOrigin;
pub(crate) use emulated::{check_conditions, clip};
use guard::Guard;
use remote::RemoteOrigin;
use stats::Purpose;

use crate::runtimes::Context;

/// A store behind the cache. Cheap to clone.
#[derive(Clone)]
pub struct Origin {
    backend: Arc<dyn Backend>,
    guard: Arc<Guard>,
    kind: &'static str,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Origin {
    /// Opens an origin.
    ///
    /// # Errors
    /// A setting is invalid. Remote origins are not contacted.
    pub fn open(config: &OriginConfig, clock: Clock) -> Result<Self, OriginConfigError> {
        config.validate()?;
        let (backend, kind) = open_backend(config, &clock)?;
        Ok(Origin {
            backend,
            guard: Arc::new(Guard::new(config.requests.clone(), clock)),
            kind,
        })
    }

    /// Adds limits, timeouts, retries and statistics to the caller's backend.
    ///
    /// # Errors
    /// A setting of `requests` is invalid.
    pub fn from_backend(
        backend: Arc<dyn Backend>,
        requests: RequestConfig,
        clock: Clock,
    ) -> Result<Self, OriginConfigError> {
        requests.validate()?;
        Ok(Origin {
            backend,
            guard: Arc::new(Guard::new(requests, clock)),
            kind: "custom",
        })
    }

    /// The kind as in the configuration; `custom` for the caller's backend.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Counts of requests since the origin was opened.
    pub fn stats(&self) -> OriginStats {
        self.guard.stats()
    }

    /// Replaces limits, timeouts and retries for later requests, except for
    /// `connect_timeout_ms`, which is fixed when the client is created.
    ///
    /// # Errors
    /// A setting is invalid; all settings stay as they were.
    pub fn reload(&self, requests: &RequestConfig) -> Result<(), OriginConfigError> {
        requests.validate()?;
        self.guard.reload(requests.clone());
        Ok(())
    }

    /// See [`Backend::visible_bucket`].
    pub fn visible_bucket(&self, name: &str) -> Option<String> {
        self.backend.visible_bucket(name)
    }

    /// See [`Backend::queue`].
    ///
    /// # Errors
    /// The origin has no queues, or the URL is not that of one.
    pub fn queue(&self, url: &str) -> Result<Arc<dyn MessageQueue>, OriginError> {
        self.backend.queue(url)
    }

    /// See [`Backend::honours_if_match`].
    pub fn honours_if_match(&self) -> bool {
        self.backend.honours_if_match()
    }

    /// Reads an object or a range of it. The body counts against the limit of
    /// concurrent requests until it ends or is dropped.
    pub async fn get(
        &self,
        key: &ObjectKey,
        request: GetRequest,
    ) -> Result<OriginRead, OriginError> {
        self.fetch((key, request), || {}).await
    }

    /// [`get`](Origin::get), which calls `begins` before each request that it sends.
    pub(crate) async fn fetch(
        &self,
        (key, request): (&ObjectKey, GetRequest),
        begins: impl Fn(),
    ) -> Result<OriginRead, OriginError> {
        let attempt = || {
            begins();
            self.backend.get(key, request.clone())
        };
        let mut read = self.on_own_thread(self.guard.read(attempt)).await?;
        if let Some(own) = self.own_context() {
            read.body = own.stream(read.body);
        }
        Ok(read)
    }

    /// The runtime of this thread, if requests may run on it.
    fn own_context(&self) -> Option<Context> {
        Context::of_this_thread().filter(|_| self.backend.outlives_runtimes())
    }

    fn on_own_thread<F: Future>(&self, request: F) -> impl Future<Output = F::Output> + use<F> {
        match self.own_context() {
            Some(own) => Either::Left(own.run_once(request)),
            None => Either::Right(request),
        }
    }

    /// Reads an object's metadata, subject to the request's conditions.
    pub async fn head(
        &self,
        key: &ObjectKey,
        request: GetRequest,
    ) -> Result<ObjectMeta, OriginError> {
        self.validate(key, request, || {}).await
    }

    /// [`head`](Origin::head), which calls `begins` before each request that it sends.
    pub(crate) async fn validate(
        &self,
        key: &ObjectKey,
        request: GetRequest,
        begins: impl Fn(),
    ) -> Result<ObjectMeta, OriginError> {
        let validates = request.if_none_match.is_some() || request.if_modified_since.is_some();
        let purpose = match validates {
            true => Purpose(OriginOperation::Head, OriginReason::Validation),
            false => OriginOperation::Head.into(),
        };
        let attempt = || {
            begins();
            self.backend.head(key, request.clone())
        };
        self.on_own_thread(self.guard.run(purpose, attempt)).await
    }

    /// True if the object certainly is still the version of `meta`; see
    /// [`Backend::confirms`]. It counts as a [`head`](Origin::head) then, and waits in no queue.
    pub fn confirms(&self, key: &ObjectKey, meta: &ObjectMeta) -> bool {
        self.guard.confirm(|| self.backend.confirms(key, meta))
    }

    /// See [`Backend::forwards`].
    pub fn forwards(&self, bucket: Option<&str>) -> bool {
        self.backend.forwards(bucket)
    }

    /// See [`Backend::signed_host`].
    ///
    /// # Errors
    /// [`OriginError::Unsupported`]: it takes no such requests.
    pub fn signed_host(&self) -> Result<String, OriginError> {
        self.backend.signed_host()
    }

    /// Waits for the beginning of a forwarded body, and for its turn.
    pub(crate) async fn begin_body(&self, body: ForwardBody) -> Result<ForwardBody, OriginError> {
        self.guard.begin(body).await
    }

    /// Sends a client's own request. An answer of any status is returned; a request that
    /// changes nothing is retried where there is none.
    pub async fn forward(&self, request: ForwardRequest) -> Result<ForwardAnswer, OriginError> {
        self.guard
            .forward(request, |head, body| self.backend.forward(head, body))
            .await
    }

    /// Writes a whole object. Not retried, since a body can be read only once.
    pub async fn put(
        &self,
        key: &ObjectKey,
        request: PutRequest,
    ) -> Result<PutResponse, OriginError> {
        let (body, pass) = self.guard.admit(request.body, request.turn).await?;
        let request = PutRequest {
            body,
            turn: None,
            ..request
        };
        let put = self.backend.put(key, request);
        self.guard.upload(OriginOperation::Put, pass, put).await
    }

    /// Deletes an object. A missing object is no error.
    pub async fn delete(&self, key: &ObjectKey) -> Result<(), OriginError> {
        self.guard
            .run(OriginOperation::Delete, || self.backend.delete(key))
            .await
    }

    /// Deletes an object if it is the one of the condition. Not retried: a second attempt might
    /// find another object.
    pub async fn delete_if(
        &self,
        key: &ObjectKey,
        condition: &DeleteCondition,
    ) -> Result<(), OriginError> {
        let deleted = self.backend.delete_if(key, condition);
        self.guard.once(OriginOperation::Delete, deleted).await
    }

    /// Lists a page of a bucket.
    pub async fn list(&self, bucket: &str, request: ListRequest) -> Result<ListPage, OriginError> {
        self.guard
            .run(OriginOperation::List, || {
                self.backend.list(bucket, request.clone())
            })
            .await
    }

    /// Lists the buckets.
    pub async fn list_buckets(&self) -> Result<Vec<BucketInfo>, OriginError> {
        self.guard
            .run(OriginOperation::List, || self.backend.list_buckets())
            .await
    }

    /// Checks that a bucket exists and is accessible.
    pub async fn head_bucket(&self, bucket: &str) -> Result<(), OriginError> {
        let purpose = Purpose(OriginOperation::Head, OriginReason::List);
        self.guard
            .run(purpose, || self.backend.head_bucket(bucket))
            .await
    }

    /// Creates a bucket. An existing one is an error.
    pub async fn create_bucket(&self, bucket: &str) -> Result<(), OriginError> {
        // Not retried: a second attempt might find the first one's bucket.
        self.guard
            .once(OriginOperation::Put, self.backend.create_bucket(bucket))
            .await
    }

    /// Deletes a bucket without objects.
    pub async fn delete_bucket(&self, bucket: &str) -> Result<(), OriginError> {
        // Not retried: a second attempt might not find the first one's bucket.
        self.guard
            .once(OriginOperation::Delete, self.backend.delete_bucket(bucket))
            .await
    }

    /// True if the origin lists the parts of uploads.
    pub fn lists_parts(&self) -> bool {
        self.backend.lists_parts()
    }

    /// Lists an upload's parts.
    pub async fn list_parts(
        &self,
        key: &ObjectKey,
        upload: &str,
    ) -> Result<PendingParts, OriginError> {
        self.guard
            .run(OriginOperation::List, || {
                self.backend.list_parts(key, upload)
            })
            .await
    }

    /// Lists the pending uploads of a bucket in byte order of key and id.
    pub async fn list_uploads(&self, bucket: &str) -> Result<Vec<UploadInfo>, OriginError> {
        self.guard
            .run(OriginOperation::List, || self.backend.list_uploads(bucket))
            .await
    }

    /// Begins a multipart upload and returns its id.
    pub async fn create_upload(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
    ) -> Result<String, OriginError> {
        // Not retried: a second attempt would leave the first one's upload behind.
        self.guard
            .once(
                OriginOperation::Multipart,
                self.backend.create_upload(key, attributes),
            )
            .await
    }

    /// Waits for an upload turn, for a body that is read from this origin.
    ///
    /// # Errors
    /// [`OriginError::Overloaded`].
    pub async fn upload_turn(&self) -> Result<UploadTurn, OriginError> {
        self.guard.upload_turn().await
    }

    /// Uploads a part of an upload. Not retried, like [`put`](Origin::put).
    pub async fn upload_part(
        &self,
        key: &ObjectKey,
        part: PartRequest,
    ) -> Result<PutResponse, OriginError> {
        if !(1..=10_000).contains(&part.number) {
            return Err(OriginError::InvalidPart(format!(
                "part number {} is not between 1 and 10000",
                part.number
            )));
        }
        let PartRequest { body, turn, .. } = part;
        let (body, pass) = self.guard.admit(body, turn).await?;
        let part = PartRequest {
            body,
            turn: None,
            ..part
        };
        let sent = self.backend.upload_part(key, part);
        self.guard
            .upload(OriginOperation::Multipart, pass, sent)
            .await
    }

    /// Completes an upload from its parts, in ascending order of their numbers.
    pub async fn complete_upload(
        &self,
        key: &ObjectKey,
        request: CompleteRequest,
    ) -> Result<PutResponse, OriginError> {
        let parts = &request.parts;
        if parts.is_empty() {
            return Err(OriginError::InvalidPart("an upload needs a part".into()));
        }
        if parts
            .windows(2)
            .any(|pair| pair[0].number >= pair[1].number)
        {
            return Err(OriginError::InvalidPartOrder);
        }
        self.guard
            .slow(
                OriginOperation::Multipart,
                self.backend.complete_upload(key, request),
            )
            .await
    }

    /// Aborts an upload and deletes its parts.
    pub async fn abort_upload(&self, key: &ObjectKey, upload: &str) -> Result<(), OriginError> {
        self.guard
            .run(OriginOperation::Multipart, || {
                self.backend.abort_upload(key, upload)
            })
            .await
    }
}

fn open_backend(
    config: &OriginConfig,
    clock: &Clock,
) -> Result<(Arc<dyn Backend>, &'static str), OriginConfigError> {
    Ok(match config.kind {
        OriginKind::Emulated => {
            let emulated = config.emulated.clone().unwrap_or_default();
            let backend = EmulatedOrigin::new(emulated, clock.clone())?;
            (Arc::new(backend), "emulated")
        }
        OriginKind::Directory => {
            // `validate` has checked that it is set.
            let root = config.root.as_deref().unwrap_or(Path::new("."));
            (Arc::new(DirectoryOrigin::open(root)?), "directory")
        }
        OriginKind::S3 => (Arc::new(RemoteOrigin::open(config)?), "s3"),
        OriginKind::Gcs => (Arc::new(RemoteOrigin::open(config)?), "gcs"),
        OriginKind::Azure => (Arc::new(RemoteOrigin::open(config)?), "azure"),
        OriginKind::Http => (Arc::new(RemoteOrigin::open(config)?), "http"),
    })
}
