//! Starting and stopping the faces together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use floe::items::ItemError;
use floe::object::ObjectCache;
use floe::{Cache, ItemCache, Origin, Store};
use floe_device::Clock;
use floe_device::metered::Meters;
use tokio::net::TcpListener;

use crate::config::ServerConfigError;
use crate::frontends::ServerConfig;
use crate::frontends::admin::{self, Known};
use crate::frontends::memcached::{self, MemcachedConfig};
use crate::frontends::oxcache::OxCacheFace;
use crate::frontends::s3::S3Face;
use crate::metrics::FaceStatistics;
use crate::net::{BindError, Shutdown, UnixSocket, bind_tcp};

/// Why the faces could not be opened. None is open then.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot be served.
    #[error(transparent)]
    Config(#[from] ServerConfigError),
    /// An address could not be taken.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The items of the memcached face could not be opened.
    #[error("the memcached face has no items: {0}")]
    Items(#[from] ItemError),
    /// A thread could not be started.
    #[error("a thread of the memcached face could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Where the faces can be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The S3 face.
    pub s3: Option<SocketAddr>,
    /// OxCache's socket.
    pub oxcache: Option<PathBuf>,
    /// The memcached face.
    pub memcached: Option<SocketAddr>,
    /// The memcached face's socket.
    pub memcached_path: Option<PathBuf>,
    /// Metrics and health.
    pub admin: Option<SocketAddr>,
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every request was answered.
    Completely,
    /// Requests were still in progress at the deadline and were broken off.
    BrokenOff,
}

/// The running faces. Dropping it breaks everything off; [`shutdown`](Server::shutdown) is kinder.
#[derive(Debug)]
pub struct Server {
    addresses: Addresses,
    clock: Clock,
    drain_timeout_seconds: AtomicU32,
    objects: ObjectCache,
    s3: Option<S3Face>,
    oxcache: Option<OxCacheFace>,
    memcached: Option<Arc<memcached::Face>>,
    faces: Shutdown,
    /// Metrics are served until the other faces have ended.
    admin: Shutdown,
}

struct Listeners {
    s3: Option<TcpListener>,
    oxcache: Option<UnixSocket>,
    memcached: Option<memcached::Listeners>,
    admin: Option<TcpListener>,
}

impl Server {
    /// Opens the configured faces: objects on `cache`, memcached's items on
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
        let listeners = Listeners::open(&config).await?;
        let mut server = Server {
            addresses: listeners.addresses(),
            clock,
            objects: cache.clone(),
            drain_timeout_seconds: AtomicU32::new(config.drain_timeout_seconds),
            s3: None,
            oxcache: None,
            memcached: None,
            faces: Shutdown::default(),
            admin: Shutdown::default(),
        };
        let memcached = match &config.memcached {
            Some(memcached) => Some(server.memcached(memcached, items).await?),
            None => None,
        };
        server.serve(config, cache, device, listeners, memcached)?;
        Ok(server)
    }

    /// Where the faces can be reached; port 0 has been replaced by the port taken.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Where objects come from.
    pub fn origin(&self) -> &Origin {
        self.objects.origin()
    }

    /// Where chunks and items are kept.
    pub fn store(&self) -> &Store {
        self.objects.store()
    }

    /// Takes from `config` what can be replaced while the faces serve: keys,
    /// users, certificate, limits. Answers with the settings taken.
    ///
    /// # Errors
    /// If the configuration cannot be served, or a file that it names not be
    /// used. Nothing is replaced then.
    pub fn reload(&self, config: &ServerConfig) -> Result<Vec<&'static str>, ServerConfigError> {
        config.validate()?;
        let memcached = match &config.memcached {
            Some(config) => Some(memcached::Reloaded::read(config)?),
            None => None,
        };
        let mut taken = vec!["server.drain_timeout_seconds"];
        let drain_timeout = config.drain_timeout_seconds;
        self.drain_timeout_seconds.store(drain_timeout, Relaxed);
        if let (Some(face), Some(config)) = (&self.s3, &config.s3) {
            taken.extend(face.reload(config));
        }
        if let (Some(face), Some(config)) = (&self.oxcache, &config.oxcache) {
            taken.extend(face.reload(config));
        }
        if let (Some(face), Some(new)) = (&self.memcached, &memcached) {
            taken.extend(face.reload(new));
        }
        Ok(taken)
    }

    /// Stops accepting, answers what was asked, and closes. Whatever is left
    /// at the deadline is broken off. What was fetched whole is in the store
    /// then, which may be closed.
    pub async fn shutdown(self) -> Drained {
        let drained = self.end(&self.faces).await;
        self.objects.stop().await;
        self.end(&self.admin).await;
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

    /// The memcached face on `cache`, where items have a key space of their own.
    async fn memcached(
        &self,
        config: &MemcachedConfig,
        cache: Cache,
    ) -> Result<Arc<memcached::Face>, StartError> {
        let items = ItemCache::open(cache, &config.items()).await?;
        let draining = self.faces.drain.clone();
        Ok(memcached::Face::new(
            config,
            items,
            self.clock.clone(),
            draining,
        )?)
    }

    fn serve(
        &mut self,
        config: ServerConfig,
        cache: ObjectCache,
        device: Option<Arc<Meters>>,
        listeners: Listeners,
        memcached: Option<Arc<memcached::Face>>,
    ) -> Result<(), StartError> {
        let mut faces = Vec::new();
        let mut statistics = |name| {
            let statistics = Arc::new(FaceStatistics::default());
            faces.push((name, Arc::clone(&statistics)));
            statistics
        };
        if let (Some(config), Some(listener)) = (&config.s3, listeners.s3) {
            let clock = self.clock.clone();
            let face = S3Face::new(config, cache.clone(), clock, statistics("s3"));
            self.s3 = Some(face.clone());
            let serve = face.serve(listener, self.faces.clone());
            self.faces.tasks.spawn(serve);
        }
        if let (Some(config), Some(socket)) = (&config.oxcache, listeners.oxcache) {
            let clock = self.clock.clone();
            let face = OxCacheFace::new(config, cache.clone(), clock, statistics("oxcache"));
            self.oxcache = Some(face.clone());
            let serve = face.serve(socket, self.faces.clone());
            self.faces.tasks.spawn(serve);
        }
        if let (Some(face), Some(listeners)) = (&memcached, listeners.memcached) {
            listeners.serve(face, &self.faces)?;
            self.memcached = Some(Arc::clone(face));
        }
        if let (Some(config), Some(listener)) = (config.admin, listeners.admin) {
            let known = Arc::new(Known {
                cache,
                device,
                faces,
                memcached,
                started: self.clock.now(),
                clock: self.clock.clone(),
                draining: self.faces.drain.clone(),
            });
            let serve = admin::serve(config, known, listener, self.admin.clone());
            self.admin.tasks.spawn(serve);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for shutdown in [&self.faces, &self.admin] {
            shutdown.drain.cancel();
            shutdown.abort.cancel();
        }
    }
}

impl Listeners {
    async fn open(config: &ServerConfig) -> Result<Self, BindError> {
        Ok(Listeners {
            s3: match &config.s3 {
                Some(s3) => Some(bind_tcp("S3", "s3.listen", s3.listen).await?),
                None => None,
            },
            oxcache: match &config.oxcache {
                Some(ox) => Some(UnixSocket::bind("OxCache", "oxcache.path", &ox.path).await?),
                None => None,
            },
            memcached: match &config.memcached {
                Some(memcached) => Some(memcached::Listeners::open(memcached).await?),
                None => None,
            },
            admin: match &config.admin {
                Some(admin) => Some(bind_tcp("admin", "admin.listen", admin.listen).await?),
                None => None,
            },
        })
    }

    fn addresses(&self) -> Addresses {
        let local = |listener: &Option<TcpListener>| listener.as_ref()?.local_addr().ok();
        Addresses {
            s3: local(&self.s3),
            oxcache: self.oxcache.as_ref().map(|socket| socket.path().to_owned()),
            memcached: self.memcached.as_ref().and_then(|face| face.address()),
            memcached_path: self.memcached.as_ref().and_then(|face| face.path()),
            admin: local(&self.admin),
        }
    }
}
