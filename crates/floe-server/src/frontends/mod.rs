//! The faces, a folder each, and the configuration of all.

pub(crate) mod admin;
pub mod memcached;
pub mod oxcache;
pub mod s3;

use serde::{Deserialize, Serialize};

use crate::config::{Exposed, ServerConfigError, positive, problem};
use admin::AdminConfig;
use memcached::MemcachedConfig;
use oxcache::OxCacheConfig;
use s3::S3Config;

/// Which faces to open, and how. A face that is absent is not opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// The S3 face.
    pub s3: Option<S3Config>,
    /// OxCache's protocol on a Unix socket.
    pub oxcache: Option<OxCacheConfig>,
    /// memcached's protocol.
    pub memcached: Option<MemcachedConfig>,
    /// Metrics, health and statistics over HTTP.
    pub admin: Option<AdminConfig>,
    /// How many seconds a shutdown waits for requests in flight before it
    /// breaks them off.
    pub drain_timeout_seconds: u32,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            s3: None,
            oxcache: None,
            memcached: None,
            admin: None,
            drain_timeout_seconds: 30,
        }
    }
}

impl ServerConfig {
    /// Checks what can be checked without opening anything.
    ///
    /// # Errors
    /// Names the first setting that cannot be served and the cure.
    pub fn validate(&self) -> Result<(), ServerConfigError> {
        if self.s3.is_none()
            && self.oxcache.is_none()
            && self.memcached.is_none()
            && self.admin.is_none()
        {
            return Err(problem(
                "[s3], [oxcache], [memcached], [admin]",
                "no face is configured",
                "add at least one of these sections",
            ));
        }
        positive("drain_timeout_seconds", self.drain_timeout_seconds)?;
        if let Some(s3) = &self.s3 {
            s3.validate()?;
        }
        if let Some(oxcache) = &self.oxcache {
            oxcache.validate()?;
        }
        if let Some(memcached) = &self.memcached {
            memcached.validate()?;
        }
        if let Some(admin) = &self.admin {
            admin.validate()?;
        }
        Ok(())
    }

    /// The faces that other machines can reach and that ask nobody for a key
    /// or a password.
    pub fn exposed(&self) -> Vec<Exposed> {
        let s3 = self.s3.as_ref().and_then(S3Config::exposed);
        let memcached = self.memcached.as_ref().and_then(MemcachedConfig::exposed);
        let admin = self.admin.as_ref().and_then(AdminConfig::exposed);
        s3.into_iter().chain(memcached).chain(admin).collect()
    }
}

#[cfg(test)]
mod tests;
