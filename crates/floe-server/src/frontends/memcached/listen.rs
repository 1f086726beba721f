//! Sockets and threads: one listener per thread on one port, so that the kernel
//! distributes connections, and one Unix socket for all threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use super::config::MemcachedConfig;
use super::counters::Counters;
use super::frontend::MemcachedFrontend;
use super::open::{Endpoint, Listed};
use super::{connection, words};
use crate::frontend::Address;
use crate::net::{self, Acceptor, BindError, Greeting, Service, Shutdown, UnixSocket};

/// Time limit for sending the error to a rejected connection.
const REJECTION_TIMEOUT: Duration = Duration::from_millis(100);

/// The sockets of the frontend, bound.
pub(crate) struct Listeners {
    /// One per thread.
    tcp: Vec<std::net::TcpListener>,
    unix: Option<UnixSocket>,
}

impl Listeners {
    /// Binds the configured addresses.
    pub(super) async fn open(
        name: &'static str,
        config: &MemcachedConfig,
    ) -> Result<Self, BindError> {
        Ok(Listeners {
            tcp: match config.listen {
                Some(address) => net::bind_tcp_shared(name, address, config.thread_count()).await?,
                None => Vec::new(),
            },
            unix: match config.path.as_os_str().is_empty() {
                true => None,
                false => Some(UnixSocket::bind(name, &config.path).await?),
            },
        })
    }

    pub(super) fn addresses(&self) -> Vec<Address> {
        let tcp = self
            .tcp
            .first()
            .and_then(|listener| listener.local_addr().ok());
        let unix = self.unix.as_ref().map(|socket| socket.path().to_owned());
        let unix = unix.map(Address::Unix);
        tcp.map(Address::Tcp).into_iter().chain(unix).collect()
    }

    /// One future per thread of `frontend`. They end at `shutdown`.
    pub(super) fn serve(self, frontend: &Arc<MemcachedFrontend>, shutdown: &Shutdown) -> Service {
        for address in self.addresses() {
            frontend.listed.listen(match address {
                Address::Tcp(address) => Endpoint::Tcp(address),
                Address::Unix(path) => Endpoint::Unix(Arc::new(path)),
            });
        }
        let unix = self.unix.map(Arc::new);
        let mut tcp = self.tcp.into_iter();
        Service::threads(frontend.threads.iter().map(|counters| {
            let thread = Thread {
                frontend: Arc::clone(frontend),
                counters: Arc::clone(counters),
                shutdown: shutdown.clone(),
                connections: TaskTracker::new(),
            };
            let (tcp, unix) = (tcp.next(), unix.clone());
            move || thread.run(tcp, unix)
        }))
    }
}

/// One thread of the frontend.
struct Thread {
    frontend: Arc<MemcachedFrontend>,
    counters: Arc<Counters>,
    shutdown: Shutdown,
    connections: TaskTracker,
}

impl Thread {
    async fn run(self, tcp: Option<std::net::TcpListener>, unix: Option<Arc<UnixSocket>>) {
        let listening = async {
            tokio::join!(self.accept_tcp(tcp), self.accept_unix(unix.as_deref()));
        };
        tokio::select! {
            biased;
            () = self.shutdown.drain.cancelled() => {}
            () = listening => {}
        }
        self.frontend.is_draining.store(true, Relaxed);
        self.connections.close();
        self.connections.wait().await;
    }

    async fn accept_tcp(&self, listener: Option<std::net::TcpListener>) {
        let listener = listening(listener.map(TcpListener::from_std)).await;
        loop {
            let (stream, client) = self.next(&listener).await;
            let ends = match stream.local_addr() {
                Ok(server) => [Endpoint::Tcp(client), Endpoint::Tcp(server)],
                Err(error) => {
                    tracing::debug!(%error, "a connection ended before it was served");
                    continue;
                }
            };
            match &self.frontend.tls {
                None => self.admit(std::future::ready(Ok(stream)), ends),
                Some(tls) => self.admit(tls.accept(stream), ends),
            }
        }
    }

    async fn accept_unix(&self, socket: Option<&UnixSocket>) {
        let path = socket.map(|socket| Arc::new(socket.path().to_owned()));
        let listener = listening(socket.map(UnixSocket::share)).await;
        loop {
            let (stream, ()) = self.next(&listener).await;
            let end = Endpoint::Unix(path.clone().unwrap_or_default());
            self.admit(std::future::ready(Ok(stream)), [end.clone(), end]);
        }
    }

    async fn next<A: Acceptor>(&self, listener: &A) -> (A::Stream, A::Peer) {
        let count_failure = || self.counters.accept_errors.add(1);
        net::next_connection(listener, &self.frontend.clock, count_failure).await
    }

    /// Serves a connection once it is open, or rejects it if too many are.
    fn admit<S, O>(&self, opening: O, [client, server]: [Endpoint; 2])
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        O: Future<Output = io::Result<S>> + Send + 'static,
    {
        self.counters.opened.add(1);
        let frontend = Arc::clone(&self.frontend);
        let counters = Arc::clone(&self.counters);
        let abort = self.shutdown.abort.clone();
        let place = Place::take(&frontend, client, server);
        self.connections.spawn(async move {
            tokio::select! {
                biased;
                () = abort.cancelled() => {}
                () = serve(opening, place, frontend, Arc::clone(&counters)) => {}
            }
            counters.closed.add(1);
        });
    }
}

async fn serve<S, O>(
    opening: O,
    place: Option<Place>,
    frontend: Arc<MemcachedFrontend>,
    counters: Arc<Counters>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    O: Future<Output = io::Result<S>>,
{
    let limit = match place {
        Some(_) => frontend.stall_limit(),
        None => REJECTION_TIMEOUT,
    };
    let stream = match net::greet(opening, &frontend.clock, limit, &frontend.draining).await {
        Greeting::Done(stream) => stream,
        Greeting::Drained => return,
        Greeting::Late => return counters.stalled.add(1),
        Greeting::Failed(error) => {
            tracing::debug!(%error, "the TLS handshake of a memcached connection failed");
            return counters.broken.add(1);
        }
    };
    let Some(Place {
        listed,
        frontend: _,
    }) = &place
    else {
        counters.rejected.add(1);
        return reject(stream, &frontend).await;
    };
    connection::serve(stream, frontend, counters, listed).await;
    drop(place);
}

/// The thread's listener; never ready if there is none.
async fn listening<L>(listener: Option<io::Result<L>>) -> L {
    match listener {
        Some(Ok(listener)) => return listener,
        Some(Err(error)) => {
            tracing::error!(%error, "a thread of the memcached frontend cannot listen");
        }
        None => {}
    }
    std::future::pending().await
}

async fn reject<S: AsyncWrite + Unpin>(mut stream: S, frontend: &MemcachedFrontend) {
    let line = format!("{}\r\n", words::TOO_MANY_CONNECTIONS);
    let tell = async {
        stream.write_all(line.as_bytes()).await?;
        stream.shutdown().await
    };
    tokio::select! {
        biased;
        _ = tell => {}
        () = frontend.clock.sleep(REJECTION_TIMEOUT) => {}
    }
}

/// A place among the connections that may be open.
struct Place {
    frontend: Arc<MemcachedFrontend>,
    listed: Listed,
}

impl Place {
    fn take(frontend: &Arc<MemcachedFrontend>, client: Endpoint, server: Endpoint) -> Option<Self> {
        let limit = frontend.config().max_connections;
        let more = |open| (open < limit).then_some(open + 1);
        frontend.open.fetch_update(Relaxed, Relaxed, more).ok()?;
        let now = frontend.clock.unix_seconds();
        Some(Place {
            listed: frontend.listed.list(client, server, now),
            frontend: Arc::clone(frontend),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.frontend.open.fetch_sub(1, Relaxed);
    }
}
