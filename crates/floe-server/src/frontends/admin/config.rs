//! `[admin]`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::{
    Exposed, Section, ServerConfigError, both_or_none, is_loopback, positive, problem,
};

/// Metrics, health and statistics over HTTP.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// Address and port; port 0 selects a free one.
    pub listen: SocketAddr,
    /// A PEM file with the certificate chain of TLS. Empty: without TLS.
    pub tls_certificate: PathBuf,
    /// A PEM file with its private key.
    pub tls_key: PathBuf,
    /// Most open connections. A further one replaces the connection that has
    /// been idle longest; if none is idle, it waits. Four more serve only small
    /// pages such as `/health` and `/ready`.
    pub max_connections: u32,
    /// Allow other machines to reach `listen`, although it has no authentication.
    pub public: bool,
    /// The secret of the commands of `floe cache` over HTTP, in `Authorization: Bearer …`.
    /// Without one they are off.
    pub token: String,
}

impl fmt::Debug for AdminConfig {
    /// Hides the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AdminConfig { listen, public, .. } = self;
        write!(f, "AdminConfig({listen}, public: {public})")
    }
}

impl Default for AdminConfig {
    fn default() -> Self {
        AdminConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 9100)),
            tls_certificate: PathBuf::new(),
            tls_key: PathBuf::new(),
            max_connections: 64,
            public: false,
            token: String::new(),
        }
    }
}

impl Section for AdminConfig {
    fn validate(&self) -> Result<(), ServerConfigError> {
        positive("admin.max_connections", self.max_connections)?;
        both_or_none("admin.tls", &self.tls_certificate, &self.tls_key)?;
        if !self.public && !is_loopback(self.listen) {
            return Err(problem(
                "admin.listen",
                &format!(
                    "other machines can reach {}, and metrics, health and statistics need no password",
                    self.listen
                ),
                "listen on 127.0.0.1, or set admin.public = true if anyone may see them",
            ));
        }
        Ok(())
    }

    fn exposed(&self) -> Option<Exposed> {
        (self.public && !is_loopback(self.listen)).then_some(Exposed {
            setting: "admin.public",
            address: self.listen,
            what: "metrics, health and statistics are shown to anyone",
        })
    }
}
