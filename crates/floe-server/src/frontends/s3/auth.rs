//! Authentication. `s3s` verifies signatures (Signature Version 4 in headers,
//! presigned URLs and streamed chunks, compared in constant time). This module
//! has the keys and the rule for unsigned requests.

use std::collections::HashMap;

use http::Extensions;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3ErrorCode, S3Result};

use super::config::S3Config;
use super::credentials::Credentials;
use super::error::with;
use super::kept::reject_dropped;
use super::query::Query;
use crate::reload::Reloadable;

/// The configured keys.
#[derive(Clone, Debug)]
pub(crate) struct Keys(Reloadable<HashMap<String, SecretKey>>);

impl Keys {
    pub(crate) fn new(config: &S3Config) -> Self {
        let keys = config.keys.iter().map(|key| {
            let secret = SecretKey::from(key.secret_key.as_str());
            (key.access_key.clone(), secret)
        });
        Keys(Reloadable::new(keys.collect()))
    }

    /// Replaces the keys for later requests.
    pub(crate) fn replace_with(&self, other: &Self) {
        self.0.replace_with(&other.0);
    }
}

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let keys = self.0.get();
        if let Some(secret) = keys.get(access_key) {
            return Ok(secret.clone());
        }
        let message = if keys.is_empty() {
            "The request is signed, but this cache has no keys and serves unsigned requests only: \
             send it unsigned (aws: --no-sign-request), or configure [[s3.keys]]"
        } else {
            "The access key you provided is not one of this cache's keys"
        };
        Err(with(S3ErrorCode::InvalidAccessKeyId, message.into()))
    }
}

/// The access of unsigned requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) anonymous: bool,
}

impl Access {
    /// Admits or rejects a request. `verified` says whether the library found a
    /// valid signature.
    pub(crate) fn decide(self, verified: bool, extensions: &Extensions) -> S3Result<()> {
        let read = extensions.get::<Credentials>();
        let problem = match read.map(Credentials::is_signed) {
            Some(signed) if signed != verified => {
                "Access Denied: the signature that was verified is not the one that was read"
            }
            Some(_) if verified || self.anonymous => return Ok(()),
            _ => "Access Denied: this cache serves signed requests only",
        };
        Err(with(S3ErrorCode::AccessDenied, problem.into()))
    }
}

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let verified = context.credentials().is_some();
        self.decide(verified, context.extensions_mut())?;
        let query = Query::of(context.uri());
        reject_dropped(context.s3_op().name(), &query, context.headers())
    }
}
