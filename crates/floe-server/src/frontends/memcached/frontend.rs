//! The state of the frontend.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use floe::ItemCache;
use floe_device::Clock;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::config::MemcachedConfig;
use super::counters::{Counters, Totals};
use super::latency::GetResult;
use super::memory::Memory;
use super::{auth, open, prefixes};
use crate::config::ServerConfigError;
use crate::frontend::{Frontend as _, Host};
use crate::metrics::{HistogramSnapshot, ThreadLatency};
use crate::net::Tls;
use crate::reload::Reloadable;

/// The memcached frontend.
#[derive(Debug)]
pub(crate) struct MemcachedFrontend {
    pub(super) items: ItemCache,
    pub(super) clock: Clock,
    pub(super) config: Reloadable<MemcachedConfig>,
    pub(super) max_item_bytes: u64,
    /// The runtime for the store's background tasks.
    pub(super) runtime: Handle,
    pub(super) memory: Arc<Memory>,
    pub(super) users: Option<auth::Users>,
    pub(super) tls: Option<Tls>,
    /// Open connections.
    pub(super) open: AtomicU32,
    pub(super) listed: Arc<open::Open>,
    pub(super) prefixes: prefixes::Prefixes,
    pub(super) draining: CancellationToken,
    pub(super) is_draining: AtomicBool,
    pub(super) threads: Vec<Arc<Counters>>,
    /// The counts at the last `stats reset`.
    pub(super) reset: Mutex<Totals>,
    pub(super) started_unix_s: u64,
}

impl MemcachedFrontend {
    pub(super) fn new(
        config: &MemcachedConfig,
        items: ItemCache,
        host: &Host,
    ) -> Result<Self, ServerConfigError> {
        let users = auth::Users::of(config)?;
        let tls = Tls::new(Self::NAME, &config.tls_certificate, &config.tls_key)?;
        let clock = host.clock.clone();
        Ok(MemcachedFrontend {
            started_unix_s: clock.unix_seconds(),
            memory: Memory::new(config, clock.clone()),
            items,
            clock,
            runtime: Handle::current(),
            users,
            tls,
            open: AtomicU32::new(0),
            listed: Arc::default(),
            prefixes: prefixes::Prefixes::default(),
            draining: host.draining.clone(),
            is_draining: AtomicBool::new(false),
            threads: (0..config.thread_count())
                .map(|_| Arc::new(Counters::default()))
                .collect(),
            reset: Mutex::new(Totals::default()),
            max_item_bytes: config.max_item_size.bytes(),
            config: Reloadable::new(config.clone()),
        })
    }

    /// The current settings; a reload may replace some.
    pub(super) fn config(&self) -> Arc<MemcachedConfig> {
        self.config.get()
    }

    /// The stall limit of a transfer.
    pub(super) fn stall_limit(&self) -> Duration {
        Duration::from_secs(u64::from(self.config().stall_timeout_seconds))
    }

    /// True if the server is shutting down; unlike `draining`, one relaxed load.
    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.load(Relaxed)
    }

    /// The totals over all threads.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for thread in &self.threads {
            totals.add(thread);
        }
        totals
    }

    /// Latencies of gets with this result.
    pub(super) fn get_latency(&self, result: GetResult) -> HistogramSnapshot {
        let threads = self.threads.iter();
        ThreadLatency::total(threads.map(|thread| thread.get_latencies.of(result)))
    }

    /// Open connections.
    pub(super) fn open_connections(&self) -> u32 {
        self.open.load(Relaxed)
    }
}
