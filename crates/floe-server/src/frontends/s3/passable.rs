//! The requests that may be sent on to the origin, and whose they must be.
//!
//! The origin executes a forwarded request with its own credentials for Floe. Extensions of S3
//! do not reach its server.

use http::header::CONNECTION;
use http::{HeaderMap, HeaderName, Method};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::error::{denied, invalid_argument, not_implemented};
use super::query::Query;
use super::target::Target;

/// Headers besides S3's own that a request to S3 may have. Others have no meaning there, and are
/// left out.
pub(super) const SENT: [&str; 24] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "access-control-request-headers",
    "access-control-request-method",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-md5",
    "content-type",
    "expires",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "origin",
    "range",
    "traceparent",
    "user-agent",
    "x-id",
];

/// Parameters of unsigned requests.
const UNSIGNED_PARAMETERS: [&str; 18] = [
    "continuation-token",
    "delete",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "list-type",
    "location",
    "marker",
    "max-keys",
    "max-parts",
    "part-number-marker",
    "partNumber",
    "prefix",
    "start-after",
    "uploadId",
    "uploads",
    "x-id",
];

/// Headers of S3 in unsigned requests; a hyphen at the end stands for all that begin so.
const UNSIGNED_HEADERS: [&str; 15] = [
    "x-amz-api-version",
    "x-amz-checksum-",
    "x-amz-content-sha256",
    "x-amz-copy-source",
    "x-amz-copy-source-",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-expected-bucket-owner",
    "x-amz-meta-",
    "x-amz-metadata-directive",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-storage-class",
    "x-amz-tagging-directive",
    "x-amz-trailer",
    "x-amz-user-agent",
];

/// Checks a request, and removes the headers that are not sent.
///
/// # Errors
/// The request must not reach the origin.
pub(super) fn admit(
    method: &Method,
    target: &Target,
    query: &Query,
    headers: &mut HeaderMap,
    signed: bool,
    has_mapped_buckets: bool,
) -> S3Result<()> {
    reject_unknown(method, target, query, headers)?;
    if has_mapped_buckets {
        require_own_bucket(method, target, query)?;
    }
    if !signed {
        require_plain(method, target, query, headers)?;
    }
    let not_sent: Vec<HeaderName> = headers
        .keys()
        .filter(|name| !name.as_str().starts_with("x-amz-") && !SENT.contains(&name.as_str()))
        .cloned()
        .collect();
    for name in not_sent {
        headers.remove(name);
    }
    Ok(())
}

/// Rejects requests whose effects are not known: extensions of S3, and changes of other things
/// than objects and buckets.
pub(super) fn reject_unknown(
    method: &Method,
    target: &Target,
    query: &Query,
    headers: &HeaderMap,
) -> S3Result<()> {
    let is_known = [
        Method::DELETE,
        Method::GET,
        Method::HEAD,
        Method::OPTIONS,
        Method::POST,
        Method::PUT,
    ];
    // S3 has no changes of the service. Other interfaces of its server take POSTs there.
    let is_of_service = target.bucket.is_none() && !method.is_safe();
    // Some servers take it for one of the bucket.
    let is_delete_of_key = target.key.is_some() && *method == Method::POST && query.has("delete");
    if !is_known.contains(method) || is_of_service || is_delete_of_key {
        return Err(S3Error::with_message(
            S3ErrorCode::MethodNotAllowed,
            "The specified method is not allowed against this resource.",
        ));
    }
    reject_extensions(headers)?;
    if let Some(key) = target.key.as_deref().filter(|_| !method.is_safe()) {
        require_own_path(key)?;
    }
    Ok(())
}

/// Rejects a change of a key that a server could take for the bucket or for another one.
fn require_own_path(key: &str) -> S3Result<()> {
    let mut depth = 0_usize;
    for part in key.split('/') {
        depth = match part {
            "" | "." => Some(depth),
            ".." => depth.checked_sub(1),
            _ => depth.checked_add(1),
        }
        .ok_or_else(|| invalid_argument("the key leads out of its bucket"))?;
    }
    match depth {
        0 => Err(invalid_argument("the key names nothing but its bucket")),
        _ => Ok(()),
    }
}

/// Rejects a `Connection` header, which no signature covers, that takes headers with a meaning
/// off the request.
pub(super) fn reject_removal(headers: &HeaderMap) -> S3Result<()> {
    let values = headers.get_all(CONNECTION).iter();
    let mut named = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase());
    let has_meaning = |name: &String| {
        let name = name.as_str();
        name.starts_with("x-amz-")
            || SENT.contains(&name)
            || matches!(name, "authorization" | "host" | "referer")
    };
    match named.find(has_meaning) {
        None => Ok(()),
        Some(name) => Err(invalid_argument(format!("Connection must not name {name}"))),
    }
}

/// Rejects headers by which a server changes other objects than the one that the URL names.
fn reject_extensions(headers: &HeaderMap) -> S3Result<()> {
    let mut names = headers.keys().map(HeaderName::as_str);
    let extension = names.find(|name| {
        name.starts_with("x-minio-")
            || name.starts_with("x-amz-meta-snowball-")
            || name.starts_with("x-amz-meta-minio-snowball")
            || name.contains("http-method-override")
    });
    match extension {
        None => Ok(()),
        Some(name) => Err(not_implemented(&format!("extensions of S3 ({name})"))),
    }
}

/// True for settings whose documents name other buckets.
pub(super) fn names_other_buckets(query: &Query) -> bool {
    const SETTINGS: [&str; 8] = [
        "analytics",
        "inventory",
        "logging",
        "metadataConfiguration",
        "metadataTable",
        "replication",
        "restore",
        "select",
    ];
    SETTINGS.into_iter().any(|name| query.has(name))
}

/// With `origin.buckets`, rejects what could reach a bucket that they do not name: settings,
/// whose documents name other buckets, and keys that a server may take for another path.
fn require_own_bucket(method: &Method, target: &Target, query: &Query) -> S3Result<()> {
    if names_other_buckets(query) && !method.is_safe() {
        return Err(denied(
            "with origin.buckets this cache takes no settings that name other buckets",
        ));
    }
    let key = target.key.as_deref().unwrap_or_default();
    match key.split('/').any(|part| part == "." || part == "..") {
        false => Ok(()),
        true => Err(denied(
            "with origin.buckets this cache takes no keys with `.` or `..` as a part",
        )),
    }
}

/// Rejects what an unsigned client has no right to, and the origin's credentials have: anything
/// but reads, writes and listings of objects.
fn require_plain(
    method: &Method,
    target: &Target,
    query: &Query,
    headers: &HeaderMap,
) -> S3Result<()> {
    let is_bucket_change = target.key.is_none()
        && (*method == Method::PUT
            || *method == Method::DELETE
            || (*method == Method::POST && !query.has("delete")));
    if is_bucket_change {
        return Err(signed_only("changes to buckets"));
    }
    let mut names = query.iter().map(|(name, _)| name);
    if let Some(name) = names.find(|name| !UNSIGNED_PARAMETERS.contains(name)) {
        return Err(signed_only(&format!("the parameter `{name}`")));
    }
    let is_allowed = |name: &str| {
        let is_it = |known: &&str| match known.ends_with('-') {
            true => name.starts_with(*known),
            false => name == *known,
        };
        !name.starts_with("x-amz-") || UNSIGNED_HEADERS.iter().any(is_it)
    };
    match headers.keys().find(|name| !is_allowed(name.as_str())) {
        None => Ok(()),
        Some(name) => Err(signed_only(&format!("the header {name}"))),
    }
}

fn signed_only(what: &str) -> S3Error {
    denied(&format!(
        "this cache takes {what} from signed requests only"
    ))
}

/// True for a key that every server takes for itself: some take `//a`, `./a` and `b/../a` for
/// `a`, so that one object would have several names in the cache.
pub(super) fn is_stable(key: &str) -> bool {
    let key = key.strip_suffix('/').unwrap_or(key);
    !key.split('/').any(|part| matches!(part, "" | "." | ".."))
}

/// The keys that such servers take `key` for: those that clean paths, and those that only remove
/// dot segments (RFC 3986 §5.2.4).
pub(super) fn aliases(key: &str) -> [String; 2] {
    [resolved(key, true), resolved(key, false)]
}

fn resolved(key: &str, drops_empty: bool) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in key.split('/') {
        match part {
            "" if drops_empty => {}
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let mut path = parts.join("/");
    let ends_in_folder =
        key.ends_with('/') || (!drops_empty && (key.ends_with("/.") || key.ends_with("/..")));
    if ends_in_folder && !path.is_empty() && !path.ends_with('/') {
        path.push('/');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_several_names_are_known_and_cleaned() {
        for key in ["a", "a/b", "a/", "a/b/", "..a", "a/.b"] {
            assert!(is_stable(key), "{key}");
            assert_eq!(aliases(key), [key, key]);
        }
        for (key, clean, resolved) in [
            ("/a", "a", "/a"),
            ("a//b", "a/b", "a//b"),
            ("a/./b", "a/b", "a/b"),
            ("a/../b", "b", "b"),
            ("x//../k", "k", "x/k"),
            ("a/.", "a", "a/"),
            ("a//", "a/", "a//"),
        ] {
            assert!(!is_stable(key), "{key}");
            assert_eq!(aliases(key), [clean, resolved], "{key}");
        }
        for key in [".", "/", "a/..", "../a", "a/../../b"] {
            assert!(require_own_path(key).is_err(), "{key}");
        }
        assert!(require_own_path("a/../b").is_ok());
    }
}
