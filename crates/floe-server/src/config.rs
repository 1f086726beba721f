//! What the faces are told: addresses, keys, limits.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use floe_core::ByteSize;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

mod memcached;

pub use memcached::MemcachedConfig;

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

/// The S3 face.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct S3Config {
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Whether requests without a signature are served: `true`, `false`, or
    /// `"loopback"`, which is `true` but refuses to start on an address that
    /// other machines can reach. Without it and without keys the face does
    /// not start.
    pub anonymous: Anonymous,
    /// Who may sign requests.
    pub keys: Vec<AccessKey>,
    /// Domains below which the first label of the host name is the bucket
    /// (`bucket.s3.example.com` for `s3.example.com`). Requests to any other
    /// host name are path style.
    pub domains: Vec<String>,
    /// What `GetBucketLocation` answers.
    pub region: String,
    /// Connections at once. A further one takes the place of the one that has
    /// been idle the longest; while none is idle, it waits.
    pub max_connections: u32,
    /// Requests at once on one HTTP/2 connection.
    pub max_streams_per_connection: u32,
    /// Most bytes of a request's head.
    pub max_header_size: ByteSize,
    /// Seconds that a connection may be idle, or take to send a request's head.
    pub idle_timeout_seconds: u32,
    /// Seconds that a client may take nothing of an answer, or send nothing
    /// of an upload, before its connection is broken off.
    pub stall_timeout_seconds: u32,
    /// Bytes per second that an upload must bring. A client may fall behind by
    /// `stall_timeout_seconds`; `0` asks only that it never falls silent.
    pub min_upload_rate: ByteSize,
    /// Largest object taken by one PUT or one multipart upload's part.
    pub max_upload_size: ByteSize,
}

/// Whether clients without a key or a password are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// No; written `false`.
    #[default]
    Refused,
    /// Only where no other machine can ask; written `"loopback"`.
    OnLoopback,
    /// Yes, whoever asks; written `true`.
    Served,
}

impl Anonymous {
    /// Whether such requests are served at all.
    pub fn is_served(self) -> bool {
        self != Anonymous::Refused
    }
}

impl Serialize for Anonymous {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Anonymous::Refused => serializer.serialize_bool(false),
            Anonymous::OnLoopback => serializer.serialize_str("loopback"),
            Anonymous::Served => serializer.serialize_bool(true),
        }
    }
}

impl<'de> Deserialize<'de> for Anonymous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Anonymous;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or \"loopback\"")
            }
            fn visit_bool<E: de::Error>(self, served: bool) -> Result<Anonymous, E> {
                Ok(if served {
                    Anonymous::Served
                } else {
                    Anonymous::Refused
                })
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Anonymous, E> {
                match text {
                    "loopback" => Ok(Anonymous::OnLoopback),
                    // As flags and environment variables write it.
                    "true" => Ok(Anonymous::Served),
                    "false" => Ok(Anonymous::Refused),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
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

/// OxCache's protocol on a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OxCacheConfig {
    /// The socket's path. A stale socket there is replaced, anything else is not.
    pub path: PathBuf,
    /// The bucket that holds the objects named by keys.
    pub bucket: String,
    /// Connections at once. A further one takes the place of the one that has
    /// been idle the longest; while none is idle, it waits.
    pub max_connections: u32,
    /// Requests in progress at once on one connection; more wait in the socket.
    pub max_pipeline: u32,
    /// Most bytes asked for by one request.
    pub max_read_size: ByteSize,
    /// Bytes read ahead of the answers being sent, over all connections.
    pub read_ahead: ByteSize,
    /// Seconds that a client may take nothing of an answer.
    pub stall_timeout_seconds: u32,
}

/// Metrics, health and statistics over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Connections at once. A further one takes the place of the one that has
    /// been idle the longest; while none is idle, it waits. Four more
    /// serve only small pages such as `/health` and `/ready`.
    pub max_connections: u32,
    /// Whether an address that other machines can reach is served: the face
    /// asks nobody for a password.
    pub public: bool,
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

impl Default for S3Config {
    fn default() -> Self {
        S3Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 9000)),
            anonymous: Anonymous::Refused,
            keys: Vec::new(),
            domains: Vec::new(),
            region: "us-east-1".into(),
            max_connections: 4096,
            max_streams_per_connection: 128,
            max_header_size: ByteSize::kib(64),
            idle_timeout_seconds: 60,
            stall_timeout_seconds: 60,
            min_upload_rate: ByteSize::kib(1),
            max_upload_size: ByteSize::gib(5),
        }
    }
}

impl Default for AdminConfig {
    fn default() -> Self {
        AdminConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 9100)),
            max_connections: 64,
            public: false,
        }
    }
}

impl Default for OxCacheConfig {
    fn default() -> Self {
        OxCacheConfig {
            path: PathBuf::new(),
            bucket: String::new(),
            max_connections: 1024,
            max_pipeline: 64,
            // The largest chunk that a cache can have.
            max_read_size: ByteSize::gib(1),
            read_ahead: ByteSize::mib(256),
            stall_timeout_seconds: 60,
        }
    }
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
    /// Never prints the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKey")
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}

/// Why a configuration cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {problem}; {cure}")]
pub struct ServerConfigError {
    /// The setting at fault, as written in the file.
    pub setting: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to do.
    pub cure: String,
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

/// A face that anyone may use, as its configuration allows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} can be reached by other machines, and {what}: {setting} is true")]
pub struct Exposed {
    /// The setting that allows it.
    pub setting: &'static str,
    /// Where the face listens.
    pub address: SocketAddr,
    /// What anyone may do.
    pub what: &'static str,
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

impl AdminConfig {
    fn validate(&self) -> Result<(), ServerConfigError> {
        positive("admin.max_connections", self.max_connections)?;
        if !self.public && !is_loopback(self.listen) {
            return Err(problem(
                "admin.listen",
                &format!(
                    "{} can be reached by other machines, and metrics, health and statistics are shown without a password",
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

impl S3Config {
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
        let header_size = self.max_header_size.bytes();
        if !(8192..=1 << 20).contains(&header_size) {
            return Err(problem(
                "s3.max_header_size",
                &format!("{header_size} bytes is not within 8KiB and 1MiB"),
                "use 64KiB",
            ));
        }
        self.validate_access()?;
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

    fn validate_access(&self) -> Result<(), ServerConfigError> {
        if self.keys.is_empty() && !self.anonymous.is_served() {
            return Err(problem(
                "s3.keys",
                "there is no key that could sign requests, and anonymous requests are not allowed",
                "add [[s3.keys]] with access_key and secret_key, or set s3.anonymous = true",
            ));
        }
        if self.anonymous == Anonymous::OnLoopback && !self.listen.ip().is_loopback() {
            return Err(problem(
                "s3.listen",
                &format!(
                    "{} can be reached by other machines, and requests without a signature are served",
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
                    &format!("the access key `{}` is there twice", key.access_key),
                    "remove one of the two",
                ));
            }
        }
        Ok(())
    }
}

impl OxCacheConfig {
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
        // The frame's length field has 32 bits, and the answer a little more than the data.
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

fn positive(setting: &str, value: u32) -> Result<(), ServerConfigError> {
    if value == 0 {
        return Err(problem(setting, "it is 0", "use at least 1"));
    }
    Ok(())
}

fn problem(setting: &str, problem: &str, cure: &str) -> ServerConfigError {
    ServerConfigError {
        setting: setting.into(),
        problem: problem.into(),
        cure: cure.into(),
    }
}

#[cfg(test)]
mod tests;
