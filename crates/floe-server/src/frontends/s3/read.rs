//! GET and HEAD of objects, served by the cache.
//!
//! They are no operations of `s3s`, because its typed headers reject valid HTTP: several
//! ranges, lists of entity tags, and invalid dates.

use std::ops::Range;

use floe::object::ObjectKey;
use futures::StreamExt;
use http::header::{self, HeaderName, RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body::Frame;
use http_body_util::StreamBody;
use s3s::{Body, S3ErrorCode, S3Request, S3Response, S3Result};

use super::answer::{Answered, Answers, Unread, describe};
use super::error::{invalid_argument, not_implemented, precondition_failed, with};
use super::fields::part_number;
use super::kept::{is_everywhere, reject_dropped};
use super::query::Query;
use super::target::Domains;

/// The number of parts, in the answer to a read of one.
const MP_PARTS_COUNT: HeaderName = HeaderName::from_static("x-amz-mp-parts-count");
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
    pub(crate) answers: Answers,
    pub(crate) domains: Domains,
}

impl Reads {
    /// True for a read of an object's bytes or metadata.
    pub(super) fn is_read(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
        (method == Method::GET || method == Method::HEAD)
            && !has_subresource(&Query::of(uri))
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
        reject_versions(&query)?;
        if let Some(number) = asked_part(&query)? {
            return self.part(request, number).await;
        }
        match self.answer(request).await {
            Ok(response) => Ok(response),
            Err(Unread::Refused(error)) => Err(error),
            // Unreachable: no origin of S3 is behind it.
            Err(Unread::OfOrigin { .. }) => Err(precondition_failed()),
        }
    }

    /// Answers a read of a part of an object, as it was uploaded.
    async fn part(&self, request: &S3Request<Body>, number: u32) -> S3Result<S3Response<Body>> {
        let (uri, headers) = (&request.uri, &request.headers);
        if headers.contains_key(RANGE) {
            let message = "Cannot specify both Range header and partNumber query parameter";
            return Err(with(S3ErrorCode::InvalidRequest, message.into()));
        }
        let object = self.domains.object(uri, headers);
        let (bucket, key) = object.ok_or_else(|| invalid_argument("no object is named"))?;
        let key = ObjectKey::new(bucket, key);
        let overrides = overridden_headers(&Query::of(uri), request.credentials.is_some())?;
        let is_head = request.method == Method::HEAD;
        let (answer, count) = self.answers.part(is_head, &key, number, headers).await?;
        let mut response = answer_of(answer);
        response.headers.extend(overrides);
        if let Some(count) = count {
            response.headers.insert(MP_PARTS_COUNT, count.into());
        }
        Ok(response)
    }

    /// Answers a read of an object.
    pub(super) async fn answer(
        &self,
        request: &S3Request<Body>,
    ) -> Result<S3Response<Body>, Unread> {
        let (uri, headers) = (&request.uri, &request.headers);
        let Some((bucket, key)) = self.domains.object(uri, headers) else {
            // Unreachable: it is a read of an object.
            let error = invalid_argument("the request names no object");
            return Err(Unread::Refused(error));
        };
        let overrides = overridden_headers(&Query::of(uri), request.credentials.is_some());
        let overrides = overrides.map_err(Unread::Refused)?;
        let is_head = request.method == Method::HEAD;
        let key = ObjectKey::new(bucket, key);
        let answer = self.answers.answer(is_head, &key, headers).await?;
        let mut response = answer_of(answer);
        response.headers.extend(overrides);
        Ok(response)
    }
}

pub(super) fn answer_of((head, body): Answered) -> S3Response<Body> {
    let mut response = S3Response::new(match body {
        Some(body) => {
            let frames = body.map(|piece| piece.map(Frame::data));
            Body::http_body_unsync(StreamBody::new(frames))
        }
        None => Body::empty(),
    });
    response.status = Some(head.status);
    let headers = &mut response.headers;
    let has_object = head.status != StatusCode::NOT_MODIFIED;
    describe(&head.meta, has_object, |name, value| {
        if let (Ok(name), Ok(value)) = (
            HeaderName::try_from(name),
            HeaderValue::from_bytes(value.as_bytes()),
        ) {
            headers.insert(name, value);
        }
    });
    if has_object {
        headers.insert(header::CONTENT_LENGTH, head.length.into());
    }
    if let Some(part) = &head.part {
        let range = content_range(part, head.meta.size);
        headers.insert(header::CONTENT_RANGE, range);
    }
    if let Some(outcome) = head.outcome {
        headers.insert(X_FLOE_CACHE, HeaderValue::from_static(outcome));
    }
    response
}

fn content_range(range: &Range<u64>, size: u64) -> HeaderValue {
    // A resolved range is never empty.
    let last = range.end.saturating_sub(1);
    HeaderValue::from_str(&format!("bytes {}-{last}/{size}", range.start))
        .unwrap_or_else(|_| HeaderValue::from_static("bytes */*"))
}

/// True if something else than an object's bytes is asked for.
pub(super) fn has_subresource(query: &Query) -> bool {
    query.iter().any(|(name, _)| SUBRESOURCES.contains(&name))
}

/// True for a read without parameters or headers of S3 that the cache lacks.
pub(super) fn asks_for_bytes(query: &Query, headers: &HeaderMap) -> bool {
    let mut names = headers.keys().map(|name| name.as_str());
    query.iter().all(|(name, _)| is_of_any_read(name))
        && names.all(|name| !name.starts_with("x-amz-") || is_everywhere(name))
}

/// Parameters of a read that do not select what is read.
fn is_of_any_read(name: &str) -> bool {
    name == "x-id" || name.starts_with("response-") || is_everywhere(&name.to_ascii_lowercase())
}

/// Rejects a parameter for versions, which a cache of whole objects can neither honour nor
/// ignore.
pub(super) fn reject_versions(query: &Query) -> S3Result<()> {
    let mut names = query.iter();
    match names.any(|(name, value)| name == "versionId" && value != "null") {
        true => Err(not_implemented("versions of objects (versionId)")),
        false => Ok(()),
    }
}

/// The part of the object that is asked for.
fn asked_part(query: &Query) -> S3Result<Option<u32>> {
    if !query.has("partNumber") {
        return Ok(None);
    }
    let number = query.only("partNumber").and_then(|text| text.parse().ok());
    part_number(number.unwrap_or_default()).map(Some)
}

/// The `response-…` parameters, by which a signed request sets headers of its response.
pub(super) fn overridden_headers(query: &Query, signed: bool) -> S3Result<HeaderMap> {
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
