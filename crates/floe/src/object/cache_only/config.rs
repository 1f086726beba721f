//! The settings of a cache-only bucket.

use std::collections::HashSet;

use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

use crate::origin::require_bucket_name;

/// Most cache-only buckets.
const BUCKETS_MAX: usize = 1024;

/// Longest lifetime, so that no time overflows.
const TTL_SECONDS_MAX: u64 = u64::MAX / 4;

/// A bucket whose objects are in the cache and nowhere else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct CacheOnlyBucket {
    /// Its name. It hides a bucket of the origin with the same name.
    pub bucket: String,
    /// Most bytes of its objects; a write beyond them removes the oldest ones. 0 leaves it to
    /// the cache's eviction.
    pub capacity: ByteSize,
    /// Lifetime of its objects in seconds; 0 is without end.
    pub ttl_seconds: u64,
    /// Other lifetimes for keys with some prefixes. The longest prefix counts.
    pub lifetimes: Vec<Lifetime>,
}

/// The lifetime of the objects whose keys begin with a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Lifetime {
    /// The prefix.
    pub prefix: String,
    /// Seconds; 0 is without end.
    pub ttl_seconds: u64,
}

impl CacheOnlyBucket {
    /// The lifetime of an object in seconds, if it has an end.
    pub(super) fn ttl_seconds(&self, key: &str) -> Option<u64> {
        let lifetimes = self.lifetimes.iter();
        let of_prefix = lifetimes
            .filter(|lifetime| key.starts_with(&lifetime.prefix))
            .max_by_key(|lifetime| lifetime.prefix.len());
        let ttl = of_prefix.map_or(self.ttl_seconds, |lifetime| lifetime.ttl_seconds);
        (ttl > 0).then_some(ttl)
    }
}

/// Checks the buckets of `object.cache_only`: the wrong value, and its cure.
pub(in crate::object) fn validate(buckets: &[CacheOnlyBucket]) -> Result<(), (String, String)> {
    if buckets.len() > BUCKETS_MAX {
        let cure = format!("buckets are too many; write at most {BUCKETS_MAX}");
        return Err((buckets.len().to_string(), cure));
    }
    let mut seen = HashSet::new();
    for bucket in buckets {
        let name = &bucket.bucket;
        if require_bucket_name(name).is_err() {
            let cure = "is no name of a bucket; use 3 to 63 lower-case letters, digits, dots and hyphens, \
                        with a letter or digit at both ends";
            return Err((format!("`{name}`"), cure.into()));
        }
        if !seen.insert(name) {
            return Err((format!("`{name}`"), "occurs twice; write it once".into()));
        }
        let ttls = bucket.lifetimes.iter().map(|lifetime| lifetime.ttl_seconds);
        if let Some(ttl) = ttls
            .chain([bucket.ttl_seconds])
            .find(|ttl| *ttl > TTL_SECONDS_MAX)
        {
            let cure = format!(
                "seconds of lifetime in `{name}` are too many; write at most {TTL_SECONDS_MAX}"
            );
            return Err((ttl.to_string(), cure));
        }
    }
    Ok(())
}
