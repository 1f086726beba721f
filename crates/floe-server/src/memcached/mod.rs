//! memcached's text protocol, classic and meta, over TCP and a Unix socket.
//!
//! Each thread serves its connections on a runtime of its own, with a listener
//! of its own on the same port. What memory holds is answered in the
//! connection's loop; what flash holds is read while the next requests of the
//! same batch are carried out, and answered in order.
//!
//! `docs/memcached.md` says what differs from memcached.

mod auth;
mod connection;
mod counters;
mod execute;
mod listen;
mod meta;
mod output;
pub mod protocol;
mod replies;
mod statistics;
mod tls;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use floe::ItemCache;
use floe_device::Clock;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::config::{MemcachedConfig, ServerConfigError};
use connection::MEMORY_UNIT_BYTES;
use counters::Counters;
pub(crate) use counters::Totals;
pub(crate) use listen::Listeners;

/// The memcached face, ready to serve.
#[derive(Debug)]
pub(crate) struct Face {
    items: ItemCache,
    clock: Clock,
    config: MemcachedConfig,
    /// Where the store's own work is done.
    runtime: Handle,
    /// Memory of values and answers over all connections, in units of
    /// [`MEMORY_UNIT_BYTES`].
    memory: Arc<Semaphore>,
    memory_units_max: u32,
    memory_waits: AtomicU64,
    users: Option<auth::Users>,
    tls: Option<tls::Acceptor>,
    /// Connections that are open.
    open: AtomicU32,
    draining: CancellationToken,
    threads: Vec<Arc<Counters>>,
    /// What had been counted when `stats reset` was last said.
    reset: Mutex<Totals>,
    started_unix_s: u64,
}

impl Face {
    /// Its items.
    pub(crate) fn items(&self) -> &ItemCache {
        &self.items
    }

    /// Prepares to serve `items` on `threads` threads.
    pub(crate) fn new(
        config: &MemcachedConfig,
        items: ItemCache,
        clock: Clock,
        draining: CancellationToken,
    ) -> Result<Arc<Self>, ServerConfigError> {
        let users = match config.auth_file.as_os_str().is_empty() {
            true => None,
            false => Some(auth::Users::read(&config.auth_file)?),
        };
        let tls = tls::Acceptor::new(&config.tls_certificate, &config.tls_key)?;
        let units = config.memory.bytes() / MEMORY_UNIT_BYTES as u64;
        let memory_units_max = u32::try_from(units)
            .unwrap_or(u32::MAX)
            .clamp(1, u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Ok(Arc::new(Face {
            started_unix_s: clock.unix_seconds(),
            items,
            clock,
            runtime: Handle::current(),
            memory: Arc::new(Semaphore::new(memory_units_max as usize)),
            memory_units_max,
            memory_waits: AtomicU64::new(0),
            users,
            tls,
            open: AtomicU32::new(0),
            draining,
            threads: (0..config.thread_count())
                .map(|_| Arc::new(Counters::default()))
                .collect(),
            reset: Mutex::new(Totals::default()),
            config: config.clone(),
        }))
    }

    /// The share of memory that `bytes` need, or all there is.
    fn memory_units(&self, bytes: u64) -> u32 {
        let units = bytes.div_ceil(MEMORY_UNIT_BYTES as u64).max(1);
        u32::try_from(units)
            .unwrap_or(u32::MAX)
            .min(self.memory_units_max)
    }

    /// Everything counted so far.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for thread in &self.threads {
            totals.add(thread);
        }
        totals
    }

    /// Connections that are open.
    pub(crate) fn open_connections(&self) -> u32 {
        self.open.load(Relaxed)
    }

    /// Times that a connection waited for memory.
    pub(crate) fn memory_waits(&self) -> u64 {
        self.memory_waits.load(Relaxed)
    }

    /// Memory that values and answers take now.
    pub(crate) fn memory_used_bytes(&self) -> u64 {
        let free = self.memory.available_permits();
        (self.memory_units_max as usize - free) as u64 * MEMORY_UNIT_BYTES as u64
    }
}
