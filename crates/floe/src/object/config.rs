//! The settings of `[object]`.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

use super::cache_only::{self, CacheOnlyBucket, NamesError};

/// When cached metadata is used without a request to the origin. In every mode
/// a write through the cache is visible at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// Always: objects never change.
    Immutable,
    /// For [`ObjectConfig::ttl_seconds`] seconds.
    Ttl,
    /// While notifications of changes arrive ([`ObjectCache::notify`](super::ObjectCache::notify)),
    /// for at most [`ObjectConfig::events_max_age_seconds`] seconds; otherwise never.
    Events,
    /// Never: each request sends a conditional request to the origin.
    #[default]
    Etag,
}

floe_core::parse_by_name!(Consistency);

/// Most of [`ObjectConfig::pinned_percent`]: the rest is for objects that come and go.
const PINNED_PERCENT_MAX: u64 = 50;

/// Most rules: a lookup compares those of the object's bucket one after the other.
const RULES_MAX: usize = 256;

/// How the objects of a bucket, or those with a prefix, are cached. Of several rules for an
/// object the one with the longest prefix counts; what it leaves out is as in `[object]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct ObjectRule {
    /// A bucket, or `bucket/prefix`.
    pub objects: String,
    /// `false`: nothing of them is stored.
    pub cache: Option<bool>,
    /// The chunks of theirs that flash takes: by default those that the store's policy admits.
    pub admission: Option<ChunkAdmission>,
    /// See [`ObjectConfig::consistency`].
    pub consistency: Option<Consistency>,
    /// See [`ObjectConfig::ttl_seconds`].
    pub ttl_seconds: Option<u64>,
    /// See [`ObjectConfig::serve_stale`].
    pub serve_stale: Option<bool>,
    /// See [`ObjectConfig::negative_ttl_seconds`].
    pub negative_ttl_seconds: Option<u64>,
    /// See [`ObjectConfig::chunk_size`].
    pub chunk_size: Option<ByteSize>,
    /// See [`ObjectConfig::fetch_parallelism`].
    pub fetch_parallelism: Option<usize>,
}

impl ObjectRule {
    pub(super) fn bucket_and_prefix(&self) -> (&str, &str) {
        self.objects.split_once('/').unwrap_or((&self.objects, ""))
    }

    /// The settings of the objects of this rule.
    pub(super) fn applied_to(&self, config: &ObjectConfig) -> ObjectConfig {
        ObjectConfig {
            consistency: self.consistency.unwrap_or(config.consistency),
            ttl_seconds: self.ttl_seconds.unwrap_or(config.ttl_seconds),
            serve_stale: self.serve_stale.unwrap_or(config.serve_stale),
            negative_ttl_seconds: self
                .negative_ttl_seconds
                .unwrap_or(config.negative_ttl_seconds),
            chunk_size: self.chunk_size.unwrap_or(config.chunk_size),
            fetch_parallelism: self.fetch_parallelism.unwrap_or(config.fetch_parallelism),
            rules: Vec::new(),
            ..config.clone()
        }
    }
}

/// The settings of an object cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct ObjectConfig {
    /// Bytes of a chunk, the piece of an object that is fetched, stored and evicted as one.
    /// Changing it makes misses of all cached objects.
    pub chunk_size: ByteSize,
    /// When cached metadata is used without a request to the origin.
    pub consistency: Consistency,
    /// Lifetime of metadata in mode `ttl`, in seconds.
    pub ttl_seconds: u64,
    /// In mode `events`: seconds without a notification after which objects are validated as
    /// in mode `etag`.
    pub events_timeout_seconds: u64,
    /// In mode `events`: lifetime of metadata in seconds, for notifications that were lost.
    pub events_max_age_seconds: u64,
    /// Serve cached objects when the origin fails to confirm them.
    pub serve_stale: bool,
    /// Lifetime of a cached "no such object", in seconds; 0 caches none.
    pub negative_ttl_seconds: u64,
    /// Most requests to the origin that one reader has pending ahead of its position. It begins
    /// with two, and doubles them when it has to wait.
    pub fetch_parallelism: usize,
    /// Most bytes of adjacent missing chunks in one request.
    pub coalesce_size: ByteSize,
    /// Bytes of one fetch that stay in memory for its readers.
    pub fetch_window: ByteSize,
    /// Bytes of memory for all fetches together.
    pub fetch_memory: ByteSize,
    /// How long a fetch with a full window waits for its readers. After that it
    /// continues without them, and they read the store or the origin.
    pub reader_timeout_ms: u64,
    /// Stop a fetch that has lost all its readers. Otherwise it completes for
    /// later ones.
    pub cancel_abandoned: bool,
    /// How often a fetch continues after its body broke off.
    pub max_resumes: u32,
    /// Other settings for objects of some buckets and prefixes.
    pub rules: Vec<ObjectRule>,
    /// Buckets whose objects are in the cache and nowhere else.
    pub cache_only: Vec<CacheOnlyBucket>,
    /// The file with the names of their objects. Empty keeps them in memory: then a restart
    /// forgets the objects.
    pub names: PathBuf,
    /// The file with the pins. Empty keeps them in memory: then a restart forgets them.
    pub pins: PathBuf,
    /// Most percent of the flash that is kept of all pins together.
    pub pinned_percent: u32,
}

impl Default for ObjectConfig {
    fn default() -> Self {
        ObjectConfig {
            chunk_size: ByteSize::kib(256),
            consistency: Consistency::default(),
            ttl_seconds: 60,
            events_timeout_seconds: 60,
            events_max_age_seconds: 3_600,
            serve_stale: false,
            negative_ttl_seconds: 0,
            fetch_parallelism: 4,
            coalesce_size: ByteSize::mib(1),
            fetch_window: ByteSize::mib(1),
            fetch_memory: ByteSize::mib(64),
            reader_timeout_ms: 1_000,
            cancel_abandoned: false,
            max_resumes: 2,
            rules: Vec::new(),
            cache_only: Vec::new(),
            names: PathBuf::new(),
            pins: PathBuf::new(),
            pinned_percent: 25,
        }
    }
}

/// The chunks of an object that flash takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChunkAdmission {
    /// Those that the store's admission policy admits.
    #[default]
    Policy,
    /// All of them.
    All,
}

/// An invalid setting of an object cache.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("object.{key} = {value} {cure}")]
pub struct ObjectConfigError {
    /// The setting.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// The error and its remedy.
    pub cure: String,
}

impl ObjectConfig {
    /// Checks every setting.
    pub fn validate(&self) -> Result<(), ObjectConfigError> {
        let bounds = [
            (
                "chunk_size",
                self.chunk_size,
                ByteSize(512),
                ByteSize::gib(1),
            ),
            (
                "coalesce_size",
                self.coalesce_size,
                ByteSize(0),
                ByteSize::gib(1),
            ),
            (
                "fetch_window",
                self.fetch_window,
                ByteSize::kib(64),
                ByteSize::gib(1),
            ),
            (
                "fetch_memory",
                self.fetch_memory,
                self.fetch_window,
                ByteSize::gib(1024),
            ),
        ];
        for (key, value, least, most) in bounds {
            if value < least || value > most {
                return Err(wrong(
                    key,
                    value,
                    format!("must be between {least} and {most}"),
                ));
            }
        }
        let counts = [
            ("fetch_parallelism", self.fetch_parallelism as u64, 1, 1024),
            ("reader_timeout_ms", self.reader_timeout_ms, 1, 3_600_000),
            ("max_resumes", u64::from(self.max_resumes), 0, 100),
            ("ttl_seconds", self.ttl_seconds, 0, u64::MAX / 4),
            (
                "pinned_percent",
                u64::from(self.pinned_percent),
                0,
                PINNED_PERCENT_MAX,
            ),
            (
                "events_timeout_seconds",
                self.events_timeout_seconds,
                1,
                u64::MAX / 4,
            ),
            (
                "events_max_age_seconds",
                self.events_max_age_seconds,
                0,
                u64::MAX / 4,
            ),
            (
                "negative_ttl_seconds",
                self.negative_ttl_seconds,
                0,
                u64::MAX / 4,
            ),
        ];
        for (key, value, least, most) in counts {
            if value < least || value > most {
                return Err(wrong(
                    key,
                    value,
                    format!("must be between {least} and {most}"),
                ));
            }
        }
        validate_rules(&self.rules)?;
        cache_only::validate(&self.cache_only)
            .map_err(|(value, cure)| wrong("cache_only", value, cure))?;
        self.each_rule(ObjectConfig::validate)
    }

    /// Checks the settings of each rule's objects.
    fn each_rule(
        &self,
        check: impl Fn(&ObjectConfig) -> Result<(), ObjectConfigError>,
    ) -> Result<(), ObjectConfigError> {
        self.rules.iter().try_for_each(|rule| {
            check(&rule.applied_to(self)).map_err(|error| ObjectConfigError {
                cure: format!(
                    "for the objects of the rule `{}` {}",
                    rule.objects, error.cure
                ),
                ..error
            })
        })
    }

    /// A chunk is one value of the store, so it must not exceed the store's largest.
    pub(crate) fn check_fits(&self, value_bytes_max: u64) -> Result<(), ObjectConfigError> {
        if self.chunk_size.bytes() <= value_bytes_max {
            return self.each_rule(|config| config.check_fits(value_bytes_max));
        }
        let most = ByteSize(value_bytes_max);
        Err(wrong(
            "chunk_size",
            self.chunk_size,
            format!(
                "is more than the store takes as one value; write at most {most}, or use larger zones (device.zone_size)"
            ),
        ))
    }

    /// The file of names cannot be opened.
    pub(super) fn wrong_names(&self, error: &NamesError) -> ObjectConfigError {
        let cure = match error {
            NamesError::InUse => "stop the other process, or name another file",
            NamesError::Damaged(_) | NamesError::Format(_) => {
                "name another file, or remove this one if it is Floe's: the cache-only buckets are empty then"
            }
            NamesError::Io(_) => "name a file in a directory that can be written",
        };
        let cure = format!("cannot hold the names of cache-only buckets: {error}; {cure}");
        wrong("names", self.names.display(), cure)
    }

    /// The file of pins cannot be used.
    pub(super) fn wrong_pins(&self, error: &io::Error) -> ObjectConfigError {
        let cure = format!(
            "cannot hold the pins: {error}; name another file, or remove this one and pin again"
        );
        wrong("pins", self.pins.display(), cure)
    }

    pub(crate) fn events_timeout(&self) -> Duration {
        Duration::from_secs(self.events_timeout_seconds)
    }

    pub(crate) fn reader_timeout(&self) -> Duration {
        Duration::from_millis(self.reader_timeout_ms)
    }

    /// Most chunks of `chunk_size` bytes of one request to the origin.
    pub(crate) fn chunks_per_fetch(&self, chunk_size: u64) -> u64 {
        (self.coalesce_size.min(self.fetch_window).bytes() / chunk_size).max(1)
    }
}

/// Checks the names of rules.
fn validate_rules(rules: &[ObjectRule]) -> Result<(), ObjectConfigError> {
    if rules.len() > RULES_MAX {
        let cure = format!("rules are too many; write at most {RULES_MAX}");
        return Err(wrong("rules", rules.len(), cure));
    }
    let mut seen = HashSet::new();
    for rule in rules {
        let (bucket, prefix) = rule.bucket_and_prefix();
        if bucket.is_empty() {
            let cure = "is no bucket; write `BUCKET` or `BUCKET/PREFIX`".into();
            return Err(wrong("rules.objects", format!("`{}`", rule.objects), cure));
        }
        if !seen.insert((bucket, prefix)) {
            let cure = "has two rules; write one".into();
            return Err(wrong("rules.objects", format!("`{}`", rule.objects), cure));
        }
    }
    Ok(())
}

fn wrong(key: &'static str, value: impl fmt::Display, cure: String) -> ObjectConfigError {
    ObjectConfigError {
        key,
        value: value.to_string(),
        cure,
    }
}
