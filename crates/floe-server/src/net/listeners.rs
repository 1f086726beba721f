//! The sockets of a frontend with its own threads: one TCP listener per thread
//! on one port, so that the kernel distributes connections, and one Unix socket
//! for all threads.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::task::TaskTracker;

use super::accept::Shutdown;
use super::bind::{BindError, UnixSocket, bind_tcp_shared};
use super::service::Service;

/// An address of a frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

/// The bound sockets of a frontend.
pub(crate) struct Listeners {
    /// One per thread.
    tcp: Vec<std::net::TcpListener>,
    unix: Option<Arc<UnixSocket>>,
}

impl Listeners {
    /// Binds `listen` once per thread, and `path` unless it is empty.
    pub(crate) async fn bind(
        frontend: &'static str,
        listen: Option<SocketAddr>,
        path: &Path,
        threads: usize,
    ) -> Result<Self, BindError> {
        Ok(Listeners {
            tcp: match listen {
                Some(address) => bind_tcp_shared(frontend, address, threads).await?,
                None => Vec::new(),
            },
            unix: match path.as_os_str().is_empty() {
                true => None,
                false => Some(Arc::new(UnixSocket::bind(frontend, path).await?)),
            },
        })
    }

    /// Threads for the TCP listeners.
    pub(crate) fn threads(&self) -> usize {
        self.tcp.len()
    }

    pub(crate) fn addresses(&self) -> Vec<Address> {
        let tcp = self.tcp.first();
        let tcp = tcp.and_then(|listener| listener.local_addr().ok());
        let unix = self.unix.as_ref().map(|socket| socket.path().to_owned());
        let unix = unix.map(Address::Unix);
        tcp.map(Address::Tcp).into_iter().chain(unix).collect()
    }

    /// Runs a thread for each of `threads`. Each runs its own `accept` until
    /// the drain of `shutdown`, then waits for the connections, which are tasks
    /// of the tracker.
    pub(crate) fn serve<T, A>(
        self,
        threads: impl Iterator<Item = T>,
        shutdown: &Shutdown,
        accept: impl FnOnce(T, ThreadListeners, TaskTracker) -> A + Clone + Send + 'static,
    ) -> Service
    where
        T: Send + 'static,
        A: Future<Output = ()> + 'static,
    {
        let mut tcp = self.tcp.into_iter();
        Service::threads(threads.map(|thread| {
            let listeners = ThreadListeners {
                tcp: Mutex::new(tcp.next()),
                unix: self.unix.clone(),
            };
            let (accept, drain) = (accept.clone(), shutdown.drain.clone());
            move || async move {
                let connections = TaskTracker::new();
                tokio::select! {
                    biased;
                    () = drain.cancelled() => {}
                    () = accept(thread, listeners, connections.clone()) => {}
                }
                connections.close();
                connections.wait().await;
            }
        }))
    }
}

/// The sockets of one thread.
pub(crate) struct ThreadListeners {
    tcp: Mutex<Option<std::net::TcpListener>>,
    unix: Option<Arc<UnixSocket>>,
}

impl ThreadListeners {
    /// The TCP listener, registered with the caller's runtime; never ready if
    /// there is none, or on a second call. One that cannot be registered is closed, so that
    /// the kernel gives its connections to other threads.
    pub(crate) async fn tcp(&self) -> TcpListener {
        let taken = self.tcp.lock().take();
        listening(taken.map(TcpListener::from_std)).await
    }

    /// The Unix socket, registered with the caller's runtime; never ready if
    /// there is none.
    pub(crate) async fn unix(&self) -> UnixListener {
        listening(self.unix.as_deref().map(UnixSocket::share)).await
    }

    /// The path of the Unix socket.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.unix.as_deref().map(UnixSocket::path)
    }
}

async fn listening<L>(listener: Option<io::Result<L>>) -> L {
    match listener {
        Some(Ok(listener)) => return listener,
        Some(Err(error)) => tracing::error!(%error, "a thread of a frontend cannot listen"),
        None => {}
    }
    std::future::pending().await
}
