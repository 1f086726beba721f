//! Accepting: never more connections than agreed, and none after the shutdown began.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use floe_device::Clock;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::UnixSocket;
use crate::statistics::ConnectionCounters;

/// How long accepting rests when the process has no file descriptor left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// The two steps of a shutdown, and who takes part in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown {
    /// Accept nothing more, finish what was begun.
    pub(crate) drain: CancellationToken,
    /// Break off whatever is left.
    pub(crate) abort: CancellationToken,
    /// Every task that serves.
    pub(crate) tasks: TaskTracker,
}

/// Where connections come from.
pub(crate) trait Acceptor: Send + 'static {
    type Stream: Send + 'static;
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Acceptor for TcpListener {
    type Stream = TcpStream;
    async fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = TcpListener::accept(self).await?;
        // Answers are written in as few pieces as possible already.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Acceptor for UnixSocket {
    type Stream = UnixStream;
    async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener().accept().await?.0)
    }
}

/// Serves each connection in a task of its own until the shutdown begins.
/// While `max_connections` are open, further ones wait in the listener's queue.
pub(crate) async fn accept<A, F, S>(
    listener: A,
    max_connections: u32,
    clock: Clock,
    shutdown: Shutdown,
    counters: Arc<ConnectionCounters>,
    serve: F,
) where
    A: Acceptor,
    F: Fn(A::Stream) -> S + Send + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(max_connections as usize));
    loop {
        if slots.available_permits() == 0 {
            counters.waits.add(1);
        }
        let accepted = async {
            // The semaphore is never closed, so this fails never.
            let slot = Arc::clone(&slots).acquire_owned().await.ok()?;
            Some((slot, listener.accept().await))
        };
        let (slot, stream) = tokio::select! {
            biased;
            () = shutdown.drain.cancelled() => return,
            accepted = accepted => match accepted {
                None => return,
                Some((slot, Ok(stream))) => (slot, stream),
                Some((_, Err(error))) => {
                    counters.accept_errors.add(1);
                    pause_after(&error, &clock).await;
                    continue;
                }
            },
        };
        counters.opened.add(1);
        let connection = serve(stream);
        let abort = shutdown.abort.clone();
        let counters = Arc::clone(&counters);
        shutdown.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = abort.cancelled() => counters.aborted.add(1),
                () = connection => {}
            }
            counters.closed.add(1);
            drop(slot);
        });
    }
}

async fn pause_after(error: &io::Error, clock: &Clock) {
    let client_went_away = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::NotConnected
    );
    if client_went_away {
        return;
    }
    tracing::warn!(%error, "a connection was not accepted; if files ran out, raise LimitNOFILE or lower max_connections");
    clock.sleep(EXHAUSTED_PAUSE).await;
}
