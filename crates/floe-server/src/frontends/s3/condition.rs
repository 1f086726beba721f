//! Parses conditional headers into the cache's [`Conditions`], which are
//! evaluated on the version that is read.

use std::time::SystemTime;

use floe::object::{Conditions, EtagCondition, RangeCondition};
use floe::origin::PutCondition;
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName, HeaderValue};
use s3s::S3Result;
use s3s::dto::{ETag, ETagCondition, IfMatch, IfNoneMatch};

use super::error::invalid_argument;

/// The conditions of a GET or HEAD. An invalid date is ignored (RFC 9110); an
/// invalid tag matches nothing.
pub fn conditions(headers: &HeaderMap) -> Conditions {
    Conditions {
        if_match: tags(headers, IF_MATCH),
        if_unmodified_since: date(headers, IF_UNMODIFIED_SINCE),
        if_none_match: tags(headers, IF_NONE_MATCH),
        if_modified_since: date(headers, IF_MODIFIED_SINCE),
        if_range: headers.get(IF_RANGE).map(|value| {
            let text = value.to_str().unwrap_or_default();
            match httpdate::parse_http_date(text) {
                Ok(date) => RangeCondition::Date(date),
                Err(_) => RangeCondition::Tag(quoted(text.trim())),
            }
        }),
    }
}

/// The conditions on what a copy reads, in the headers `x-amz-copy-source-if-…`.
pub(crate) fn copy_conditions(headers: &HeaderMap) -> Conditions {
    let name = |condition| HeaderName::from_static(condition);
    Conditions {
        if_match: tags(headers, name("x-amz-copy-source-if-match")),
        if_unmodified_since: date(headers, name("x-amz-copy-source-if-unmodified-since")),
        if_none_match: tags(headers, name("x-amz-copy-source-if-none-match")),
        if_modified_since: date(headers, name("x-amz-copy-source-if-modified-since")),
        if_range: None,
    }
}

/// The name of a request's condition on the object of its URL, as an error names it. `None` if
/// it has several conditions, so that another one may be what failed.
pub(super) fn sole(headers: &HeaderMap) -> Option<&'static str> {
    let has_others = || {
        let mut names = headers.keys().map(HeaderName::as_str);
        names.any(|name| {
            name.starts_with("x-amz-copy-source-if-") || name.starts_with("x-amz-if-match-")
        })
    };
    let names = [
        (IF_MATCH, "If-Match"),
        (IF_NONE_MATCH, "If-None-Match"),
        (IF_UNMODIFIED_SINCE, "If-Unmodified-Since"),
    ];
    let mut given = names.iter().filter(|(name, _)| headers.contains_key(name));
    match (given.next(), given.next()) {
        (Some((_, name)), None) if !has_others() => Some(name),
        _ => None,
    }
}

/// The conditions of a copy on what it replaces, of which the library knows nothing.
pub(super) fn replace_condition(headers: &HeaderMap) -> S3Result<Option<PutCondition>> {
    let condition = |name| {
        let value: Option<&HeaderValue> = headers.get(&name);
        let parsed = value.map(|value| ETagCondition::parse_http_header(value.as_bytes()));
        let parsed = parsed.transpose();
        parsed.map_err(|_| invalid_argument(format!("{name} is no entity tag")))
    };
    put_condition(condition(IF_MATCH)?, condition(IF_NONE_MATCH)?)
}

/// The condition of a write on what it replaces.
pub(super) fn put_condition(
    if_match: Option<IfMatch>,
    if_none_match: Option<IfNoneMatch>,
) -> S3Result<Option<PutCondition>> {
    match (if_match, if_none_match) {
        (None, None) => Ok(None),
        (None, Some(ETagCondition::Any)) => Ok(Some(PutCondition::Absent)),
        (None, Some(ETagCondition::ETag(tag))) => Ok(Some(PutCondition::Differs(etag_text(&tag)))),
        (Some(ETagCondition::ETag(tag)), None) => Ok(Some(PutCondition::Matches(etag_text(&tag)))),
        (Some(ETagCondition::Any), None) => Ok(Some(PutCondition::Exists)),
        (Some(_), Some(_)) => Err(invalid_argument(
            "If-Match and If-None-Match exclude each other",
        )),
    }
}

/// An entity tag as a header has it.
pub(super) fn etag_text(etag: &ETag) -> String {
    match etag {
        ETag::Strong(value) => format!("\"{value}\""),
        ETag::Weak(value) => format!("W/\"{value}\""),
    }
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

fn tags(headers: &HeaderMap, name: HeaderName) -> Option<EtagCondition> {
    if !headers.contains_key(&name) {
        return None;
    }
    let members: Vec<&str> = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(split_list)
        .collect();
    if members.contains(&"*") {
        return Some(EtagCondition::Any);
    }
    Some(EtagCondition::Tags(
        members.into_iter().map(quoted).collect(),
    ))
}

/// S3 clients also send tags without quotes.
fn quoted(tag: &str) -> String {
    if tag.ends_with('"') {
        return tag.to_owned();
    }
    match tag.strip_prefix("W/") {
        Some(weak) => format!("W/\"{weak}\""),
        None => format!("\"{tag}\""),
    }
}

/// Splits a comma-separated list; a comma inside quotes is no separator.
fn split_list(line: &str) -> impl Iterator<Item = &str> {
    let mut inside_quotes = false;
    line.split(move |c: char| {
        inside_quotes ^= c == '"';
        c == ',' && !inside_quotes
    })
    .map(str::trim)
    .filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests;
