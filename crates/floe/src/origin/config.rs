//! The settings of `[origin]`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

use super::config_error::{OriginConfigError, invalid, missing};
use super::emulated::EmulatedConfig;
use super::kind::OriginKind;
use super::remote::redirect::origin_of;

/// The origin's settings. A setting that does not apply to the chosen kind is rejected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct OriginConfig {
    /// The kind of origin.
    pub kind: OriginKind,
    /// `directory`: the directory of the buckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// `s3`, `gcs`, `azure`: the URL of the service, if not the usual one.
    /// `http`: the URL that object names are appended to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// `s3`: the region; else from `AWS_REGION`, else `us-east-1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// `s3`: the access key; else from `AWS_ACCESS_KEY_ID`, web identity or
    /// instance metadata. `azure`: the storage account, else from `AZURE_STORAGE_ACCOUNT_NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_key: Option<String>,
    /// `s3`: the secret key, else from `AWS_SECRET_ACCESS_KEY`. `azure`: the
    /// account's key, else from `AZURE_STORAGE_ACCOUNT_KEY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key: Option<Secret>,
    /// `s3`: the session token of temporary credentials, else from `AWS_SESSION_TOKEN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_token: Option<Secret>,
    /// `gcs`: the file of the service account, else from
    /// `GOOGLE_SERVICE_ACCOUNT` or the machine's default credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<PathBuf>,
    /// `s3`, `gcs`, `azure`: send requests unsigned, for public buckets.
    pub anonymous: bool,
    /// Allow `http://` endpoints.
    pub allow_http: bool,
    /// `s3`, `gcs`, `azure`, `http`: other origins (`https://host:port`) that
    /// responses may redirect to. Redirects within the endpoint's own scheme,
    /// host and port are always followed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redirects: Vec<String>,
    /// `s3`: put the bucket in the host name rather than in the path.
    pub virtual_host_style: bool,
    /// Maps clients' bucket names to the origin's. If not empty, no other bucket exists.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub buckets: BTreeMap<String, String>,
    /// `s3`, `gcs`, `azure`: bytes of one part; longer uploads are sent in
    /// parts, each in memory while it is sent.
    pub part_size: ByteSize,
    /// `s3`, `gcs`, `azure`: bytes of the longest part that a client may upload.
    pub max_part_size: ByteSize,
    /// `s3`, `gcs`, `azure`: bytes of memory for all uploads together.
    pub upload_memory: ByteSize,
    /// `emulated`: the emulated objects and latencies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<EmulatedConfig>,
    /// Limits, time-outs and retries.
    pub requests: RequestConfig,
}

impl Default for OriginConfig {
    fn default() -> Self {
        OriginConfig {
            kind: OriginKind::default(),
            root: None,
            endpoint: None,
            region: None,
            access_key: None,
            secret_key: None,
            session_token: None,
            service_account: None,
            anonymous: false,
            allow_http: false,
            redirects: Vec::new(),
            virtual_host_style: false,
            buckets: BTreeMap::new(),
            part_size: ByteSize::mib(8),
            max_part_size: ByteSize::mib(64),
            upload_memory: ByteSize::mib(256),
            emulated: None,
            requests: RequestConfig::default(),
        }
    }
}

impl OriginConfig {
    /// A directory origin with the other settings at their defaults.
    pub fn directory(root: impl Into<PathBuf>) -> Self {
        OriginConfig {
            root: Some(root.into()),
            ..OriginConfig::default()
        }
    }

    /// An emulated origin with the other settings at their defaults.
    pub fn emulated(emulated: EmulatedConfig) -> Self {
        OriginConfig {
            kind: OriginKind::Emulated,
            emulated: Some(emulated),
            ..OriginConfig::default()
        }
    }

    /// Checks the settings without a request to the origin.
    pub fn validate(&self) -> Result<(), OriginConfigError> {
        use OriginKind::{Azure, Directory, Emulated, Gcs, Http, S3};
        let only = |set: bool, key: &'static str, kinds: &[OriginKind]| {
            if set && !kinds.contains(&self.kind) {
                return Err(OriginConfigError::NotForKind {
                    key,
                    kind: self.kind,
                });
            }
            Ok(())
        };
        only(self.root.is_some(), "root", &[Directory])?;
        only(self.endpoint.is_some(), "endpoint", &[S3, Gcs, Azure, Http])?;
        only(self.region.is_some(), "region", &[S3])?;
        only(self.access_key.is_some(), "access_key", &[S3, Azure])?;
        only(self.secret_key.is_some(), "secret_key", &[S3, Azure])?;
        only(self.session_token.is_some(), "session_token", &[S3])?;
        only(self.service_account.is_some(), "service_account", &[Gcs])?;
        only(self.anonymous, "anonymous", &[S3, Gcs, Azure])?;
        only(self.virtual_host_style, "virtual_host_style", &[S3])?;
        only(self.emulated.is_some(), "emulated", &[Emulated])?;
        let remote = [S3, Gcs, Azure, Http];
        only(!self.redirects.is_empty(), "redirects", &remote)?;
        if self.kind == Directory && self.root.is_none() {
            return Err(missing("root", "the directory that holds the buckets"));
        }
        if self.kind == Http && self.endpoint.is_none() {
            return Err(missing("endpoint", "the URL below which the objects are"));
        }
        if self.secret_key.is_some() && self.access_key.is_none() && self.kind == S3 {
            return Err(missing("access_key", "the key that secret_key belongs to"));
        }
        self.validate_buckets()?;
        self.validate_endpoint()?;
        self.validate_redirects()?;
        self.validate_uploads()?;
        self.requests.validate()?;
        match &self.emulated {
            Some(emulated) => emulated.validate(),
            None => Ok(()),
        }
    }

    fn validate_endpoint(&self) -> Result<(), OriginConfigError> {
        match self.endpoint.as_deref() {
            None => Ok(()),
            Some(endpoint) if endpoint.starts_with("https://") => Ok(()),
            Some(endpoint) if endpoint.starts_with("http://") => {
                if self.allow_http {
                    Ok(())
                } else {
                    Err(invalid(
                        "endpoint",
                        endpoint,
                        "is not encrypted; write https://, or set allow_http = true",
                    ))
                }
            }
            Some(endpoint) => Err(invalid(
                "endpoint",
                endpoint,
                "is no URL; write it with https:// (or http:// and allow_http = true)",
            )),
        }
    }

    /// A change by one of two names would not invalidate what is cached by the other.
    fn validate_buckets(&self) -> Result<(), OriginConfigError> {
        let mut seen = BTreeSet::new();
        match self.buckets.values().find(|name| !seen.insert(*name)) {
            None => Ok(()),
            Some(twice) => Err(invalid("buckets", twice, "has two names; give it one")),
        }
    }

    fn validate_redirects(&self) -> Result<(), OriginConfigError> {
        let is_usable = |text: &str| origin_of(text).is_some();
        match self.redirects.iter().find(|text| !is_usable(text)) {
            None => Ok(()),
            Some(text) => Err(invalid(
                "redirects",
                text,
                "is no origin; write scheme, host and port only, such as https://example.com:8443",
            )),
        }
    }

    fn validate_uploads(&self) -> Result<(), OriginConfigError> {
        // S3 rejects parts below 5 MiB other than the last.
        if self.part_size < ByteSize::mib(5) {
            return Err(invalid(
                "part_size",
                self.part_size,
                "must be at least 5MiB",
            ));
        }
        if self.max_part_size < self.part_size {
            return Err(invalid(
                "max_part_size",
                self.max_part_size,
                &format!("must be at least part_size ({})", self.part_size),
            ));
        }
        if self.upload_memory < self.max_part_size {
            return Err(invalid(
                "upload_memory",
                self.upload_memory,
                &format!("must be at least max_part_size ({})", self.max_part_size),
            ));
        }
        if self.upload_memory > ByteSize::gib(1024) {
            return Err(invalid(
                "upload_memory",
                self.upload_memory,
                "must be at most 1TiB",
            ));
        }
        Ok(())
    }
}

/// Limits, time-outs and retries of requests to an origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct RequestConfig {
    /// Most concurrent requests other than uploads, bodies included.
    pub max_concurrent: usize,
    /// Most concurrent uploads. An upload begins when its body is complete or
    /// 16 KiB of it have arrived.
    pub max_uploads: usize,
    /// Most requests in the queue, and uploads in theirs. If it is full, the client with the most
    /// in it loses its newest one to a client that has fewer; others fail at once.
    pub max_queued: usize,
    /// Longest wait in the queue.
    pub queue_timeout_ms: u64,
    /// Longest wait for a connection.
    pub connect_timeout_ms: u64,
    /// Longest wait for the first byte of a response.
    pub response_timeout_ms: u64,
    /// Longest pause in a body.
    pub idle_timeout_ms: u64,
    /// Most attempts of a request. Uploads have one attempt, since their bodies
    /// can be read only once.
    pub max_attempts: u32,
    /// Wait before the second attempt; doubled for each further one, with jitter.
    pub backoff_ms: u64,
    /// Longest wait between attempts.
    pub max_backoff_ms: u64,
    /// Seed of the jitter; `None` draws one.
    pub seed: Option<u64>,
}

impl Default for RequestConfig {
    fn default() -> Self {
        RequestConfig {
            max_concurrent: 256,
            max_uploads: 64,
            max_queued: 4096,
            queue_timeout_ms: 30_000,
            connect_timeout_ms: 5_000,
            response_timeout_ms: 30_000,
            idle_timeout_ms: 30_000,
            max_attempts: 4,
            backoff_ms: 100,
            max_backoff_ms: 5_000,
            seed: None,
        }
    }
}

impl RequestConfig {
    pub(crate) fn queue_timeout(&self) -> Duration {
        Duration::from_millis(self.queue_timeout_ms)
    }
    pub(crate) fn response_timeout(&self) -> Duration {
        Duration::from_millis(self.response_timeout_ms)
    }
    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms)
    }
    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }

    pub(crate) fn validate(&self) -> Result<(), OriginConfigError> {
        let positive = [
            ("requests.max_concurrent", self.max_concurrent as u64),
            ("requests.max_uploads", self.max_uploads as u64),
            ("requests.queue_timeout_ms", self.queue_timeout_ms),
            ("requests.connect_timeout_ms", self.connect_timeout_ms),
            ("requests.response_timeout_ms", self.response_timeout_ms),
            ("requests.idle_timeout_ms", self.idle_timeout_ms),
            ("requests.max_attempts", u64::from(self.max_attempts)),
        ];
        for (key, value) in positive {
            if value == 0 {
                return Err(invalid(key, value, "must be at least 1"));
            }
        }
        for (key, value) in [
            ("requests.max_concurrent", self.max_concurrent),
            ("requests.max_uploads", self.max_uploads),
        ] {
            if value > 1 << 20 {
                return Err(invalid(key, value, "must be at most 1048576"));
            }
        }
        if self.max_backoff_ms < self.backoff_ms {
            return Err(invalid(
                "requests.max_backoff_ms",
                self.max_backoff_ms,
                &format!("must be at least requests.backoff_ms ({})", self.backoff_ms),
            ));
        }
        Ok(())
    }
}

/// A text that `Debug` and logs hide.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Secret(secret.into())
    }
    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<OriginConfig, String> {
        let config: OriginConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        config.validate().map_err(|error| error.to_string())?;
        Ok(config)
    }

    #[test]
    fn settings_parse_and_errors_name_invalid_ones() {
        let good = "kind = \"s3\"\nendpoint = \"http://127.0.0.1:9\"\nallow_http = true\n\
            access_key = \"a\"\nsecret_key = \"s\"\n[buckets]\npublic = \"private\"\n\
            [requests]\nmax_attempts = 2\n";
        let config = parse(good).unwrap();
        assert_eq!(config.requests.max_attempts, 2);
        assert!(!format!("{config:?}").contains("\"s\""));
        let emulated = "kind = \"emulated\"\n[emulated]\nseed = 1\nsize = { rule = \"fixed\", bytes = \"64KiB\" }\n\
            latency = { rule = \"measured\", preset = \"64KiB\", constant = true }\n";
        let text = toml::to_string(&parse(emulated).unwrap()).unwrap();
        assert_eq!(parse(&text).unwrap(), parse(emulated).unwrap());
        for (text, part) in [
            ("kind = \"directory\"", "origin.root is missing"),
            ("kind = \"s3\"\nroot = \"x\"", "origin.root has no meaning"),
            (
                "kind = \"s3\"\nendpoint = \"http://x\"",
                "allow_http = true",
            ),
            ("kind = \"s3\"\nendpoint = \"x\"", "is no URL"),
            ("kind = \"s3\"\nbucket = \"x\"", "unknown field `bucket`"),
            ("kind = \"ftp\"", "unknown variant `ftp`"),
            (
                "kind = \"s3\"\npart_size = \"1MiB\"",
                "must be at least 5MiB",
            ),
            (
                "kind = \"s3\"\nredirects = [\"https://x/path\"]",
                "origin.redirects = https://x/path is no origin",
            ),
            (
                "kind = \"s3\"\n[buckets]\na = \"one\"\nb = \"one\"",
                "origin.buckets = one has two names",
            ),
            (
                "kind = \"s3\"\n[requests]\nmax_attempts = 0",
                "requests.max_attempts = 0 must be at least 1",
            ),
            (
                "kind = \"emulated\"\n[emulated]\nerror_rate = 2.0",
                "between 0 and 1",
            ),
            (
                "kind = \"emulated\"\n[emulated]\nlatency = { rule = \"empirical\", quantiles = [[0.5, 1.0]] }",
                "from share 0 to share 1",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
