//! Policies: the buckets and keys of objects that an access key may read and write.
//!
//! `asked` finds what a request needs; this module decides whether the sender has it. Both ways
//! of a request ask here, after its signature was verified.

mod asked;
mod config;

use std::collections::HashMap;
use std::sync::Arc;

use floe::object::ObjectKey;
use http::Extensions;
use s3s::{S3Error, S3Result};

use self::config::ALL_BUCKETS;
use super::error::denied;
use super::passable::{aliases, is_stable};
use crate::metrics::Counter;

pub(crate) use self::asked::COPY_SOURCE;
pub(crate) use self::config::{ANONYMOUS, validate};
pub use self::config::{KeyAccess, KeyPolicy};

/// The policies of one key. None: the key may do everything.
pub(crate) type Rules = Option<Arc<[KeyPolicy]>>;

/// Groups policies by key.
pub(crate) fn by_key(policies: &[KeyPolicy]) -> HashMap<String, Arc<[KeyPolicy]>> {
    let mut grouped: HashMap<String, Vec<KeyPolicy>> = HashMap::new();
    for policy in policies {
        let own = grouped.entry(policy.key.clone()).or_default();
        own.push(policy.clone());
    }
    let shared = grouped.into_iter();
    shared.map(|(key, rules)| (key, rules.into())).collect()
}

impl KeyPolicy {
    fn names(&self, bucket: &str) -> bool {
        let is_it = |name: &String| name == ALL_BUCKETS || name == bucket;
        self.buckets.iter().any(is_it)
    }

    fn covers(&self, key: &str) -> bool {
        let is_below = |prefix: &String| key.starts_with(prefix.as_str());
        self.prefixes.is_empty() || self.prefixes.iter().any(is_below)
    }

    /// True if it allows `access` to every object of its buckets.
    fn is_whole(&self, access: KeyAccess) -> bool {
        self.prefixes.is_empty() && self.access >= access
    }
}

/// True if a key with `rules` may access an object. The object must be allowed under every name
/// that a server may take its key for.
pub(crate) fn allow_object(
    rules: &[KeyPolicy],
    access: KeyAccess,
    bucket: &str,
    key: &str,
) -> bool {
    let allows = |key: &str| {
        let mut rules = rules.iter();
        rules.any(|rule| rule.access >= access && rule.names(bucket) && rule.covers(key))
    };
    // One without a name would be the bucket.
    let is_allowed = |alias: &String| alias.is_empty() == key.is_empty() && allows(alias);
    let has_dots = || key.split('/').any(|part| matches!(part, "." | ".."));
    allows(key) && (is_stable(key) || (!has_dots() && aliases(key).iter().all(is_allowed)))
}

/// The rights of the sender of one request.
#[derive(Clone)]
pub(crate) struct Rights {
    rules: Rules,
    denied: Arc<Counter>,
}

impl Rights {
    pub(crate) fn new(rules: Rules, denied: Arc<Counter>) -> Self {
        Rights { rules, denied }
    }

    /// The rights that the access check left with a request.
    pub(crate) fn of(extensions: &Extensions) -> S3Result<Self> {
        let rights = extensions.get::<Rights>().cloned();
        // Unreachable: each request passes the check.
        rights.ok_or_else(|| denied("the request was not checked"))
    }

    pub(crate) fn is_restricted(&self) -> bool {
        self.rules.is_some()
    }

    /// True if the key may read or write something in a bucket.
    pub(crate) fn has_bucket(&self, bucket: &str) -> bool {
        self.any(|rule| rule.names(bucket))
    }

    /// Rejects a change of any of `objects` that is not allowed.
    pub(crate) fn require_writes(&self, objects: &[ObjectKey]) -> S3Result<()> {
        let mut objects = objects.iter();
        objects.try_for_each(|object| {
            self.require_object(KeyAccess::Write, object.bucket(), object.key())
        })
    }

    fn require_object(&self, access: KeyAccess, bucket: &str, key: &str) -> S3Result<()> {
        let is_allowed = match &self.rules {
            None => true,
            Some(rules) => allow_object(rules, access, bucket, key),
        };
        let verb = match access {
            KeyAccess::Read => "read",
            KeyAccess::Write => "write",
        };
        self.require(is_allowed, || format!("{verb} {bucket}/{key}"))
    }

    fn any(&self, allows: impl Fn(&KeyPolicy) -> bool) -> bool {
        match &self.rules {
            None => true,
            Some(rules) => rules.iter().any(allows),
        }
    }

    fn require(&self, is_allowed: bool, what: impl FnOnce() -> String) -> S3Result<()> {
        match is_allowed {
            true => Ok(()),
            false => Err(self.deny(&what())),
        }
    }

    /// The refusal of a request that would do `what`.
    pub(crate) fn deny(&self, what: &str) -> S3Error {
        self.denied.add(1);
        denied(&format!("no policy allows this access key to {what}"))
    }
}

#[cfg(test)]
mod tests;
