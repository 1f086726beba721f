//! `[nbd]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

use super::protocol::PAYLOAD_BYTES_MAX;
use super::protocol::options::TEXT_BYTES_MAX;
use crate::config::{
    Anonymous, Exposed, Section, ServerConfigError, both_or_none, is_loopback, positive, problem,
    thread_count, validate_memory, validate_sockets, validate_threads, within,
};

/// Block devices over the NBD protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NbdConfig {
    /// Address and port; port 0 selects a free one, `off` disables TCP.
    #[serde(with = "crate::config::address_or_off")]
    pub listen: Option<SocketAddr>,
    /// Path of a Unix socket; empty disables it. An existing stale socket is
    /// replaced; any other file is an error.
    pub path: PathBuf,
    /// Threads that serve connections; 0 is one per core.
    pub threads: u32,
    /// Exports that live in memory, for tests and benches.
    pub exports: Vec<ExportConfig>,
    /// The export of clients that name none; empty is the first one.
    pub default_export: String,
    /// Most open connections; further ones are closed at once.
    pub max_connections: u32,
    /// Most requests in flight of one connection; further ones wait in the socket.
    pub max_requests: u32,
    /// Most bytes of one read or write.
    pub max_request_size: ByteSize,
    /// Memory for data in transfer, over all connections.
    pub memory: ByteSize,
    /// Seconds that a client may take until its first request.
    pub handshake_timeout_seconds: u32,
    /// Seconds without progress in a reply or in the data of a write before its
    /// connection is closed.
    pub stall_timeout_seconds: u32,
    /// Encryption of connections.
    pub tls: TlsMode,
    /// A PEM file with a certificate chain.
    pub tls_certificate: PathBuf,
    /// A PEM file with the certificate's private key.
    pub tls_key: PathBuf,
    /// A PEM file with the authorities whose certificates clients must have;
    /// empty accepts clients without a certificate.
    pub tls_client_ca: PathBuf,
    /// Serve clients without a certificate: `true`, `false`, or `"loopback"`:
    /// `true`, but an error at startup on an address that other machines can reach.
    pub anonymous: Anonymous,
}

/// Encryption of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    /// None.
    #[default]
    Off,
    /// Clients choose.
    Optional,
    /// Clients must encrypt before anything else.
    Required,
}

/// An export that lives in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportConfig {
    /// Its name.
    pub name: String,
    /// Its content.
    pub kind: ExportKind,
    /// Its size, a multiple of 4 KiB.
    pub size: ByteSize,
    /// It rejects writes.
    #[serde(default)]
    pub read_only: bool,
}

/// The content of an export in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExportKind {
    /// Blocks in memory, zeros at first, lost at the end.
    Memory,
    /// Reads as zeros and drops writes.
    Null,
}

impl Default for NbdConfig {
    fn default() -> Self {
        NbdConfig {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 10809))),
            exports: Vec::new(),
            default_export: String::new(),
            path: PathBuf::new(),
            threads: 0,
            max_connections: 256,
            max_requests: 128,
            max_request_size: ByteSize(u64::from(PAYLOAD_BYTES_MAX)),
            memory: ByteSize::mib(256),
            handshake_timeout_seconds: 30,
            stall_timeout_seconds: 60,
            tls: TlsMode::Off,
            tls_certificate: PathBuf::new(),
            tls_key: PathBuf::new(),
            tls_client_ca: PathBuf::new(),
            anonymous: Anonymous::OnLoopback,
        }
    }
}

/// Sizes of exports are multiples of this.
const SIZE_UNIT_BYTES: u64 = 4096;

impl NbdConfig {
    pub(super) fn thread_count(&self) -> usize {
        thread_count(self.threads)
    }

    /// Most bytes of a read or a write.
    pub(super) fn payload_bytes_max(&self) -> u32 {
        u32::try_from(self.max_request_size.bytes()).unwrap_or(PAYLOAD_BYTES_MAX)
    }

    pub(super) fn handshake_limit(&self) -> Duration {
        Duration::from_secs(self.handshake_timeout_seconds.into())
    }

    pub(super) fn stall_limit(&self) -> Duration {
        Duration::from_secs(self.stall_timeout_seconds.into())
    }

    /// Every client over TCP has a certificate.
    fn has_certificates(&self) -> bool {
        self.tls == TlsMode::Required && !self.tls_client_ca.as_os_str().is_empty()
    }

    fn validate_tls(&self) -> Result<(), ServerConfigError> {
        both_or_none("nbd.tls", &self.tls_certificate, &self.tls_key)?;
        let has_certificate = !self.tls_certificate.as_os_str().is_empty();
        if (self.tls != TlsMode::Off) == has_certificate {
            return Ok(());
        }
        Err(problem(
            "nbd.tls",
            "encryption and the server's certificate belong together, and one of them is missing",
            "set nbd.tls to optional or required and nbd.tls_certificate to a file, or none of them",
        ))
    }

    fn validate_access(&self) -> Result<(), ServerConfigError> {
        let Some(address) = self.listen.filter(|_| !self.has_certificates()) else {
            return Ok(());
        };
        let (what, cure) = match self.anonymous {
            Anonymous::Served => return Ok(()),
            Anonymous::OnLoopback if is_loopback(address) => return Ok(()),
            Anonymous::OnLoopback => (
                format!("other machines can reach {address}, and clients need no certificate"),
                "listen on 127.0.0.1, or set nbd.tls = \"required\" and nbd.tls_client_ca, or set \
                 nbd.anonymous = true if anyone may read and write",
            ),
            Anonymous::Rejected => (
                "clients need no certificate, and nbd.anonymous is false".to_owned(),
                "set nbd.tls = \"required\" and nbd.tls_client_ca, or nbd.listen = \"off\"",
            ),
        };
        Err(problem("nbd.listen", &what, cure))
    }

    fn validate_exports(&self) -> Result<(), ServerConfigError> {
        for (i, export) in self.exports.iter().enumerate() {
            let name = &export.name;
            let invalid = |what: &str| {
                let what = format!("the export `{name}` {what}");
                Err(problem(
                    "nbd.exports",
                    &what,
                    "change it, or remove the export",
                ))
            };
            if name.is_empty() || name.len() > TEXT_BYTES_MAX {
                return invalid("needs a name of 1 to 4096 bytes");
            }
            if self.exports[..i].iter().any(|other| other.name == *name) {
                return invalid("is there twice");
            }
            let bytes = export.size.bytes();
            if bytes == 0 || !bytes.is_multiple_of(SIZE_UNIT_BYTES) || bytes > i64::MAX as u64 {
                return invalid("needs a size that is a multiple of 4KiB");
            }
        }
        Ok(())
    }

    /// Checks the names of all exports: those of the settings, and those of `volumes`.
    /// With a cache of volumes there may be none yet, because volumes can be attached later.
    pub(super) fn check_names(&self, volumes: Option<&[&str]>) -> Result<(), ServerConfigError> {
        let has_cache = volumes.is_some();
        let volumes = volumes.unwrap_or_default();
        let own = self.exports.iter().map(|export| &*export.name);
        let names: Vec<_> = own.clone().chain(volumes.iter().copied()).collect();
        if names.is_empty() && !has_cache {
            let cure = "cache a volume, such as --volume disk=/dev/sdb, or add an export in memory";
            return Err(problem("nbd.exports", "there is nothing to export", cure));
        }
        if let Some(name) = own.into_iter().find(|name| volumes.contains(name)) {
            let what = format!("the export `{name}` has the name of a volume");
            return Err(problem("nbd.exports", &what, "give it another name"));
        }
        let default = &*self.default_export;
        if default.is_empty() || names.contains(&default) {
            return Ok(());
        }
        let what = format!("there is no export `{default}`");
        let cure = "name a volume, or one of nbd.exports";
        Err(problem("nbd.default_export", &what, cure))
    }
}

impl Section for NbdConfig {
    fn validate(&self) -> Result<(), ServerConfigError> {
        positive("nbd.max_connections", self.max_connections)?;
        positive("nbd.max_requests", self.max_requests)?;
        let timeouts = [
            (
                "nbd.handshake_timeout_seconds",
                self.handshake_timeout_seconds,
            ),
            ("nbd.stall_timeout_seconds", self.stall_timeout_seconds),
        ];
        for (setting, seconds) in timeouts {
            positive(setting, seconds)?;
        }
        validate_threads("nbd.threads", self.threads)?;
        validate_sockets("nbd", self.listen, &self.path)?;
        let sizes = 64 << 10..=u64::from(PAYLOAD_BYTES_MAX);
        within(
            "nbd.max_request_size",
            self.max_request_size,
            sizes,
            "use 32MiB",
        )?;
        let largest = ("max_request_size", self.max_request_size);
        validate_memory("nbd", self.memory, largest, "256MiB")?;
        self.validate_exports()?;
        self.validate_access()?;
        self.validate_tls()
    }

    fn exposed(&self) -> Option<Exposed> {
        let address = self.listen?;
        let is_open = self.anonymous.is_served() && !self.has_certificates();
        (is_open && !is_loopback(address)).then_some(Exposed {
            setting: "nbd.anonymous",
            address,
            what: "blocks are read and written by anyone",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Volumes are known when the frontend is bound, so names are checked then.
    #[test]
    fn there_is_something_to_export_and_the_default_is_one_of_it() {
        let none = NbdConfig::default();
        let error = none.check_names(None).expect_err("there is nothing");
        assert!(error.to_string().contains("nothing to export"), "{error}");
        assert_eq!(none.check_names(Some(&[])).ok(), Some(()));
        assert_eq!(none.check_names(Some(&["disk"])).ok(), Some(()));
        let config = NbdConfig {
            default_export: "other".to_owned(),
            ..NbdConfig::default()
        };
        let error = config
            .check_names(Some(&["disk"]))
            .expect_err("it names none");
        assert!(error.to_string().contains("nbd.default_export"), "{error}");
        assert_eq!(config.check_names(Some(&["disk", "other"])).ok(), Some(()));
    }
}
