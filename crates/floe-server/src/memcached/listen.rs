//! Sockets and threads: one listener a thread on one port, so that the kernel
//! spreads connections over threads, and one Unix socket for all of them.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio_util::task::TaskTracker;

use super::counters::Counters;
use super::open::{Endpoint, Listed};
use super::{Face, connection, words};
use crate::config::MemcachedConfig;
use crate::net::{BindError, Shutdown, UnixSocket, bind_tcp};

const FACE: &str = "memcached";
const SETTING: &str = "memcached.listen";

/// How long accepting rests when the process has no file descriptor left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection that is turned away may take to hear why.
const REFUSAL_PATIENCE: Duration = Duration::from_millis(100);

/// Connections that the kernel keeps until they are accepted.
pub(super) const BACKLOG: u32 = 1024;

/// Attempts to get one free port for all threads.
const PORT_ATTEMPTS: usize = 16;

/// The sockets of the face, bound.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// One a thread.
    tcp: Vec<std::net::TcpListener>,
    address: Option<SocketAddr>,
    unix: Option<UnixSocket>,
}

impl Listeners {
    /// Takes the addresses that the configuration names.
    pub(crate) async fn open(config: &MemcachedConfig) -> Result<Self, BindError> {
        let tcp = match config.listen {
            Some(address) => bind_all(address, config.thread_count()).await?,
            None => Vec::new(),
        };
        let unix = match config.path.as_os_str().is_empty() {
            true => None,
            false => Some(UnixSocket::bind(FACE, "memcached.path", &config.path).await?),
        };
        Ok(Listeners {
            address: tcp.first().and_then(|listener| listener.local_addr().ok()),
            tcp,
            unix,
        })
    }

    /// Where TCP listens.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where the Unix socket is.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.unix.as_ref().map(UnixSocket::path).map(Path::to_owned)
    }

    /// Starts the threads. They end when the shutdown lets them, and are
    /// counted among its tasks.
    pub(crate) fn serve(mut self, face: &Arc<Face>, shutdown: &Shutdown) -> io::Result<()> {
        if let Some(address) = self.address {
            face.listed.listen(Endpoint::Tcp(address));
        }
        if let Some(path) = self.path() {
            face.listed.listen(Endpoint::Unix(Arc::new(path)));
        }
        let unix = self.unix.take().map(Arc::new);
        let mut tcp = self.tcp.into_iter();
        for (number, counters) in face.threads.iter().enumerate() {
            let thread = Thread {
                face: Arc::clone(face),
                counters: Arc::clone(counters),
                shutdown: shutdown.clone(),
                connections: TaskTracker::new(),
            };
            let tcp = tcp.next();
            let unix = unix.clone();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let alive = shutdown.tasks.token();
            std::thread::Builder::new()
                .name(format!("memcached-{number}"))
                .spawn(move || {
                    runtime.block_on(thread.run(tcp, unix));
                    drop(runtime);
                    drop(alive);
                })?;
        }
        Ok(())
    }
}

/// Binds `address` once for each thread.
///
/// A port that another process shares in the same way would be given to both
/// without an error, so that it is free is asked first, without sharing.
async fn bind_all(
    address: SocketAddr,
    threads: usize,
) -> Result<Vec<std::net::TcpListener>, BindError> {
    for attempt in 1.. {
        let probe = bind_tcp(FACE, SETTING, address).await?;
        let bound = probe.local_addr().unwrap_or(address);
        drop(probe);
        let listeners: io::Result<Vec<_>> = (0..threads).map(|_| bind_shared(bound)).collect();
        match listeners {
            Ok(listeners) => return Ok(listeners),
            // Somebody else got the free port in between.
            Err(_) if address.port() == 0 && attempt < PORT_ATTEMPTS => {}
            Err(error) => {
                return Err(BindError {
                    face: FACE,
                    address: bound.to_string(),
                    problem: error.to_string(),
                    cure: format!("choose another address in {SETTING}"),
                });
            }
        }
    }
    // The loop ends by returning.
    Ok(Vec::new())
}

fn bind_shared(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// One thread of the face.
struct Thread {
    face: Arc<Face>,
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
        self.face.is_draining.store(true, Relaxed);
        self.connections.close();
        self.connections.wait().await;
    }

    async fn accept_tcp(&self, listener: Option<std::net::TcpListener>) {
        let Some(listener) = listener else {
            return std::future::pending().await;
        };
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, "a thread of the memcached face cannot listen");
                return std::future::pending().await;
            }
        };
        loop {
            match listener.accept().await {
                Ok((stream, client)) => {
                    // Answers are written in as few pieces as possible already.
                    let server = stream.set_nodelay(true).and_then(|()| stream.local_addr());
                    let server = match server {
                        Ok(server) => Endpoint::Tcp(server),
                        Err(error) => {
                            tracing::debug!(%error, "a connection ended before it was served");
                            continue;
                        }
                    };
                    let ends = [Endpoint::Tcp(client), server];
                    match &self.face.tls {
                        None => self.admit(std::future::ready(Ok(stream)), ends),
                        Some(tls) => self.admit(tls.accept(stream), ends),
                    }
                }
                Err(error) => self.not_accepted(&error).await,
            }
        }
    }

    async fn accept_unix(&self, socket: Option<&UnixSocket>) {
        let path = socket.map(|socket| Arc::new(socket.path().to_owned()));
        let shared = socket.map(|socket| share(socket.listener()));
        let listener = match shared {
            None => return std::future::pending().await,
            Some(Ok(listener)) => listener,
            Some(Err(error)) => {
                tracing::error!(%error, "a thread of the memcached face cannot listen");
                return std::future::pending().await;
            }
        };
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let end = Endpoint::Unix(path.clone().unwrap_or_default());
                    self.admit(std::future::ready(Ok(stream)), [end.clone(), end]);
                }
                Err(error) => self.not_accepted(&error).await,
            }
        }
    }

    async fn not_accepted(&self, error: &io::Error) {
        self.counters.accept_errors.add(1);
        let client_went_away = matches!(
            error.kind(),
            io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
        );
        if !client_went_away {
            tracing::warn!(%error, "a connection was not accepted; if files ran out, raise LimitNOFILE or lower memcached.max_connections");
            self.face.clock.sleep(EXHAUSTED_PAUSE).await;
        }
    }

    /// Serves a connection once it is open, or says that there are too many.
    fn admit<S, O>(&self, opening: O, [client, server]: [Endpoint; 2])
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        O: Future<Output = io::Result<S>> + Send + 'static,
    {
        self.counters.opened.add(1);
        let face = Arc::clone(&self.face);
        let counters = Arc::clone(&self.counters);
        let abort = self.shutdown.abort.clone();
        let place = Place::take(&face, client, server);
        self.connections.spawn(async move {
            tokio::select! {
                biased;
                () = abort.cancelled() => {}
                () = serve(opening, place, face, Arc::clone(&counters)) => {}
            }
            counters.closed.add(1);
        });
    }
}

async fn serve<S, O>(opening: O, place: Option<Place>, face: Arc<Face>, counters: Arc<Counters>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    O: Future<Output = io::Result<S>>,
{
    let limit = match place {
        Some(_) => face.stall_limit(),
        None => REFUSAL_PATIENCE,
    };
    let opened = tokio::select! {
        biased;
        opened = opening => opened,
        // Nothing was asked yet.
        () = face.draining.cancelled() => return,
        () = face.clock.sleep(limit) => return counters.stalled.add(1),
    };
    let stream = match opened {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "a memcached connection could not be made private");
            return counters.broken.add(1);
        }
    };
    let Some(Place { listed, face: _ }) = &place else {
        counters.rejected.add(1);
        return turn_away(stream, &face).await;
    };
    connection::serve(stream, face, counters, listed).await;
    drop(place);
}

/// Another handle of the same listening socket, in this thread's runtime.
fn share(listener: &UnixListener) -> io::Result<UnixListener> {
    use std::os::fd::AsFd as _;
    let shared = listener.as_fd().try_clone_to_owned()?;
    UnixListener::from_std(shared.into())
}

async fn turn_away<S: AsyncWrite + Unpin>(mut stream: S, face: &Face) {
    let line = format!("{}\r\n", words::TOO_MANY_CONNECTIONS);
    let tell = async {
        stream.write_all(line.as_bytes()).await?;
        stream.shutdown().await
    };
    tokio::select! {
        biased;
        _ = tell => {}
        () = face.clock.sleep(REFUSAL_PATIENCE) => {}
    }
}

/// One of the connections that may be open at once.
struct Place {
    face: Arc<Face>,
    listed: Listed,
}

impl Place {
    fn take(face: &Arc<Face>, client: Endpoint, server: Endpoint) -> Option<Self> {
        let limit = face.config().max_connections;
        let more = |open| (open < limit).then_some(open + 1);
        face.open.fetch_update(Relaxed, Relaxed, more).ok()?;
        let now = face.clock.unix_seconds();
        Some(Place {
            listed: face.listed.list(client, server, now),
            face: Arc::clone(face),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.face.open.fetch_sub(1, Relaxed);
    }
}
