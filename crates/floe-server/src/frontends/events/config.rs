//! `[events]`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::{Section, ServerConfigError, both_or_none, guarded, positive, problem};

/// Notifications of changes at the origin, over HTTP or from a queue.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventsConfig {
    /// Address and port; port 0 selects a free one, `off` disables the frontend.
    #[serde(with = "crate::config::address_or_off")]
    pub listen: Option<SocketAddr>,
    /// The URL of a queue of SQS that only this server reads; empty: none. It is read with the
    /// credentials of the origin, which must be an S3 service.
    pub queue: String,
    /// The secret of senders, in `Authorization: Bearer …`. Only a loopback address can do
    /// without.
    pub token: String,
    /// A PEM file with the certificate chain of TLS. Empty: without TLS.
    pub tls_certificate: PathBuf,
    /// A PEM file with its private key.
    pub tls_key: PathBuf,
    /// Most open connections. A further one replaces the connection that has been idle
    /// longest; if none is idle, it waits.
    pub max_connections: u32,
}

impl Default for EventsConfig {
    fn default() -> Self {
        EventsConfig {
            listen: None,
            queue: String::new(),
            token: String::new(),
            tls_certificate: PathBuf::new(),
            tls_key: PathBuf::new(),
            max_connections: 64,
        }
    }
}

impl fmt::Debug for EventsConfig {
    /// Hides the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EventsConfig { listen, queue, .. } = self;
        write!(f, "EventsConfig({listen:?}, {queue:?})")
    }
}

impl Section for EventsConfig {
    fn validate(&self) -> Result<(), ServerConfigError> {
        positive("events.max_connections", self.max_connections)?;
        if self.listen.is_some() && !self.queue.is_empty() {
            return Err(problem(
                "events.queue",
                "events.listen is set too, and what one of them hears would hide that the other \
                 one is silent",
                "choose one of them",
            ));
        }
        both_or_none("events.tls", &self.tls_certificate, &self.tls_key)?;
        let token = ("token", self.token.as_str());
        guarded("events", self.listen, token, "empty the cache")
    }
}
