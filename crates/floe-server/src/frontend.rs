//! The contract between the server and its frontends. It names no frontend.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use floe::Cache;
use floe::config::VolumeSettings;
use floe::object::ObjectCache;
use floe::volume::VolumeCache;
use floe_device::metered::Meters;
use floe_device::upkeep::HealthWatch;
use floe_device::{Clock, SharedBlockDevice};
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::{Section, ServerConfigError};
use crate::metrics::Collect;
use crate::net::{BindError, Service, Shutdown};
use crate::node::Node;
use crate::reload::Reload;

pub use crate::net::Address;

/// A protocol through which clients reach the cache.
///
/// The server binds every frontend that has a section, then serves them. At
/// shutdown it cancels `drain`, waits, and cancels `abort` at the deadline.
pub(crate) trait Frontend: Collect + Sized + 'static {
    /// Its section of the settings.
    type Config: Section;

    /// Its bound sockets.
    type Listeners: Send + 'static;

    /// Its name in settings, messages and metric labels.
    const NAME: &'static str;

    /// It serves operators and stops after the frontends of clients.
    const ENDS_LAST: bool = false;

    /// Binds the addresses of `config`, and prepares to serve.
    fn bind(
        config: &Self::Config,
        host: &Host,
    ) -> impl Future<Output = Result<Bound<Self>, StartError>> + Send;

    /// Serves until shutdown. When `drain` is cancelled it drops the listeners,
    /// completes the pending requests and ends; when `abort` is, it ends at
    /// once. `serving.shutdown.tasks` tracks the tasks that it spawns.
    fn serve(self: Arc<Self>, listeners: Self::Listeners, serving: Serving) -> Service;

    /// Reads and checks the files of `config`, which is valid. Calling the
    /// result applies the settings that need no restart; by default there are
    /// none.
    ///
    /// # Errors
    /// A file is invalid. Nothing is replaced.
    fn reload(self: Arc<Self>, _config: &Self::Config) -> Result<Reload, ServerConfigError> {
        Ok(Box::new(Vec::new))
    }
}

/// A frontend with bound addresses.
pub(crate) struct Bound<F: Frontend> {
    pub(crate) frontend: F,
    pub(crate) listeners: F::Listeners,
    pub(crate) addresses: Vec<Address>,
}

impl<F: Frontend<Listeners = TcpListener>> Bound<F> {
    /// A frontend with one TCP listener.
    pub(crate) fn tcp(frontend: F, listener: TcpListener) -> Self {
        Bound {
            frontend,
            addresses: listener
                .local_addr()
                .map(Address::Tcp)
                .into_iter()
                .collect(),
            listeners: listener,
        }
    }
}

/// The caches and the environment, for all frontends.
#[derive(Clone)]
pub(crate) struct Host {
    /// Objects, read through from their origin.
    pub(crate) objects: ObjectCache,
    /// Keys and values without an origin. May share the store of `objects`.
    pub(crate) items: Cache,
    /// The cache of block volumes, if there is one.
    pub(crate) volumes: Option<VolumeCache>,
    /// Opens the backing devices of volumes that are attached while the server runs.
    pub(crate) open_backing: Option<OpenBacking>,
    /// The health of the drives, if it is to be read.
    pub(crate) health: Option<HealthWatch>,
    /// The meters of the cache's device, if there are any.
    pub(crate) device: Option<Arc<Meters>>,
    pub(crate) clock: Clock,
    /// This server as one of several nodes.
    pub(crate) node: Arc<Node>,
    /// Cancelled when the frontends of clients accept no more requests.
    pub(crate) draining: CancellationToken,
    /// Cancelled when a shutdown begins, before it drains connections.
    pub(crate) leaving: CancellationToken,
}

/// Opens the backing device of a volume.
#[derive(Clone)]
pub struct OpenBacking(Arc<Open>);

type Open = dyn Fn(VolumeSettings) -> BoxFuture<'static, Opened> + Send + Sync;

/// A backing device, or why it cannot be opened.
type Opened = Result<SharedBlockDevice, Box<dyn Error + Send + Sync>>;

impl OpenBacking {
    /// Opens backing devices by `open`.
    pub fn new(
        open: impl Fn(VolumeSettings) -> BoxFuture<'static, Opened> + Send + Sync + 'static,
    ) -> Self {
        OpenBacking(Arc::new(open))
    }

    pub(crate) async fn call(&self, settings: VolumeSettings) -> Opened {
        (self.0)(settings).await
    }
}

impl fmt::Debug for OpenBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenBacking")
    }
}

/// The environment of a frontend while it serves.
pub(crate) struct Serving {
    pub(crate) shutdown: Shutdown,
    /// The metrics of all frontends.
    pub(crate) metrics: Arc<[Arc<dyn Collect>]>,
}

/// The addresses of all frontends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses(Vec<(&'static str, Address)>);

impl Addresses {
    pub(crate) fn add(&mut self, frontend: &'static str, addresses: Vec<Address>) {
        let named = addresses.into_iter().map(|address| (frontend, address));
        self.0.extend(named);
    }

    /// Each address with the name of its frontend: `s3`, `memcached`, ….
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Address)> {
        self.0
            .iter()
            .map(|(frontend, address)| (*frontend, address))
    }

    /// The TCP address of `frontend`.
    pub fn tcp(&self, frontend: &str) -> Option<SocketAddr> {
        self.of(frontend).find_map(|address| match address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        })
    }

    /// The path of the Unix socket of `frontend`.
    pub fn unix(&self, frontend: &str) -> Option<&Path> {
        self.of(frontend).find_map(|address| match address {
            Address::Tcp(_) => None,
            Address::Unix(path) => Some(path.as_path()),
        })
    }

    fn of(&self, frontend: &str) -> impl Iterator<Item = &Address> {
        let own = self.iter().filter(move |(name, _)| *name == frontend);
        own.map(|(_, address)| address)
    }
}

/// Errors of starting the frontends. None of them is open then.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot be served.
    #[error(transparent)]
    Config(#[from] ServerConfigError),
    /// An address could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A frontend could not be prepared.
    #[error("{frontend} could not be prepared: {source}")]
    Prepare {
        /// Its name.
        frontend: &'static str,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A thread could not be started.
    #[error("a thread of {frontend} could not be started: {source}")]
    Thread {
        /// The name of the frontend.
        frontend: &'static str,
        /// The cause.
        source: io::Error,
    },
}
