//! Threads, and the connections that they accept.

use std::convert::Infallible;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::Connection;
use super::counters::Counters;
use super::end::End;
use super::frontend::NbdFrontend;
use super::handshake::{self, Opened};
use super::negotiation::Agreed;
use super::sessions;
use crate::net::{self, Acceptor, Greeting, ThreadListeners};

/// The time that a handshake may go on once the server is shut down.
const OPTION_GRACE: Duration = Duration::from_secs(1);

/// Time limit for the end of a stream.
const END_TIMEOUT: Duration = Duration::from_millis(100);

/// One thread of the frontend.
pub(super) struct Thread {
    pub(super) frontend: Arc<NbdFrontend>,
    pub(super) counters: Arc<Counters>,
    pub(super) abort: CancellationToken,
    pub(super) connections: TaskTracker,
}

impl Thread {
    /// Accepts connections on both sockets.
    pub(super) async fn run(self, listeners: ThreadListeners) {
        tokio::join!(async { self.accept(listeners.tcp().await).await }, async {
            self.accept(listeners.unix().await).await
        },);
    }

    async fn accept<A: Acceptor>(&self, mut listener: A)
    where
        A::Stream: AsyncRead + AsyncWrite + AsFd + Unpin + Sync,
    {
        loop {
            let count_failure = || self.counters.accept_errors.add(1);
            let clock = &self.frontend.clock;
            let (stream, _peer) = net::next_connection(&mut listener, clock, count_failure).await;
            self.counters.opened.add(1);
            let Some(place) = self.frontend.place() else {
                self.counters.rejected.add(1);
                continue;
            };
            let (frontend, counters) = (Arc::clone(&self.frontend), Arc::clone(&self.counters));
            let abort = self.abort.clone();
            self.connections.spawn(async move {
                // No new connection follows an abort, so that a request that is
                // dropped cannot land after one of a later connection.
                tokio::select! {
                    biased;
                    () = abort.cancelled() => counters.aborted.add(1),
                    () = open(stream, &frontend, &counters) => {}
                }
                drop(place);
            });
        }
    }
}

/// Runs the handshake, and serves the connection.
async fn open<S>(stream: S, frontend: &Arc<NbdFrontend>, counters: &Arc<Counters>)
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin + Send,
{
    let handle = match sessions::handle(&stream) {
        Ok(handle) => handle,
        Err(error) => {
            tracing::warn!(%error, "an NBD connection was not served; if files ran out, raise LimitNOFILE or lower nbd.max_connections");
            return counters.broken.add(1);
        }
    };
    let limit = frontend.config.get().handshake_limit();
    let opening = handshake::open(stream, frontend);
    // An option that comes until then learns of the shutdown.
    let closing = CancellationToken::new();
    let close = async {
        frontend.draining.cancelled().await;
        frontend.clock.sleep(OPTION_GRACE).await;
        closing.cancel();
        std::future::pending::<Infallible>().await
    };
    let greeting = tokio::select! {
        greeting = net::greet(opening, &frontend.clock, limit, &closing) => greeting,
        never = close => match never {},
    };
    let opened = match greeting {
        Greeting::Done(Some(opened)) => opened,
        Greeting::Done(None) | Greeting::Drained => return,
        Greeting::Late => return counters.stalled.add(1),
        Greeting::Failed(error) => {
            tracing::debug!(%error, "an NBD handshake failed");
            return counters.broken.add(1);
        }
    };
    let transmission = Transmission {
        frontend,
        counters,
        handle,
    };
    match opened {
        Opened::Plain(mut stream, input, agreed) => {
            transmission.run(&mut stream, input, agreed).await;
        }
        Opened::Tls(mut stream, input, agreed) => {
            transmission.run(&mut stream, input, agreed).await;
        }
    }
}

/// A connection after its handshake.
struct Transmission<'a> {
    frontend: &'a Arc<NbdFrontend>,
    counters: &'a Arc<Counters>,
    handle: Arc<std::os::fd::OwnedFd>,
}

impl Transmission<'_> {
    async fn run<S>(self, stream: &mut S, input: BytesMut, agreed: Agreed)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Transmission {
            frontend,
            counters,
            handle,
        } = self;
        let sessions = Arc::clone(&agreed.served.sessions);
        let session = tokio::select! {
            biased;
            session = sessions.begin(handle) => session,
            () = frontend.draining.cancelled() => return,
        };
        let connection = Connection::new(stream, input, frontend, counters, agreed, session);
        let end = connection.serve().await;
        if matches!(end, End::Closed | End::Draining) {
            // TLS ends with a notification. On an error the client is gone already.
            tokio::select! {
                biased;
                _ = stream.shutdown() => {}
                () = frontend.clock.sleep(END_TIMEOUT) => {}
            }
        }
        let early = match end {
            End::Closed | End::Draining => return,
            End::Stalled => &counters.stalled,
            End::Slow => &counters.slow,
            End::Aborted => &counters.aborted,
            End::Junk | End::Broken(_) => &counters.broken,
        };
        early.add(1);
        if let End::Broken(error) = end {
            tracing::debug!(%error, "an NBD connection broke off");
        }
    }
}
