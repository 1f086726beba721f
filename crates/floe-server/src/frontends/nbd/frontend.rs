//! The state of the frontend.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use floe_device::Clock;
use tokio_util::sync::CancellationToken;

use super::config::NbdConfig;
use super::counters::Counters;
use super::exports::Exports;
use super::memory::Memory;
use crate::config::ServerConfigError;
use crate::frontend::Frontend as _;
use crate::net::Tls;
use crate::reload::Reloadable;

/// The NBD frontend.
#[derive(Debug)]
pub(crate) struct NbdFrontend {
    pub(super) exports: Exports,
    pub(super) clock: Clock,
    pub(super) config: Reloadable<NbdConfig>,
    pub(super) tls: Option<Tls>,
    pub(super) memory: Arc<Memory>,
    /// Open connections.
    pub(super) open: AtomicU32,
    pub(super) threads: Vec<Arc<Counters>>,
    pub(super) draining: CancellationToken,
}

impl NbdFrontend {
    pub(super) fn new(
        config: &NbdConfig,
        exports: Exports,
        clock: Clock,
        draining: CancellationToken,
    ) -> Result<Self, ServerConfigError> {
        Ok(NbdFrontend {
            exports,
            clock,
            tls: tls(config)?,
            memory: Memory::new(config.memory.bytes()),
            open: AtomicU32::new(0),
            threads: (0..config.thread_count()).map(|_| Arc::default()).collect(),
            draining,
            config: Reloadable::new(config.clone()),
        })
    }

    /// A place among the connections that may be open, until dropped.
    pub(super) fn place(self: &Arc<Self>) -> Option<Place> {
        let limit = self.config.get().max_connections;
        let more = |open| (open < limit).then_some(open + 1);
        self.open.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Place(Arc::clone(self)))
    }

    /// Applies limits, and replaces the certificates if the frontend has them.
    /// A connection keeps the limits of its beginning. Returns the names of the
    /// applied settings.
    pub(super) fn take(&self, limits: &NbdConfig, tls: Option<&Tls>) -> Vec<&'static str> {
        self.config.replace_with(&Reloadable::new(NbdConfig {
            max_connections: limits.max_connections,
            max_requests: limits.max_requests,
            memory: limits.memory,
            handshake_timeout_seconds: limits.handshake_timeout_seconds,
            stall_timeout_seconds: limits.stall_timeout_seconds,
            ..NbdConfig::clone(&self.config.get())
        }));
        self.memory.set(limits.memory.bytes());
        let mut taken = vec![
            "nbd.max_connections",
            "nbd.max_requests",
            "nbd.memory",
            "nbd.handshake_timeout_seconds",
            "nbd.stall_timeout_seconds",
        ];
        let settings = ["nbd.tls_certificate", "nbd.tls_key", "nbd.tls_client_ca"];
        taken.extend(Tls::replace(self.tls.as_ref(), tls, settings));
        taken
    }
}

/// Reads the certificates that `config` names.
pub(super) fn tls(config: &NbdConfig) -> Result<Option<Tls>, ServerConfigError> {
    let name = NbdFrontend::NAME;
    let authorities = Some(config.tls_client_ca.as_path());
    let authorities = authorities.filter(|path| *path != Path::new(""));
    Tls::with_clients(name, &config.tls_certificate, &config.tls_key, authorities)
}

/// A place among the connections that may be open.
pub(super) struct Place(Arc<NbdFrontend>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}
