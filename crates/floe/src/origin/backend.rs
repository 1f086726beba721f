//! The operations that each kind of origin implements.

use std::sync::Arc;

use async_trait::async_trait;

use super::error::OriginError;
use super::forward::{ForwardAnswer, ForwardBody, ForwardHead};
use super::queue::MessageQueue;
use super::types::{
    Attributes, BucketInfo, CompleteRequest, DeleteCondition, GetRequest, ListPage, ListRequest,
    ObjectKey, ObjectMeta, OriginRead, PartRequest, PendingParts, PutRequest, PutResponse,
    UploadInfo,
};

/// One kind of origin: a single attempt of each operation, without the retries,
/// limits and statistics of [`Origin`](super::Origin).
///
/// Implement this to put Floe in front of another store. The contract:
/// - the metadata in [`OriginRead`] describes the version whose bytes the body
///   holds;
/// - two versions of one object never have the same entity tag, modification time and size;
/// - a dropped future or body stops the request and leaves no partial write
///   visible;
/// - a write is visible to every read that begins after the write returned.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Reads an object or a range of it.
    async fn get(&self, key: &ObjectKey, request: GetRequest) -> Result<OriginRead, OriginError>;

    /// Reads an object's metadata. The request's range is ignored.
    async fn head(&self, key: &ObjectKey, request: GetRequest) -> Result<ObjectMeta, OriginError>;

    /// True if the object certainly is still the version of `meta`, when that can be told at
    /// once on the calling thread, without waiting for a device or a network. `false` tells
    /// nothing: then [`head`](Backend::head) is asked.
    fn confirms(&self, key: &ObjectKey, meta: &ObjectMeta) -> bool {
        let _ = (key, meta);
        false
    }

    /// True if requests may run on a runtime that ends before the origin does. Then a read sends
    /// them on the thread that its client's connection has.
    fn outlives_runtimes(&self) -> bool {
        false
    }

    /// The client's name of a bucket that has this name at the origin, if it is visible.
    fn visible_bucket(&self, name: &str) -> Option<String> {
        Some(name.to_owned())
    }

    /// The queue at a URL, with the origin's credentials. It is not contacted.
    ///
    /// # Errors
    /// [`OriginError::Unsupported`], or [`OriginError::Protocol`] if the URL is not that of a
    /// queue.
    fn queue(&self, url: &str) -> Result<Arc<dyn MessageQueue>, OriginError> {
        let _ = url;
        Err(no_queues())
    }

    /// True if the origin honours [`GetRequest::if_match`]. Otherwise callers
    /// compare the metadata that comes with the bytes.
    fn honours_if_match(&self) -> bool {
        true
    }

    /// Whether [`forward`](Backend::forward) sends requests in S3's protocol to a bucket, or
    /// to the service itself (`None`).
    fn forwards(&self, bucket: Option<&str>) -> bool {
        let _ = bucket;
        false
    }

    /// The host name, without a port, that clients address in requests of S3 with their own
    /// signatures.
    ///
    /// # Errors
    /// [`OriginError::Unsupported`]: a signature made for this origin would not hold there.
    fn signed_host(&self) -> Result<String, OriginError> {
        Err(OriginError::Unsupported(
            "verify the signatures of S3 clients".into(),
        ))
    }

    /// Sends a client's own request, and returns the answer of any status.
    async fn forward(
        &self,
        head: ForwardHead,
        body: Option<ForwardBody>,
    ) -> Result<ForwardAnswer, OriginError> {
        let _ = (head, body);
        Err(OriginError::Unsupported("take requests of S3".into()))
    }

    /// Writes a whole object.
    async fn put(&self, key: &ObjectKey, request: PutRequest) -> Result<PutResponse, OriginError> {
        let _ = (key, request);
        Err(OriginError::Unsupported("store objects".into()))
    }

    /// Deletes an object. A missing object is no error.
    async fn delete(&self, key: &ObjectKey) -> Result<(), OriginError> {
        let _ = key;
        Err(OriginError::Unsupported("delete objects".into()))
    }

    /// Deletes an object if it is the one of the condition, atomically with every write through
    /// this origin.
    async fn delete_if(
        &self,
        key: &ObjectKey,
        condition: &DeleteCondition,
    ) -> Result<(), OriginError> {
        let _ = (key, condition);
        Err(OriginError::Unsupported(
            "compare and delete objects".into(),
        ))
    }

    /// Lists a page of a bucket.
    async fn list(&self, bucket: &str, request: ListRequest) -> Result<ListPage, OriginError> {
        let _ = (bucket, request);
        Err(OriginError::Unsupported("list objects".into()))
    }

    /// Lists the buckets.
    async fn list_buckets(&self) -> Result<Vec<BucketInfo>, OriginError> {
        Err(OriginError::Unsupported("list buckets".into()))
    }

    /// Checks that a bucket exists and is accessible.
    async fn head_bucket(&self, bucket: &str) -> Result<(), OriginError> {
        let request = ListRequest {
            max_keys: 1,
            ..ListRequest::default()
        };
        self.list(bucket, request).await.map(drop)
    }

    /// Creates a bucket. An existing one is [`OriginError::BucketExists`].
    async fn create_bucket(&self, bucket: &str) -> Result<(), OriginError> {
        let _ = bucket;
        Err(OriginError::Unsupported(
            "make buckets through the cache; make it at the origin itself".into(),
        ))
    }

    /// Deletes a bucket without objects. One with objects is [`OriginError::BucketNotEmpty`].
    async fn delete_bucket(&self, bucket: &str) -> Result<(), OriginError> {
        let _ = bucket;
        Err(OriginError::Unsupported(
            "delete buckets through the cache; delete it at the origin itself".into(),
        ))
    }

    /// True if it lists the parts of uploads.
    fn lists_parts(&self) -> bool {
        false
    }

    /// Lists an upload's parts.
    async fn list_parts(&self, key: &ObjectKey, upload: &str) -> Result<PendingParts, OriginError> {
        let _ = (key, upload);
        Err(OriginError::Unsupported(
            "list the parts of uploads; the client that uploads keeps the list, or asks the origin itself".into(),
        ))
    }

    /// Lists the pending uploads of a bucket in byte order of key and id.
    async fn list_uploads(&self, bucket: &str) -> Result<Vec<UploadInfo>, OriginError> {
        let _ = bucket;
        Err(OriginError::Unsupported(
            "list uploads under way; ask the origin itself".into(),
        ))
    }

    /// Begins a multipart upload and returns its id.
    async fn create_upload(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
    ) -> Result<String, OriginError> {
        let _ = (key, attributes);
        Err(OriginError::Unsupported("take multipart uploads".into()))
    }

    /// Uploads a part of an upload.
    async fn upload_part(
        &self,
        key: &ObjectKey,
        part: PartRequest,
    ) -> Result<PutResponse, OriginError> {
        let _ = (key, part);
        Err(OriginError::Unsupported("take multipart uploads".into()))
    }

    /// Completes an upload from its parts.
    async fn complete_upload(
        &self,
        key: &ObjectKey,
        request: CompleteRequest,
    ) -> Result<PutResponse, OriginError> {
        let _ = (key, request);
        Err(OriginError::Unsupported("take multipart uploads".into()))
    }

    /// Aborts an upload and deletes its parts.
    async fn abort_upload(&self, key: &ObjectKey, upload: &str) -> Result<(), OriginError> {
        let _ = (key, upload);
        Err(OriginError::Unsupported("take multipart uploads".into()))
    }
}

/// The error of origins without queues.
pub(super) fn no_queues() -> OriginError {
    OriginError::Unsupported("read queues of messages; only an S3 service has them".into())
}
