//! Preflights: the requests by which browsers ask for the rules of a bucket (CORS). They have no
//! credentials. The URL may have the signature of the request that will follow.

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, ORIGIN};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Uri};

use super::query::is_of_signature;

/// Marks a preflight, which needs no right.
#[derive(Clone, Copy)]
pub(super) struct Preflight;

/// Marks a preflight, and removes the signature of the later request from its URL.
pub(super) fn mark(head: &mut Parts) {
    let has = |name| head.headers.contains_key(name);
    let is_preflight = head.method == Method::OPTIONS
        && has(ORIGIN)
        && has(ACCESS_CONTROL_REQUEST_METHOD)
        && !has(AUTHORIZATION);
    if is_preflight && let Some(uri) = without_signature(&head.uri) {
        head.uri = uri;
        head.extensions.insert(Preflight);
    }
}

fn without_signature(uri: &Uri) -> Option<Uri> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let is_kept = |pair: &&str| {
        let parsed = form_urlencoded::parse(pair.as_bytes()).next();
        parsed.is_none_or(|(name, _)| !is_of_signature(&name))
    };
    let kept: Vec<&str> = pairs.filter(is_kept).collect();
    let path = match &*kept.join("&") {
        "" => uri.path().to_owned(),
        query => format!("{}?{query}", uri.path()),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}
