//! A request as its client signed it, and what it asks for.

use floe::origin::{ForwardHead, PayloadHash, SignedTarget, Signing, remove_connection_headers};
use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Uri};
use s3s::S3Result;

use super::hosts::Hosts;
use super::signature::Signature;
use crate::frontends::s3::credentials::Credentials;
use crate::frontends::s3::error::{invalid_argument, not_implemented, unreadable_uri};
use crate::frontends::s3::head::is_streaming;
use crate::frontends::s3::passable::{self, SENT};
use crate::frontends::s3::query::Query;
use crate::frontends::s3::target::{Domains, Target};

/// Headers besides those that are always sent, which a client may sign. Servers can take others
/// for another client, host, method or path.
const SIGNED: [&str; 4] = ["content-length", "date", "expect", "host"];

/// A request that may be sent to the origin.
pub(super) struct Asked {
    pub(super) parts: Parts,
    pub(super) query: Query,
    pub(super) target: Target,
    /// The key for servers that take a plus sign in a path for a space.
    pub(super) spaced_key: Option<String>,
    /// The headers, with those of S3 that the query has.
    pub(super) meant: HeaderMap,
    /// None of a request without a signature.
    pub(super) signature: Option<Signature>,
    /// As the origin receives it, but for the body.
    pub(super) head: ForwardHead,
}

impl Asked {
    /// Reads a request's head.
    ///
    /// # Errors
    /// It must not reach the origin.
    pub(super) fn of(
        parts: Parts,
        credentials: &Credentials,
        hosts: &Hosts,
        domains: &Domains,
    ) -> S3Result<Self> {
        let host = hosts.of(&parts.uri, &parts.headers)?.to_owned();
        let Some(target) = domains.target(&parts.uri, &parts.headers) else {
            return Err(unreadable_uri());
        };
        let query = Query::of(&parts.uri);
        reject_documents(&parts, &query)?;
        reject_unclear_query(&parts)?;
        passable::reject_removal(&parts.headers)?;
        let meant = meant_headers(&parts.headers, &query)?;
        passable::reject_unknown(&parts.method, &target, &query, &meant)?;
        let path_and_query = parts.uri.path_and_query();
        let path_and_query = path_and_query.map_or("/", |path| path.as_str());
        let head = ForwardHead {
            method: parts.method.clone(),
            bucket: target.bucket.clone(),
            key: target.key.clone(),
            query: parts.uri.query().map(str::to_owned),
            headers: sent_headers(&parts.headers, credentials)?,
            payload: PayloadHash::Unsigned,
            signing: Signing::Client(SignedTarget {
                host,
                path_and_query: path_and_query.to_owned(),
            }),
        };
        Ok(Asked {
            signature: Signature::of(credentials, &query, &parts.headers),
            spaced_key: spaced_key(&parts, domains)?,
            parts,
            query,
            target,
            meant,
            head,
        })
    }
}

fn spaced_key(parts: &Parts, domains: &Domains) -> S3Result<Option<String>> {
    if !parts.uri.path().contains('+') {
        return Ok(None);
    }
    // `%2B` stays a plus sign.
    let spaced: Uri = parts
        .uri
        .path()
        .replace('+', "%20")
        .parse()
        .map_err(|_| unreadable_uri())?;
    // Without the host in the target, which is in the headers or in the first line.
    let mut headers = parts.headers.clone();
    if let Some(authority) = parts.uri.authority() {
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| unreadable_uri())?;
        headers.insert(HOST, host);
    }
    let target = domains
        .target(&spaced, &headers)
        .ok_or_else(unreadable_uri)?;
    Ok(target.key)
}

/// The headers, with those of S3 that a presigned URL has in its query.
///
/// # Errors
/// One is there twice: servers differ in which they honour.
fn meant_headers(headers: &HeaderMap, query: &Query) -> S3Result<HeaderMap> {
    let mut meant = headers.clone();
    for (name, value) in query.iter() {
        let lower = name.to_ascii_lowercase();
        if !lower.starts_with("x-amz-") {
            continue;
        }
        let header = HeaderName::try_from(&lower).ok();
        let Some((header, value)) = header.zip(HeaderValue::from_str(value).ok()) else {
            return Err(invalid_argument(format!(
                "`{name}` cannot be a header of S3"
            )));
        };
        if meant.insert(header, value).is_some() {
            return Err(invalid_argument(format!("{lower} is there more than once")));
        }
    }
    Ok(meant)
}

/// Rejects documents whose meaning is not that of their bytes: of several parts, which hold
/// credentials and keys of their own, and in chunks.
fn reject_documents(parts: &Parts, query: &Query) -> S3Result<()> {
    if parts.method != Method::POST {
        return Ok(());
    }
    let is_form = |value: &HeaderValue| {
        let text = value.as_bytes().to_ascii_lowercase();
        text.windows(b"multipart/".len())
            .any(|part| part == b"multipart/")
    };
    let mut types = parts.headers.get_all(CONTENT_TYPE).iter();
    if types.any(is_form) {
        return Err(not_implemented("uploads by HTML forms; use PUT"));
    }
    let hash = query.only("X-Amz-Content-Sha256").unwrap_or_default();
    match is_streaming(&parts.headers) || hash.starts_with("STREAMING") {
        true => Err(not_implemented("documents in aws-chunked bodies")),
        false => Ok(()),
    }
}

/// Rejects a change whose query servers read differently: some split it at semicolons, and some
/// leave out what is badly encoded.
fn reject_unclear_query(parts: &Parts) -> S3Result<()> {
    let query = parts.uri.query().unwrap_or_default();
    let mut escapes = query.split('%').skip(1);
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let is_clear = !query.contains(';') && escapes.all(is_escape);
    match parts.method.is_safe() || is_clear {
        true => Ok(()),
        false => Err(invalid_argument(
            "the query has a `;` or a `%` without two hexadecimal digits; encode them",
        )),
    }
}

/// The headers that the origin receives: those of S3, the credentials, and further signed ones.
///
/// # Errors
/// A signed header cannot be sent.
fn sent_headers(headers: &HeaderMap, credentials: &Credentials) -> S3Result<HeaderMap> {
    let is_always_sent = |name: &HeaderName| {
        let text = name.as_str();
        text.starts_with("x-amz-")
            || SENT.contains(&text)
            || matches!(text, "authorization" | "referer")
    };
    let is_signed = |name: &HeaderName| credentials.signed_headers().any(|one| one == name);
    let mut sent = headers.clone();
    remove_connection_headers(&mut sent);
    let is_lost = |name: &&HeaderName| {
        let is_known = is_always_sent(name) || SIGNED.contains(&name.as_str());
        is_signed(name) && !(is_known && sent.contains_key(*name))
    };
    if let Some(name) = headers.keys().find(is_lost) {
        return Err(invalid_argument(format!(
            "{name} is signed, and this cache cannot send it on; leave it out of the signature"
        )));
    }
    let others: Vec<HeaderName> = sent
        .keys()
        .filter(|name| !is_always_sent(name) && !is_signed(name))
        .cloned()
        .collect();
    for name in others {
        sent.remove(name);
    }
    Ok(sent)
}
