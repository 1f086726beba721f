//! Authentication. `s3s` verifies signatures (Signature Version 4 in headers,
//! presigned URLs and streamed chunks, compared in constant time). This module
//! has the keys and the rule for unsigned requests.

use std::collections::HashMap;
use std::sync::Arc;

use floe::origin::{OriginKeys, Signing};
use http::{Extensions, HeaderMap, Method, Uri};
use parking_lot::RwLock;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{Credentials as Verified, S3Auth, SecretKey};
use s3s::{S3ErrorCode, S3Result};

use super::access_log::Verified as Logged;
use super::config::S3Config;
use super::credentials::Credentials;
use super::error::{denied, with};
use super::kept::reject_dropped;
use super::policy::{self, ANONYMOUS, KeyAccess, KeyPolicy, Rights, Rules};
use super::preflight::Preflight;
use super::query::Query;
use super::target::Domains;
use crate::metrics::Counter;
use crate::reload::Reloadable;

/// Most derived keys to keep.
const DERIVED_MAX: usize = 1024;

/// The configured keys, and their policies.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    set: Reloadable<KeySet>,
    /// Requests that policies refused.
    denied: Arc<Counter>,
}

#[derive(Default)]
struct KeySet {
    secrets: HashMap<String, SecretKey>,
    /// The keys of the origin that sign what is sent on, by access key.
    origins: HashMap<String, Arc<OriginKeys>>,
    /// By access key.
    policies: HashMap<String, Arc<[KeyPolicy]>>,
    /// Of requests without a signature.
    unsigned: Rules,
    /// By access key, date and region.
    derived: RwLock<HashMap<String, Arc<[u8]>>>,
}

impl Keys {
    pub(crate) fn new(config: &S3Config) -> Self {
        let keys = config.keys.iter().map(|key| {
            let secret = SecretKey::from(key.secret_key.as_str());
            (key.access_key.clone(), secret)
        });
        let origins = config.keys.iter().filter_map(|key| {
            let origin = Arc::new(key.origin.clone()?);
            Some((key.access_key.clone(), origin))
        });
        let mut policies = policy::by_key(&config.policies);
        // The listener may still serve such requests: a reload does not change that.
        let unsigned = match config.anonymous.is_served() {
            true => policies.remove(ANONYMOUS),
            false => Some(Arc::default()),
        };
        Keys {
            set: Reloadable::new(KeySet {
                secrets: keys.collect(),
                origins: origins.collect(),
                policies,
                unsigned,
                ..KeySet::default()
            }),
            denied: Arc::default(),
        }
    }

    /// Replaces the keys and their policies for later requests.
    pub(crate) fn replace_with(&self, other: &Self) {
        self.set.replace_with(&other.set);
    }

    pub(crate) fn denied(&self) -> u64 {
        self.denied.get()
    }

    pub(crate) fn has_policies(&self) -> bool {
        let set = self.set.get();
        let of_unsigned = set.unsigned.iter().any(|rules| !rules.is_empty());
        !set.policies.is_empty() || of_unsigned
    }

    /// True if a verified access key, or an unsigned request, may read an object.
    pub(crate) fn may_read(&self, access_key: Option<&str>, bucket: &str, key: &str) -> bool {
        match self.set.get().rules(access_key) {
            None => true,
            Some(rules) => policy::allow_object(&rules, KeyAccess::Read, bucket, key),
        }
    }

    /// Whose signature the origin sees of a request by this key.
    ///
    /// # Errors
    /// A reload has removed the key since its signature was verified.
    pub(super) fn signing(&self, access_key: Option<&str>) -> S3Result<Signing> {
        let set = self.set.get();
        let Some(key) = access_key else {
            return Ok(Signing::Origin);
        };
        if !set.secrets.contains_key(key) {
            return Err(denied(
                "the access key is no longer one of this cache's keys",
            ));
        }
        let origin = set.origins.get(key);
        Ok(origin.map_or(Signing::Origin, |keys| Signing::Keys(Arc::clone(keys))))
    }

    fn rights(&self, access_key: Option<&str>) -> Rights {
        let rules = self.set.get().rules(access_key);
        Rights::new(rules, Arc::clone(&self.denied))
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
        let keys = self.set.get();
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

impl KeySet {
    fn rules(&self, access_key: Option<&str>) -> Rules {
        match access_key {
            // A reload has removed the key after its signature was verified.
            Some(key) if !self.secrets.contains_key(key) => Some(Arc::default()),
            Some(key) => self.policies.get(key).cloned(),
            None => self.unsigned.clone(),
        }
    }
}

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let keys = self.set.get();
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

/// The access of verified and of unsigned requests.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) keys: Keys,
    pub(crate) domains: Domains,
    /// Unsigned requests are served.
    pub(crate) anonymous: bool,
}

impl Access {
    /// Admits or rejects a request, and leaves the rights of its sender with it. `verified` is
    /// the credentials whose signature the library found to be valid.
    pub(crate) fn decide(
        &self,
        verified: Option<&Verified>,
        (method, uri, headers): (&Method, &Uri, &HeaderMap),
        extensions: &mut Extensions,
    ) -> S3Result<Rights> {
        if extensions.get::<Preflight>().is_some() {
            // Its sender has none yet.
            let rights = self.keys.rights(None);
            extensions.insert(rights.clone());
            return Ok(rights);
        }
        let read = extensions.get::<Credentials>();
        match read.map(Credentials::is_signed) {
            Some(signed) if signed != verified.is_some() => {
                return Err(denied(
                    "the signature that was verified is not the one that was read",
                ));
            }
            Some(_) if verified.is_some() || self.anonymous => {}
            _ => return Err(denied("this cache serves signed requests only")),
        }
        let access_key = verified.map(|verified| verified.access_key.as_str());
        if let (Some(logged), Some(access_key)) = (extensions.get::<Logged>(), access_key) {
            logged.set(access_key);
        }
        let rights = self.keys.rights(access_key);
        rights.admit(&self.domains, method, uri, headers)?;
        extensions.insert(rights.clone());
        Ok(rights)
    }
}

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let mut extensions = std::mem::take(context.extensions_mut());
        let head = (context.method(), context.uri(), context.headers());
        let decided = self.decide(context.credentials(), head, &mut extensions);
        *context.extensions_mut() = extensions;
        decided?;
        let query = Query::of(context.uri());
        reject_dropped(context.s3_op().name(), &query, context.headers())
    }
}
