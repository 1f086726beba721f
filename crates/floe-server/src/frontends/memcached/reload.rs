//! The part of a new configuration that needs no restart.

use super::auth;
use super::config::MemcachedConfig;
use super::frontend::MemcachedFrontend;
use crate::config::ServerConfigError;
use crate::frontend::Frontend as _;
use crate::net::Tls;
use crate::reload::Reloadable;

/// A new configuration whose files are read and found right.
#[derive(Debug)]
pub(super) struct Reloaded {
    config: MemcachedConfig,
    users: Option<auth::Users>,
    tls: Option<Tls>,
}

impl Reloaded {
    /// Reads the files that `config` names.
    ///
    /// # Errors
    /// The fault in one of them.
    pub(super) fn read(config: &MemcachedConfig) -> Result<Self, ServerConfigError> {
        Ok(Reloaded {
            config: config.clone(),
            users: auth::Users::of(config)?,
            tls: Tls::new(
                MemcachedFrontend::NAME,
                &config.tls_certificate,
                &config.tls_key,
            )?,
        })
    }
}

impl MemcachedFrontend {
    /// Takes over limits, and users and certificate where it has some and is
    /// given some: turning either on or off needs a restart. Limits of a
    /// connection are those of its beginning. Answers with the settings taken.
    pub(super) fn take(&self, new: &Reloaded) -> Vec<&'static str> {
        let limits = &new.config;
        self.config.replace_with(&Reloadable::new(MemcachedConfig {
            max_connections: limits.max_connections,
            max_pipeline: limits.max_pipeline,
            memory: limits.memory,
            idle_timeout_seconds: limits.idle_timeout_seconds,
            stall_timeout_seconds: limits.stall_timeout_seconds,
            min_rate: limits.min_rate,
            min_rate_grace_seconds: limits.min_rate_grace_seconds,
            flush_all: limits.flush_all,
            ..MemcachedConfig::clone(&self.config())
        }));
        self.memory.reload(limits);
        let mut taken = vec![
            "memcached.max_connections",
            "memcached.max_pipeline",
            "memcached.memory",
            "memcached.idle_timeout_seconds",
            "memcached.stall_timeout_seconds",
            "memcached.min_rate",
            "memcached.min_rate_grace_seconds",
            "memcached.flush_all",
        ];
        if let (Some(users), Some(new)) = (&self.users, &new.users) {
            users.replace_with(new);
            taken.push("memcached.auth_file");
        }
        if let (Some(tls), Some(new)) = (&self.tls, &new.tls) {
            tls.replace_with(new);
            taken.extend(["memcached.tls_certificate", "memcached.tls_key"]);
        }
        taken
    }
}
