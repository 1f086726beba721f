//! Limits redirects to the origin itself and the origins listed in the
//! configuration. Another target may be a port that only this machine can
//! reach.

use std::net::SocketAddr;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::Uri;
use rand::seq::SliceRandom;
use reqwest::Url;
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::redirect::{Action, Attempt, Policy};

use crate::origin::error::OriginError;

/// Most redirects of one request.
pub(super) const REDIRECTS_MAX: usize = 10;

/// A redirect that is not followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RedirectRejected {
    #[error(
        "it redirects to {0}, which is another origin; to allow that, add {0:?} to origin.redirects"
    )]
    Elsewhere(String),
    #[error("it redirects more than {REDIRECTS_MAX} times, at last to {0}")]
    TooOften(String),
}

/// Scheme, host and port of a URL without path, query or user.
pub(crate) fn origin_of(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let is_web = matches!(url.scheme(), "http" | "https");
    let is_bare = url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    (is_web && is_bare).then(|| url.origin().ascii_serialization())
}

/// The origins that redirects may name, besides the first request's own.
#[derive(Clone, Debug)]
pub(super) struct Redirects(Vec<String>);

impl Redirects {
    pub(super) fn new(allowed: &[String]) -> Self {
        Redirects(allowed.iter().filter_map(|text| origin_of(text)).collect())
    }

    /// Follows redirects to allowed origins.
    pub(super) fn policy(self) -> Policy {
        Policy::custom(move |attempt| self.decide(attempt))
    }

    fn decide(&self, attempt: Attempt<'_>) -> Action {
        if let Err(rejected) = self.allow(attempt.previous().first(), attempt.url()) {
            return attempt.error(rejected);
        }
        if attempt.previous().len() > REDIRECTS_MAX {
            let name = attempt.url().origin().ascii_serialization();
            return attempt.error(RedirectRejected::TooOften(name));
        }
        attempt.follow()
    }

    /// # Errors
    /// `next` is neither an allowed origin nor that of the first request.
    pub(super) fn require(&self, first: &Uri, next: &Uri) -> Result<(), OriginError> {
        let url = |uri: &Uri| {
            let url = Url::parse(&uri.to_string());
            url.map_err(|error| OriginError::Protocol(format!("it redirects to {uri}: {error}")))
        };
        let allowed = self.allow(Some(&url(first)?), &url(next)?);
        allowed.map_err(|rejected| OriginError::Protocol(rejected.to_string()))
    }

    fn allow(&self, first: Option<&Url>, next: &Url) -> Result<(), RedirectRejected> {
        let name = next.origin().ascii_serialization();
        let is_same = first.is_some_and(|first| first.origin() == next.origin());
        match is_same || self.0.contains(&name) {
            true => Ok(()),
            false => Err(RedirectRejected::Elsewhere(name)),
        }
    }
}

/// Spreads connections over a name's addresses, as `object_store` does.
#[derive(Clone)]
pub(super) struct Shuffled;

/// The addresses of a name, in any order.
async fn addresses(name: &str) -> std::io::Result<std::vec::IntoIter<SocketAddr>> {
    let found = tokio::net::lookup_host((name, 0)).await?;
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.shuffle(&mut rand::rng());
    Ok(addresses.into_iter())
}

impl tower_service::Service<hyper_util::client::legacy::connect::dns::Name> for Shuffled {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, std::io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: hyper_util::client::legacy::connect::dns::Name) -> Self::Future {
        Box::pin(async move { addresses(name.as_str()).await })
    }
}

impl Resolve for Shuffled {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses: Box<dyn Iterator<Item = SocketAddr> + Send> =
                Box::new(addresses(name.as_str()).await?);
            Ok(addresses)
        })
    }
}
