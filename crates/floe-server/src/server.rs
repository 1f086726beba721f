//! Starting, reloading and stopping the frontends together.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use floe::object::ObjectCache;
use floe::{Cache, Origin, Store};
use floe_device::Clock;
use floe_device::metered::Meters;

use crate::config::ServerConfigError;
use crate::frontend::{Addresses, Host, Serving, StartError};
use crate::frontends::{Opened, Reloader, ServerConfig};
use crate::metrics::Collect;
use crate::net::Shutdown;

/// The outcome of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every request was answered.
    Completely,
    /// Requests were still in progress at the deadline and were broken off.
    BrokenOff,
}

/// The running frontends. Dropping it aborts every request; [`shutdown`](Server::shutdown) drains them first.
pub struct Server {
    addresses: Addresses,
    clock: Clock,
    drain_timeout_seconds: AtomicU32,
    objects: ObjectCache,
    reloaders: Vec<Reloader>,
    /// Stops the frontends of clients.
    clients: Shutdown,
    /// Stops the frontends of operators, which serve until the others have ended.
    operators: Shutdown,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut server = f.debug_struct("Server");
        server
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Opens the configured frontends: objects on `cache`, memcached's items on
    /// `items`, which may share its store. Must be called inside a tokio
    /// runtime with I/O and time. `device` are the meters of the cache's
    /// device, if it is metered; they are shown with the other metrics.
    ///
    /// # Errors
    /// If the configuration cannot be served, or an address not be taken.
    pub async fn start(
        config: ServerConfig,
        cache: ObjectCache,
        items: Cache,
        clock: Clock,
        device: Option<Arc<Meters>>,
    ) -> Result<Self, StartError> {
        config.validate()?;
        for exposed in config.exposed() {
            tracing::warn!("{exposed}");
        }
        let mut server = Server {
            addresses: Addresses::default(),
            clock: clock.clone(),
            drain_timeout_seconds: AtomicU32::new(config.drain_timeout_seconds),
            objects: cache.clone(),
            reloaders: Vec::new(),
            clients: Shutdown::default(),
            operators: Shutdown::default(),
        };
        let host = Host {
            objects: cache,
            items,
            device,
            clock,
            draining: server.clients.drain.clone(),
        };
        server.serve(config.bind(&host).await?)?;
        Ok(server)
    }

    /// The addresses of the frontends, with the real port instead of port 0.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The origin of the objects.
    pub fn origin(&self) -> &Origin {
        self.objects.origin()
    }

    /// The store of chunks and items.
    pub fn store(&self) -> &Store {
        self.objects.store()
    }

    /// Takes from `config` what can be replaced while the frontends serve: keys,
    /// users, certificates, limits. Answers with the settings taken.
    ///
    /// # Errors
    /// If the configuration cannot be served, or a file that it names not be
    /// used. Nothing is replaced then.
    pub fn reload(&self, config: &ServerConfig) -> Result<Vec<&'static str>, ServerConfigError> {
        config.validate()?;
        let read = self.reloaders.iter().map(|reloader| reloader(config));
        let read: Vec<_> = read.collect::<Result<_, _>>()?;
        let drain_timeout = config.drain_timeout_seconds;
        self.drain_timeout_seconds.store(drain_timeout, Relaxed);
        let mut taken = vec!["server.drain_timeout_seconds"];
        for reload in read.into_iter().flatten() {
            taken.extend(reload());
        }
        Ok(taken)
    }

    /// Stops accepting, answers the requests in flight, and closes. Requests left
    /// at the deadline are aborted. Completed fetches are in the store when this
    /// returns, and the store may be closed.
    pub async fn shutdown(self) -> Drained {
        let drained = self.end(&self.clients).await;
        self.objects.stop().await;
        self.end(&self.operators).await;
        drained
    }

    async fn end(&self, shutdown: &Shutdown) -> Drained {
        shutdown.drain.cancel();
        shutdown.tasks.close();
        let seconds = self.drain_timeout_seconds.load(Relaxed);
        let drain_timeout = Duration::from_secs(u64::from(seconds));
        let drained = tokio::select! {
            biased;
            () = shutdown.tasks.wait() => Drained::Completely,
            () = self.clock.sleep(drain_timeout) => Drained::BrokenOff,
        };
        shutdown.abort.cancel();
        shutdown.tasks.wait().await;
        drained
    }

    fn serve(&mut self, frontends: Vec<Opened>) -> Result<(), StartError> {
        let metrics = frontends.iter().map(|one| Arc::clone(&one.metrics));
        let metrics: Arc<[Arc<dyn Collect>]> = metrics.collect();
        for frontend in frontends {
            let name = frontend.name;
            let shutdown = match frontend.ends_last {
                false => &self.clients,
                true => &self.operators,
            };
            let serving = Serving {
                shutdown: shutdown.clone(),
                metrics: Arc::clone(&metrics),
            };
            let started = (frontend.serve)(serving).start(name, &shutdown.tasks);
            started.map_err(|source| StartError::Thread {
                frontend: name,
                source,
            })?;
            self.addresses.add(name, frontend.addresses);
            self.reloaders.push(frontend.reloader);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for shutdown in [&self.clients, &self.operators] {
            shutdown.drain.cancel();
            shutdown.abort.cancel();
        }
    }
}
