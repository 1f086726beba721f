//! Conditional headers, in the order of precedence of RFC 9110 §13.2.2.

use std::time::{Duration, SystemTime};

use http::header::{
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
};
use http::{HeaderMap, HeaderName};

/// What the conditions of a GET or HEAD say about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer as if there were no condition.
    Proceed,
    /// Answer 304.
    NotModified,
    /// Answer 412, because of this header.
    Failed(Condition),
}

/// A header that can fail a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `If-Match`.
    IfMatch,
    /// `If-Unmodified-Since`.
    IfUnmodifiedSince,
}

impl Condition {
    /// The header's name, as S3 names it in its errors.
    pub fn header_name(self) -> &'static str {
        match self {
            Condition::IfMatch => "If-Match",
            Condition::IfUnmodifiedSince => "If-Unmodified-Since",
        }
    }
}

/// What an object is compared by.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// The entity tag as HTTP writes it.
    pub etag: Option<&'a str>,
    /// When the object was written.
    pub last_modified: Option<SystemTime>,
}

/// Evaluates the conditions of a GET or HEAD.
pub fn evaluate(headers: &HeaderMap, object: Validators<'_>) -> Verdict {
    if headers.contains_key(IF_MATCH) {
        if !any_tag(headers, IF_MATCH, |tag| tag.strong_equals(object.etag)) {
            return Verdict::Failed(Condition::IfMatch);
        }
    } else if let Some(limit) = date(headers, IF_UNMODIFIED_SINCE)
        && object.last_modified.is_some_and(|at| seconds(at) > seconds(limit))
    {
        return Verdict::Failed(Condition::IfUnmodifiedSince);
    }
    if headers.contains_key(IF_NONE_MATCH) {
        if any_tag(headers, IF_NONE_MATCH, |tag| tag.weak_equals(object.etag)) {
            return Verdict::NotModified;
        }
    } else if let Some(limit) = date(headers, IF_MODIFIED_SINCE)
        && object.last_modified.is_some_and(|at| seconds(at) <= seconds(limit))
    {
        return Verdict::NotModified;
    }
    Verdict::Proceed
}

/// Whether the `Range` header counts: there is no `If-Range`, or it names
/// this very version of the object (RFC 9110 §13.1.5).
pub fn range_applies(headers: &HeaderMap, object: Validators<'_>) -> bool {
    let Some(value) = headers.get(IF_RANGE) else {
        return true;
    };
    let Ok(text) = value.to_str() else {
        return false;
    };
    match httpdate::parse_http_date(text) {
        Ok(date) => object
            .last_modified
            .is_some_and(|at| seconds(at) == seconds(date)),
        Err(_) => Tag::of(text.trim()).strong_equals(object.etag),
    }
}

/// Time as HTTP writes it has whole seconds.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs()
}

/// A date that cannot be read is ignored, as RFC 9110 says.
fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

/// An entity tag of a request: `*`, strong or weak.
enum Tag<'a> {
    Any,
    Strong(&'a str),
    Weak(&'a str),
}

impl<'a> Tag<'a> {
    /// Clients of S3 also send tags without their quotes.
    fn of(text: &'a str) -> Self {
        if text == "*" {
            return Tag::Any;
        }
        match text.strip_prefix("W/") {
            Some(weak) => Tag::Weak(unquoted(weak)),
            None => Tag::Strong(unquoted(text)),
        }
    }

    fn strong_equals(&self, etag: Option<&str>) -> bool {
        match (self, etag.map(Tag::of)) {
            (Tag::Any, _) => true,
            (Tag::Strong(a), Some(Tag::Strong(b))) => *a == b,
            _ => false,
        }
    }

    fn weak_equals(&self, etag: Option<&str>) -> bool {
        match (self, etag.map(Tag::of)) {
            (Tag::Any, _) => true,
            (Tag::Strong(a) | Tag::Weak(a), Some(Tag::Strong(b) | Tag::Weak(b))) => *a == b,
            _ => false,
        }
    }
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(text)
}

fn any_tag(headers: &HeaderMap, name: HeaderName, mut test: impl FnMut(&Tag<'_>) -> bool) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(split_list)
        .any(|tag| test(&Tag::of(tag)))
}

/// The members of a comma-separated list; a comma inside quotes separates nothing.
fn split_list(line: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    line.split(move |c: char| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
    .map(str::trim)
    .filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests;
