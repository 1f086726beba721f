//! The idle connections of a frontend, so that it can close the one idle
//! longest when all connections are in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use floe_core::Tick;
use floe_device::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit};

/// The activity of one connection.
pub(crate) struct Activity {
    clock: Clock,
    state: Mutex<State>,
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
        self.state.lock().requests += 1;
        Busy(Arc::clone(self))
    }

    /// Records whether a part of a response waits for the client.
    pub(crate) fn writing(&self, writing: bool) {
        let mut state = self.state.lock();
        if state.writing != writing {
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
    by_id: BTreeMap<u64, Arc<Activity>>,
}

impl Crowd {
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Crowd {
            clock,
            members: Mutex::default(),
            changed: Arc::default(),
        })
    }

    /// Adds a connection, which is idle until its first request.
    pub(super) fn join(self: &Arc<Self>) -> Member {
        let activity = Arc::new(Activity {
            clock: self.clock.clone(),
            state: Mutex::new(State {
                requests: 0,
                writing: false,
                idle_since: self.clock.now(),
                asked: false,
                kept: Vec::new(),
            }),
            evict: Notify::new(),
            changed: Arc::clone(&self.changed),
        });
        let mut members = self.members.lock();
        let id = members.next_id;
        members.next_id += 1;
        members.by_id.insert(id, Arc::clone(&activity));
        Member {
            crowd: Arc::clone(self),
            id,
            activity,
        }
    }

    /// Tells connections to close, one at a time from the one idle longest,
    /// until the future is dropped.
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
        let members = self.members.lock();
        let mut oldest: Option<(Tick, &Arc<Activity>)> = None;
        for member in members.by_id.values() {
            let state = member.state.lock();
            if state.asked {
                return;
            }
            if state.is_idle() && oldest.is_none_or(|(since, _)| state.idle_since < since) {
                oldest = Some((state.idle_since, member));
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
    pub(super) activity: Arc<Activity>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.crowd.members.lock().by_id.remove(&self.id);
        // Its place went to one that waited. Another may still wait, for the next to go.
        self.crowd.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
