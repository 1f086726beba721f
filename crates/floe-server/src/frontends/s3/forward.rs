//! Requests that an S3 origin answers itself: each is sent on as the client wrote it, with the
//! origin's signature, and the answer goes back as it is.
//!
//! Only what may change objects is understood, to invalidate them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use floe::object::{ObjectCache, ObjectError};
use floe::origin::{
    ForwardAnswer, ForwardBody, ForwardHead, ForwardRequest, PayloadHash, Signing,
    remove_connection_headers,
};
use futures::StreamExt;
use http::header::{CONTENT_ENCODING, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Uri};
use http_body::{Body as _, Frame};
use http_body_util::StreamBody;
use s3s::dto::CopySource;
use s3s::{Body, S3Error, S3ErrorCode, S3Request, S3Response, S3Result, TrailingHeaders};

use super::auth::Keys;
use super::changes;
use super::chunked::framed;
use super::error::{not_implemented, unreadable_uri};
use super::fields::stored_encoding;
use super::head;
use super::passable;
use super::policy::{COPY_SOURCE, Rights};
use super::preflight::Preflight;
use super::query::{Query, is_of_signature};
use super::read::{X_FLOE_CACHE, has_subresource};
use super::target::{Domains, Target};
use super::upload::{self, Announced, Upload, collected, payload_sha256};

/// Headers of the client's own signature and framing, among those that are sent.
const OF_CLIENT: [&str; 4] = [
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-security-token",
];

/// Marks an answer of the origin.
#[derive(Clone, Copy)]
pub(super) struct Forwarded;

/// Sends requests on to the origin.
pub(crate) struct Forwards {
    pub(crate) cache: ObjectCache,
    pub(crate) domains: Domains,
    pub(crate) keys: Keys,
    pub(crate) upload_limit_bytes: Arc<AtomicU64>,
}

impl Forwards {
    /// False where the operations of `s3s` answer: for a service whose buckets have other names,
    /// or are not for every key, and for cache-only buckets and copies from them.
    pub(super) fn takes(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        match self.domains.target(uri, headers) {
            Some(Target { bucket: None, .. }) => {
                self.cache.forwards(None) && !self.keys.has_policies()
            }
            Some(Target {
                bucket: Some(bucket),
                ..
            }) => self.cache.forwards(Some(&bucket)) && !self.copies_from_cache_only(headers),
            None => true,
        }
    }

    fn copies_from_cache_only(&self, headers: &HeaderMap) -> bool {
        let mut buckets = source_buckets(headers).flatten();
        buckets.any(|bucket| !self.cache.forwards(Some(&bucket)))
    }

    /// With cache-only buckets, a copy must certainly be one from the origin's. Sources in the
    /// parameters of a presigned request are headers by now.
    fn reject_uncertain_sources(&self, headers: &HeaderMap) -> S3Result<()> {
        let is_of_origin = |bucket: Option<Box<str>>| {
            bucket.is_some_and(|bucket| !bucket.is_empty() && self.cache.forwards(Some(&bucket)))
        };
        match !self.cache.has_cache_only() || source_buckets(headers).all(is_of_origin) {
            true => Ok(()),
            false => Err(not_implemented(
                "this copy, whose source may be a cache-only bucket; name the source in the header x-amz-copy-source",
            )),
        }
    }

    pub(super) async fn call(&self, mut request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let Some(target) = self.domains.target(&request.uri, &request.headers) else {
            return Err(unreadable_uri());
        };
        let asked = Query::of(&request.uri);
        let sent = sent_query(&request.uri, &asked, &mut request.headers);
        let mut headers = std::mem::take(&mut request.headers);
        let framing = Framing::of(&headers, &request.input);
        passable::reject_removal(&headers)?;
        remove_connection_headers(&mut headers);
        // A preflight may ask for any request that a signature will allow.
        let is_preflight = request.extensions.get::<Preflight>().is_some();
        passable::admit(
            &request.method,
            &target,
            &asked,
            &mut headers,
            request.credentials.is_some() || is_preflight,
            !self.cache.forwards(None),
        )?;
        self.reject_uncertain_sources(&headers)?;
        let changed = match (&target.bucket, &target.key) {
            (Some(bucket), Some(key)) => {
                changes::of_object(&request.method, bucket, key, &asked, &headers)?
            }
            (Some(bucket), None) if request.method == Method::POST && asked.has("delete") => {
                let document = collected(std::mem::take(&mut request.input)).await?;
                request.input = Body::from(document.clone());
                changes::of_delete_objects(bucket, &document)?
            }
            _ => Vec::new(),
        };
        Rights::of(&request.extensions)?.require_writes(&changed)?;
        for name in OF_CLIENT {
            headers.remove(name);
        }
        let is_head = request.method == Method::HEAD;
        let is_read = request.method.is_safe() && target.key.is_some() && !has_subresource(&asked);
        let (method, signed) = (request.method.clone(), request.credentials.is_some());
        let access_key = request
            .credentials
            .take()
            .map(|verified| verified.access_key);
        let trailer = request.trailing_headers.take();
        let payload = framing.payload.clone();
        let (body, upload) = self
            .body(request.input, framing, trailer, signed, &mut headers)
            .await?;
        let head = ForwardHead {
            method,
            bucket: target.bucket,
            key: target.key,
            query: sent,
            headers,
            payload,
            signing: match is_read {
                // As the reads that fill the cache, which a policy has allowed as well.
                true => Signing::Origin,
                false => self.keys.signing(access_key.as_deref())?,
            },
        };
        let answer = self.cache.forward(ForwardRequest { head, body }, changed);
        let answer = answer
            .await
            .map_err(|error| upload::error_of(&upload, error))?;
        Ok(response(answer, is_head))
    }

    /// The body as the origin receives it, and the headers that announce it.
    async fn body(
        &self,
        body: Body,
        framing: Framing,
        trailer: Option<TrailingHeaders>,
        signed: bool,
        headers: &mut HeaderMap,
    ) -> S3Result<(Option<ForwardBody>, Option<Upload>)> {
        let length = framing.length;
        if !framing.has_body {
            return Ok((None, None));
        }
        let announced = Announced {
            length: length.and_then(|length| i64::try_from(length).ok()),
            // The library compares that of a signed request.
            payload_sha256: framing.hash.filter(|_| !signed),
            ..Announced::default()
        };
        let limit_bytes = self.upload_limit_bytes.load(Relaxed);
        // Checksums are the origin's to compare.
        let unchecked = HeaderMap::new();
        let (upload, mut pieces) =
            Upload::new(Some(body.into()), announced, &unchecked, limit_bytes)?;
        if framing.has_trailer {
            announce_frames(headers, length)?;
            let pieces = framed(pieces, trailer);
            let body = ForwardBody {
                length: None,
                pieces,
                turn: None,
            };
            return Ok((Some(body), Some(upload)));
        }
        remove_framing(headers);
        if length == Some(0) {
            // No client of HTTP reads such a body, whose signature may still be wrong.
            return match pieces.next().await {
                None => Ok((None, None)),
                Some(_) => Err(upload.error(ObjectError::Stopped)),
            };
        }
        let body = ForwardBody {
            length,
            pieces,
            turn: None,
        };
        Ok((Some(body), Some(upload)))
    }
}

/// The bucket of each source of a copy; `None` for one that names no bucket.
fn source_buckets(headers: &HeaderMap) -> impl Iterator<Item = Option<Box<str>>> {
    let sources = headers.get_all(COPY_SOURCE).iter();
    sources.map(
        |source| match CopySource::parse(source.to_str().ok()?).ok()? {
            CopySource::Bucket { bucket, .. } => Some(bucket),
            _ => None,
        },
    )
}

/// How a client's body came.
struct Framing {
    length: Option<u64>,
    /// The SHA-256 that was announced.
    hash: Option<String>,
    has_body: bool,
    has_trailer: bool,
    payload: PayloadHash,
}

impl Framing {
    fn of(headers: &HeaderMap, body: &Body) -> Self {
        let number =
            |name: &str| -> Option<u64> { headers.get(name)?.to_str().ok()?.trim().parse().ok() };
        let hash = payload_sha256(headers);
        let has_trailer = headers.contains_key("x-amz-trailer");
        let is_empty_hash = hash
            .as_deref()
            .is_none_or(|hash| hash == PayloadHash::EMPTY);
        let has_body =
            !body.is_end_stream() || !is_empty_hash || head::is_streaming(headers) || has_trailer;
        Framing {
            length: number("x-amz-decoded-content-length")
                .or_else(|| number("content-length"))
                .or_else(|| body.size_hint().exact()),
            payload: match &hash {
                _ if has_trailer => PayloadHash::UnsignedTrailer,
                _ if !has_body => PayloadHash::Sha256(PayloadHash::EMPTY.into()),
                Some(hash) => PayloadHash::Sha256(hash.clone()),
                None => PayloadHash::Unsigned,
            },
            hash,
            has_body,
            has_trailer,
        }
    }
}

/// The query without the parameters of a signature. Headers of S3 that a presigned URL has in
/// its query become headers again: elsewhere a parameter has no such meaning.
fn sent_query(uri: &Uri, asked: &Query, headers: &mut HeaderMap) -> Option<String> {
    let is_presigned = asked.has("X-Amz-Signature");
    let mut kept = Vec::new();
    let pairs = uri.query().unwrap_or_default().split('&');
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = form_urlencoded::parse(pair.as_bytes()).next() else {
            continue;
        };
        if is_of_signature(&name) {
            continue;
        }
        let lower = name.to_ascii_lowercase();
        let header = HeaderName::try_from(&lower).ok();
        match (header, HeaderValue::from_str(&value)) {
            (Some(header), Ok(value)) if is_presigned && lower.starts_with("x-amz-") => {
                headers.entry(header).or_insert(value);
            }
            _ => kept.push(pair),
        }
    }
    (!kept.is_empty()).then(|| kept.join("&"))
}

fn announce_frames(headers: &mut HeaderMap, length: Option<u64>) -> S3Result<()> {
    let length = length.ok_or_else(|| {
        S3Error::with_message(
            S3ErrorCode::MissingContentLength,
            "You must provide the x-amz-decoded-content-length HTTP header.",
        )
    })?;
    headers.insert("x-amz-decoded-content-length", length.into());
    let is_announced = headers
        .get(CONTENT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.to_ascii_lowercase().contains("aws-chunked"));
    if !is_announced {
        let rest = headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
        let coding = match rest {
            None => b"aws-chunked".to_vec(),
            Some(rest) => [b"aws-chunked,", rest].concat(),
        };
        if let Ok(value) = HeaderValue::from_bytes(&coding) {
            headers.insert(CONTENT_ENCODING, value);
        }
    }
    Ok(())
}

/// `aws-chunked` described the client's upload.
fn remove_framing(headers: &mut HeaderMap) {
    let codings = headers.get_all(CONTENT_ENCODING).iter();
    let codings: Vec<&str> = codings.filter_map(|value| value.to_str().ok()).collect();
    if codings.is_empty() {
        return;
    }
    let rest = stored_encoding(&codings.join(","));
    match rest.and_then(|rest| HeaderValue::from_str(&rest).ok()) {
        Some(rest) => drop(headers.insert(CONTENT_ENCODING, rest)),
        None => drop(headers.remove(CONTENT_ENCODING)),
    }
}

pub(super) fn response(answer: ForwardAnswer, is_head: bool) -> S3Response<Body> {
    let has_body = !is_head && answer.status.as_u16() != 304 && answer.status.as_u16() != 204;
    let mut response = S3Response::new(match has_body {
        true => {
            let frames = answer.body.map(|piece| piece.map(Frame::data));
            Body::http_body_unsync(StreamBody::new(frames))
        }
        false => Body::empty(),
    });
    response.status = Some(answer.status);
    response.headers = answer.headers;
    // Another Floe's, if it is the origin.
    response.headers.remove(X_FLOE_CACHE);
    response.extensions.insert(Forwarded);
    response
}
