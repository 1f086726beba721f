//! Who may ask. `s3s` checks the signatures (Signature Version 4 in headers,
//! presigned URLs and streamed chunks, compared in constant time); here are
//! the keys and what is asked of unsigned requests.

use std::collections::HashMap;

use http::{HeaderMap, Uri};
use percent_encoding::percent_decode_str;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::error::with;
use crate::config::S3Config;

/// The configured keys.
#[derive(Clone, Debug)]
pub(crate) struct Keys(HashMap<String, SecretKey>);

impl Keys {
    pub(crate) fn new(config: &S3Config) -> Self {
        Keys(
            config
                .keys
                .iter()
                .map(|key| {
                    (
                        key.access_key.clone(),
                        SecretKey::from(key.secret_key.as_str()),
                    )
                })
                .collect(),
        )
    }
}

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if let Some(secret) = self.0.get(access_key) {
            return Ok(secret.clone());
        }
        let message = if self.0.is_empty() {
            "The request is signed, but this cache has no keys and serves unsigned requests only: \
             send it unsigned (aws: --no-sign-request), or configure [[s3.keys]]"
        } else {
            "The access key you provided is not one of this cache's keys"
        };
        Err(with(S3ErrorCode::InvalidAccessKeyId, message.into()))
    }
}

/// Whether unsigned requests are served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) anonymous: bool,
}

impl Access {
    /// Decides on a request whose signature, if it has one, was found right.
    pub(crate) fn decide(self, signed: bool) -> S3Result<()> {
        if signed || self.anonymous {
            return Ok(());
        }
        Err(with(
            S3ErrorCode::AccessDenied,
            "Access Denied: this cache serves signed requests only".into(),
        ))
    }
}

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        self.decide(context.credentials().is_some())
    }
}

/// Refuses the older signature version, which does not cover what is uploaded.
pub(crate) fn refuse_old_signatures(uri: &Uri, headers: &HeaderMap) -> Result<(), S3Error> {
    let in_header = headers
        .get(http::header::AUTHORIZATION)
        .is_some_and(|value| value.as_bytes().starts_with(b"AWS "));
    let in_query = uri.query().is_some_and(|query| {
        query
            .split('&')
            .any(|parameter| parameter.starts_with("AWSAccessKeyId="))
    });
    if in_header || in_query {
        return Err(with(
            S3ErrorCode::InvalidRequest,
            "The authorization mechanism you have provided is not supported. \
             Please use AWS4-HMAC-SHA256."
                .into(),
        ));
    }
    Ok(())
}

/// Refuses a signed request with headers of S3 that its signature does not
/// cover, as Amazon does: whoever holds a presigned URL for an upload could
/// otherwise turn it into a copy of any object with one header more.
pub(crate) fn refuse_unsigned_headers(uri: &Uri, headers: &HeaderMap) -> Result<(), S3Error> {
    let in_header = headers
        .get(http::header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once("SignedHeaders="))
        .map(|(_, rest)| rest.split(',').next().unwrap_or_default().trim());
    let in_query = uri.query().and_then(|query| {
        query
            .split('&')
            .find_map(|parameter| parameter.strip_prefix("X-Amz-SignedHeaders="))
    });
    let (signed, is_presigned) = match (in_header, in_query) {
        (Some(signed), _) => (signed.to_ascii_lowercase(), false),
        (None, Some(signed)) => {
            let signed = percent_decode_str(signed).decode_utf8_lossy();
            (signed.to_ascii_lowercase(), true)
        }
        (None, None) => return Ok(()),
    };
    let is_signed = |name: &str| signed.split(';').any(|member| member == name);
    let unsigned = headers.keys().map(|name| name.as_str()).find(|name| {
        // The hash of the body is compared with the body, signed or not.
        let checked_anyway = is_presigned && *name == "x-amz-content-sha256";
        name.starts_with("x-amz-") && !checked_anyway && !is_signed(name)
    });
    let unsigned = unsigned.or_else(|| (!is_signed("host")).then_some("host"));
    match unsigned {
        None => Ok(()),
        Some(name) => Err(with(
            S3ErrorCode::AccessDenied,
            format!("There were headers present in the request which were not signed: {name}"),
        )),
    }
}
