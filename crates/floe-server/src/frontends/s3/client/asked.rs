//! A request as its client signed it, and what it asks for.

use floe::origin::{ForwardHead, PayloadHash, SignedTarget, remove_connection_headers};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method};
use s3s::{S3ErrorCode, S3Result};

use super::hosts::Hosts;
use super::signature::Signature;
use crate::frontends::s3::credentials::Credentials;
use crate::frontends::s3::error::{invalid_argument, not_implemented, with};
use crate::frontends::s3::passable::{self, SENT};
use crate::frontends::s3::query::Query;
use crate::frontends::s3::target::{Domains, Target};

/// A request that may be sent to the origin.
pub(super) struct Asked {
    pub(super) parts: Parts,
    pub(super) query: Query,
    pub(super) target: Target,
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
            return Err(with(
                S3ErrorCode::InvalidURI,
                "Couldn't parse the specified URI.".into(),
            ));
        };
        let query = Query::of(&parts.uri);
        reject_forms(&parts)?;
        passable::reject_removal(&parts.headers)?;
        passable::reject_unknown(&parts.method, &target, &query, &parts.headers)?;
        let path_and_query = parts.uri.path_and_query();
        let head = ForwardHead {
            method: parts.method.clone(),
            bucket: target.bucket.clone(),
            key: target.key.clone(),
            query: parts.uri.query().map(str::to_owned),
            headers: sent_headers(&parts.headers, credentials)?,
            payload: PayloadHash::Unsigned,
            signed: Some(SignedTarget {
                host,
                path_and_query: path_and_query.map_or("/", |path| path.as_str()).to_owned(),
            }),
        };
        Ok(Asked {
            signature: Signature::of(credentials, &query, &parts.headers),
            parts,
            query,
            target,
            head,
        })
    }

    /// The headers of S3, with those that a presigned URL has in its query.
    ///
    /// # Errors
    /// One is there twice: servers differ in which they honour.
    pub(super) fn meant_headers(&self) -> S3Result<HeaderMap> {
        let mut meant = self.parts.headers.clone();
        for (name, value) in self.query.iter() {
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
}

/// Rejects documents of several parts, which hold credentials and keys of their own.
fn reject_forms(parts: &Parts) -> S3Result<()> {
    let is_form = |value: &HeaderValue| {
        let text = value.as_bytes().to_ascii_lowercase();
        text.windows(b"multipart/".len())
            .any(|part| part == b"multipart/")
    };
    let mut types = parts.headers.get_all(CONTENT_TYPE).iter();
    match parts.method == Method::POST && types.any(is_form) {
        true => Err(not_implemented("uploads by HTML forms; use PUT")),
        false => Ok(()),
    }
}

/// The headers that the origin receives: the signed ones, those of S3, and the credentials.
///
/// # Errors
/// A signed header cannot be sent, or servers could take it for another target.
fn sent_headers(headers: &HeaderMap, credentials: &Credentials) -> S3Result<HeaderMap> {
    let is_signed = |name: &HeaderName| credentials.signed_headers().any(|one| one == name);
    let mut sent = headers.clone();
    remove_connection_headers(&mut sent);
    let is_lost = |name: &&HeaderName| {
        is_signed(name) && (!sent.contains_key(*name) || names_other_target(name))
    };
    if let Some(name) = headers.keys().find(is_lost) {
        return Err(invalid_argument(format!(
            "{name} is signed, and this cache cannot send it on; leave it out of the signature"
        )));
    }
    let others: Vec<HeaderName> = sent
        .keys()
        .filter(|name| {
            let text = name.as_str();
            let is_sent = text.starts_with("x-amz-")
                || SENT.contains(&text)
                || matches!(text, "authorization" | "referer");
            !is_sent && !is_signed(name)
        })
        .cloned()
        .collect();
    for name in others {
        sent.remove(name);
    }
    Ok(sent)
}

/// True for headers by which proxies and servers name another client, host or path.
fn names_other_target(name: &HeaderName) -> bool {
    let prefixes = ["x-forwarded", "x-original", "x-rewrite", "x-real"];
    let text = name.as_str();
    text == "forwarded" || prefixes.iter().any(|prefix| text.starts_with(prefix))
}
