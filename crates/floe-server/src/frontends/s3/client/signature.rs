//! The access key and the lifetime that a request's signature states. Neither is verified here.

use std::time::Duration;

use http::HeaderMap;
use sha2::{Digest as _, Sha256};

use crate::frontends::s3::credentials::Credentials;
use crate::frontends::s3::date;
use crate::frontends::s3::query::Query;
use floe::origin::{ForwardHead, Signing};

/// SHA-256 of all that the origin receives of a request without a body.
pub(super) type Digest = [u8; 32];

/// Seconds that S3 accepts a signature in a header after its time.
const HEADER_SECONDS: u64 = 15 * 60;

/// Seconds by which clocks may differ before a signature certainly has expired.
const SKEW_SECONDS: u64 = 15 * 60;

/// The signature of a request.
pub(super) struct Signature {
    access_key: String,
    /// When it expires, if the request says it.
    ends_unix_s: Option<u64>,
}

impl Signature {
    /// None of a request without one.
    pub(super) fn of(
        credentials: &Credentials,
        query: &Query,
        headers: &HeaderMap,
    ) -> Option<Self> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let (scope, date, seconds) = match credentials {
            Credentials::Anonymous => return None,
            Credentials::Header(_) => {
                let line = header("authorization").unwrap_or_default();
                let scope = line.split_once("Credential=").map(|(_, rest)| rest);
                (scope, header("x-amz-date"), Some(HEADER_SECONDS))
            }
            Credentials::Presigned(_) => (
                query.only("X-Amz-Credential"),
                query.only("X-Amz-Date"),
                query
                    .only("X-Amz-Expires")
                    .and_then(|text| text.parse().ok()),
            ),
        };
        let ends = date.and_then(unix_seconds).zip(seconds);
        Some(Signature {
            access_key: scope
                .and_then(|scope| scope.split('/').next())
                .unwrap_or_default()
                .to_owned(),
            ends_unix_s: ends.map(|(date, seconds)| date.saturating_add(seconds)),
        })
    }

    pub(super) fn access_key(&self) -> String {
        self.access_key.clone()
    }

    /// True if it is too old by any clock.
    pub(super) fn has_expired(&self, now_unix_s: u64) -> bool {
        let ends = self.ends_unix_s;
        ends.is_some_and(|ends| ends.saturating_add(SKEW_SECONDS) < now_unix_s)
    }

    /// The rest of its life; nothing if it is not known.
    pub(super) fn rest(&self, now_unix_s: u64) -> Duration {
        let ends = self.ends_unix_s.unwrap_or_default();
        Duration::from_secs(ends.saturating_sub(now_unix_s))
    }
}

/// Hashes a request's method, host, path, query and headers.
pub(super) fn digest(head: &ForwardHead) -> Digest {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    add(head.method.as_str().as_bytes());
    if let Signing::Client(signed) = &head.signing {
        add(signed.host.as_bytes());
        add(signed.path_and_query.as_bytes());
    }
    let mut headers: Vec<(&[u8], &[u8])> = head
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
        .collect();
    // Stable: the values of one header keep their order.
    headers.sort_by_key(|(name, _)| *name);
    for (name, value) in headers {
        add(name);
        add(value);
    }
    hash.finalize().into()
}

/// `20130524T000000Z`.
fn unix_seconds(text: &str) -> Option<u64> {
    u64::try_from(date::parse(text)?.unix_timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_signature_is_read() {
        assert_eq!(unix_seconds("20130524T000000Z"), Some(1_369_353_600));
        for text in ["", "20130524", "20130524T000000", "20131324T000000Z"] {
            assert_eq!(unix_seconds(text), None, "{text}");
        }
    }
}
