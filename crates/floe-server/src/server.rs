//! Starts, reloads and stops the frontends together.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use floe::object::ObjectCache;
use floe::volume::VolumeCache;
use floe::{Cache, Origin, Store};
use floe_device::Clock;
use floe_device::metered::Meters;
use floe_device::upkeep::HealthWatch;

use tokio_util::sync::CancellationToken;

use crate::config::ServerConfigError;
use crate::frontend::{Addresses, Host, OpenBacking, Serving, StartError};
use crate::frontends::{Opened, Reloader, ServerConfig};
use crate::metrics::Collect;
use crate::net::Shutdown;
use crate::node::Node;

/// The result of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every request was completed.
    Completely,
    /// Requests were pending at the deadline and were aborted.
    BrokenOff,
}

/// The running frontends. Dropping it aborts every request; [`shutdown`](Server::shutdown) drains them first.
pub struct Server {
    addresses: Addresses,
    clock: Clock,
    leave_seconds: AtomicU32,
    drain_timeout_seconds: AtomicU32,
    /// Cancelled when a shutdown begins.
    leaving: CancellationToken,
    objects: ObjectCache,
    node: Arc<Node>,
    reloaders: Vec<Reloader>,
    /// Stops the frontends of clients.
    clients: Shutdown,
    /// Stops the frontends of operators, which serve until the others have stopped.
    operators: Shutdown,
}

/// The caches that frontends serve.
#[derive(Clone, Debug)]
pub struct Caches {
    /// Objects, read through from their origin.
    pub objects: ObjectCache,
    /// Keys and values without an origin. May share the store of `objects`.
    pub items: Cache,
    /// The cache of block volumes, if there is one.
    pub volumes: Option<VolumeCache>,
    /// Opens the backing devices of volumes that are attached while the server runs;
    /// without it none can be.
    pub open_backing: Option<OpenBacking>,
    /// The health of the drives below the caches, for metrics.
    pub health: Option<HealthWatch>,
}

impl From<ObjectCache> for Caches {
    /// Objects, and items in the same store; no volumes.
    fn from(objects: ObjectCache) -> Self {
        Caches {
            items: Cache::over(objects.store().clone()),
            objects,
            volumes: None,
            open_backing: None,
            health: None,
        }
    }
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
    /// Opens the configured frontends on `caches`. Requires a tokio runtime with I/O and
    /// time. `device` are the device's meters, if there are any, for the metrics.
    ///
    /// # Errors
    /// A setting is invalid, or an address cannot be bound.
    pub async fn start(
        config: ServerConfig,
        caches: Caches,
        clock: Clock,
        device: Option<Arc<Meters>>,
    ) -> Result<Self, StartError> {
        config.validate()?;
        let Caches {
            objects,
            items,
            volumes,
            open_backing,
            health,
        } = caches;
        for warning in config.warnings(objects.config()) {
            tracing::warn!("{warning}");
        }
        let node = Node::new(config.node.as_ref(), &objects, &clock);
        let mut server = Server {
            addresses: Addresses::default(),
            clock: clock.clone(),
            leave_seconds: AtomicU32::new(config.leave_seconds),
            drain_timeout_seconds: AtomicU32::new(config.drain_timeout_seconds),
            leaving: CancellationToken::new(),
            objects: objects.clone(),
            node: Arc::clone(&node),
            reloaders: Vec::new(),
            clients: Shutdown::default(),
            operators: Shutdown::default(),
        };
        let host = Host {
            objects,
            items,
            volumes,
            open_backing,
            health,
            device,
            clock,
            node: Arc::clone(&node),
            draining: server.clients.drain.clone(),
            leaving: server.leaving.clone(),
        };
        let frontends = config.bind(&host).await?;
        let started = node.start().await;
        started.map_err(|source| StartError::Prepare {
            frontend: "node",
            source,
        })?;
        server.serve(frontends)?;
        Ok(server)
    }

    /// The addresses of the frontends, with the actual port in place of port 0.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The objects.
    pub fn objects(&self) -> &ObjectCache {
        &self.objects
    }

    /// The origin of the objects.
    pub fn origin(&self) -> &Origin {
        self.objects.origin()
    }

    /// The store of chunks and items.
    pub fn store(&self) -> &Store {
        self.objects.store()
    }

    /// Applies the settings of `config` that need no restart: keys, users,
    /// certificates, limits. Returns the names of the applied settings.
    ///
    /// # Errors
    /// A setting or a file that it names is invalid. Nothing is replaced.
    pub fn reload(&self, config: &ServerConfig) -> Result<Vec<&'static str>, ServerConfigError> {
        config.validate()?;
        let read = self.reloaders.iter().map(|reloader| reloader(config));
        let read: Vec<_> = read.collect::<Result<_, _>>()?;
        let drain_timeout = config.drain_timeout_seconds;
        self.drain_timeout_seconds.store(drain_timeout, Relaxed);
        self.leave_seconds.store(config.leave_seconds, Relaxed);
        let mut taken = vec!["server.leave_seconds", "server.drain_timeout_seconds"];
        for reload in read.into_iter().flatten() {
            taken.extend(reload());
        }
        Ok(taken)
    }

    /// Lets load balancers learn of it, stops accepting, completes the pending requests, and
    /// closes. Requests left at the deadline are aborted. When this returns, the store has all
    /// completed fetches and may be closed.
    pub async fn shutdown(self) -> Drained {
        self.leaving.cancel();
        let seconds = self.leave_seconds.load(Relaxed);
        if seconds > 0 {
            tracing::info!(
                seconds,
                "leaving: /ready answers 404, requests are still taken"
            );
        }
        self.leave(seconds).await;
        let drained = self.end(&self.clients).await;
        self.node.stop().await;
        self.objects.stop().await;
        // A balancer that finds no /ready may end a transfer whose last bytes it has yet to read.
        self.leave(seconds).await;
        self.end(&self.operators).await;
        drained
    }

    async fn leave(&self, seconds: u32) {
        if seconds > 0 {
            self.clock.sleep(Duration::from_secs(seconds.into())).await;
        }
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
            let started = (frontend.serve)(serving).start(name, shutdown);
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
            shutdown.end.cancel();
        }
    }
}
