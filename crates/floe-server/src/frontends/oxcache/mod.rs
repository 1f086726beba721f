//! OxCache's protocol on a Unix socket, for OxCache's clients.
//!
//! Requests may be pipelined: they run concurrently, and responses keep their
//! order. A response has exactly the requested bytes or is an error; an invalid
//! request ends the connection.

pub mod codec;
mod config;
mod connection;
mod frontend;

use std::sync::Arc;

use crate::config::ServerConfigError;
use crate::frontend::{Address, Bound, Frontend, Host, Serving, StartError};
use crate::metrics::{Collect, Samples};
use crate::net::{self, Places, Service, UnixSocket};
use crate::reload::Reload;

pub use config::OxCacheConfig;
pub(crate) use frontend::OxCacheFrontend;

impl Frontend for OxCacheFrontend {
    type Config = OxCacheConfig;
    type Listeners = UnixSocket;
    const NAME: &'static str = "oxcache";

    async fn bind(config: &OxCacheConfig, host: &Host) -> Result<Bound<Self>, StartError> {
        let socket = UnixSocket::bind(Self::NAME, &config.path).await?;
        Ok(Bound {
            frontend: OxCacheFrontend::new(config, host),
            addresses: vec![Address::Unix(socket.path().to_owned())],
            listeners: socket,
        })
    }

    fn serve(self: Arc<Self>, socket: UnixSocket, serving: Serving) -> Service {
        let shutdown = serving.shutdown;
        let connections = shutdown.clone();
        Service::shared(net::accept(
            socket,
            Places::new(&self.connections, &self.clock),
            shutdown,
            Arc::clone(&self.statistics.connections),
            move |stream, _, activity| {
                connection::serve(Arc::clone(&self), stream, connections.clone(), activity)
            },
        ))
    }

    /// Applies the limit on connections.
    fn reload(self: Arc<Self>, config: &OxCacheConfig) -> Result<Reload, ServerConfigError> {
        let max_connections = config.max_connections as usize;
        Ok(Box::new(move || {
            self.connections.set(max_connections);
            vec!["oxcache.max_connections"]
        }))
    }
}

impl Collect for OxCacheFrontend {
    fn collect(&self, samples: &mut Samples) {
        self.statistics.collect(samples, Self::NAME);
    }
}
