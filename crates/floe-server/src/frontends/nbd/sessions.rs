//! The connections of an export, so that no write of a dead one lands late.
//!
//! A connection that serves requests is a session of its export. Before a new
//! session begins, every session whose client hung up must have ended, and a
//! session ends only after the requests that it started have ended. A session
//! itself starts no change once its client has hung up, even if requests from
//! before have arrived. So a client that lost a connection and opens another
//! never sees a write of the first land after a write of the second.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::watch;

/// The sessions of one export.
#[derive(Default)]
pub(super) struct Sessions {
    next_id: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<OwnedFd>>>,
    /// Sent to when a session ends.
    ended: watch::Sender<()>,
}

impl Sessions {
    /// Waits until all sessions of dead clients have ended, and begins one on
    /// `socket`.
    pub(super) async fn begin(self: &Arc<Self>, socket: Arc<OwnedFd>) -> Session {
        // Subscribed before the check, so that no end is lost.
        let mut ended = self.ended.subscribe();
        while self.has_dead() {
            // The sender lives as long as `self`.
            let _ = ended.changed().await;
        }
        let id = self.next_id.fetch_add(1, Relaxed);
        let mut open = self.open.lock();
        open.insert(id, Arc::clone(&socket));
        Session {
            sessions: Arc::clone(self),
            id,
            socket,
        }
    }
}

impl Sessions {
    /// True if there is a session whose client has hung up.
    fn has_dead(&self) -> bool {
        let sockets: Vec<_> = self.open.lock().values().cloned().collect();
        sockets.iter().any(|socket| has_hung_up(socket))
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sessions", self.open.lock().len())
    }
}

/// A connection that serves requests, until dropped.
pub(super) struct Session {
    sessions: Arc<Sessions>,
    id: u64,
    socket: Arc<OwnedFd>,
}

impl Session {
    /// True if the client closed the connection or its sending side, even if
    /// bytes from before are unread.
    pub(super) fn has_hung_up(&self) -> bool {
        has_hung_up(&self.socket)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.sessions.open.lock().remove(&self.id);
        self.sessions.ended.send_replace(());
    }
}

/// Another handle of a connection's socket, to ask whether its client hung up.
pub(super) fn handle(stream: &impl AsFd) -> io::Result<Arc<OwnedFd>> {
    Ok(Arc::new(stream.as_fd().try_clone_to_owned()?))
}

fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // The kernel reports HUP and ERR without being asked. A failed poll has no
    // news; the next read or write reports the cause.
    match poll(&mut polled, Some(&now)) {
        Ok(0) | Err(_) => false,
        Ok(_) => true,
    }
}
