//! Checks of a request's head, before the body is read and before the library
//! parses the request.

use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, HeaderValue, IF_RANGE,
};
use http::request::Parts;
use http::{HeaderMap, Method, Version};
use s3s::{S3Error, S3ErrorCode};

use super::credentials::Credentials;
use super::error::{invalid_argument, not_implemented, with};
use super::upload::payload_sha256;

/// Headers outside S3's own that must have one value.
const SINGLE: [HeaderName; 3] = [
    CONTENT_TYPE,
    HeaderName::from_static("content-md5"),
    IF_RANGE,
];

const CONTENT_SHA256: &str = "x-amz-content-sha256";

/// Checks a request's head and reads its credentials.
///
/// # Errors
/// The library and this frontend could interpret the head differently, or it
/// requests an unsupported feature.
pub(crate) fn admit(head: &Parts) -> Result<Credentials, S3Error> {
    require_one_host(head)?;
    reject_forms(head)?;
    reject_unclear_headers(&head.headers)?;
    let credentials = Credentials::of(&head.uri, &head.headers)?;
    reject_undecoded_chunks(&credentials, &head.headers)?;
    if let (Credentials::Anonymous, Some(hash)) = (&credentials, head.headers.get(CONTENT_SHA256))
        && hash != "UNSIGNED-PAYLOAD"
        && payload_sha256(&head.headers).is_none()
    {
        return Err(invalid_argument(format!("{CONTENT_SHA256} is no SHA-256")));
    }
    Ok(credentials)
}

/// True if the body has chunks with signatures or a trailer.
pub(crate) fn is_streaming(headers: &HeaderMap) -> bool {
    let hash = headers.get(CONTENT_SHA256);
    hash.is_some_and(|hash| hash.as_bytes().starts_with(b"STREAMING-"))
}

/// RFC 9112 §3.2. The host selects the bucket and is part of the signature.
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

/// The library would hold a form's whole file in memory, and accept the form's
/// own kinds of signatures.
fn reject_forms(head: &Parts) -> Result<(), S3Error> {
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

/// The library drops repeated and non-text headers, from both the signature and the request.
fn reject_unclear_headers(headers: &HeaderMap) -> Result<(), S3Error> {
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

/// The library removes chunk framing from the body only if the `Authorization`
/// header announces it; otherwise the framing would be stored with the object.
fn reject_undecoded_chunks(credentials: &Credentials, headers: &HeaderMap) -> Result<(), S3Error> {
    let bytes = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let is_streaming = is_streaming(headers);
    let is_coded = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"aws-chunked"));
    let is_signed = matches!(credentials, Credentials::Header(_));
    // A body whose own hash is signed has no frames, whatever coding its client names.
    let is_plain = is_signed && payload_sha256(headers).is_some();
    let is_framed = is_coded && !is_plain
        || bytes("x-amz-decoded-content-length").is_some()
        || bytes("x-amz-trailer").is_some();
    let is_decoded = is_streaming && is_signed;
    if (is_streaming || is_framed) && !is_decoded {
        return Err(not_implemented(
            "aws-chunked bodies, except in requests that are signed in the Authorization header \
             and announce them in x-amz-content-sha256",
        ));
    }
    Ok(())
}
