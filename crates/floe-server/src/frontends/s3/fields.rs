//! Fields of requests and responses that several operations share.

use floe::object::Attributes;
use http::HeaderMap;
use s3s::S3Result;
use s3s::dto::ETag;

use super::error::invalid_argument;
use super::kept::stored_header;

/// The attributes to store with an object. User metadata is kept as sent, since
/// the library would decode encoded words (RFC 2047).
pub(crate) fn attributes(headers: &HeaderMap) -> S3Result<Attributes> {
    let text = |name| stored_header(headers, name);
    let mut user = Vec::new();
    for name in headers.keys().map(|name| name.as_str()) {
        match name.strip_prefix("x-amz-meta-") {
            None => {}
            Some("") => return Err(invalid_argument("x-amz-meta- names no metadata")),
            Some(short) => {
                let value = text(name)?.unwrap_or_default();
                user.push((short.to_owned(), value));
            }
        }
    }
    user.sort();
    Ok(Attributes {
        content_type: text("content-type")?,
        content_encoding: text("content-encoding")?.and_then(|value| stored_encoding(&value)),
        content_language: text("content-language")?,
        content_disposition: text("content-disposition")?,
        cache_control: text("cache-control")?,
        storage_class: text("x-amz-storage-class")?,
        user,
        headers: text("expires")?
            .map(|expires| ("expires".to_owned(), expires))
            .into_iter()
            .collect(),
    })
}

/// `aws-chunked` describes the upload, not the object.
pub(super) fn stored_encoding(value: &str) -> Option<String> {
    let kept: Vec<&str> = value
        .split(',')
        .map(str::trim)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    (!kept.is_empty()).then(|| kept.join(", "))
}

pub(crate) fn part_number(number: i32) -> S3Result<u32> {
    u32::try_from(number)
        .ok()
        .filter(|number| (1..=10_000).contains(number))
        .ok_or_else(|| {
            invalid_argument("Part number must be an integer between 1 and 10000, inclusive")
        })
}

/// Converts an origin's entity tag to the library's type.
pub(crate) fn etag(text: &str) -> Option<ETag> {
    ETag::parse_http_header(text.as_bytes()).ok()
}
