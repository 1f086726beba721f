//! Spreads the connections of a frontend over its threads.
//!
//! The kernel chooses the thread that may accept a connection by a hash, or the one that is awake.
//! So of few connections, one thread may get all. The thread that accepts a connection gives it
//! to the one that serves the fewest.

use std::io;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::accept::Acceptor;

/// A source of connections that another thread can serve.
pub(crate) trait Detach: Acceptor {
    /// A stream that no runtime has.
    type Detached: Send + 'static;
    fn detach(stream: Self::Stream) -> io::Result<Self::Detached>;
    fn attach(stream: Self::Detached) -> io::Result<Self::Stream>;
}

impl Detach for TcpListener {
    type Detached = std::net::TcpStream;

    fn detach(stream: TcpStream) -> io::Result<std::net::TcpStream> {
        stream.into_std()
    }

    fn attach(stream: std::net::TcpStream) -> io::Result<TcpStream> {
        TcpStream::from_std(stream)
    }
}

impl Detach for UnixListener {
    type Detached = std::os::unix::net::UnixStream;

    fn detach(stream: UnixStream) -> io::Result<std::os::unix::net::UnixStream> {
        stream.into_std()
    }

    fn attach(stream: std::os::unix::net::UnixStream) -> io::Result<UnixStream> {
        UnixStream::from_std(stream)
    }
}

/// Most connections that wait for a thread that was given them. One that is blocked, or has no
/// place for more, gets no more than these.
const GIVEN_MAX: usize = 8;

/// A connection on its way to another thread.
pub(super) type Given<A> = (<A as Detach>::Detached, <A as Acceptor>::Peer);

/// A thread, as the others see it.
struct Colleague<A: Detach> {
    /// Its connections.
    connections: TaskTracker,
    inbox: mpsc::Sender<Given<A>>,
}

impl<A: Detach> Colleague<A> {
    /// Connections that it serves or is given.
    fn load(&self) -> usize {
        let given = self.inbox.max_capacity() - self.inbox.capacity();
        self.connections.len() + given
    }
}

impl<A: Detach> Clone for Colleague<A> {
    fn clone(&self) -> Self {
        Colleague {
            connections: self.connections.clone(),
            inbox: self.inbox.clone(),
        }
    }
}

/// The place of one thread among those that share their connections.
pub(super) struct Desk<A: Detach> {
    own: Colleague<A>,
    /// The others, the next one first.
    others: Vec<Colleague<A>>,
    inbox: mpsc::Receiver<Given<A>>,
}

/// One for each thread, whose connections are tasks of its tracker.
pub(super) fn desks<A: Detach>(trackers: &[TaskTracker]) -> Vec<Desk<A>> {
    let pairs = trackers.iter().map(|connections| {
        let (sender, receiver) = mpsc::channel(GIVEN_MAX);
        let colleague = Colleague {
            connections: connections.clone(),
            inbox: sender,
        };
        (colleague, receiver)
    });
    let (mut colleagues, inboxes): (Vec<_>, Vec<_>) = pairs.unzip();
    let desk = |inbox| {
        let (own, others) = (colleagues[0].clone(), colleagues[1..].to_vec());
        colleagues.rotate_left(1);
        Desk { own, others, inbox }
    };
    inboxes.into_iter().map(desk).collect()
}

/// A listener of one thread, which shares its connections with the others.
pub(crate) struct Spread<A: Detach> {
    listener: A,
    desk: Desk<A>,
}

impl<A: Detach> Spread<A> {
    pub(super) fn new(listener: A, desk: Desk<A>) -> Self {
        Spread { listener, desk }
    }

    /// Gives the connection to the thread that serves the fewest, unless that takes none or has
    /// hardly fewer than this one: a hop costs more than a small difference.
    fn give(&self, stream: A::Stream, peer: A::Peer) -> io::Result<Option<(A::Stream, A::Peer)>> {
        let takers = self.desk.others.iter();
        let takers = takers.filter(|other| !other.inbox.is_closed());
        let Some(idlest) = takers.min_by_key(|other| other.load()) else {
            return Ok(Some((stream, peer)));
        };
        let theirs = idlest.load();
        if self.desk.own.load() <= theirs + theirs / 8 {
            return Ok(Some((stream, peer)));
        }
        match idlest.inbox.try_send((A::detach(stream)?, peer)) {
            Ok(()) => Ok(None),
            Err(error) => {
                let (stream, peer) = error.into_inner();
                Ok(Some((A::attach(stream)?, peer)))
            }
        }
    }
}

impl<A: Detach> Acceptor for Spread<A> {
    type Stream = A::Stream;
    type Peer = A::Peer;

    async fn accept(&mut self) -> io::Result<(A::Stream, A::Peer)> {
        loop {
            let (stream, peer) = tokio::select! {
                biased;
                Some((stream, peer)) = self.desk.inbox.recv() => {
                    return Ok((A::attach(stream)?, peer));
                }
                accepted = self.listener.accept() => accepted?,
            };
            if let Some(kept) = self.give(stream, peer)? {
                return Ok(kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread accepts all connections and still serves only its share.
    #[tokio::test]
    async fn connections_are_spread_over_the_threads_that_take_them() {
        let trackers = [TaskTracker::new(), TaskTracker::new(), TaskTracker::new()];
        let mut desks = desks::<TcpListener>(&trackers).into_iter();
        let (first, second, third) = (desks.next(), desks.next(), desks.next());
        // The third thread has ended.
        drop(third);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut first = Spread::new(listener, first.unwrap());
        let mut second = Spread::new(silent, second.unwrap());
        let mut clients = Vec::new();
        for expected in [[1, 0], [1, 1], [2, 1], [2, 2]] {
            clients.push(TcpStream::connect(address).await.unwrap());
            tokio::select! {
                accepted = first.accept() => {
                    let (stream, _) = accepted.unwrap();
                    trackers[0].spawn(hold(stream));
                }
                accepted = second.accept() => {
                    let (stream, _) = accepted.unwrap();
                    trackers[1].spawn(hold(stream));
                }
            }
            let loads = [trackers[0].len(), trackers[1].len()];
            assert_eq!(loads, expected);
        }
    }

    async fn hold(stream: TcpStream) {
        stream.readable().await.unwrap();
        std::future::pending::<()>().await;
    }
}
