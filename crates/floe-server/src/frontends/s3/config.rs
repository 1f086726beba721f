//! `[s3]`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use floe::origin::OriginKeys;
use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

use super::policy::{self, KeyPolicy};
use crate::config::{
    Anonymous, Exposed, Section, ServerConfigError, both_or_none, is_loopback, positive, problem,
    validate_threads, within,
};

/// Longest life of an acceptance: that of a signature in a header.
const ACCEPTANCE_SECONDS_MAX: u32 = 900;

/// The S3 frontend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct S3Config {
    /// Address and port; port 0 selects a free one.
    pub listen: SocketAddr,
    /// Serve requests without a signature: `true`, `false`, or `"loopback"`:
    /// `true`, but an error at startup on an address that other machines can reach. Without `anonymous` and without keys the frontend
    /// does not start.
    pub anonymous: Anonymous,
    /// Whose keys sign requests: `"keys"`, those of `s3.keys`; or `"client"`, the clients' own
    /// at an S3 origin, which judges each request. Clients then address the origin's host name.
    pub credentials: SignedBy,
    /// With `credentials = "client"`: further host names, without ports, by which the origin
    /// takes requests that have the bucket in the path.
    pub client_hosts: Vec<String>,
    /// With `credentials = "client"`: most seconds that a cached object is served to the very
    /// request that the origin has accepted for it; 0 asks the origin each time.
    pub client_credentials_ttl_seconds: u32,
    /// The keys that may sign requests.
    pub keys: Vec<AccessKey>,
    /// The rights of these keys.
    pub policies: Vec<KeyPolicy>,
    /// Domains whose subdomains are buckets: `bucket.s3.example.com` for
    /// `s3.example.com`. Requests to other host names are path style.
    pub domains: Vec<String>,
    /// The region that `GetBucketLocation` returns.
    pub region: String,
    /// Threads that serve connections; 0 is one per core.
    pub threads: u32,
    /// Most open connections. A further one replaces the connection that has
    /// been idle longest; if none is idle, it waits.
    pub max_connections: u32,
    /// Most connections of one client, an address or a public IPv6 network of 64 bits, that
    /// may be busy at once; requests on further ones get the error SlowDown. 0 is no limit. By
    /// default half of `max_connections`, but at least 64, so that one client cannot hold all
    /// places; all clients behind a proxy are one.
    pub max_connections_per_client: Option<u32>,
    /// Most concurrent requests of one HTTP/2 connection.
    pub max_streams_per_connection: u32,
    /// Bytes of the largest request head.
    pub max_header_size: ByteSize,
    /// Seconds that a connection may be idle, or take to send a request's head.
    pub idle_timeout_seconds: u32,
    /// Seconds without progress in a response or an upload before its connection is closed.
    pub stall_timeout_seconds: u32,
    /// Least bytes per second of an upload. A client may fall behind by
    /// `stall_timeout_seconds`; with 0, only silence is limited.
    pub min_upload_rate: ByteSize,
    /// Bytes of the largest PUT or part of a multipart upload.
    pub max_upload_size: ByteSize,
    /// The file of the access log; `-` is standard output, empty turns it off.
    pub access_log: PathBuf,
    /// A PEM file with a certificate chain, to serve S3 over TLS. Empty serves plain HTTP.
    pub tls_certificate: PathBuf,
    /// A PEM file with the certificate's private key.
    pub tls_key: PathBuf,
}

impl Default for S3Config {
    fn default() -> Self {
        S3Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 9000)),
            anonymous: Anonymous::Rejected,
            credentials: SignedBy::Keys,
            client_hosts: Vec::new(),
            client_credentials_ttl_seconds: 60,
            keys: Vec::new(),
            policies: Vec::new(),
            domains: Vec::new(),
            region: "us-east-1".into(),
            threads: 0,
            max_connections: 4096,
            max_connections_per_client: None,
            max_streams_per_connection: 128,
            max_header_size: ByteSize::kib(64),
            idle_timeout_seconds: 60,
            stall_timeout_seconds: 60,
            min_upload_rate: ByteSize::kib(1),
            max_upload_size: ByteSize::gib(5),
            access_log: PathBuf::new(),
            tls_certificate: PathBuf::new(),
            tls_key: PathBuf::new(),
        }
    }
}

impl Section for S3Config {
    fn exposed(&self) -> Option<Exposed> {
        (self.anonymous.is_served() && !is_loopback(self.listen)).then_some(Exposed {
            setting: "s3.anonymous",
            address: self.listen,
            what: "requests without a signature are served",
        })
    }

    fn validate(&self) -> Result<(), ServerConfigError> {
        validate_threads("s3.threads", self.threads)?;
        positive("s3.max_connections", self.max_connections)?;
        positive(
            "s3.max_streams_per_connection",
            self.max_streams_per_connection,
        )?;
        positive("s3.idle_timeout_seconds", self.idle_timeout_seconds)?;
        positive("s3.stall_timeout_seconds", self.stall_timeout_seconds)?;
        let header_sizes = 8 << 10..=1 << 20;
        within(
            "s3.max_header_size",
            self.max_header_size,
            header_sizes,
            "use 64KiB",
        )?;
        self.validate_access()?;
        both_or_none("s3.tls", &self.tls_certificate, &self.tls_key)?;
        let domains = self.domains.iter().map(|name| ("s3.domains", name));
        let hosts = self.client_hosts.iter();
        let mut names = domains.chain(hosts.map(|name| ("s3.client_hosts", name)));
        match names.find(|(_, name)| !is_host_name(name)) {
            None => Ok(()),
            Some((setting, name)) => Err(problem(
                setting,
                &format!("`{name}` is not a host name"),
                "write names without port and wildcard, such as s3.example.com",
            )),
        }
    }
}

fn is_host_name(name: &str) -> bool {
    let is_of_label = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let mut labels = name.split('.');
    labels.all(|label| !label.is_empty() && label.bytes().all(is_of_label))
}

impl S3Config {
    /// True if requests without a signature have policies.
    pub fn restricts_anonymous(&self) -> bool {
        let mut policies = self.policies.iter();
        policies.any(|policy| policy.key == policy::ANONYMOUS)
    }

    fn validate_credentials(&self) -> Result<(), ServerConfigError> {
        let is_clients = self.credentials == SignedBy::Client;
        let unused = match is_clients {
            true if !self.keys.is_empty() => Some("s3.keys"),
            true if !self.policies.is_empty() => Some("s3.policies"),
            false if !self.client_hosts.is_empty() => Some("s3.client_hosts"),
            _ => None,
        };
        if let Some(setting) = unused {
            return Err(problem(
                setting,
                &format!(
                    "it has no meaning with s3.credentials = \"{}\"",
                    self.credentials.name()
                ),
                "remove it, or choose the other kind of credentials",
            ));
        }
        match self.client_credentials_ttl_seconds {
            ..=ACCEPTANCE_SECONDS_MAX => Ok(()),
            seconds => Err(problem(
                "s3.client_credentials_ttl_seconds",
                &format!("{seconds} is above {ACCEPTANCE_SECONDS_MAX}, the life of a signature"),
                "use 60, or 0 to ask the origin each time",
            )),
        }
    }

    fn validate_access(&self) -> Result<(), ServerConfigError> {
        self.validate_credentials()?;
        let needs_keys = self.credentials == SignedBy::Keys && !self.anonymous.is_served();
        if self.keys.is_empty() && needs_keys {
            return Err(problem(
                "s3.keys",
                "it is empty, and s3.anonymous is false",
                "add [[s3.keys]] with access_key and secret_key, or set s3.anonymous = true",
            ));
        }
        if self.anonymous == Anonymous::OnLoopback && !self.listen.ip().is_loopback() {
            return Err(problem(
                "s3.listen",
                &format!(
                    "other machines can reach {}, and requests need no signature",
                    self.listen
                ),
                "listen on 127.0.0.1, or add [[s3.keys]] and set s3.anonymous = false, \
                 or set s3.anonymous = true if anyone may read and write",
            ));
        }
        for (index, key) in self.keys.iter().enumerate() {
            let setting = format!("s3.keys[{index}]");
            if key.access_key.is_empty() || key.access_key.contains(['/', ',', ' ', '=']) {
                return Err(problem(
                    &setting,
                    "the access key is empty or contains one of `/`, `,`, `=`, space",
                    "use letters and digits",
                ));
            }
            if key.secret_key.len() < 8 {
                return Err(problem(
                    &setting,
                    "the secret key is shorter than 8 characters",
                    "use a longer one",
                ));
            }
            key.validate_origin(&setting, &self.policies)?;
            if self.keys[..index]
                .iter()
                .any(|other| other.access_key == key.access_key)
            {
                return Err(problem(
                    &setting,
                    &format!("the access key `{}` occurs twice", key.access_key),
                    "remove one of the two",
                ));
            }
        }
        let is_key = |name: &str| self.keys.iter().any(|key| key.access_key == name);
        policy::validate(&self.policies, is_key, self.anonymous.is_served())
    }
}

/// Whose keys sign requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignedBy {
    /// Those of `s3.keys`.
    #[default]
    Keys,
    /// The clients' own at the origin.
    Client,
}

floe_core::names! {
    SignedBy {
        Keys => "keys",
        Client => "client",
    }
}

/// One pair of keys.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessKey {
    /// The public half, sent with every request.
    pub access_key: String,
    /// The secret half, which signs.
    pub secret_key: String,
    /// Keys of an S3 origin that sign what is sent on of this key's requests; without them,
    /// those of the origin's settings do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginKeys>,
}

impl AccessKey {
    /// A pair of keys.
    pub fn new(access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        AccessKey {
            access_key: access_key.into(),
            secret_key: secret_key.into(),
            origin: None,
        }
    }

    /// # Errors
    /// It has keys of the origin and no policy: reads come from the cache, which Floe fills by
    /// keys of its own.
    fn validate_origin(
        &self,
        setting: &str,
        policies: &[KeyPolicy],
    ) -> Result<(), ServerConfigError> {
        let is_restricted = policies.iter().any(|policy| policy.key == self.access_key);
        match &self.origin {
            Some(keys) if keys.access_key.is_empty() || keys.secret_key.is_empty() => Err(problem(
                setting,
                "half of its keys of the origin is empty",
                "set access_key and secret_key, or remove `origin`",
            )),
            Some(_) if !is_restricted => Err(problem(
                setting,
                "it has keys of the origin and no policy: reads come from the cache, and \
                 the origin does not judge them",
                "name in [[s3.policies]] what this key may read at the origin",
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for AccessKey {
    /// Prints no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKey")
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}
