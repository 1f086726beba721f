//! Limits redirects to the origin itself and the origins listed in the
//! configuration. Another target may be a port that only this machine can
//! reach.

use std::net::SocketAddr;

use rand::seq::SliceRandom;
use reqwest::Url;
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::redirect::{Action, Attempt, Policy};

/// Most redirects of one request.
const REDIRECTS_MAX: usize = 10;

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

/// Follows redirects to the first URL's origin and to `allowed` ones.
pub(super) fn policy(allowed: &[String]) -> Policy {
    let allowed: Vec<String> = allowed.iter().filter_map(|text| origin_of(text)).collect();
    Policy::custom(move |attempt| decide(&allowed, attempt))
}

fn decide(allowed: &[String], attempt: Attempt<'_>) -> Action {
    let target = attempt.url().origin();
    let name = target.ascii_serialization();
    let is_same = attempt
        .previous()
        .first()
        .is_some_and(|first| first.origin() == target);
    if !is_same && !allowed.contains(&name) {
        return attempt.error(RedirectRejected::Elsewhere(name));
    }
    if attempt.previous().len() > REDIRECTS_MAX {
        return attempt.error(RedirectRejected::TooOften(name));
    }
    attempt.follow()
}

/// Spreads connections over a name's addresses, as `object_store` does.
pub(super) struct Shuffled;

impl Resolve for Shuffled {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let mut addresses: Vec<SocketAddr> = found.collect();
            addresses.shuffle(&mut rand::rng());
            let addresses: Box<dyn Iterator<Item = SocketAddr> + Send> =
                Box::new(addresses.into_iter());
            Ok(addresses)
        })
    }
}
