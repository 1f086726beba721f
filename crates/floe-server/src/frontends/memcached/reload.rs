//! The settings that a reload can change.

use super::auth;
use super::config::MemcachedConfig;
use super::frontend::MemcachedFrontend;
use crate::config::ServerConfigError;
use crate::frontend::Frontend as _;
use crate::net::Tls;
use crate::reload::Reloadable;

/// A new configuration whose files were read and validated.
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
    /// An error in one of the files.
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
    /// Applies limits, and replaces users and certificate if the frontend has
    /// them: turning either on or off requires a restart. A connection keeps
    /// the limits of its beginning. Returns the names of the applied settings.
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
        let settings = ["memcached.tls_certificate", "memcached.tls_key"];
        taken.extend(Tls::replace(self.tls.as_ref(), new.tls.as_ref(), settings));
        taken
    }
}
