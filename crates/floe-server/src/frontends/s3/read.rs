//! GET and HEAD of objects, served by the cache.
//!
//! They are no operations of `s3s`, because its typed headers reject valid HTTP: several
//! ranges, lists of entity tags, and invalid dates.

use std::ops::Range;
use std::time::SystemTime;

use floe::object::{
    ConditionalRead, ObjectCache, ObjectError, ObjectHead, ObjectKey, ObjectMeta, ObjectRead,
    Outcome, Verdict,
};
use futures::StreamExt;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body::Frame;
use http_body_util::StreamBody;
use s3s::{Body, S3Request, S3Response, S3Result};

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

/// GET and HEAD of objects.
pub(crate) struct Reads {
    pub(crate) cache: ObjectCache,
    pub(crate) domains: Domains,
}

impl Reads {
    /// True for a read of an object's bytes or metadata.
    pub(super) fn is_read(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
        (method == Method::GET || method == Method::HEAD)
            && !Query::of(uri)
                .iter()
                .any(|(name, _)| SUBRESOURCES.contains(&name))
            && self.domains.object(uri, headers).is_some()
    }

    /// Answers a read, if it asks for nothing that the cache lacks.
    pub(super) async fn call(&self, request: &S3Request<Body>) -> S3Result<S3Response<Body>> {
        let query = Query::of(&request.uri);
        let operation = match request.method == Method::HEAD {
            true => "HeadObject",
            false => "GetObject",
        };
        reject_dropped(operation, &query, &request.headers)?;
        reject_versions_and_parts(&query)?;
        self.answer(request).await.map_err(s3_error)?
    }

    /// Answers a read of an object.
    ///
    /// # Errors
    /// The cache's. Those of the request are in the answer.
    pub(super) async fn answer(
        &self,
        request: &S3Request<Body>,
    ) -> Result<S3Result<S3Response<Body>>, ObjectError> {
        let (uri, headers) = (&request.uri, &request.headers);
        let Some((bucket, key)) = self.domains.object(uri, headers) else {
            // Unreachable: it is a read of an object.
            return Ok(Err(invalid_argument("the request names no object")));
        };
        let overrides = overridden_headers(&Query::of(uri), request.credentials.is_some());
        let overrides = match overrides {
            Ok(overrides) => overrides,
            Err(error) => return Ok(Err(error)),
        };
        let key = ObjectKey::new(bucket, key);
        let answer = if request.method == Method::HEAD {
            self.head(&key, headers).await?
        } else {
            self.get(&key, headers).await?
        };
        Ok(answer.map(|mut response| {
            response.headers.extend(overrides);
            response
        }))
    }
}

impl Reads {
    async fn get(
        &self,
        key: &ObjectKey,
        headers: &HeaderMap,
    ) -> Result<S3Result<S3Response<Body>>, ObjectError> {
        let range = requested_range(headers);
        let conditions = conditions(headers);
        Ok(match self.cache.get_if(key, range, &conditions).await? {
            ConditionalRead::NotModified(meta) => Ok(not_modified(&meta)),
            ConditionalRead::PreconditionFailed(_) => Err(precondition_failed()),
            ConditionalRead::Read(read) => {
                // A range that covers the whole object still gets a 206
                // response, unless a failed If-Range voids it.
                let partial = range.is_some() && conditions.range_applies(&read.meta);
                Ok(whole_or_part(read, partial))
            }
        })
    }

    async fn head(
        &self,
        key: &ObjectKey,
        headers: &HeaderMap,
    ) -> Result<S3Result<S3Response<Body>>, ObjectError> {
        let head = self.cache.head(key).await?;
        Ok(headed(&head, headers))
    }
}

fn headed(head: &ObjectHead, headers: &HeaderMap) -> S3Result<S3Response<Body>> {
    let meta = &head.meta;
    let conditions = conditions(headers);
    match conditions.evaluate(meta) {
        Verdict::NotModified => return Ok(not_modified(meta)),
        Verdict::PreconditionFailed => return Err(precondition_failed()),
        Verdict::Proceed => {}
    }
    let range = requested_range(headers).filter(|_| conditions.range_applies(meta));
    let mut response = S3Response::new(Body::empty());
    response.headers = object_headers(meta);
    response.headers.insert(
        X_FLOE_CACHE,
        HeaderValue::from_static(cache_result(head.outcome)),
    );
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

fn whole_or_part(read: ObjectRead, partial: bool) -> S3Response<Body> {
    let mut headers = object_headers(&read.meta);
    let length = read.range.end - read.range.start;
    headers.insert(header::CONTENT_LENGTH, length.into());
    headers.insert(
        X_FLOE_CACHE,
        HeaderValue::from_static(cache_result(read.outcome)),
    );
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
    describe(meta, true, |name, value| {
        if let (Ok(name), Ok(value)) = (
            HeaderName::try_from(name),
            HeaderValue::from_bytes(value.as_bytes()),
        ) {
            headers.insert(name, value);
        }
    });
    headers
}

/// Passes every header that describes an object to `put`, in lower case: stored ones that are
/// valid, and the type only of a response that has the object.
pub(super) fn describe(meta: &ObjectMeta, has_object: bool, mut put: impl FnMut(&str, &str)) {
    let mut put_valid = |name: &str, value: &str| {
        let is_valid = |byte: u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
        if value.bytes().all(is_valid) {
            put(name, value);
        }
    };
    let attributes = &meta.attributes;
    let content_type = attributes.content_type.as_deref();
    let content_type = has_object.then(|| content_type.unwrap_or("binary/octet-stream"));
    for (name, value) in [
        ("content-type", content_type),
        ("etag", meta.etag.as_deref()),
        ("content-encoding", attributes.content_encoding.as_deref()),
        ("content-language", attributes.content_language.as_deref()),
        (
            "content-disposition",
            attributes.content_disposition.as_deref(),
        ),
        ("cache-control", attributes.cache_control.as_deref()),
        ("x-amz-storage-class", attributes.storage_class.as_deref()),
    ] {
        if let Some(value) = value {
            put_valid(name, value);
        }
    }
    if let Some(time) = meta.last_modified.filter(|t| *t >= SystemTime::UNIX_EPOCH) {
        put_valid("last-modified", &httpdate::fmt_http_date(time));
    }
    put_valid("accept-ranges", "bytes");
    for (name, value) in &attributes.headers {
        let is_framing = matches!(
            &**name,
            "content-length" | "transfer-encoding" | "connection"
        );
        if !is_framing && HeaderName::try_from(name).is_ok() {
            put_valid(name, value);
        }
    }
    for (name, value) in &attributes.user {
        let name = format!("x-amz-meta-{name}");
        if let Ok(name) = HeaderName::try_from(name) {
            put_valid(name.as_str(), value);
        }
    }
}

/// The value of `x-floe-cache`.
pub(super) fn cache_result(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Hit(_) | Outcome::Metadata => "hit",
        Outcome::Miss => "miss",
        Outcome::Joined => "joined",
    }
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
