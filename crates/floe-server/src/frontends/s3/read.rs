//! GET and HEAD of objects, served by the cache.
//!
//! They are a route of `s3s` instead of its operations, because its typed
//! headers reject valid HTTP: several ranges, lists of entity tags, and invalid
//! dates.

use std::ops::Range;
use std::time::SystemTime;

use floe::object::{ConditionalRead, ObjectCache, ObjectKey, ObjectMeta, ObjectRead, Verdict};
use futures::StreamExt;
use http::header::{self, HeaderName};
use http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body::Frame;
use http_body_util::StreamBody;
use s3s::route::S3Route;
use s3s::{Body, S3Request, S3Response, S3Result};

use super::auth::Access;
use super::condition::conditions;
use super::error::{
    invalid_argument, not_implemented, precondition_failed, range_not_satisfiable, s3_error,
};
use super::kept::reject_dropped;
use super::query::Query;
use super::range::requested_range;
use super::target::Domains;

pub(super) const X_FLOE_CACHE: HeaderName = HeaderName::from_static("x-floe-cache");

/// Parameters of an object's URL that request something other than its bytes.
const SUBRESOURCES: [&str; 12] = [
    "acl",
    "annotation",
    "attributes",
    "legal-hold",
    "renameObject",
    "restore",
    "retention",
    "select",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
];

/// The route for GET and HEAD of objects.
pub(crate) struct Reads {
    pub(crate) cache: ObjectCache,
    pub(crate) domains: Domains,
    pub(crate) access: Access,
}

#[async_trait::async_trait]
impl S3Route for Reads {
    fn is_match(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        _: &mut Extensions,
    ) -> bool {
        (method == Method::GET || method == Method::HEAD)
            && !Query::of(uri)
                .iter()
                .any(|(name, _)| SUBRESOURCES.contains(&name))
            && self.domains.object(uri, headers).is_some()
    }

    async fn check_access(&self, request: &mut S3Request<Body>) -> S3Result<()> {
        self.access
            .decide(request.credentials.is_some(), &request.extensions)
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let (uri, headers) = (&request.uri, &request.headers);
        let Some((bucket, key)) = self.domains.object(uri, headers) else {
            // Unreachable: `is_match` found an object.
            return Err(invalid_argument("the request names no object"));
        };
        let query = Query::of(uri);
        let operation = match request.method == Method::HEAD {
            true => "HeadObject",
            false => "GetObject",
        };
        reject_dropped(operation, &query, headers)?;
        reject_versions_and_parts(&query)?;
        let overrides = overridden_headers(&query, request.credentials.is_some())?;
        let key = ObjectKey::new(bucket, key);
        let mut response = if request.method == Method::HEAD {
            self.head(&key, headers).await?
        } else {
            self.get(&key, headers).await?
        };
        response.headers.extend(overrides);
        Ok(response)
    }
}

impl Reads {
    async fn get(&self, key: &ObjectKey, headers: &HeaderMap) -> S3Result<S3Response<Body>> {
        let range = requested_range(headers);
        let conditions = conditions(headers);
        let outcome = self
            .cache
            .get_if(key, range, &conditions)
            .await
            .map_err(s3_error)?;
        match outcome {
            ConditionalRead::NotModified(meta) => Ok(not_modified(&meta)),
            ConditionalRead::PreconditionFailed(_) => Err(precondition_failed()),
            ConditionalRead::Read(read) => {
                // A range that covers the whole object still gets a 206
                // response, unless a failed If-Range voids it.
                let partial = range.is_some() && conditions.range_applies(&read.meta);
                Ok(whole_or_part(read, partial))
            }
        }
    }

    async fn head(&self, key: &ObjectKey, headers: &HeaderMap) -> S3Result<S3Response<Body>> {
        let head = self.cache.head(key).await.map_err(s3_error)?;
        let meta = head.meta;
        let conditions = conditions(headers);
        match conditions.evaluate(&meta) {
            Verdict::NotModified => return Ok(not_modified(&meta)),
            Verdict::PreconditionFailed => return Err(precondition_failed()),
            Verdict::Proceed => {}
        }
        let range = requested_range(headers).filter(|_| conditions.range_applies(&meta));
        let mut response = S3Response::new(Body::empty());
        response.headers = object_headers(&meta);
        response
            .headers
            .insert(X_FLOE_CACHE, cache_header(head.outcome.name()));
        let length = match range {
            None => meta.size,
            Some(range) => {
                let range = range
                    .resolve(meta.size)
                    .ok_or_else(|| range_not_satisfiable(Some(meta.size)))?;
                let length = range.end - range.start;
                response.status = Some(StatusCode::PARTIAL_CONTENT);
                response
                    .headers
                    .insert(header::CONTENT_RANGE, content_range(&range, meta.size));
                length
            }
        };
        response
            .headers
            .insert(header::CONTENT_LENGTH, length.into());
        Ok(response)
    }
}

fn whole_or_part(read: ObjectRead, partial: bool) -> S3Response<Body> {
    let mut headers = object_headers(&read.meta);
    let length = read.range.end - read.range.start;
    headers.insert(header::CONTENT_LENGTH, length.into());
    headers.insert(X_FLOE_CACHE, cache_header(read.outcome.name()));
    if partial {
        headers.insert(
            header::CONTENT_RANGE,
            content_range(&read.range, read.meta.size),
        );
    }
    let frames = read.body.map(|piece| piece.map(Frame::data));
    let mut response = S3Response::new(Body::http_body_unsync(StreamBody::new(frames)));
    response.status = Some(if partial {
        StatusCode::PARTIAL_CONTENT
    } else {
        StatusCode::OK
    });
    response.headers = headers;
    response
}

fn not_modified(meta: &ObjectMeta) -> S3Response<Body> {
    let mut response = S3Response::new(Body::empty());
    response.status = Some(StatusCode::NOT_MODIFIED);
    response.headers = object_headers(meta);
    // A 304 has no body to describe (RFC 9110 §15.4.5).
    response.headers.remove(header::CONTENT_TYPE);
    response
}

fn object_headers(meta: &ObjectMeta) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let attributes = &meta.attributes;
    let stored = [
        (header::ETAG, &meta.etag),
        (header::CONTENT_ENCODING, &attributes.content_encoding),
        (header::CONTENT_LANGUAGE, &attributes.content_language),
        (header::CONTENT_DISPOSITION, &attributes.content_disposition),
        (header::CACHE_CONTROL, &attributes.cache_control),
        (
            HeaderName::from_static("x-amz-storage-class"),
            &attributes.storage_class,
        ),
    ];
    for (name, value) in stored {
        if let Some(value) = value {
            put(&mut headers, name, value);
        }
    }
    let content_type = attributes.content_type.as_deref();
    put(
        &mut headers,
        header::CONTENT_TYPE,
        content_type.unwrap_or("binary/octet-stream"),
    );
    if let Some(time) = meta.last_modified.filter(|t| *t >= SystemTime::UNIX_EPOCH) {
        put(
            &mut headers,
            header::LAST_MODIFIED,
            &httpdate::fmt_http_date(time),
        );
    }
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    for (name, value) in &attributes.user {
        if let Ok(name) = HeaderName::try_from(format!("x-amz-meta-{name}")) {
            put(&mut headers, name, value);
        }
    }
    headers
}

/// Copies a stored value, if it is a valid header value.
fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
        headers.insert(name, value);
    }
}

fn cache_header(outcome: &str) -> HeaderValue {
    HeaderValue::from_str(&outcome.to_ascii_lowercase())
        .unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

fn content_range(range: &Range<u64>, size: u64) -> HeaderValue {
    // A resolved range is never empty.
    let last = range.end.saturating_sub(1);
    HeaderValue::from_str(&format!("bytes {}-{last}/{size}", range.start))
        .unwrap_or_else(|_| HeaderValue::from_static("bytes */*"))
}

/// Rejects parameters for versions or parts, which a cache of whole objects can
/// neither honour nor ignore.
fn reject_versions_and_parts(query: &Query) -> S3Result<()> {
    for (name, value) in query.iter() {
        match name {
            "versionId" if value != "null" => {
                return Err(not_implemented("versions of objects (versionId)"));
            }
            "partNumber" => return Err(not_implemented("reading by part (partNumber)")),
            _ => {}
        }
    }
    Ok(())
}

/// The `response-…` parameters, by which a signed request sets headers of its response.
fn overridden_headers(query: &Query, signed: bool) -> S3Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (parameter, value) in query.iter() {
        let name = match parameter {
            "response-content-type" => header::CONTENT_TYPE,
            "response-content-language" => header::CONTENT_LANGUAGE,
            "response-expires" => header::EXPIRES,
            "response-cache-control" => header::CACHE_CONTROL,
            "response-content-disposition" => header::CONTENT_DISPOSITION,
            "response-content-encoding" => header::CONTENT_ENCODING,
            _ => continue,
        };
        if !signed {
            return Err(invalid_argument(format!(
                "{parameter} needs a signed request"
            )));
        }
        let value = HeaderValue::from_str(value)
            .map_err(|_| invalid_argument(format!("{parameter} is not a header value")))?;
        headers.insert(name, value);
    }
    Ok(headers)
}
