//! `[memcached]`.

use std::net::SocketAddr;
use std::path::PathBuf;

use floe::items::ItemConfig;
use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

use crate::config::{
    Anonymous, Exposed, Section, ServerConfigError, both_or_none, is_loopback, positive, problem,
    thread_count, validate_memory, validate_sockets, validate_threads, within,
};

/// memcached's protocol over TCP and a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemcachedConfig {
    /// Address and port; port 0 selects a free one, `off` disables TCP.
    #[serde(with = "crate::config::address_or_off")]
    pub listen: Option<SocketAddr>,
    /// Path of a Unix socket; empty disables it. An existing stale socket is
    /// replaced; any other file is an error.
    pub path: PathBuf,
    /// Threads that serve connections; 0 is one per core.
    pub threads: u32,
    /// Most open connections; further ones get an error and are closed.
    pub max_connections: u32,
    /// Size of the largest item: its value, its key and memcached's overhead.
    pub max_item_size: ByteSize,
    /// Most requests of one connection that wait for flash.
    pub max_pipeline: u32,
    /// Memory for values in transfer, over all connections.
    pub memory: ByteSize,
    /// Seconds that a connection may be idle; 0 is unlimited.
    pub idle_timeout_seconds: u32,
    /// Seconds without progress in a value that a client sends, or in a
    /// response that it receives, before its connection is closed.
    pub stall_timeout_seconds: u32,
    /// Least bytes per second of a value that a client sends or a response that
    /// it receives; a slower client loses its connection. 0 disables the limit.
    pub min_rate: ByteSize,
    /// Seconds that a transfer may be slower. While memory is short the grace
    /// is one second, and the slowest transfer loses its connection first.
    pub min_rate_grace_seconds: u32,
    /// A file of lines `name:password`. If set, a connection must begin with a
    /// `set` whose value is a name and a password.
    pub auth_file: PathBuf,
    /// Serve clients without a password if `auth_file` is empty: `true`, `false`,
    /// or `"loopback"`: `true`, but an error at startup on an address that other
    /// machines can reach.
    pub anonymous: Anonymous,
    /// Execute `flush_all`; `false` rejects it, like memcached's `-F`.
    pub flush_all: bool,
    /// A PEM file with a certificate chain, to serve TCP over TLS. Empty serves plain TCP.
    pub tls_certificate: PathBuf,
    /// A PEM file with the certificate's private key.
    pub tls_key: PathBuf,
}

impl Default for MemcachedConfig {
    fn default() -> Self {
        MemcachedConfig {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 11211))),
            path: PathBuf::new(),
            threads: 0,
            max_connections: 1024,
            max_item_size: ByteSize::mib(1),
            max_pipeline: 64,
            memory: ByteSize::mib(128),
            idle_timeout_seconds: 0,
            stall_timeout_seconds: 60,
            min_rate: ByteSize::kib(16),
            min_rate_grace_seconds: 30,
            auth_file: PathBuf::new(),
            anonymous: Anonymous::OnLoopback,
            flush_all: true,
            tls_certificate: PathBuf::new(),
            tls_key: PathBuf::new(),
        }
    }
}

impl MemcachedConfig {
    /// The settings of the frontend's item cache.
    pub fn items(&self) -> ItemConfig {
        ItemConfig {
            // An item takes at least 32 bytes more than its value.
            max_value: ByteSize(self.max_item_size.bytes().saturating_sub(32)),
        }
    }

    pub(crate) fn thread_count(&self) -> usize {
        thread_count(self.threads)
    }
}

impl Section for MemcachedConfig {
    fn validate(&self) -> Result<(), ServerConfigError> {
        positive("memcached.max_connections", self.max_connections)?;
        positive("memcached.max_pipeline", self.max_pipeline)?;
        positive(
            "memcached.stall_timeout_seconds",
            self.stall_timeout_seconds,
        )?;
        validate_threads("memcached.threads", self.threads)?;
        validate_sockets("memcached", self.listen, &self.path)?;
        let item_sizes = 1 << 10..=1 << 30;
        within(
            "memcached.max_item_size",
            self.max_item_size,
            item_sizes,
            "use 1MiB",
        )?;
        let largest = ("max_item_size", self.max_item_size);
        validate_memory("memcached", self.memory, largest, "128MiB")?;
        self.validate_access()?;
        both_or_none("memcached.tls", &self.tls_certificate, &self.tls_key)
    }

    fn exposed(&self) -> Option<Exposed> {
        let address = self.listen.filter(|address| !is_loopback(*address))?;
        let is_open = !self.has_passwords() && self.anonymous.is_served();
        is_open.then_some(Exposed {
            setting: "memcached.anonymous",
            address,
            what: "items are read and written by anyone",
        })
    }
}

impl MemcachedConfig {
    fn has_passwords(&self) -> bool {
        !self.auth_file.as_os_str().is_empty()
    }

    fn validate_access(&self) -> Result<(), ServerConfigError> {
        if self.has_passwords() {
            return Ok(());
        }
        if !self.anonymous.is_served() {
            return Err(problem(
                "memcached.auth_file",
                "it is empty, and memcached.anonymous is false",
                "name a file of lines name:password, or set memcached.anonymous = \"loopback\"",
            ));
        }
        match self.listen {
            Some(address) if self.anonymous == Anonymous::OnLoopback && !is_loopback(address) => {
                Err(problem(
                    "memcached.listen",
                    &format!("other machines can reach {address}, and clients need no password"),
                    "listen on 127.0.0.1, or name a file of names and passwords in \
                     memcached.auth_file, or set memcached.anonymous = true if anyone may read \
                     and write",
                ))
            }
            _ => Ok(()),
        }
    }
}
