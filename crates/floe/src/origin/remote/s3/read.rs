//! Reads of objects.

use std::ops::Range;

use http::header::{
    self, CONTENT_LENGTH, CONTENT_RANGE, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    LOCATION, RANGE,
};
use http::{HeaderMap, HeaderValue, Method, Response, Uri};
use hyper::body::Incoming;

use super::client::{S3Client, SignedBy, Target, body_of, error_body, no_body};
use crate::origin::emulated::clip;
use crate::origin::error::OriginError;
use crate::origin::forward::PayloadHash;
use crate::origin::remote::redirect::{REDIRECTS_MAX, RedirectRejected};
use crate::origin::remote::service::{cache_said, encode_texts, error_document};
use crate::origin::remote::{cut, service};
use crate::origin::request_id::OriginRequestId;
use crate::origin::types::{Attributes, GetRequest, ObjectKey, ObjectMeta, OriginRead};

/// Headers that describe a version of an object for as long as it exists, besides those of
/// encryption. Others, such as the number of tags or the state of a restore, change without a
/// new entity tag.
const KEPT: [&str; 3] = [
    "expires",
    "x-amz-version-id",
    "x-amz-website-redirect-location",
];

impl S3Client {
    pub(in crate::origin::remote) async fn get(
        &self,
        key: &ObjectKey,
        request: &GetRequest,
    ) -> Result<OriginRead, OriginError> {
        let headers = conditions(request);
        let response = self.read(Method::GET, &target(key)?, headers).await?;
        let headers = response.headers();
        let from_cache = cache_said(headers);
        let (range, size) = match response.status().as_u16() {
            206 => content_range(headers).ok_or_else(|| {
                OriginError::Protocol("a part of an object without its range".into())
            })?,
            _ => {
                let size = length(headers)?;
                (0..size, size)
            }
        };
        let meta = meta(headers, size);
        let is_whole = response.status().as_u16() != 206;
        let body = body_of(response.into_body());
        match &request.range {
            // A server that knows no ranges: the rest is skipped.
            Some(asked) if is_whole => {
                let asked = clip(Some(asked.clone()), size)?;
                Ok(OriginRead {
                    meta,
                    range: asked.clone(),
                    from_cache,
                    body: cut(body, asked),
                })
            }
            _ => Ok(OriginRead {
                meta,
                range,
                from_cache,
                body,
            }),
        }
    }

    pub(in crate::origin::remote) async fn head(
        &self,
        key: &ObjectKey,
        request: &GetRequest,
    ) -> Result<ObjectMeta, OriginError> {
        // Without conditions on what the caller has: the same price, and headers that changed
        // without a new entity tag are seen.
        let request = GetRequest {
            if_match: request.if_match.clone(),
            ..GetRequest::default()
        };
        let headers = conditions(&request);
        let response = self.read(Method::HEAD, &target(key)?, headers).await?;
        Ok(meta(response.headers(), length(response.headers())?))
    }

    /// Sends a read, follows its redirects, and turns statuses other than success into errors.
    pub(super) async fn read(
        &self,
        method: Method,
        target: &Target,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, OriginError> {
        let first = self.uri(target)?;
        let mut uri = first.clone();
        for _ in 0..=REDIRECTS_MAX {
            // Another origin has no claim to these credentials.
            let signed_by = match uri.authority() == first.authority() {
                true => SignedBy::Settings,
                false => SignedBy::Unsigned,
            };
            let head = (method.clone(), uri.clone(), headers.clone());
            let sent = self.send(head, PayloadHash::EMPTY, no_body(), signed_by);
            let mut response = sent.await?;
            let status = response.status();
            OriginRequestId::note(response.headers(), status.is_success());
            if status.is_success() {
                encode_texts(response.headers_mut());
                return Ok(response);
            }
            let next = match status.as_u16() {
                301 | 302 | 303 | 307 | 308 => location(&uri, response.headers()),
                _ => None,
            };
            match next {
                Some(next) => {
                    self.redirects.require(&first, &next)?;
                    uri = next;
                }
                None => return Err(rejected(response, &target.name()).await),
            }
        }
        Err(OriginError::Protocol(
            RedirectRejected::TooOften(uri.to_string()).to_string(),
        ))
    }
}

fn target(key: &ObjectKey) -> Result<Target, OriginError> {
    match key.key() {
        "" => Err(OriginError::InvalidKey {
            key: String::new(),
            reason: "it is empty".into(),
        }),
        name => Ok(Target {
            bucket: Some(key.bucket().to_owned()),
            key: Some(name.to_owned()),
            query: None,
        }),
    }
}

/// The target of a redirect: a whole URL, or another path.
fn location(from: &Uri, headers: &HeaderMap) -> Option<Uri> {
    let text = headers.get(LOCATION)?.to_str().ok()?;
    let to: Uri = text.parse().ok()?;
    if to.authority().is_some() {
        return Some(to);
    }
    let mut parts = from.clone().into_parts();
    parts.path_and_query = to.into_parts().path_and_query;
    Uri::from_parts(parts).ok()
}

async fn rejected(response: Response<Incoming>, name: &str) -> OriginError {
    let status = response.status().as_u16();
    let size = content_range_size(response.headers());
    let document = error_body(&mut body_of(response.into_body())).await;
    let document = document.unwrap_or_default();
    let (code, message) = error_document(&document);
    match service::status_meaning(status, &code, &message, name) {
        OriginError::RangeNotSatisfiable { .. } => OriginError::RangeNotSatisfiable { size },
        error => error,
    }
}

fn conditions(request: &GetRequest) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut set = |name: HeaderName, text: String| {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(name, value);
        }
    };
    if let Some(range) = request.range.as_ref().filter(|range| !range.is_empty()) {
        set(RANGE, format!("bytes={}-{}", range.start, range.end - 1));
    }
    if let Some(tag) = &request.if_match {
        set(IF_MATCH, tag.clone());
    }
    match (&request.if_none_match, request.if_modified_since) {
        (Some(tag), _) => set(IF_NONE_MATCH, tag.clone()),
        (None, Some(time)) => set(IF_MODIFIED_SINCE, httpdate::fmt_http_date(time)),
        (None, None) => {}
    }
    headers
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

fn length(headers: &HeaderMap) -> Result<u64, OriginError> {
    let length = text(headers, &CONTENT_LENGTH).and_then(|text| text.parse().ok());
    length.ok_or_else(|| OriginError::Protocol("an object without its length".into()))
}

/// `bytes first-last/size`.
fn content_range(headers: &HeaderMap) -> Option<(Range<u64>, u64)> {
    let text = text(headers, &CONTENT_RANGE)?;
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let size = size.parse().ok()?;
    (first <= last && last < size).then_some((first..last + 1, size))
}

/// The size in `bytes */size`.
fn content_range_size(headers: &HeaderMap) -> Option<u64> {
    text(headers, &CONTENT_RANGE)?
        .strip_prefix("bytes */")?
        .parse()
        .ok()
}

fn meta(headers: &HeaderMap, size: u64) -> ObjectMeta {
    let own = |name: &HeaderName| text(headers, name);
    let mut user = Vec::new();
    let mut other = Vec::new();
    for name in headers.keys() {
        let Some(value) = text(headers, name) else {
            continue;
        };
        if let Some(short) = name.as_str().strip_prefix("x-amz-meta-") {
            user.push((short.to_owned(), value));
        } else if is_kept(name) {
            other.push((name.as_str().to_owned(), value));
        }
    }
    user.sort_unstable();
    other.sort_unstable();
    ObjectMeta {
        size,
        etag: own(&header::ETAG),
        content_etag: None,
        last_modified: own(&header::LAST_MODIFIED)
            .and_then(|text| httpdate::parse_http_date(&text).ok()),
        attributes: Attributes {
            content_type: own(&header::CONTENT_TYPE),
            content_encoding: own(&header::CONTENT_ENCODING),
            content_language: own(&header::CONTENT_LANGUAGE),
            content_disposition: own(&header::CONTENT_DISPOSITION),
            cache_control: own(&header::CACHE_CONTROL),
            storage_class: own(&HeaderName::from_static("x-amz-storage-class")),
            user,
            headers: other,
        },
    }
}

fn is_kept(name: &HeaderName) -> bool {
    KEPT.contains(&name.as_str()) || name.as_str().starts_with("x-amz-server-side-encryption")
}
