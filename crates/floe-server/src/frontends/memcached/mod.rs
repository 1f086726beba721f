//! memcached's text protocol, classic and meta, over TCP and a Unix socket.
//!
//! Each thread serves its connections on a runtime of its own, with a listener
//! of its own on the same port. The connection's loop answers hits in memory at
//! once. Reads of flash run while the next requests of the same batch are carried
//! out, and responses keep the order of the requests.
//!
//! `docs/memcached.md` says what differs from memcached.

mod auth;
mod collect;
mod config;
mod connection;
mod counters;
mod execute;
mod latency;
mod listen;
mod memory;
mod meta;
mod open;
mod output;
mod prefixes;
pub mod protocol;
mod reload;
mod replies;
mod statistics;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use floe::ItemCache;
use floe_device::Clock;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::config::ServerConfigError;
use crate::frontend::{Bound, Frontend, Host, Reload, Serving, StartError};
use crate::metrics::HistogramSnapshot;
use crate::net::{Service, Tls};
use crate::reload::Reloadable;
pub use config::MemcachedConfig;
use counters::Counters;
use counters::Totals;
use latency::GetResult;
use listen::Listeners;
use memory::Memory;
use reload::Reloaded;

/// The memcached frontend.
#[derive(Debug)]
pub(crate) struct MemcachedFrontend {
    items: ItemCache,
    clock: Clock,
    config: Reloadable<MemcachedConfig>,
    max_item_bytes: u64,
    /// The runtime for background work of the store.
    runtime: Handle,
    memory: Arc<Memory>,
    users: Option<auth::Users>,
    tls: Option<Tls>,
    /// Connections that are open.
    open: AtomicU32,
    listed: Arc<open::Open>,
    prefixes: prefixes::Prefixes,
    draining: CancellationToken,
    is_draining: AtomicBool,
    threads: Vec<Arc<Counters>>,
    /// The counts at the last `stats reset`.
    reset: Mutex<Totals>,
    started_unix_s: u64,
}

impl Frontend for MemcachedFrontend {
    type Config = MemcachedConfig;
    type Listeners = Listeners;
    const NAME: &'static str = "memcached";

    async fn bind(config: &MemcachedConfig, host: &Host) -> Result<Bound<Self>, StartError> {
        let listeners = Listeners::open(Self::NAME, config).await?;
        let items = ItemCache::open(host.items.clone(), &config.items()).await;
        let items = items.map_err(|error| StartError::Prepare {
            frontend: Self::NAME,
            source: error.into(),
        })?;
        Ok(Bound {
            frontend: MemcachedFrontend::new(config, items, host)?,
            addresses: listeners.addresses(),
            listeners,
        })
    }

    fn serve(self: Arc<Self>, listeners: Listeners, serving: Serving) -> Service {
        listeners.serve(&self, &serving.shutdown)
    }

    fn reload(self: Arc<Self>, config: &MemcachedConfig) -> Result<Reload, ServerConfigError> {
        let new = Reloaded::read(config)?;
        Ok(Box::new(move || self.take(&new)))
    }
}

impl MemcachedFrontend {
    fn new(
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

    /// Its settings, of which some can be replaced.
    fn config(&self) -> Arc<MemcachedConfig> {
        self.config.get()
    }

    /// How long a client may take or send nothing in the middle of something.
    fn stall_limit(&self) -> Duration {
        Duration::from_secs(u64::from(self.config().stall_timeout_seconds))
    }

    /// Whether the server stops; as cheap as a load, unlike `draining`.
    fn is_draining(&self) -> bool {
        self.is_draining.load(Relaxed)
    }

    /// Everything counted so far.
    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for thread in &self.threads {
            totals.add(thread);
        }
        totals
    }

    /// Latencies of gets with this result.
    fn get_latency(&self, result: GetResult) -> HistogramSnapshot {
        let threads = self.threads.iter().map(|thread| &thread.get_latencies);
        latency::total(threads, result)
    }

    /// Connections that are open.
    fn open_connections(&self) -> u32 {
        self.open.load(Relaxed)
    }
}
