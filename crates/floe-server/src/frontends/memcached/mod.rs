//! memcached's text protocol, classic and meta, over TCP and a Unix socket.
//!
//! Each thread serves its connections on its own runtime, with its own listener
//! on the same port. Hits in memory are served by the connection's loop. Reads
//! of flash run concurrently with later requests of the batch, and responses
//! keep the order of the requests.
//!
//! `docs/memcached.md` lists the differences from memcached.

mod auth;
mod collect;
mod config;
mod connection;
mod counters;
mod execute;
mod frontend;
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

use floe::ItemCache;

use crate::config::ServerConfigError;
use crate::frontend::{Bound, Frontend, Host, Serving, StartError};
use crate::net::{Listeners, Service};
use crate::reload::Reload;
pub use config::MemcachedConfig;
pub(crate) use frontend::MemcachedFrontend;
use reload::Reloaded;

impl Frontend for MemcachedFrontend {
    type Config = MemcachedConfig;
    type Listeners = Listeners;
    const NAME: &'static str = "memcached";

    async fn bind(config: &MemcachedConfig, host: &Host) -> Result<Bound<Self>, StartError> {
        let listeners = Listeners::bind(
            Self::NAME,
            config.listen,
            &config.path,
            config.thread_count(),
        )
        .await?;
        let items = ItemCache::open(host.items.clone(), &config.items()).await;
        let items = items.map_err(|error| StartError::Prepare {
            frontend: Self::NAME,
            source: error.into(),
        })?;
        host.node.adopt(&items);
        Ok(Bound {
            frontend: MemcachedFrontend::new(config, items, host)?,
            addresses: listeners.addresses(),
            listeners,
        })
    }

    fn serve(self: Arc<Self>, listeners: Listeners, serving: Serving) -> Service {
        listen::serve(&self, listeners, &serving.shutdown)
    }

    fn reload(self: Arc<Self>, config: &MemcachedConfig) -> Result<Reload, ServerConfigError> {
        let new = Reloaded::read(config)?;
        Ok(Box::new(move || self.take(&new)))
    }
}
