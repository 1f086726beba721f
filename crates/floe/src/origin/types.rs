//! The vocabulary of origins and the object cache: keys, ranges, metadata, pages.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use super::error::OriginError;
use super::turn::UploadTurn;

/// `Debug` of a struct, without its body.
macro_rules! debug_fields {
    ($of:ident: $($field:ident),+) => {
        impl std::fmt::Debug for $of {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut fields = f.debug_struct(stringify!($of));
                $(fields.field(stringify!($field), &self.$field);)+
                fields.finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use debug_fields;

/// The bytes of an object as they arrive from an origin.
pub type OriginBody = BoxStream<'static, Result<Bytes, OriginError>>;

/// An error of an upload's source.
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
    /// Names an object, without checks: an origin rejects an invalid key with
    /// [`OriginError::InvalidKey`].
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

/// A part of an object in a client's request (RFC 9110 §14.1.2, one range).
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
    /// The half-open range in an object of `size` bytes; `None` if it cannot be
    /// satisfied (HTTP 416).
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

/// An object's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Bytes of the whole object.
    pub size: u64,
    /// The entity tag in HTTP syntax, with quotes: `"abc"` or `W/"abc"`. It tells versions apart.
    pub etag: Option<String>,
    /// The entity tag that clients see instead, made of the object's bytes as in S3.
    pub content_etag: Option<String>,
    /// The modification time that the origin reports.
    pub last_modified: Option<SystemTime>,
    /// Content type and other headers that were stored with it.
    pub attributes: Attributes,
}

impl ObjectMeta {
    /// The entity tag that clients see, and with which their conditions are compared.
    pub fn client_etag(&self) -> Option<&str> {
        self.content_etag.as_deref().or(self.etag.as_deref())
    }

    /// True if a change of the object is detectable.
    pub fn has_validator(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }
}

/// Headers that are stored with an object and returned with it.
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
    /// The storage class, as in S3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// User metadata (`x-amz-meta-*`), names without the prefix, sorted by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub user: Vec<(String, String)>,
    /// Further headers that describe the object, such as `expires` and S3's own: names in
    /// lower case, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
}

impl Attributes {
    /// Rejects every storage class but `STANDARD`.
    pub(crate) fn require_standard(&self) -> Result<(), OriginError> {
        match self.storage_class.as_deref() {
            None | Some("STANDARD") => Ok(()),
            Some(other) => Err(OriginError::Unsupported(format!(
                "keep objects in the storage class {other:?}; it has STANDARD only"
            ))),
        }
    }
}

/// A read from an origin.
#[derive(Clone, Debug, Default)]
pub struct GetRequest {
    /// The bytes to read, half-open; an end past the object is clipped. `None`
    /// is the whole object.
    pub range: Option<Range<u64>>,
    /// Fail with [`OriginError::PreconditionFailed`] unless the object has this entity tag.
    pub if_match: Option<String>,
    /// Fail with [`OriginError::NotModified`] if the object has this entity tag.
    pub if_none_match: Option<String>,
    /// Fail with [`OriginError::NotModified`] unless the object is newer. For
    /// objects without an entity tag.
    pub if_modified_since: Option<SystemTime>,
}

/// The response to a [`GetRequest`].
pub struct OriginRead {
    /// The object's metadata from this response.
    pub meta: ObjectMeta,
    /// The bytes in the body.
    pub range: Range<u64>,
    /// An intermediate cache had the first bytes, if the response says
    /// so (`x-floe-cache`, `x-cache`).
    pub from_cache: Option<bool>,
    /// The bytes. A body that ends before `range` yields
    /// [`OriginError::ShortBody`] as its last item.
    pub body: OriginBody,
}

debug_fields!(OriginRead: meta, range);

/// A condition on the object that an upload replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutCondition {
    /// `If-None-Match: *`: there is no object.
    Absent,
    /// `If-Match: *`: there is an object.
    Exists,
    /// `If-Match`: the object has this entity tag.
    Matches(String),
    /// `If-None-Match`: no object has this entity tag.
    Differs(String),
}

impl PutCondition {
    /// Compares the object in place, if there is one.
    ///
    /// # Errors
    /// [`OriginError::PreconditionFailed`]; [`OriginError::NotFound`] without the object that the
    /// condition needs.
    pub fn check(&self, key: &str, current: Option<&ObjectMeta>) -> Result<(), OriginError> {
        let tag = current.map(ObjectMeta::client_etag);
        let holds = match (self, tag) {
            (PutCondition::Absent, tag) => tag.is_none(),
            (PutCondition::Exists | PutCondition::Matches(_), None) => {
                return Err(OriginError::NotFound(key.to_owned()));
            }
            (PutCondition::Exists, Some(_)) | (PutCondition::Differs(_), None) => true,
            (PutCondition::Matches(wanted), Some(tag)) => tag == Some(wanted),
            (PutCondition::Differs(other), Some(tag)) => tag != Some(other),
        };
        match holds {
            true => Ok(()),
            false => Err(OriginError::PreconditionFailed),
        }
    }
}

/// A condition on the object that a delete removes. A missing object meets every one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteCondition {
    /// `If-Match`: its entity tag.
    pub etag: Option<String>,
    /// Its bytes.
    pub size: Option<u64>,
    /// Its modification time in seconds since 1970, rounded down.
    pub modified_unix_s: Option<i64>,
}

impl DeleteCondition {
    /// True if nothing is asked of the object.
    pub fn is_empty(&self) -> bool {
        *self == DeleteCondition::default()
    }

    /// Compares an object.
    ///
    /// # Errors
    /// [`OriginError::PreconditionFailed`].
    pub fn check(&self, meta: &ObjectMeta) -> Result<(), OriginError> {
        let modified_unix_s =
            meta.last_modified
                .map(|time| match time.duration_since(UNIX_EPOCH) {
                    Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                    Err(before) => {
                        let before = before.duration();
                        let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                        -whole - i64::from(before.subsec_nanos() > 0)
                    }
                });
        let holds = self
            .etag
            .as_deref()
            .is_none_or(|tag| meta.client_etag() == Some(tag))
            && self.size.is_none_or(|size| meta.size == size)
            && self
                .modified_unix_s
                .is_none_or(|time| modified_unix_s == Some(time));
        match holds {
            true => Ok(()),
            false => Err(OriginError::PreconditionFailed),
        }
    }
}

/// Headers in lower case with their values.
pub type Headers = Vec<(String, String)>;

/// Headers of an upload that are known when its body has ended, such as checksums.
pub type LateHeaders = Arc<OnceLock<Headers>>;

/// A write to an origin.
pub struct PutRequest {
    /// Headers to store with the object.
    pub attributes: Attributes,
    /// Bytes of the body, if the client announced them. A body of another
    /// length is rejected and stores nothing.
    pub length: Option<u64>,
    /// The condition on the replaced object.
    pub condition: Option<PutCondition>,
    /// The bytes.
    pub body: UploadBody,
    /// Further headers to store, set before the body ends. Not every origin stores them.
    pub late_headers: LateHeaders,
    /// The upload turn, if it was taken before the body began.
    pub turn: Option<UploadTurn>,
}

impl PutRequest {
    /// An upload of bytes in memory.
    pub fn from_bytes(bytes: Bytes) -> Self {
        PutRequest {
            attributes: Attributes::default(),
            length: Some(bytes.len() as u64),
            condition: None,
            body: Box::pin(futures::stream::once(async move { Ok(bytes) })),
            late_headers: LateHeaders::default(),
            turn: None,
        }
    }
}

debug_fields!(PutRequest: attributes, length, condition);

/// A part of a multipart upload. A part may be sent again.
pub struct PartRequest {
    /// The id of the upload.
    pub upload: String,
    /// The part's number, 1 to 10,000.
    pub number: u32,
    /// As in [`PutRequest`].
    pub length: Option<u64>,
    /// The bytes.
    pub body: UploadBody,
    /// As in [`PutRequest`].
    pub late_headers: LateHeaders,
    /// As in [`PutRequest`].
    pub turn: Option<UploadTurn>,
}

debug_fields!(PartRequest: upload, number, length);

/// The response to a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutResponse {
    /// The new entity tag, in HTTP syntax.
    pub etag: Option<String>,
}

/// A request for a page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// List only keys that begin with this.
    pub prefix: String,
    /// Fold keys with this text after the prefix into common prefixes.
    pub delimiter: Option<String>,
    /// List only keys after this one, in byte order.
    pub start_after: Option<String>,
    /// Most keys and common prefixes of the page.
    pub max_keys: usize,
    /// The end of the page before: [`ListPage::next`].
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
    /// The [`ListRequest::continuation`] of the next page; `None` at the end.
    pub next: Option<String>,
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// Its key.
    pub key: String,
    /// Its bytes.
    pub size: u64,
    /// Its entity tag, in HTTP syntax.
    pub etag: Option<String>,
    /// Its modification time.
    pub last_modified: Option<SystemTime>,
}

/// A bucket of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketInfo {
    /// Its name in requests of clients.
    pub name: String,
    /// Its creation time, if known.
    pub created: Option<SystemTime>,
}

/// The end of a multipart upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompleteRequest {
    /// The id of the upload.
    pub upload: String,
    /// Its parts, in ascending order of their numbers.
    pub parts: Vec<UploadedPart>,
    /// The condition on the replaced object.
    pub condition: Option<PutCondition>,
    /// Further headers to store, as in [`PutRequest::late_headers`].
    pub headers: Headers,
}

/// One part of a finished multipart upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadedPart {
    /// The part's number, 1 to 10,000.
    pub number: u32,
    /// The entity tag that [`upload_part`](super::Origin::upload_part) returned.
    pub etag: String,
}

/// A part of a pending multipart upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartInfo {
    /// The part's number, 1 to 10,000.
    pub number: u32,
    /// Its entity tag, in HTTP syntax.
    pub etag: Option<String>,
    /// Its bytes.
    pub size: u64,
    /// When it was uploaded.
    pub last_modified: Option<SystemTime>,
    /// Its [`late_headers`](PartRequest::late_headers), if the origin stores them.
    pub headers: Headers,
}

/// The parts of a pending multipart upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingParts {
    /// Headers that were stored with the upload, such as the checksum that its object is to get.
    pub headers: Headers,
    /// The parts, in ascending order of their numbers.
    pub parts: Vec<PartInfo>,
}

/// A pending multipart upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadInfo {
    /// The key of its object.
    pub key: String,
    /// Its id.
    pub upload: String,
    /// Its creation time.
    pub initiated: Option<SystemTime>,
}

/// Checks that the name of a new bucket is valid in S3, so that the bucket can move to any other
/// origin.
///
/// # Errors
/// [`OriginError::InvalidBucketName`].
pub(crate) fn require_bucket_name(name: &str) -> Result<(), OriginError> {
    let at_the_ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-';
    let bytes = name.as_bytes();
    let allowed = (3..=63).contains(&bytes.len())
        && bytes.iter().all(|&byte| inside(byte))
        && at_the_ends(bytes.first())
        && at_the_ends(bytes.last())
        && !name.contains("..");
    match allowed {
        true => Ok(()),
        false => Err(OriginError::InvalidBucketName(name.to_owned())),
    }
}
