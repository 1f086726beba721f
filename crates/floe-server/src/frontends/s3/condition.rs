//! Parses conditional headers into the cache's [`Conditions`], which are
//! evaluated on the version that is read.

use std::time::SystemTime;

use floe::object::{Conditions, EtagCondition, RangeCondition};
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName};

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
