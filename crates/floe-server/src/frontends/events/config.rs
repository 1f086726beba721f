//! `[events]`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::nats::{Login, NatsAddress, check_subject};
use crate::config::{Section, ServerConfigError, both_or_none, guarded, positive, problem};

/// Notifications of changes at the origin, over HTTP, from a queue, or from NATS.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventsConfig {
    /// Address and port; port 0 selects a free one, `off` disables the frontend.
    #[serde(with = "crate::config::address_or_off")]
    pub listen: Option<SocketAddr>,
    /// The URL of a queue of SQS that only this server reads; empty: none. It is read with the
    /// credentials of the origin, which must be an S3 service.
    pub queue: String,
    /// The URL of a server of NATS, `nats://HOST:PORT`, or `tls://HOST:PORT` to demand TLS;
    /// empty: none.
    pub nats: String,
    /// The subject of the notifications there, without wildcards. The server publishes to it too.
    pub nats_subject: String,
    /// The user at NATS.
    pub nats_user: String,
    /// The user's password.
    pub nats_password: String,
    /// A token in place of a user.
    pub nats_token: String,
    /// A file with a JWT and the seed of its key, in place of a user.
    pub nats_credentials: PathBuf,
    /// A PEM file with the certificates that the certificate of NATS may be of. Empty: those that
    /// the machine trusts.
    pub nats_tls_ca: PathBuf,
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
            nats: String::new(),
            nats_subject: String::new(),
            nats_user: String::new(),
            nats_password: String::new(),
            nats_token: String::new(),
            nats_credentials: PathBuf::new(),
            nats_tls_ca: PathBuf::new(),
            token: String::new(),
            tls_certificate: PathBuf::new(),
            tls_key: PathBuf::new(),
            max_connections: 64,
        }
    }
}

impl fmt::Debug for EventsConfig {
    /// Hides the secrets; a wrong URL of NATS may hold one too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (listen, queue, subject) = (&self.listen, &self.queue, &self.nats_subject);
        write!(f, "EventsConfig({listen:?}, {queue:?}, {subject:?})")
    }
}

impl EventsConfig {
    /// The server of NATS, if there is one.
    ///
    /// # Errors
    /// The URL or the subject is none.
    pub(super) fn nats_address(&self) -> Result<Option<NatsAddress>, ServerConfigError> {
        if self.nats.is_empty() {
            return Ok(None);
        }
        let address = NatsAddress::parse(&self.nats);
        let mut address = address.map_err(|error| problem("events.nats", &error, "correct it"))?;
        // The word of the server on TLS is not encrypted: an attacker could change it.
        address.needs_tls |= !self.nats_tls_ca.as_os_str().is_empty();
        check_subject(&self.nats_subject).map_err(|error| {
            let cure = "name the subject to which the origin publishes its notifications";
            problem("events.nats_subject", &error, cure)
        })?;
        Ok(Some(address))
    }

    /// The identity at NATS.
    ///
    /// # Errors
    /// The settings give more than one, or a part of one.
    pub(super) fn nats_login(&self) -> Result<Login, ServerConfigError> {
        let [has_user, has_password] =
            [&self.nats_user, &self.nats_password].map(|text| !text.is_empty());
        if has_user != has_password {
            return Err(problem(
                "events.nats_user",
                "a user and a password belong together, and one of them is missing",
                "set both events.nats_user and events.nats_password, or none",
            ));
        }
        let has_token = !self.nats_token.is_empty();
        let has_file = !self.nats_credentials.as_os_str().is_empty();
        match (has_user, has_token, has_file) {
            (false, false, false) => Ok(Login::Anonymous),
            (true, false, false) => Ok(Login::Password {
                user: self.nats_user.clone(),
                password: self.nats_password.clone(),
            }),
            (false, true, false) => Ok(Login::Token(self.nats_token.clone())),
            (false, false, true) => Ok(Login::Credentials(self.nats_credentials.clone())),
            _ => Err(problem(
                "events.nats_credentials",
                "a user, a token and a file with credentials are different identities",
                "choose one of events.nats_user, events.nats_token and events.nats_credentials",
            )),
        }
    }
}

impl Section for EventsConfig {
    fn validate(&self) -> Result<(), ServerConfigError> {
        positive("events.max_connections", self.max_connections)?;
        let sources = [
            ("events.listen", self.listen.is_some()),
            ("events.queue", !self.queue.is_empty()),
            ("events.nats", !self.nats.is_empty()),
        ];
        let mut set = sources.iter().filter(|(_, is_set)| *is_set);
        if let (Some((first, _)), Some((second, _))) = (set.next(), set.next()) {
            return Err(problem(
                second,
                &format!(
                    "{first} is set too, and what one of them hears would hide that the other \
                     one is silent"
                ),
                "choose one of them",
            ));
        }
        self.nats_address()?;
        self.nats_login()?;
        both_or_none("events.tls", &self.tls_certificate, &self.tls_key)?;
        let token = ("token", self.token.as_str());
        guarded("events", self.listen, token, "empty the cache")
    }
}
