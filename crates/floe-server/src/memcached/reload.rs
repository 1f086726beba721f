//! What of a new configuration the face takes without a restart.

use super::{Face, auth, tls};
use crate::config::{MemcachedConfig, ServerConfigError};

/// Files of a new configuration, read and found right.
#[derive(Debug)]
pub(crate) struct Reloaded {
    users: Option<auth::Users>,
    tls: Option<tls::Acceptor>,
}

impl Reloaded {
    /// Reads the files that `config` names.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub(crate) fn read(config: &MemcachedConfig) -> Result<Self, ServerConfigError> {
        Ok(Reloaded {
            users: auth::Users::of(config)?,
            tls: tls::Acceptor::new(&config.tls_certificate, &config.tls_key)?,
        })
    }
}

impl Face {
    /// Takes over users and certificate where it has some and is given some:
    /// turning either on or off needs a restart.
    pub(crate) fn reload(&self, new: &Reloaded) -> Vec<&'static str> {
        let mut taken = Vec::new();
        if let (Some(users), Some(new)) = (&self.users, &new.users) {
            users.replace_with(new);
            taken.push("memcached.auth_file");
        }
        if let (Some(tls), Some(new)) = (&self.tls, &new.tls) {
            tls.replace_with(new);
            taken.push("memcached.tls_certificate");
        }
        taken
    }
}
