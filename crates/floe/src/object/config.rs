//! What to write in `[object]`.

use std::fmt;
use std::time::Duration;

use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

/// When cached metadata may be used without asking the origin. Writes that go
/// through the cache are seen at once in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// Always: objects never change once they are written.
    Immutable,
    /// For [`ObjectConfig::ttl_seconds`] seconds.
    Ttl,
    /// Never: every request is preceded by a conditional request to the origin.
    #[default]
    Etag,
}

floe_core::parse_by_name!(Consistency);

/// How objects are cached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct ObjectConfig {
    /// Bytes of a chunk, the piece of an object that is fetched, stored and evicted as one.
    pub chunk_size: ByteSize,
    /// When cached metadata may be used without asking the origin.
    pub consistency: Consistency,
    /// `ttl`: for how long, in seconds.
    pub ttl_seconds: u64,
    /// Serve what was cached when the origin is ill and cannot confirm it.
    pub serve_stale: bool,
    /// Remember for this many seconds that an object does not exist; 0 does not.
    pub negative_ttl_seconds: u64,
    /// Requests to the origin that one reader may have under way ahead of itself.
    pub fetch_parallelism: usize,
    /// Adjacent missing chunks are fetched by one request up to this size.
    pub coalesce_size: ByteSize,
    /// Bytes of one fetch that are kept in memory for its readers.
    pub fetch_window: ByteSize,
    /// Bytes that all fetches together may keep in memory.
    pub fetch_memory: ByteSize,
    /// How long a fetch waits for its readers when its window is full; then
    /// it goes on without them, and they read the rest on their own.
    pub reader_timeout_ms: u64,
    /// Stop a fetch that nobody waits for any more. Else it completes, for the next reader.
    pub cancel_abandoned: bool,
    /// How often a read begins anew when the object changes under it, before its first byte.
    pub max_restarts: u32,
    /// How often a fetch whose body broke off is continued at that point.
    pub max_resumes: u32,
}

impl Default for ObjectConfig {
    fn default() -> Self {
        ObjectConfig {
            chunk_size: ByteSize::mib(1),
            consistency: Consistency::default(),
            ttl_seconds: 60,
            serve_stale: false,
            negative_ttl_seconds: 0,
            fetch_parallelism: 4,
            coalesce_size: ByteSize::mib(1),
            fetch_window: ByteSize::mib(1),
            fetch_memory: ByteSize::mib(64),
            reader_timeout_ms: 1_000,
            cancel_abandoned: false,
            max_restarts: 3,
            max_resumes: 2,
        }
    }
}

/// Why an object cache's configuration cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("object.{key} = {value} {cure}")]
pub struct ObjectConfigError {
    /// The setting.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// What is wrong and what would work.
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
            ("max_restarts", u64::from(self.max_restarts), 0, 100),
            ("max_resumes", u64::from(self.max_resumes), 0, 100),
            ("ttl_seconds", self.ttl_seconds, 0, u64::MAX / 4),
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
        Ok(())
    }

    /// A chunk is one value of the store.
    pub(crate) fn check_fits(&self, value_bytes_max: u64) -> Result<(), ObjectConfigError> {
        if self.chunk_size.bytes() <= value_bytes_max {
            return Ok(());
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

    pub(crate) fn reader_timeout(&self) -> Duration {
        Duration::from_millis(self.reader_timeout_ms)
    }

    /// Chunks that one request to the origin may bring.
    pub(crate) fn chunks_per_fetch(&self) -> u64 {
        (self.coalesce_size.min(self.fetch_window).bytes() / self.chunk_size.bytes()).max(1)
    }
}

fn wrong(key: &'static str, value: impl fmt::Display, cure: String) -> ObjectConfigError {
    ObjectConfigError {
        key,
        value: value.to_string(),
        cure,
    }
}
