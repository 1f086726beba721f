//! Listings: both versions of S3's operation, served by the origin.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use floe::object::ObjectCache;
use floe::origin::{ListPage, ListRequest, ListedObject};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::S3Result;
use s3s::dto::{
    Bucket, CommonPrefix, EncodingType, ListBucketsInput, ListBucketsOutput,
    ListObjectVersionsInput, ListObjectVersionsOutput, ListObjectsInput, ListObjectsOutput,
    ListObjectsV2Input, ListObjectsV2Output, Object, ObjectStorageClass, ObjectVersion,
    ObjectVersionStorageClass, Owner, Timestamp,
};

use super::error::{invalid_argument, s3_error};
use super::policy::Rights;

/// Most entries of a page, as in S3.
const PAGE_MAX: i32 = 1000;

/// Characters that `encoding-type=url` and the path of a signature do not encode.
pub(super) const KEPT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/');

/// The version of an object in a bucket without versions.
const NULL_VERSION: &str = "null";

/// Most buckets of a page, as in S3.
const BUCKETS_MAX: i32 = 10_000;

pub(crate) async fn buckets(
    cache: &ObjectCache,
    region: &str,
    input: ListBucketsInput,
    rights: &Rights,
) -> S3Result<ListBucketsOutput> {
    let most = match input.max_buckets.unwrap_or(BUCKETS_MAX) {
        asked @ 1..=BUCKETS_MAX => asked as usize,
        _ => return Err(invalid_argument("max-buckets must be between 1 and 10000")),
    };
    let after = match &input.continuation_token {
        Some(token) => decode_token(token)?,
        None => String::new(),
    };
    let prefix = input.prefix.clone().unwrap_or_default();
    let is_here = input.bucket_region.is_none_or(|asked| asked == region);
    let mut found = cache.list_buckets().await.map_err(s3_error)?;
    found.retain(|bucket| rights.has_bucket(&bucket.name));
    found.retain(|bucket| is_here && bucket.name.starts_with(&prefix) && bucket.name > after);
    found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let is_truncated = found.len() > most;
    found.truncate(most);
    let last = found.last().filter(|_| is_truncated);
    Ok(ListBucketsOutput {
        continuation_token: last.map(|bucket| encode_token(&bucket.name)),
        buckets: Some(
            found
                .into_iter()
                .map(|bucket| Bucket {
                    name: Some(bucket.name),
                    creation_date: Some(timestamp(bucket.created)),
                    ..Bucket::default()
                })
                .collect(),
        ),
        owner: Some(owner()),
        prefix: input.prefix,
    })
}

/// All buckets and objects belong to the cache.
pub(super) fn owner() -> Owner {
    Owner {
        display_name: Some("floe".into()),
        id: Some("floe".into()),
    }
}

pub(crate) async fn list_v1(
    cache: &ObjectCache,
    input: ListObjectsInput,
) -> S3Result<ListObjectsOutput> {
    let text = Text::of(input.encoding_type.as_ref())?;
    let max_keys = page_size(input.max_keys)?;
    let marker = input.marker.unwrap_or_default();
    let request = ListRequest {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone(),
        max_keys: max_keys as usize,
        ..ListRequest::default()
    };
    let (page, next_marker) = page_after_marker(cache, &input.bucket, request, &marker).await?;
    Ok(ListObjectsOutput {
        name: Some(input.bucket),
        prefix: Some(text.encode(&input.prefix.unwrap_or_default())),
        marker: Some(text.encode(&marker)),
        max_keys: Some(max_keys),
        is_truncated: Some(page.next.is_some()),
        next_marker: next_marker.map(|marker| text.encode(&marker)),
        delimiter: text.delimiter(input.delimiter),
        encoding_type: input.encoding_type,
        common_prefixes: Some(text.prefixes(&page)),
        contents: Some(text.objects(page.objects, Some(owner()))),
        ..ListObjectsOutput::default()
    })
}

/// The objects of a bucket without versions: each is the version `null`.
pub(crate) async fn versions(
    cache: &ObjectCache,
    input: ListObjectVersionsInput,
) -> S3Result<ListObjectVersionsOutput> {
    let text = Text::of(input.encoding_type.as_ref())?;
    let max_keys = page_size(input.max_keys)?;
    let marker = input.key_marker.unwrap_or_default();
    let request = ListRequest {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone(),
        max_keys: max_keys as usize,
        ..ListRequest::default()
    };
    let (page, next) = page_after_marker(cache, &input.bucket, request, &marker).await?;
    let common_prefixes = text.prefixes(&page);
    let objects = text.objects(page.objects, Some(owner())).into_iter();
    Ok(ListObjectVersionsOutput {
        name: Some(input.bucket),
        prefix: Some(text.encode(&input.prefix.unwrap_or_default())),
        key_marker: Some(text.encode(&marker)),
        version_id_marker: input.version_id_marker,
        max_keys: Some(max_keys),
        is_truncated: Some(page.next.is_some()),
        next_version_id_marker: next.as_ref().map(|_| NULL_VERSION.to_owned()),
        next_key_marker: next.map(|marker| text.encode(&marker)),
        delimiter: text.delimiter(input.delimiter),
        encoding_type: input.encoding_type,
        common_prefixes: Some(common_prefixes),
        versions: Some(
            objects
                .map(|object| ObjectVersion {
                    key: object.key,
                    size: object.size,
                    e_tag: object.e_tag,
                    last_modified: object.last_modified,
                    owner: object.owner,
                    is_latest: Some(true),
                    version_id: Some(NULL_VERSION.to_owned()),
                    storage_class: Some(ObjectVersionStorageClass::from_static(
                        ObjectVersionStorageClass::STANDARD,
                    )),
                    ..ObjectVersion::default()
                })
                .collect(),
        ),
        ..ListObjectVersionsOutput::default()
    })
}

pub(crate) async fn list_v2(
    cache: &ObjectCache,
    input: ListObjectsV2Input,
) -> S3Result<ListObjectsV2Output> {
    let text = Text::of(input.encoding_type.as_ref())?;
    let max_keys = page_size(input.max_keys)?;
    let continuation = match &input.continuation_token {
        Some(token) => Some(decode_token(token)?),
        None => None,
    };
    let request = ListRequest {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().filter(|d| !d.is_empty()),
        start_after: input.start_after.clone().filter(|s| !s.is_empty()),
        max_keys: max_keys as usize,
        continuation,
    };
    let page = match max_keys {
        0 => ListPage::default(),
        _ => cache.list(&input.bucket, request).await.map_err(s3_error)?,
    };
    let owner = input.fetch_owner.unwrap_or(false).then(owner);
    let key_count = page.objects.len() + page.common_prefixes.len();
    Ok(ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: Some(text.encode(&input.prefix.unwrap_or_default())),
        max_keys: Some(max_keys),
        key_count: i32::try_from(key_count).ok(),
        continuation_token: input.continuation_token,
        is_truncated: Some(page.next.is_some()),
        next_continuation_token: page.next.as_deref().map(encode_token),
        start_after: input.start_after.map(|start| text.encode(&start)),
        delimiter: text.delimiter(input.delimiter),
        encoding_type: input.encoding_type,
        common_prefixes: Some(text.prefixes(&page)),
        contents: Some(text.objects(page.objects, owner)),
        ..ListObjectsV2Output::default()
    })
}

/// The page of the keys after a marker, and the marker of the next page. All keys below a marker
/// that is a common prefix are skipped: a listing of the keys after it would return it again.
async fn page_after_marker(
    cache: &ObjectCache,
    bucket: &str,
    mut request: ListRequest,
    marker: &str,
) -> S3Result<(ListPage, Option<String>)> {
    if request.max_keys == 0 {
        return Ok((ListPage::default(), None));
    }
    request.delimiter = request.delimiter.filter(|d| !d.is_empty());
    request.start_after = Some(marker.to_owned()).filter(|m| !m.is_empty());
    loop {
        let mut page = cache
            .list(bucket, request.clone())
            .await
            .map_err(s3_error)?;
        page.common_prefixes
            .retain(|prefix| prefix.as_str() > marker);
        let is_empty = page.objects.is_empty() && page.common_prefixes.is_empty();
        if !is_empty || page.next.is_none() {
            let next = page.next.is_some().then(|| last_entry(&page)).flatten();
            return Ok((page, next));
        }
        request.continuation = page.next;
    }
}

fn last_entry(page: &ListPage) -> Option<String> {
    let key = page.objects.last().map(|object| object.key.as_str());
    let prefix = page.common_prefixes.last().map(String::as_str);
    key.max(prefix).map(str::to_owned)
}

fn page_size(asked: Option<i32>) -> S3Result<i32> {
    match asked.unwrap_or(PAGE_MAX) {
        ..0 => Err(invalid_argument("max-keys must not be negative")),
        asked => Ok(asked.min(PAGE_MAX)),
    }
}

/// Encodes a continuation, which may contain any characters, as URL-safe text.
fn encode_token(continuation: &str) -> String {
    URL_SAFE_NO_PAD.encode(continuation)
}

fn decode_token(token: &str) -> S3Result<String> {
    URL_SAFE_NO_PAD
        .decode(token)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| invalid_argument("The continuation token provided is incorrect"))
}

/// The encoding of keys in the response.
#[derive(Clone, Copy)]
pub(crate) enum Text {
    Plain,
    Url,
}

impl Text {
    pub(crate) fn of(encoding: Option<&EncodingType>) -> S3Result<Self> {
        match encoding.map(EncodingType::as_str) {
            None => Ok(Text::Plain),
            Some("url") => Ok(Text::Url),
            Some(_) => Err(invalid_argument("encoding-type must be url")),
        }
    }

    pub(crate) fn encode(self, text: &str) -> String {
        match self {
            Text::Plain => text.to_owned(),
            Text::Url => utf8_percent_encode(text, KEPT).to_string(),
        }
    }

    /// An empty delimiter is none.
    pub(super) fn delimiter(self, delimiter: Option<String>) -> Option<String> {
        let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty())?;
        Some(self.encode(&delimiter))
    }

    fn prefixes(self, page: &ListPage) -> Vec<CommonPrefix> {
        page.common_prefixes
            .iter()
            .map(|prefix| CommonPrefix {
                prefix: Some(self.encode(prefix)),
            })
            .collect()
    }

    fn objects(self, objects: Vec<ListedObject>, owner: Option<Owner>) -> Vec<Object> {
        objects
            .into_iter()
            .map(|object| Object {
                key: Some(self.encode(&object.key)),
                size: i64::try_from(object.size).ok(),
                e_tag: object.etag.as_deref().and_then(super::fields::etag),
                last_modified: Some(timestamp(object.last_modified)),
                owner: owner.clone(),
                storage_class: Some(ObjectStorageClass::from_static(
                    ObjectStorageClass::STANDARD,
                )),
                ..Object::default()
            })
            .collect()
    }
}

/// Some clients require a date.
pub(crate) fn timestamp(time: Option<SystemTime>) -> Timestamp {
    Timestamp::from(time.unwrap_or(SystemTime::UNIX_EPOCH))
}
