//! `[s3]`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

use super::policy::{self, KeyPolicy};
use crate::config::{
    Anonymous, Exposed, Section, ServerConfigError, both_or_none, is_loopback, positive, problem,
    within,
};

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
    /// The keys that may sign requests.
    pub keys: Vec<AccessKey>,
    /// The rights of these keys.
    pub policies: Vec<KeyPolicy>,
    /// Domains whose subdomains are buckets: `bucket.s3.example.com` for
    /// `s3.example.com`. Requests to other host names are path style.
    pub domains: Vec<String>,
    /// The region that `GetBucketLocation` returns.
    pub region: String,
    /// Most open connections. A further one replaces the connection that has
    /// been idle longest; if none is idle, it waits.
    pub max_connections: u32,
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
            keys: Vec::new(),
            policies: Vec::new(),
            domains: Vec::new(),
            region: "us-east-1".into(),
            max_connections: 4096,
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
        both_or_none("s3", &self.tls_certificate, &self.tls_key)?;
        for domain in &self.domains {
            let labels_are_fine = domain.split('.').all(|label| {
                !label.is_empty()
                    && label
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b == b'-')
            });
            if !labels_are_fine {
                return Err(problem(
                    "s3.domains",
                    &format!("`{domain}` is not a host name"),
                    "write names without port and wildcard, such as s3.example.com",
                ));
            }
        }
        Ok(())
    }
}

impl S3Config {
    /// True if requests without a signature have policies.
    pub fn restricts_anonymous(&self) -> bool {
        let mut policies = self.policies.iter();
        policies.any(|policy| policy.key == policy::ANONYMOUS)
    }

    fn validate_access(&self) -> Result<(), ServerConfigError> {
        if self.keys.is_empty() && !self.anonymous.is_served() {
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

/// One pair of keys.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessKey {
    /// The public half, sent with every request.
    pub access_key: String,
    /// The secret half, which signs.
    pub secret_key: String,
}

impl AccessKey {
    /// A pair of keys.
    pub fn new(access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        AccessKey {
            access_key: access_key.into(),
            secret_key: secret_key.into(),
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
