//! Reads of objects: the cached version, once the origin has accepted the request for it.

use std::time::Duration;

use floe::object::{
    ByteRange, CachedVersion, ObjectCache, ObjectError, ObjectKey, ObjectMeta, ObjectRead,
};
use floe::origin::{ForwardAnswer, ForwardHead, ForwardRequest, OriginError};
use floe::runtimes::Context;
use floe_core::Tick;
use floe_device::Clock;
use http::header::{
    HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, ORIGIN, RANGE,
};
use http::{HeaderMap, Method};
use s3s::{Body, S3Response, S3Result};

use super::accepted::Accepted;
use super::asked::Asked;
use super::judged::{Judged, is_usable};
use super::signature::{Digest, digest};
use crate::frontend::Host;
use crate::frontends::s3::answer::of_read;
use crate::frontends::s3::error::s3_error;
use crate::frontends::s3::forward::response;
use crate::frontends::s3::passable::is_stable;
use crate::frontends::s3::range::requested_range;
use crate::frontends::s3::read::{answer_of, asks_for_bytes, overridden_headers};
use crate::metrics::{Counter, Samples};

/// Conditions of the client's own. The origin evaluates them.
const CONDITIONS: [HeaderName; 5] = [
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
];

/// A read that the cache may answer.
pub(super) struct Read {
    pub(super) key: ObjectKey,
    range: Option<ByteRange>,
    /// The headers of the answer that the query sets.
    overrides: HeaderMap,
}

/// Reads objects for requests that the origin accepts.
pub(super) struct Reads {
    cache: ObjectCache,
    clock: Clock,
    home: Context,
    accepted: Accepted,
    /// Answers with the cached version, which the origin confirmed for this request.
    confirmed: Counter,
    /// With the cached version, by an earlier acceptance of the same request.
    remembered: Counter,
    /// With the version of the origin's answer, read through the cache.
    fetched: Counter,
    /// The origin's own answers.
    forwarded: Counter,
}

impl Read {
    /// None for a request that only the origin can answer.
    pub(super) fn of(asked: &Asked) -> Option<Self> {
        let parts = &asked.parts;
        let headers = &parts.headers;
        let (bucket, key) = (asked.target.bucket.as_ref()?, asked.target.key.as_ref()?);
        let is_read = parts.method == Method::GET
            && asks_for_bytes(&asked.query, headers)
            // Some servers take a plus sign for a space.
            && !parts.uri.path().contains('+')
            && is_stable(key)
            && !headers.contains_key(ORIGIN)
            && !CONDITIONS.iter().any(|name| headers.contains_key(name));
        let range = requested_range(headers);
        if !is_read || (range.is_none() && headers.contains_key(RANGE)) {
            return None;
        }
        let overrides = overridden_headers(&asked.query, asked.signature.is_some());
        Some(Read {
            key: ObjectKey::new(bucket.as_str(), key.as_str()),
            range,
            overrides: overrides.ok()?,
        })
    }
}

impl Reads {
    /// `ttl_seconds` is how long an acceptance counts.
    pub(super) fn new(host: &Host, ttl_seconds: u32) -> Self {
        Reads {
            cache: host.objects.clone(),
            clock: host.clock.clone(),
            home: Context::here(),
            accepted: Accepted::new(Duration::from_secs(u64::from(ttl_seconds))),
            confirmed: Counter::default(),
            remembered: Counter::default(),
            fetched: Counter::default(),
            forwarded: Counter::default(),
        }
    }

    pub(super) fn collect(&self, samples: &mut Samples) {
        for (source, count) in [
            ("confirmed", &self.confirmed),
            ("remembered", &self.remembered),
            ("fetched", &self.fetched),
            ("forwarded", &self.forwarded),
        ] {
            samples.counter(
                "floe_s3_client_reads",
                "Reads of objects with clients' own credentials, by the source of the answer",
                &[("source", source)],
                count.get(),
            );
        }
    }

    /// Answers a read.
    pub(super) async fn answer(&self, asked: Asked, read: Read) -> S3Result<S3Response<Body>> {
        let digest = digest(&asked.head);
        if let Some(found) = self.remembered(&digest, &read).await {
            self.remembered.add(1);
            return Ok(self.served(found, &asked, read));
        }
        // Acceptances and versions hold as of this moment.
        let begun = (self.clock.now(), self.clock.unix_seconds());
        let cached = self.cache.cached_version(&read.key).await;
        let tag = cached.as_ref().and_then(|cached| {
            let meta = cached.meta();
            let tag = meta.etag.as_deref().filter(|tag| is_usable(tag))?;
            HeaderValue::from_str(tag).ok().filter(|_| !needs_key(meta))
        });
        let mut head = asked.head.clone();
        if let Some(tag) = &tag {
            head.headers.insert(IF_NONE_MATCH, tag.clone());
        }
        let mut answer = self.ask(head).await?;
        if answer.status.as_u16() == 304 {
            let (Some(cached), Some(_)) = (&cached, tag) else {
                return Err(s3_error(ObjectError::from(OriginError::Protocol(
                    "a 304 to a read without a condition".into(),
                ))));
            };
            let judged = Judged::not_modified(cached.meta(), &answer.headers);
            if let Some(judged) = judged
                && let Ok(found) = self.cache.get_version(cached, read.range).await
            {
                self.confirmed.add(1);
                self.accept(digest, judged, begun, &asked);
                return Ok(self.served(found, &asked, read));
            }
            answer = self.ask(asked.head.clone()).await?;
        }
        let status = if read.range.is_some() { 206 } else { 200 };
        let judged = Judged::of(&answer.headers).filter(|_| answer.status.as_u16() == status);
        if let Some(judged) = judged
            && let Some(found) = self.fetched(&judged, cached, &read).await
        {
            self.fetched.add(1);
            self.accept(digest, judged, begun, &asked);
            return Ok(self.served(found, &asked, read));
        }
        self.forwarded.add(1);
        Ok(response(answer, false))
    }

    /// Asks the origin.
    async fn ask(&self, head: ForwardHead) -> S3Result<ForwardAnswer> {
        let request = ForwardRequest { head, body: None };
        let answer = self.cache.forward(request, Vec::new());
        answer.await.map_err(s3_error)
    }

    /// The version of a remembered acceptance, if the consistency mode still takes it for current.
    async fn remembered(&self, digest: &Digest, read: &Read) -> Option<ObjectRead> {
        let judged = self.accepted.get(digest, self.clock.now())?;
        let cached = self.cache.cached_version(&read.key).await?;
        if !judged.is(cached.meta()) {
            return None;
        }
        let found = self.cache.get(&read.key, read.range).await.ok()?;
        judged.is(&found.meta).then_some(found)
    }

    /// The judged version, read through the cache with Floe's own credentials.
    async fn fetched(
        &self,
        judged: &Judged,
        cached: Option<CachedVersion>,
        read: &Read,
    ) -> Option<ObjectRead> {
        if let Some(cached) = cached.filter(|cached| judged.is(cached.meta())) {
            return self.cache.get_version(&cached, read.range).await.ok();
        }
        let found = self.cache.get_newest(&read.key, read.range).await.ok()?;
        judged.is(&found.meta).then_some(found)
    }

    fn served(&self, mut found: ObjectRead, asked: &Asked, read: Read) -> S3Response<Body> {
        found.body = self.home.stream(found.body);
        let answered = of_read(found, read.range.is_some(), &asked.parts.headers);
        let mut response = answer_of(answered);
        response.headers.extend(read.overrides);
        response
    }

    fn accept(
        &self,
        digest: Digest,
        judged: Judged,
        (now, now_unix_s): (Tick, u64),
        asked: &Asked,
    ) {
        if let Some(signature) = &asked.signature {
            let rest = signature.rest(now_unix_s);
            self.accepted.insert(digest, judged, now, rest);
        }
    }
}

/// True for an object that the origin decrypts with a key of its own, for which a reader needs
/// a right: an answer without the bytes may be given without it.
fn needs_key(meta: &ObjectMeta) -> bool {
    let mut headers = meta.attributes.headers.iter();
    headers.any(|(name, value)| name == "x-amz-server-side-encryption" && value != "AES256")
}
