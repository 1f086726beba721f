//! Accepts connections up to a limit, and none during a shutdown. A connection
//! beyond the limit replaces the one that has been idle longest.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use floe::limit::{Held, Limit};
use floe_device::Clock;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::UnixSocket;
use super::activity::{Activity, Crowd};
use crate::metrics::ConnectionCounters;

/// Silence on a TCP connection before the first probe, between probes, and the probes
/// without an answer that end it: two minutes altogether.
const KEEPALIVE_TIME: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// Pause of accepting when the process has no free file descriptors.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Most memory of a connection besides what it boxes: thousands may be idle.
const CONNECTION_BYTES_MAX: usize = 8 << 10;

/// The steps of a shutdown, and the tasks that it waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown {
    /// Cancelled to accept no more connections and finish the pending requests.
    pub(crate) drain: CancellationToken,
    /// Cancelled to abort all remaining requests.
    pub(crate) abort: CancellationToken,
    /// Cancelled when the caches need the threads no longer, whose runtimes have their fetches.
    /// Until then the threads do not end.
    pub(crate) end: CancellationToken,
    /// All tasks that serve.
    pub(crate) tasks: TaskTracker,
}

/// The other end of a connection.
pub(crate) trait Peer: Send + 'static {
    /// The client that this connection counts for: a machine, or a public IPv6 network of 64
    /// bits, whose owner has all of its addresses.
    fn client(&self) -> Option<IpAddr>;
}

impl Peer for SocketAddr {
    fn client(&self) -> Option<IpAddr> {
        const NETWORK: u128 = u128::MAX << 64;
        /// 64:ff9b::/96, by which machines of IPv4 come through a translator (RFC 6052).
        const TRANSLATED: u128 = 0x0064_ff9b << 96;
        Some(match self.ip().to_canonical() {
            IpAddr::V6(address) => {
                let (bits, is_local) = (address.to_bits(), !is_public(address));
                match bits >> 32 << 32 == TRANSLATED || is_local {
                    true => address.into(),
                    false => Ipv6Addr::from_bits(bits & NETWORK).into(),
                }
            }
            v4 => v4,
        })
    }
}

fn is_public(address: Ipv6Addr) -> bool {
    !(address.is_unique_local() || address.is_unicast_link_local() || address.is_loopback())
}

/// Of a socket in the file system.
impl Peer for () {
    fn client(&self) -> Option<IpAddr> {
        None
    }
}

/// A source of connections.
pub(crate) trait Acceptor: Send + 'static {
    type Stream: Send + 'static;
    type Peer: Peer;
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, Self::Peer)>> + Send;
}

impl Acceptor for TcpListener {
    type Stream = TcpStream;
    type Peer = SocketAddr;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        // Responses are already written in as few pieces as possible.
        stream.set_nodelay(true)?;
        // The kernel ends the connection of a machine that has vanished.
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_TIME)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_PROBES);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        Ok((stream, peer))
    }
}

impl Acceptor for UnixListener {
    type Stream = UnixStream;
    type Peer = ();

    async fn accept(&mut self) -> io::Result<(UnixStream, ())> {
        let (stream, _unnamed) = UnixListener::accept(self).await?;
        Ok((stream, ()))
    }
}

impl Acceptor for UnixSocket {
    type Stream = UnixStream;
    type Peer = ();

    async fn accept(&mut self) -> io::Result<(UnixStream, ())> {
        let (stream, _unnamed) = self.listener().accept().await?;
        Ok((stream, ()))
    }
}

/// The next connection of `listener`. Counts a failure in `failed`, pauses and retries.
pub(crate) async fn next_connection<A: Acceptor>(
    listener: &mut A,
    clock: &Clock,
    failed: impl Fn(),
) -> (A::Stream, A::Peer) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                failed();
                pause_after(&error, clock).await;
            }
        }
    }
}

/// The places of a frontend's connections, for all its threads.
#[derive(Clone)]
pub(crate) struct Places {
    limit: Arc<Limit>,
    crowd: Arc<Crowd>,
    clock: Clock,
}

impl Places {
    pub(crate) fn new(limit: &Arc<Limit>, clock: &Clock) -> Self {
        Places {
            limit: Arc::clone(limit),
            crowd: Crowd::new(clock.clone()),
            clock: clock.clone(),
        }
    }
}

/// Serves each connection in its own task until a shutdown. While all `places`
/// are in use, one more connection is accepted and waits; further ones wait in
/// the listener's queue, but for a few that another thread [gave](super::spread) to this one.
pub(crate) async fn accept<A, F, S>(
    mut listener: A,
    places: Places,
    shutdown: Shutdown,
    counters: Arc<ConnectionCounters>,
    serve: F,
) where
    A: Acceptor,
    F: Fn(A::Stream, A::Peer, Arc<Activity>) -> S + Send + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    loop {
        let count_failure = || counters.accept_errors.add(1);
        let (stream, peer) = tokio::select! {
            biased;
            () = shutdown.drain.cancelled() => return,
            accepted = next_connection(&mut listener, &places.clock, count_failure) => accepted,
        };
        let slot = tokio::select! {
            biased;
            () = shutdown.drain.cancelled() => return,
            slot = slot(&places, &counters) => slot,
        };
        counters.opened.add(1);
        let member = places.crowd.join(peer.client());
        // Boxed: as a part of the task it would take its place there more than once.
        let connection = Box::pin(serve(stream, peer, Arc::clone(&member.activity)));
        debug_assert!(size_of_val(&*connection) <= CONNECTION_BYTES_MAX);
        let abort = shutdown.abort.clone();
        let counters = Arc::clone(&counters);
        shutdown.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = abort.cancelled() => counters.aborted.add(1),
                () = connection => {}
                // Polled after the connection, so that a request that has just arrived counts.
                () = member.activity.evicted() => counters.evicted.add(1),
            }
            counters.closed.add(1);
            // In this order: a thread that waits for a place finds it before another is asked.
            drop(slot);
            drop(member);
        });
    }
}

/// Waits for a free slot, and evicts idle connections meanwhile.
async fn slot(places: &Places, counters: &ConnectionCounters) -> Held {
    if let Some(slot) = places.limit.try_hold(1) {
        return slot;
    }
    counters.waits.add(1);
    tokio::select! {
        biased;
        slot = Arc::clone(&places.limit).hold(1) => slot,
        never = places.crowd.evict() => match never {},
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_network_of_ipv6_is_one_client() {
        let client = |address: &str| address.parse::<SocketAddr>().unwrap().client();
        assert_eq!(client("[2001:db8::1]:1"), client("[2001:db8::f:2]:2"));
        assert_ne!(client("[2001:db8::1]:1"), client("[2001:db8:0:1::1]:1"));
        for network in ["fd00:1::", "fe80::", "64:ff9b::10.0.0."] {
            let of = |machine: u8| client(&format!("[{network}{machine}]:1"));
            assert_ne!(of(1), of(2), "{network}");
        }
        assert_ne!(client("10.0.0.1:1"), client("10.0.0.2:1"));
        assert_eq!(client("[::ffff:10.0.0.1]:1"), client("10.0.0.1:2"));
    }

    #[tokio::test]
    async fn accepted_connections_are_probed() {
        let mut listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (stream, _client) = tokio::join!(Acceptor::accept(&mut listener), client);
        let (stream, _) = stream.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_TIME);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), KEEPALIVE_PROBES);
    }
}
