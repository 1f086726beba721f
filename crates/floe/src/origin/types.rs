//! What origins and the object cache talk about: keys, ranges, metadata, pages.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use super::error::OriginError;
use super::turn::UploadTurn;

/// The bytes of an object as they arrive from an origin.
pub type OriginBody = BoxStream<'static, Result<Bytes, OriginError>>;

/// Why the source of an upload failed.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The bytes of an upload as they arrive from a client.
pub type UploadBody = BoxStream<'static, Result<Bytes, BoxError>>;

/// The name of an object: a bucket and a key in it. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    bucket: Arc<str>,
    key: Arc<str>,
}

impl ObjectKey {
    /// Names an object. Nothing is checked here: an origin refuses what it
    /// cannot hold with [`OriginError::InvalidKey`].
    pub fn new(bucket: impl Into<Arc<str>>, key: impl Into<Arc<str>>) -> Self {
        ObjectKey {
            bucket: bucket.into(),
            key: key.into(),
        }
    }
    /// The bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }
    /// The key in the bucket.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket, self.key)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// A part of an object as a client asks for it (RFC 9110 §14.1.2, one range).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// `bytes=first-last`; both ends are included, as in HTTP.
    Inclusive {
        /// First byte.
        first: u64,
        /// Last byte; clipped to the object's end.
        last: u64,
    },
    /// `bytes=first-`.
    From(u64),
    /// `bytes=-length`: the last bytes.
    Suffix(u64),
}

impl ByteRange {
    /// The half-open range this means for an object of `size` bytes; `None`
    /// where it cannot be satisfied (HTTP 416).
    pub fn resolve(self, size: u64) -> Option<Range<u64>> {
        match self {
            ByteRange::Inclusive { first, last } => {
                (first <= last && first < size).then(|| first..last.saturating_add(1).min(size))
            }
            ByteRange::From(first) => (first < size).then_some(first..size),
            ByteRange::Suffix(length) => {
                (length > 0 && size > 0).then(|| size.saturating_sub(length)..size)
            }
        }
    }
}

/// What is known about an object besides its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Bytes of the whole object.
    pub size: u64,
    /// The entity tag exactly as HTTP writes it, with quotes: `"abc"` or `W/"abc"`.
    pub etag: Option<String>,
    /// When the origin says it was written.
    pub last_modified: Option<SystemTime>,
    /// Content type and other headers that were stored with it.
    pub attributes: Attributes,
}

impl ObjectMeta {
    /// Whether a changed object can be told from an unchanged one.
    pub fn has_validator(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }
}

/// Headers that are stored with an object and given back with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Attributes {
    /// `Content-Type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// `Content-Encoding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_encoding: Option<String>,
    /// `Content-Language`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_language: Option<String>,
    /// `Content-Disposition`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_disposition: Option<String>,
    /// `Cache-Control`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_control: Option<String>,
    /// S3's storage class and its likes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// User metadata (`x-amz-meta-*`), names without the prefix, sorted by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub user: Vec<(String, String)>,
}

/// A read from an origin.
#[derive(Clone, Debug, Default)]
pub struct GetRequest {
    /// The bytes wanted, half-open; an end past the object is clipped. `None`
    /// is the whole object.
    pub range: Option<Range<u64>>,
    /// Fail with [`OriginError::PreconditionFailed`] unless the object has this entity tag.
    pub if_match: Option<String>,
    /// Fail with [`OriginError::NotModified`] if the object has this entity tag.
    pub if_none_match: Option<String>,
    /// Fail with [`OriginError::NotModified`] unless the object is newer. Used
    /// for objects without an entity tag.
    pub if_modified_since: Option<SystemTime>,
}

/// The answer to a [`GetRequest`].
pub struct OriginRead {
    /// The object's metadata as this very answer gave it.
    pub meta: ObjectMeta,
    /// The bytes that the body holds.
    pub range: Range<u64>,
    /// Whether a cache on the way had the first of them, where the answer says
    /// so (`x-floe-cache`, `x-cache`).
    pub from_cache: Option<bool>,
    /// The bytes. A body that ends before `range` does gives
    /// [`OriginError::ShortBody`] as its last item.
    pub body: OriginBody,
}

impl fmt::Debug for OriginRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginRead")
            .field("meta", &self.meta)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

/// A condition on what an upload replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutCondition {
    /// `If-None-Match: *`: only where there is no object.
    Absent,
    /// `If-Match`: only over the object with this entity tag.
    Matches(String),
}

/// A write to an origin.
pub struct PutRequest {
    /// Headers to store with the object.
    pub attributes: Attributes,
    /// Bytes of the body, where the client said so. A body of another length
    /// is refused and stores nothing.
    pub length: Option<u64>,
    /// What must hold for the object that is replaced.
    pub condition: Option<PutCondition>,
    /// The bytes.
    pub body: UploadBody,
    /// The turn to upload, where it was taken before the body was begun.
    pub turn: Option<UploadTurn>,
}

impl PutRequest {
    /// An upload of bytes that are at hand.
    pub fn from_bytes(bytes: Bytes) -> Self {
        PutRequest {
            attributes: Attributes::default(),
            length: Some(bytes.len() as u64),
            condition: None,
            body: Box::pin(futures::stream::once(async move { Ok(bytes) })),
            turn: None,
        }
    }
}

impl fmt::Debug for PutRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutRequest")
            .field("attributes", &self.attributes)
            .field("length", &self.length)
            .field("condition", &self.condition)
            .finish_non_exhaustive()
    }
}

/// What an origin says about a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutResponse {
    /// The new entity tag, as HTTP writes it.
    pub etag: Option<String>,
}

/// Which keys to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// Only keys that begin so.
    pub prefix: String,
    /// Fold keys that have this after the prefix into common prefixes.
    pub delimiter: Option<String>,
    /// Only keys after this one, in byte order.
    pub start_after: Option<String>,
    /// Most keys and common prefixes in the answer.
    pub max_keys: usize,
    /// Where the page before ended: [`ListPage::next`].
    pub continuation: Option<String>,
}

impl Default for ListRequest {
    fn default() -> Self {
        ListRequest {
            prefix: String::new(),
            delimiter: None,
            start_after: None,
            max_keys: 1000,
            continuation: None,
        }
    }
}

/// One page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Objects, in byte order of their keys.
    pub objects: Vec<ListedObject>,
    /// Folded prefixes, each ending in the delimiter, in byte order.
    pub common_prefixes: Vec<String>,
    /// What to pass as [`ListRequest::continuation`] for the next page; `None` at the end.
    pub next: Option<String>,
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// Its key.
    pub key: String,
    /// Its bytes.
    pub size: u64,
    /// Its entity tag, as HTTP writes it.
    pub etag: Option<String>,
    /// When it was written.
    pub last_modified: Option<SystemTime>,
}

/// A bucket of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketInfo {
    /// Its name, as clients ask for it.
    pub name: String,
    /// When it was made, where known.
    pub created: Option<SystemTime>,
}

/// One part of a finished multipart upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadedPart {
    /// The part's number, 1 to 10,000.
    pub number: u32,
    /// The entity tag that [`upload_part`](super::Origin::upload_part) gave.
    pub etag: String,
}

/// A part of a multipart upload that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartInfo {
    /// The part's number, 1 to 10,000.
    pub number: u32,
    /// Its entity tag, as HTTP writes it.
    pub etag: Option<String>,
    /// Its bytes.
    pub size: u64,
    /// When it was uploaded.
    pub last_modified: Option<SystemTime>,
}

/// A multipart upload that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadInfo {
    /// The key that its object will have.
    pub key: String,
    /// Its id.
    pub upload: String,
    /// When it was begun.
    pub initiated: Option<SystemTime>,
}
