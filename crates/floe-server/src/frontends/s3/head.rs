//! Requests rejected for their head alone, before the body is read and before the
//! library sees them.

use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, HeaderValue, IF_RANGE,
};
use http::request::Parts;
use http::{HeaderMap, Method, Version};
use s3s::{S3Error, S3ErrorCode};

use super::credentials::Credentials;
use super::error::{invalid_argument, not_implemented, with};
use super::upload::payload_sha256;

/// Headers besides those of S3 that say one thing only.
const SINGLE: [HeaderName; 3] = [
    CONTENT_TYPE,
    HeaderName::from_static("content-md5"),
    IF_RANGE,
];

const CONTENT_SHA256: &str = "x-amz-content-sha256";

/// Checks a request's head and reads its credentials.
///
/// # Errors
/// If the library and this frontend could read the head differently, or if it asks
/// for something that is not served.
pub(crate) fn admit(head: &Parts) -> Result<Credentials, S3Error> {
    require_one_host(head)?;
    refuse_forms(head)?;
    refuse_unclear_headers(&head.headers)?;
    let credentials = Credentials::of(&head.uri, &head.headers)?;
    refuse_undecoded_chunks(&credentials, &head.headers)?;
    if let (Credentials::Anonymous, Some(hash)) = (&credentials, head.headers.get(CONTENT_SHA256))
        && hash != "UNSIGNED-PAYLOAD"
        && payload_sha256(&head.headers).is_none()
    {
        return Err(invalid_argument(format!("{CONTENT_SHA256} is no SHA-256")));
    }
    Ok(credentials)
}

/// Whether the body comes in chunks with signatures or a trailer.
pub(crate) fn is_streaming(headers: &HeaderMap) -> bool {
    let hash = headers.get(CONTENT_SHA256);
    hash.is_some_and(|hash| hash.as_bytes().starts_with(b"STREAMING-"))
}

/// RFC 9112 §3.2. The host decides on the bucket and is part of the signature.
fn require_one_host(head: &Parts) -> Result<(), S3Error> {
    let hosts: Vec<&HeaderValue> = head.headers.get_all(HOST).iter().collect();
    let authority = head.uri.authority().map(|authority| authority.as_str());
    let problem = match (&hosts[..], authority) {
        ([], _) if head.version == Version::HTTP_11 => "The Host header is missing",
        ([], _) => return Ok(()),
        ([host], Some(authority))
            if !host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) =>
        {
            "The Host header and the URL name different hosts"
        }
        ([_], _) => return Ok(()),
        _ => "There is more than one Host header",
    };
    Err(with(S3ErrorCode::InvalidRequest, problem.into()))
}

/// The library would hold the whole file of a form in memory, and take
/// signatures of the form's own kinds.
fn refuse_forms(head: &Parts) -> Result<(), S3Error> {
    let names_form = |value: &HeaderValue| {
        value
            .as_bytes()
            .split(|b| matches!(b, b';' | b','))
            .any(|part| {
                let text = part.iter().filter(|b| !b.is_ascii_whitespace());
                text.map(u8::to_ascii_lowercase)
                    .eq(b"multipart/form-data".iter().copied())
            })
    };
    if head.method == Method::POST && head.headers.get_all(CONTENT_TYPE).iter().any(names_form) {
        return Err(not_implemented("uploads by HTML forms; use PUT"));
    }
    Ok(())
}

/// The library leaves out headers that are there twice or are no text, from
/// the signature as well as from the request.
fn refuse_unclear_headers(headers: &HeaderMap) -> Result<(), S3Error> {
    for name in headers.keys() {
        let is_single = name.as_str().starts_with("x-amz-") || SINGLE.contains(name);
        if !is_single && *name != AUTHORIZATION {
            continue;
        }
        let mut values = headers.get_all(name).iter();
        if values.any(|value| std::str::from_utf8(value.as_bytes()).is_err()) {
            return Err(invalid_argument(format!("{name} is not valid UTF-8")));
        }
        if headers.get_all(name).iter().count() > 1 {
            return Err(invalid_argument(format!("{name} is there more than once")));
        }
    }
    Ok(())
}

/// Chunk framing is taken out of the body only where the `Authorization`
/// header announces it. Elsewhere it would be stored with the object.
fn refuse_undecoded_chunks(credentials: &Credentials, headers: &HeaderMap) -> Result<(), S3Error> {
    let bytes = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let is_streaming = is_streaming(headers);
    let is_coded = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"aws-chunked"));
    let is_framed = is_coded
        || bytes("x-amz-decoded-content-length").is_some()
        || bytes("x-amz-trailer").is_some();
    let is_decoded = is_streaming && matches!(credentials, Credentials::Header(_));
    if (is_streaming || is_framed) && !is_decoded {
        return Err(not_implemented(
            "aws-chunked bodies, except in requests that are signed in the Authorization header \
             and announce them in x-amz-content-sha256",
        ));
    }
    Ok(())
}
