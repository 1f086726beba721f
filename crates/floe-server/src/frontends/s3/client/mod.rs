//! Requests with the clients' own credentials (`s3.credentials = "client"`): each is sent to the
//! origin as its client signed it, and the origin judges it.
//!
//! A cached object goes only to a request that the origin has accepted: just now, with an
//! `If-None-Match` that the client did not sign, or, for that very request, a short time ago.
//! An acceptance holds for the version that the origin judged, and for no other.

mod accepted;
mod asked;
mod hosts;
mod judged;
mod read;
mod signature;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use floe::object::ObjectCache;
use floe::origin::{ForwardBody, ForwardRequest};
use floe_device::Clock;
use http::header::{CONTENT_LENGTH, HeaderName};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body as _;
use s3s::{Body, S3Response, S3Result};

use self::asked::Asked;
use self::hosts::Hosts;
use self::read::{Read, Reads};
use self::signature::Signature;
use super::access_log::Verified;
use super::changes;
use super::config::{S3Config, SignedBy};
use super::credentials::Credentials;
use super::error::{denied, error_response};
use super::forward::response;
use super::target::Domains;
use super::upload::{self, Announced, Fault, Upload, collected};
use crate::config::{ServerConfigError, problem};
use crate::frontend::Host;
use crate::metrics::Samples;

const X_AMZ_DECODED_CONTENT_LENGTH: HeaderName =
    HeaderName::from_static("x-amz-decoded-content-length");

/// Answers requests that their clients signed for the origin.
pub(super) struct ClientRequests {
    cache: ObjectCache,
    clock: Clock,
    domains: Domains,
    hosts: Hosts,
    /// Unsigned requests are sent on, too.
    anonymous: bool,
    upload_limit_bytes: Arc<AtomicU64>,
    reads: Reads,
}

impl ClientRequests {
    /// None where the settings name keys of Floe's own.
    ///
    /// # Errors
    /// The origin judges no signatures of clients, or the host names have two meanings.
    pub(super) fn open(
        config: &S3Config,
        host: &Host,
        upload_limit_bytes: &Arc<AtomicU64>,
    ) -> Result<Option<Self>, ServerConfigError> {
        if config.credentials == SignedBy::Keys {
            return Ok(None);
        }
        let setting = "s3.credentials";
        let own_keys = "use s3.credentials = \"keys\" with [[s3.keys]]";
        let of_origin = host.objects.origin().signed_host();
        let of_origin =
            of_origin.map_err(|error| problem(setting, &error.to_string(), own_keys))?;
        if host.objects.has_cache_only() {
            return Err(problem(
                setting,
                "no origin judges who may use the buckets of object.cache_only",
                own_keys,
            ));
        }
        Ok(Some(ClientRequests {
            cache: host.objects.clone(),
            clock: host.clock.clone(),
            domains: Domains::new(&config.domains),
            hosts: Hosts::new(&of_origin, &config.client_hosts, &config.domains)?,
            anonymous: config.anonymous.is_served(),
            upload_limit_bytes: Arc::clone(upload_limit_bytes),
            reads: Reads::new(host, config.client_credentials_ttl_seconds),
        }))
    }

    pub(super) fn collect(&self, samples: &mut Samples) {
        self.reads.collect(samples);
    }

    /// Answers a request whose head was admitted.
    pub(super) async fn call(&self, request: Request<Body>) -> Response<Body> {
        let logged = request.extensions().get::<Verified>().cloned();
        let mut access_key = None;
        let (parts, body) = request.into_parts();
        let is_preflight = parts.method == Method::OPTIONS;
        let answer = match self.asked(parts) {
            Ok(asked) => {
                access_key = asked.signature.as_ref().map(Signature::access_key);
                self.answer(asked, body).await
            }
            Err(error) => Err(error),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return error_response(error),
        };
        let mut response = Response::new(answer.output);
        *response.status_mut() = answer.status.unwrap_or_default();
        *response.headers_mut() = answer.headers;
        *response.extensions_mut() = answer.extensions;
        let status = response.status();
        // Any other name may be a forger's, and preflights are answered without a look at it.
        if let (Some(logged), Some(access_key)) = (logged, access_key)
            && (status.is_success() || status.as_u16() == 304)
            && !is_preflight
        {
            logged.set(&access_key);
        }
        response
    }

    fn asked(&self, mut parts: Parts) -> S3Result<Asked> {
        let credentials = parts.extensions.remove::<Credentials>();
        // Unreachable: each request passes `head::admit`.
        let credentials = credentials.ok_or_else(|| denied("the request was not checked"))?;
        if !credentials.is_signed() && !self.anonymous {
            return Err(denied("this cache serves signed requests only"));
        }
        Asked::of(parts, &credentials, &self.hosts, &self.domains)
    }

    async fn answer(&self, asked: Asked, body: Body) -> S3Result<S3Response<Body>> {
        match Read::of(&asked) {
            Some(read) if body.is_end_stream() && self.cache.keeps(&read.key) => {
                self.reads.answer(asked, read).await
            }
            _ => self.forward(asked, body).await,
        }
    }

    /// Sends a request to the origin, and forgets what it may change.
    async fn forward(&self, asked: Asked, mut body: Body) -> S3Result<S3Response<Body>> {
        let (parts, query) = (&asked.parts, &asked.query);
        let changed = match (&asked.target.bucket, &asked.target.key) {
            (Some(bucket), Some(key)) => {
                let changed =
                    |key: &str| changes::of_object(&parts.method, bucket, key, query, &asked.meant);
                let mut objects = changed(key)?;
                if let Some(spaced) = &asked.spaced_key {
                    objects.extend(changed(spaced)?);
                }
                objects
            }
            (Some(bucket), None) if parts.method == Method::POST && query.has("delete") => {
                let document = collected(body).await?;
                body = Body::from(document.clone());
                changes::of_delete_objects(bucket, &document)?
            }
            _ => Vec::new(),
        };
        let now_unix_s = self.clock.unix_seconds();
        let has_expired = |signature: &Signature| signature.has_expired(now_unix_s);
        if !changed.is_empty() && asked.signature.as_ref().is_some_and(has_expired) {
            return Err(denied("Request has expired"));
        }
        let (body, upload) = self.body(&parts.headers, body)?;
        let is_head = parts.method == Method::HEAD;
        let request = ForwardRequest {
            head: asked.head,
            body,
        };
        let answer = self.cache.forward(request, changed).await;
        let answer = answer.map_err(|error| upload::error_of(&upload, error))?;
        Ok(response(answer, is_head))
    }

    /// A body, byte for byte: its framing and hashes are signed, and the origin's to compare.
    fn body(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> S3Result<(Option<ForwardBody>, Option<Upload>)> {
        if body.is_end_stream() {
            return Ok((None, None));
        }
        let number = |name: &HeaderName| -> Option<u64> {
            headers.get(name)?.to_str().ok()?.trim().parse().ok()
        };
        let length = number(&CONTENT_LENGTH).or_else(|| body.size_hint().exact());
        let announced = Announced {
            length: length.and_then(|length| i64::try_from(length).ok()),
            ..Announced::default()
        };
        let mut limit_bytes = self.upload_limit_bytes.load(Relaxed);
        if let Some(decoded) = number(&X_AMZ_DECODED_CONTENT_LENGTH) {
            if decoded > limit_bytes {
                return Err(Fault::TooLarge.into());
            }
            // Chunks of 8 KiB or more, each with its length and signature, and a trailer.
            limit_bytes = limit_bytes.saturating_add(limit_bytes / 64 + (64 << 10));
        }
        let unchecked = HeaderMap::new();
        let (upload, pieces) = Upload::new(Some(body.into()), announced, &unchecked, limit_bytes)?;
        let body = ForwardBody {
            length: upload.length,
            pieces,
            turn: None,
        };
        Ok((Some(body), Some(upload)))
    }
}
