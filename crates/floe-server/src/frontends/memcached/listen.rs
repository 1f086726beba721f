//! Threads, and the connections that they accept.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::counters::Counters;
use super::frontend::MemcachedFrontend;
use super::open::{Endpoint, Listed};
use super::{connection, words};
use crate::frontend::Address;
use crate::net::{self, Acceptor, Greeting, Listeners, Service, Shutdown, ThreadListeners};

/// Time limit for sending the error to a rejected connection.
const REJECTION_TIMEOUT: Duration = Duration::from_millis(100);

/// One future per thread of `frontend`. They end at `shutdown`.
pub(super) fn serve(
    frontend: &Arc<MemcachedFrontend>,
    listeners: Listeners,
    shutdown: &Shutdown,
) -> Service {
    for address in listeners.addresses() {
        frontend.listed.listen(match address {
            Address::Tcp(address) => Endpoint::Tcp(address),
            Address::Unix(path) => Endpoint::Unix(Arc::new(path)),
        });
    }
    let (own, abort) = (Arc::clone(frontend), shutdown.abort.clone());
    let threads = frontend.threads.iter().cloned();
    listeners.serve(threads, shutdown, |counters, listeners, connections| {
        let thread = Thread {
            frontend: own,
            counters,
            abort,
            connections,
        };
        thread.run(listeners)
    })
}

/// One thread of the frontend.
struct Thread {
    frontend: Arc<MemcachedFrontend>,
    counters: Arc<Counters>,
    abort: CancellationToken,
    connections: TaskTracker,
}

/// Sets a flag when it is dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Thread {
    async fn run(self, listeners: ThreadListeners) {
        let _draining = SetOnDrop(&self.frontend.is_draining);
        tokio::join!(self.accept_tcp(&listeners), self.accept_unix(&listeners));
    }

    async fn accept_tcp(&self, listeners: &ThreadListeners) {
        let mut listener = listeners.tcp().await;
        loop {
            let (stream, client) = self.next(&mut listener).await;
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

    async fn accept_unix(&self, listeners: &ThreadListeners) {
        let path = listeners.path().map(|path| Arc::new(path.to_owned()));
        let mut listener = listeners.unix().await;
        loop {
            let (stream, ()) = self.next(&mut listener).await;
            let end = Endpoint::Unix(path.clone().unwrap_or_default());
            self.admit(std::future::ready(Ok(stream)), [end.clone(), end]);
        }
    }

    async fn next<A: Acceptor>(&self, listener: &mut A) -> (A::Stream, A::Peer) {
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
        let abort = self.abort.clone();
        let place = Place::take(&frontend, client, server);
        self.connections.spawn(async move {
            tokio::select! {
                biased;
                () = abort.cancelled() => {}
                () = open(opening, place, frontend, Arc::clone(&counters)) => {}
            }
            counters.closed.add(1);
        });
    }
}

async fn open<S, O>(
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
