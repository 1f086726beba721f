//! `[oxcache]`.

use std::path::PathBuf;

use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

use crate::config::{Section, ServerConfigError, positive, problem};

/// OxCache's protocol on a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OxCacheConfig {
    /// The socket's path. An existing stale socket is replaced; any other file is an error.
    pub path: PathBuf,
    /// The bucket of all keys.
    pub bucket: String,
    /// Most open connections. A further one replaces the connection that has
    /// been idle longest; if none is idle, it waits.
    pub max_connections: u32,
    /// Most concurrent requests of one connection; further ones wait in the socket.
    pub max_pipeline: u32,
    /// Most bytes of one request.
    pub max_read_size: ByteSize,
    /// Bytes read ahead of the responses being sent, over all connections.
    pub read_ahead: ByteSize,
    /// Seconds that a client may receive nothing of a response.
    pub stall_timeout_seconds: u32,
}

impl Default for OxCacheConfig {
    fn default() -> Self {
        OxCacheConfig {
            path: PathBuf::new(),
            bucket: String::new(),
            max_connections: 1024,
            max_pipeline: 64,
            // The size of the largest chunk.
            max_read_size: ByteSize::gib(1),
            read_ahead: ByteSize::mib(256),
            stall_timeout_seconds: 60,
        }
    }
}

impl Section for OxCacheConfig {
    fn validate(&self) -> Result<(), ServerConfigError> {
        positive("oxcache.max_connections", self.max_connections)?;
        positive("oxcache.max_pipeline", self.max_pipeline)?;
        positive("oxcache.stall_timeout_seconds", self.stall_timeout_seconds)?;
        if self.path.as_os_str().is_empty() {
            return Err(problem(
                "oxcache.path",
                "it is empty",
                "name the socket, such as /run/floe/oxcache.sock",
            ));
        }
        if self.bucket.is_empty() {
            return Err(problem(
                "oxcache.bucket",
                "it is empty",
                "name the bucket that holds the objects",
            ));
        }
        // The frame's length field has 32 bits; a response is slightly longer than its data.
        let most = u64::from(u32::MAX) - 64;
        let bytes = self.max_read_size.bytes();
        if bytes == 0 || bytes > most {
            return Err(problem(
                "oxcache.max_read_size",
                &format!("{bytes} bytes is not within 1 and {most}"),
                "use 1GiB",
            ));
        }
        Ok(())
    }
}
