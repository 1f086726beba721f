//! The answer to a read of an object, for both ways of a request: from the cache, or left to an
//! S3 origin.

use std::ops::Range;
use std::time::SystemTime;

use floe::object::{
    ConditionalRead, Conditions, Consistency, ObjectBody, ObjectCache, ObjectError, ObjectHead,
    ObjectKey, ObjectMeta, ObjectRead, Outcome, Verdict,
};
use floe::origin::{ByteRange, OriginError, PartSizes};
use floe::runtimes::Context;
use http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH, IF_RANGE, ORIGIN, RANGE};
use http::{HeaderMap, HeaderValue, StatusCode};
use s3s::{S3Error, S3Result};

use super::checksums;
use super::condition::conditions;
use super::error::{custom, precondition_failed, range_not_satisfiable, s3_error};
use super::passable::is_stable;
use super::range::requested_range;

/// Most versions of an object that a read of a part of it looks at.
const PART_TRIES_MAX: usize = 4;

/// Answers reads of objects.
pub(crate) struct Answers {
    cache: ObjectCache,
    home: Context,
}

/// A head, and the body of a GET.
pub(super) type Answered = (Head, Option<ObjectBody>);

/// A read that gets no object.
pub(super) enum Unread {
    Refused(S3Error),
    /// The origin answers; the cache has been asked if `was_read`.
    OfOrigin {
        was_read: bool,
    },
}

impl Answers {
    pub(super) fn new(cache: &ObjectCache) -> Self {
        Answers {
            cache: cache.clone(),
            home: Context::here(),
        }
    }

    /// Answers a GET or a HEAD. Of its headers only range, conditions and the mode of checksums
    /// count.
    pub(super) async fn answer(
        &self,
        is_head: bool,
        key: &ObjectKey,
        headers: &HeaderMap,
    ) -> Result<Answered, Unread> {
        let found = self.home.run(self.found(is_head, key, headers));
        let mut answered = found.await?;
        answered.1 = answered.1.map(|body| self.home.stream(body));
        answered.0.leave_checksums_to(headers);
        Ok(answered)
    }

    /// Answers a read of a part of an object, with the number of parts if it was uploaded in
    /// parts. Only an object that was not is one part.
    ///
    /// # Errors
    /// There is no such part, or the object changes all the time.
    pub(super) async fn part(
        &self,
        is_head: bool,
        key: &ObjectKey,
        number: u32,
        headers: &HeaderMap,
    ) -> S3Result<(Answered, Option<u64>)> {
        for _ in 0..PART_TRIES_MAX {
            let known = self.home.run(self.cache.head(key)).await;
            let known = known.map_err(s3_error)?.meta;
            let sizes = PartSizes::of(&known.attributes.headers, known.size);
            let range = match &sizes {
                Some(sizes) => sizes.range(number),
                None => (number == 1).then_some(0..known.size),
            };
            let range = range.ok_or_else(no_such_part)?;
            let is_nothing = range.is_empty() && known.size > 0;
            let mut headers = headers.clone();
            headers.remove(IF_RANGE);
            if !range.is_empty() {
                let bytes = format!("bytes={}-{}", range.start, range.end - 1);
                let bytes = HeaderValue::try_from(bytes).map_err(|_| no_such_part())?;
                headers.insert(RANGE, bytes);
            }
            // No range of bytes is empty, so the head of the object stands for an empty part's.
            let answered = match self.answer(is_head || is_nothing, key, &headers).await {
                Ok((head, _)) if is_nothing && head.status == StatusCode::OK => {
                    (head.of_nothing(), None)
                }
                Ok(answered) => answered,
                Err(Unread::Refused(error)) => return Err(error),
                // Unreachable: no origin of S3 is behind it.
                Err(Unread::OfOrigin { .. }) => return Err(precondition_failed()),
            };
            // The parts of another version may be others.
            if answered.0.meta.etag == known.etag {
                return Ok((answered, sizes.map(|sizes| sizes.count())));
            }
        }
        Err(s3_error(ObjectError::Changed))
    }

    async fn found(
        &self,
        is_head: bool,
        key: &ObjectKey,
        headers: &HeaderMap,
    ) -> Result<Answered, Unread> {
        if self.forwards(key) && !self.is_cached(is_head, key, headers) {
            return Err(Unread::OfOrigin { was_read: false });
        }
        let range = requested_range(headers);
        let conditions = conditions(headers);
        if is_head {
            let found = self.cache.head(key).await;
            let found = found.map_err(|error| self.failed(key, error))?;
            let head = Head::of_head(found, range, &conditions);
            return Ok((head.map_err(|error| self.refused(key, error))?, None));
        }
        let found = self.cache.get_if(key, range, &conditions).await;
        match found.map_err(|error| self.failed(key, error))? {
            ConditionalRead::NotModified(meta) => Ok((Head::not_modified(meta), None)),
            ConditionalRead::PreconditionFailed(_) => Err(self.refused(key, precondition_failed())),
            ConditionalRead::Read(found) => {
                let is_partial = range.is_some() && conditions.range_applies(&found.meta);
                // Servers differ in what a failed If-Range means to them.
                if self.forwards(key) && conditions.if_range.is_some() && !is_partial {
                    return Err(Unread::OfOrigin { was_read: true });
                }
                Ok(Head::of_read(found, is_partial))
            }
        }
    }

    /// An S3 origin words errors better, and answers HEAD itself where it validates each read.
    fn forwards(&self, key: &ObjectKey) -> bool {
        self.cache.forwards(Some(key.bucket()))
    }

    /// True for a read that the cache answers as an S3 origin would. A HEAD is validated by a
    /// HEAD, whose answer may as well go to the client.
    fn is_cached(&self, is_head: bool, key: &ObjectKey, headers: &HeaderMap) -> bool {
        let is_validated = self.cache.consistency(key) == Consistency::Etag;
        has_plain_terms(headers) && is_stable(key.key()) && !(is_head && is_validated)
    }

    fn failed(&self, key: &ObjectKey, error: ObjectError) -> Unread {
        match self.forwards(key) && self.is_the_origins(key, &error) {
            true => Unread::OfOrigin { was_read: true },
            false => Unread::Refused(s3_error(error)),
        }
    }

    /// True for an error that an S3 origin words better. A cached absence is answered here.
    fn is_the_origins(&self, key: &ObjectKey, error: &ObjectError) -> bool {
        match error {
            ObjectError::Origin(OriginError::NotFound(_)) => !self.cache.remembers_absence(key),
            ObjectError::Origin(error) => !error.is_outage(),
            ObjectError::RangeNotSatisfiable { .. } => true,
            _ => false,
        }
    }

    /// A refusal, which an S3 origin words itself.
    fn refused(&self, key: &ObjectKey, error: S3Error) -> Unread {
        match self.forwards(key) {
            true => Unread::OfOrigin { was_read: true },
            false => Unread::Refused(error),
        }
    }
}

/// The answer to a GET that has read a version.
pub(super) fn of_read(read: ObjectRead, is_partial: bool, headers: &HeaderMap) -> Answered {
    let mut answered = Head::of_read(read, is_partial);
    answered.0.leave_checksums_to(headers);
    answered
}

fn no_such_part() -> S3Error {
    let status = StatusCode::RANGE_NOT_SATISFIABLE;
    let message = "The requested partnumber is not satisfiable";
    custom("InvalidPartNumber", status, message)
}

fn wants_checksums(headers: &HeaderMap) -> bool {
    let mode = headers.get("x-amz-checksum-mode");
    mode.is_some_and(|mode| mode.as_bytes().eq_ignore_ascii_case(b"ENABLED"))
}

/// False for headers that servers understand differently, or answer by the settings of a bucket.
fn has_plain_terms(headers: &HeaderMap) -> bool {
    let is_any = |name: HeaderName| headers.get_all(name).iter().any(|value| value == "*");
    let is_other_range = headers.contains_key(RANGE) && requested_range(headers).is_none();
    !is_other_range && !is_any(IF_MATCH) && !is_any(IF_NONE_MATCH) && !headers.contains_key(ORIGIN)
}

/// The head of a response.
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) meta: ObjectMeta,
    /// The part of the object in the response.
    pub(super) part: Option<Range<u64>>,
    /// Bytes of the body.
    pub(super) length: u64,
    /// The cache's part in the response; `None` without an object in it.
    pub(super) outcome: Option<&'static str>,
}

impl Head {
    fn not_modified(meta: ObjectMeta) -> Self {
        Head {
            status: StatusCode::NOT_MODIFIED,
            meta,
            part: None,
            length: 0,
            outcome: None,
        }
    }

    /// Removes the checksums of the whole object unless it was asked for with them.
    fn leave_checksums_to(&mut self, headers: &HeaderMap) {
        if self.status != StatusCode::OK || !wants_checksums(headers) {
            checksums::remove(&mut self.meta.attributes.headers);
        }
    }

    /// The head of an empty part.
    fn of_nothing(mut self) -> Self {
        checksums::remove(&mut self.meta.attributes.headers);
        self.status = StatusCode::PARTIAL_CONTENT;
        self.length = 0;
        self
    }

    /// A range that covers the whole object still gets a 206.
    fn of_read(read: ObjectRead, is_partial: bool) -> Answered {
        let range = read.range;
        let length = range.end - range.start;
        let head = Head {
            status: match is_partial {
                true => StatusCode::PARTIAL_CONTENT,
                false => StatusCode::OK,
            },
            meta: read.meta,
            part: is_partial.then_some(range),
            length,
            outcome: Some(cache_result(read.outcome)),
        };
        (head, Some(read.body))
    }

    /// # Errors
    /// A condition fails, or the range does.
    fn of_head(
        found: ObjectHead,
        range: Option<ByteRange>,
        conditions: &Conditions,
    ) -> S3Result<Self> {
        let meta = found.meta;
        match conditions.evaluate(&meta) {
            Verdict::NotModified => return Ok(Head::not_modified(meta)),
            Verdict::PreconditionFailed => return Err(precondition_failed()),
            Verdict::Proceed => {}
        }
        let part = match range.filter(|_| conditions.range_applies(&meta)) {
            Some(range) => Some(
                range
                    .resolve(meta.size)
                    .ok_or_else(|| range_not_satisfiable(Some(meta.size)))?,
            ),
            None => None,
        };
        Ok(Head {
            status: match part {
                Some(_) => StatusCode::PARTIAL_CONTENT,
                None => StatusCode::OK,
            },
            length: part
                .as_ref()
                .map_or(meta.size, |part| part.end - part.start),
            part,
            outcome: Some(cache_result(found.outcome)),
            meta,
        })
    }
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
        ("etag", meta.client_etag()),
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
        let is_own = matches!(
            &**name,
            "content-length" | "transfer-encoding" | "connection" | PartSizes::HEADER
        );
        if !is_own && HeaderName::try_from(name).is_ok() {
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
