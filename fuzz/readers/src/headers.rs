//! The headers of S3 requests that Floe parses itself: ranges and conditions.
//!
//! An input is lines. The first byte of a line chooses the header, and the rest
//! is its value.

use std::time::{Duration, UNIX_EPOCH};

use floe::object::{ByteRange, Conditions, EtagCondition, ObjectMeta, RangeCondition, Verdict};
use floe_server::s3::{conditions, requested_range};
use http::header::{
    HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, RANGE,
};

const HEADERS: [HeaderName; 6] = [
    RANGE,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_UNMODIFIED_SINCE,
    IF_RANGE,
];

/// Sizes of objects, at the edges of what ranges can address.
const SIZES: [u64; 6] = [0, 1, 2, 1000, u64::MAX - 1, u64::MAX];

pub(crate) fn s3_headers(data: &[u8]) {
    let headers = headers(data);
    if let Some(range) = requested_range(&headers) {
        check_range(range);
    }
    check_conditions(&conditions(&headers));
}

fn headers(data: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // No request has more lines.
    for line in data.split(|&byte| byte == b'\n').take(100) {
        let Some((choice, value)) = line.split_first() else {
            continue;
        };
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(&HEADERS[usize::from(*choice) % HEADERS.len()], value);
        }
    }
    headers
}

fn check_range(range: ByteRange) {
    let written = match range {
        ByteRange::Inclusive { first, last } => format!("bytes={first}-{last}"),
        ByteRange::From(first) => format!("bytes={first}-"),
        ByteRange::Suffix(length) => format!("bytes=-{length}"),
    };
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(&written) {
        headers.insert(RANGE, value);
    }
    assert_eq!(requested_range(&headers), Some(range), "{written}");
    for size in SIZES {
        if let Some(resolved) = range.resolve(size) {
            assert!(resolved.start < resolved.end && resolved.end <= size);
        }
    }
}

fn check_conditions(conditions: &Conditions) {
    for tags in [&conditions.if_match, &conditions.if_none_match] {
        if let Some(EtagCondition::Tags(tags)) = tags {
            assert!(tags.iter().all(|tag| tag.ends_with('"')));
        }
    }
    let mut metas = vec![ObjectMeta::default()];
    if let Some(EtagCondition::Tags(tags)) = &conditions.if_match {
        metas.extend(tags.first().map(|tag| meta(tag)));
    }
    if let Some(RangeCondition::Tag(tag)) = &conditions.if_range {
        metas.push(meta(tag));
    }
    for meta in metas {
        let verdict = conditions.evaluate(&meta);
        conditions.range_applies(&meta);
        if *conditions == Conditions::default() {
            assert_eq!(verdict, Verdict::Proceed);
        }
    }
}

fn meta(etag: &str) -> ObjectMeta {
    ObjectMeta {
        size: 1000,
        etag: Some(etag.to_owned()),
        last_modified: Some(UNIX_EPOCH + Duration::from_millis(1_400_000_000_500)),
        ..ObjectMeta::default()
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    const DATE: &str = "Tue, 13 May 2014 16:53:20 GMT";
    [
        "\0bytes=0-99".to_owned(),
        "\0bytes=100-".to_owned(),
        "\0bytes=-18446744073709551615".to_owned(),
        "\0bytes=0-18446744073709551616".to_owned(),
        "\0bytes=1-2,4-5".to_owned(),
        "\x01\"a\", W/\"b\", plain, \"with, comma\"".to_owned(),
        "\x02*\n\x02\"c\"".to_owned(),
        format!("\x03{DATE}\n\x04Sunday, 06-Nov-94 08:49:37 GMT"),
        format!("\0 bytes = 5 - 7 \n\x05{DATE}"),
        format!("\0bytes=5-7\n\x05\"a\"\n\x01\"a\"\n\x04{DATE}"),
    ]
    .map(String::into_bytes)
    .to_vec()
}
