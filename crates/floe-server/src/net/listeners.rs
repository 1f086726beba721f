//! The sockets of a frontend with its own threads: one TCP listener per thread
//! on one port, and one Unix socket for all threads. Connections are [spread](super::spread) over
//! the threads.

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
use super::spread::{Desk, Detach, Spread, desks};

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
        let threads: Vec<_> = threads.map(|thread| (thread, TaskTracker::new())).collect();
        let trackers: Vec<_> = threads.iter().map(|(_, tracker)| tracker.clone()).collect();
        let (mut tcp_desks, mut unix_desks) =
            (desks(&trackers).into_iter(), desks(&trackers).into_iter());
        let mut tcp = self.tcp.into_iter();
        Service::threads(threads.into_iter().map(|(thread, connections)| {
            let listeners = ThreadListeners {
                tcp: Mutex::new(tcp.next().zip(tcp_desks.next())),
                unix: self.unix.clone(),
                unix_desk: Mutex::new(unix_desks.next()),
            };
            let (accept, drain) = (accept.clone(), shutdown.drain.clone());
            move || async move {
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
    tcp: Mutex<Option<(std::net::TcpListener, Desk<TcpListener>)>>,
    unix: Option<Arc<UnixSocket>>,
    unix_desk: Mutex<Option<Desk<UnixListener>>>,
}

impl ThreadListeners {
    /// The TCP listener, registered with the caller's runtime; never ready if
    /// there is none, or on a second call. One that cannot be registered is closed, so that
    /// the kernel gives its connections to other threads.
    pub(crate) async fn tcp(&self) -> Spread<TcpListener> {
        let taken = self.tcp.lock().take();
        listening(taken.map(|(listener, desk)| (TcpListener::from_std(listener), desk))).await
    }

    /// The Unix socket, registered with the caller's runtime; never ready if
    /// there is none, or on a second call.
    pub(crate) async fn unix(&self) -> Spread<UnixListener> {
        let taken = self.unix_desk.lock().take();
        let shared = self.unix.as_deref().map(UnixSocket::share);
        listening(shared.zip(taken)).await
    }

    /// The path of the Unix socket.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.unix.as_deref().map(UnixSocket::path)
    }
}

async fn listening<L: Detach>(listener: Option<(io::Result<L>, Desk<L>)>) -> Spread<L> {
    match listener {
        Some((Ok(listener), desk)) => return Spread::new(listener, desk),
        Some((Err(error), desk)) => {
            // So that the others give it no connections.
            drop(desk);
            tracing::error!(%error, "a thread of a frontend cannot listen");
        }
        None => {}
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::net::TcpStream;

    use super::super::accept::Acceptor as _;
    use super::*;

    #[tokio::test]
    async fn a_thread_that_cannot_listen_is_given_no_connections() {
        let trackers = [TaskTracker::new(), TaskTracker::new()];
        let mut desks = desks::<TcpListener>(&trackers).into_iter();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut first = listening(Some((Ok(listener), desks.next().unwrap()))).await;
        let failed = Err(io::Error::other("no watch is left"));
        let mut second = Box::pin(listening(Some((failed, desks.next().unwrap()))));
        assert!(second.as_mut().now_or_never().is_none());
        trackers[0].spawn(std::future::pending::<()>());
        let client = TcpStream::connect(address);
        let (accepted, client) = tokio::join!(first.accept(), client);
        let (stream, peer) = accepted.unwrap();
        assert_eq!(peer, client.unwrap().local_addr().unwrap());
        drop((stream, second));
    }
}
