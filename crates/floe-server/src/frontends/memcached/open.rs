//! The open connections and listening sockets, for `stats conns`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// One end of a connection.
#[derive(Clone, Debug)]
pub(super) enum Endpoint {
    Tcp(SocketAddr),
    Unix(Arc<PathBuf>),
}

impl fmt::Display for Endpoint {
    /// In memcached's format.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(SocketAddr::V4(address)) => write!(f, "tcp:{address}"),
            Endpoint::Tcp(SocketAddr::V6(address)) => write!(f, "tcp6:{address}"),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The activity of a connection, under memcached's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Activity {
    /// Waits for a request.
    Read,
    /// Executes requests.
    Parse,
    /// Waits for a value's bytes.
    Nread,
    /// Waits for a rejected request's bytes.
    Swallow,
    /// Waits for the client to receive a response.
    Mwrite,
}

const ACTIVITIES: [&str; 5] = [
    "conn_read",
    "conn_parse_cmd",
    "conn_nread",
    "conn_swallow",
    "conn_mwrite",
];

/// All open connections and listening sockets.
#[derive(Debug, Default)]
pub(super) struct Open {
    listening: Mutex<Vec<Endpoint>>,
    connections: Mutex<BTreeMap<u64, Arc<Seen>>>,
    next_id: AtomicU64,
}

/// The state of one connection.
#[derive(Debug)]
struct Seen {
    client: Endpoint,
    server: Endpoint,
    activity: AtomicU8,
    last_unix_s: AtomicU64,
}

impl Open {
    pub(super) fn listen(&self, endpoint: Endpoint) {
        self.listening.lock().push(endpoint);
    }

    /// Lists a connection until the returned value is dropped.
    pub(super) fn list(self: &Arc<Self>, client: Endpoint, server: Endpoint, now: u64) -> Listed {
        let seen = Arc::new(Seen {
            client,
            server,
            activity: AtomicU8::new(Activity::Read as u8),
            last_unix_s: AtomicU64::new(now),
        });
        let id = self.next_id.fetch_add(1, Relaxed);
        self.connections.lock().insert(id, Arc::clone(&seen));
        Listed {
            open: Arc::clone(self),
            id,
            seen,
        }
    }

    /// Each line of `stats conns`: a number, a name, a value.
    pub(super) fn lines(&self, now_unix_s: u64) -> Vec<(u64, &'static str, String)> {
        let mut lines = Vec::new();
        let listening = self.listening.lock();
        for (id, endpoint) in (0..).zip(listening.iter()) {
            lines.push((id, "addr", endpoint.to_string()));
            lines.push((id, "state", "conn_listening".to_owned()));
            lines.push((id, "secs_since_last_cmd", "0".to_owned()));
        }
        let first = listening.len() as u64;
        for (id, seen) in self.connections.lock().iter() {
            let id = first + id;
            let activity = usize::from(seen.activity.load(Relaxed));
            let since = now_unix_s.saturating_sub(seen.last_unix_s.load(Relaxed));
            lines.push((id, "addr", seen.client.to_string()));
            lines.push((id, "listen_addr", seen.server.to_string()));
            lines.push((id, "state", ACTIVITIES[activity].to_owned()));
            lines.push((id, "secs_since_last_cmd", since.to_string()));
        }
        lines
    }
}

/// A connection in the list.
#[derive(Debug)]
pub(super) struct Listed {
    open: Arc<Open>,
    id: u64,
    seen: Arc<Seen>,
}

impl Listed {
    pub(super) fn set(&self, activity: Activity) {
        self.seen.activity.store(activity as u8, Relaxed);
    }

    /// Records the arrival of requests.
    pub(super) fn note_requests(&self, now_unix_s: u64) {
        self.set(Activity::Parse);
        self.seen.last_unix_s.store(now_unix_s, Relaxed);
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.open.connections.lock().remove(&self.id);
    }
}
