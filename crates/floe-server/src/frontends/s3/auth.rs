//! Authentication. `s3s` verifies signatures (Signature Version 4 in headers,
//! presigned URLs and streamed chunks, compared in constant time). This module
//! has the keys and the rule for unsigned requests.

use std::collections::HashMap;
use std::sync::Arc;

use http::Extensions;
use parking_lot::RwLock;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3ErrorCode, S3Result};

use super::config::S3Config;
use super::credentials::Credentials;
use super::error::with;
use super::kept::reject_dropped;
use super::query::Query;
use crate::reload::Reloadable;

/// Most derived keys to keep.
const DERIVED_MAX: usize = 1024;

/// The configured keys.
#[derive(Clone, Debug)]
pub(crate) struct Keys(Reloadable<KeySet>);

#[derive(Default)]
struct KeySet {
    secrets: HashMap<String, SecretKey>,
    /// By access key, date and region.
    derived: RwLock<HashMap<String, Arc<[u8]>>>,
}

impl Keys {
    pub(crate) fn new(config: &S3Config) -> Self {
        let keys = config.keys.iter().map(|key| {
            let secret = SecretKey::from(key.secret_key.as_str());
            (key.access_key.clone(), secret)
        });
        Keys(Reloadable::new(KeySet {
            secrets: keys.collect(),
            ..KeySet::default()
        }))
    }

    /// Replaces the keys for later requests.
    pub(crate) fn replace_with(&self, other: &Self) {
        self.0.replace_with(&other.0);
    }

    /// Calls `verify` with the key that signs in a scope, and keeps the key if it says yes: a
    /// client without the secret puts nothing into memory. `derive` makes it from the secret.
    pub(super) fn verified_by(
        &self,
        access_key: &str,
        scope: &str,
        derive: impl FnOnce(&str) -> Vec<u8>,
        verify: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        let keys = self.0.get();
        let Some(secret) = keys.secrets.get(access_key) else {
            return false;
        };
        // An access key has no slash.
        let name = format!("{access_key}/{scope}");
        let derived = keys.derived.read().get(&name).cloned();
        if let Some(derived) = derived {
            return verify(&derived);
        }
        let key: Arc<[u8]> = derive(secret.expose()).into();
        let is_valid = verify(&key);
        if is_valid {
            let mut derived = keys.derived.write();
            if derived.len() >= DERIVED_MAX {
                derived.clear();
            }
            derived.insert(name, key);
        }
        is_valid
    }
}

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let keys = self.0.get();
        if let Some(secret) = keys.secrets.get(access_key) {
            return Ok(secret.clone());
        }
        let message = if keys.secrets.is_empty() {
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
