//! The idle connections of a frontend, so that it can close the one idle
//! longest when all connections are in use.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use floe_core::Tick;
use floe_device::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit};

/// The activity of one connection.
pub(crate) struct Activity {
    clock: Clock,
    state: Mutex<State>,
    /// Connections of this one's client that are busy.
    of_client: Arc<AtomicUsize>,
    /// Notified to close the connection.
    evict: Notify,
    /// Notified when a connection becomes idle or declines to close.
    changed: Arc<Notify>,
}

struct State {
    /// Requests whose responses are not yet complete.
    requests: usize,
    /// A part of a response waits for the client.
    writing: bool,
    idle_since: Tick,
    /// The busy connections of its client when this one became busy, with it.
    rank: usize,
    /// This connection counts as a busy one of its client.
    is_counted: bool,
    /// The connection was told to close and has not reacted yet.
    asked: bool,
    kept: Vec<OwnedSemaphorePermit>,
}

impl State {
    fn is_idle(&self) -> bool {
        self.requests == 0 && !self.writing
    }
}

impl Activity {
    /// Records a request until the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        let mut state = self.state.lock();
        self.count(&mut state);
        state.requests += 1;
        drop(state);
        Busy(Arc::clone(self))
    }

    /// Counts a connection that is idle as a busy one of its client.
    fn count(&self, state: &mut State) {
        if state.is_idle() {
            state.rank = self.of_client.fetch_add(1, Relaxed) + 1;
            state.is_counted = true;
        }
    }

    fn uncount(&self, state: &mut State) {
        if std::mem::take(&mut state.is_counted) {
            self.of_client.fetch_sub(1, Relaxed);
        }
    }

    /// True if this connection became busy while `most` others of its client were. Then it
    /// counts no longer, so that one that is refused keeps no other from being served.
    pub(crate) fn exceeds(&self, most: usize) -> bool {
        let mut state = self.state.lock();
        let exceeds = state.rank > most;
        if exceeds {
            self.uncount(&mut state);
        }
        exceeds
    }

    /// Records whether a part of a response waits for the client.
    pub(crate) fn writing(&self, writing: bool) {
        let mut state = self.state.lock();
        if state.writing != writing {
            self.count(&mut state);
            state.writing = writing;
            self.settle(state);
        }
    }

    /// Keeps a permit until the connection is idle.
    pub(crate) fn keep(&self, permit: OwnedSemaphorePermit) {
        self.state.lock().kept.push(permit);
    }

    fn settle(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        if state.is_idle() {
            self.uncount(&mut state);
            state.idle_since = self.clock.now();
            state.kept.clear();
            drop(state);
            self.changed.notify_waiters();
        }
    }

    /// Waits until the connection is told to close while idle.
    pub(super) async fn evicted(&self) {
        loop {
            self.evict.notified().await;
            let mut state = self.state.lock();
            if state.is_idle() {
                return;
            }
            state.asked = false;
            drop(state);
            self.changed.notify_waiters();
        }
    }
}

/// A pending request.
pub(crate) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.requests -= 1;
        self.0.settle(state);
    }
}

/// The connections of one frontend.
pub(super) struct Crowd {
    clock: Clock,
    members: Mutex<Members>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Members {
    next_id: u64,
    by_id: BTreeMap<u64, (Option<IpAddr>, Arc<Activity>)>,
    /// Those with connections: all, and the busy ones.
    clients: HashMap<IpAddr, (usize, Arc<AtomicUsize>)>,
}

impl Members {
    /// Counts a further connection of a client; returns the number of the busy ones.
    fn client(&mut self, client: IpAddr) -> Arc<AtomicUsize> {
        let (connections, busy) = self.clients.entry(client).or_default();
        *connections += 1;
        Arc::clone(busy)
    }

    fn connections_of(&self, client: Option<IpAddr>) -> usize {
        let found = client.and_then(|client| self.clients.get(&client));
        found.map_or(0, |(connections, _)| *connections)
    }

    fn leave(&mut self, id: u64, client: Option<IpAddr>) {
        self.by_id.remove(&id);
        if let Some(client) = client
            && let Some((connections, _)) = self.clients.get_mut(&client)
        {
            *connections -= 1;
            if *connections == 0 {
                self.clients.remove(&client);
            }
        }
    }
}

impl Crowd {
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Crowd {
            clock,
            members: Mutex::default(),
            changed: Arc::default(),
        })
    }

    /// Adds a connection of a client, which is idle until its first request.
    pub(super) fn join(self: &Arc<Self>, client: Option<IpAddr>) -> Member {
        let mut members = self.members.lock();
        let of_client = client.map(|client| members.client(client));
        let activity = Arc::new(Activity {
            clock: self.clock.clone(),
            state: Mutex::new(State {
                requests: 0,
                writing: false,
                idle_since: self.clock.now(),
                rank: 0,
                is_counted: false,
                asked: false,
                kept: Vec::new(),
            }),
            of_client: of_client.unwrap_or_default(),
            evict: Notify::new(),
            changed: Arc::clone(&self.changed),
        });
        let id = members.next_id;
        members.next_id += 1;
        members.by_id.insert(id, (client, Arc::clone(&activity)));
        Member {
            crowd: Arc::clone(self),
            id,
            client,
            activity,
        }
    }

    /// Tells connections to close, one at a time, until the future is dropped: of the client
    /// with the most connections the one idle longest.
    pub(super) async fn evict(&self) -> std::convert::Infallible {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the check, so no change is lost.
            changed.as_mut().enable();
            self.ask_oldest();
            changed.await;
        }
    }

    fn ask_oldest(&self) {
        /// Connections of the client, and the beginning of the idle time.
        type Order = (Reverse<usize>, Tick);
        let members = self.members.lock();
        let mut oldest: Option<(Order, &Arc<Activity>)> = None;
        for (client, member) in members.by_id.values() {
            let state = member.state.lock();
            if state.asked {
                return;
            }
            let order = (Reverse(members.connections_of(*client)), state.idle_since);
            if state.is_idle() && oldest.is_none_or(|(first, _)| order < first) {
                oldest = Some((order, member));
            }
        }
        if let Some((_, member)) = oldest {
            member.state.lock().asked = true;
            member.evict.notify_one();
        }
    }
}

/// A connection's membership, until dropped.
pub(super) struct Member {
    crowd: Arc<Crowd>,
    id: u64,
    client: Option<IpAddr>,
    pub(super) activity: Arc<Activity>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.activity.uncount(&mut self.activity.state.lock());
        self.crowd.members.lock().leave(self.id, self.client);
        // Its place went to one that waited. Another may still wait, for the next to go.
        self.crowd.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
