//! The idle connections of a frontend, so that it can close the one that has been
//! idle the longest when all connections are in use.

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
    /// The connection is asked to close.
    evict: Notify,
    /// Some connection became idle or would not close.
    changed: Arc<Notify>,
}

struct State {
    /// Requests begun whose answers are not handed over yet.
    requests: usize,
    /// Part of an answer waits for the client.
    writing: bool,
    idle_since: Tick,
    /// Asked to close, and not answered yet.
    asked: bool,
    kept: Vec<OwnedSemaphorePermit>,
}

impl State {
    fn is_idle(&self) -> bool {
        self.requests == 0 && !self.writing
    }
}

impl Activity {
    /// A request begins; it ends when the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        self.state.lock().requests += 1;
        Busy(Arc::clone(self))
    }

    /// Whether part of an answer waits for the client.
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

    /// Returns when the connection is asked to close while it is idle.
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

/// A request under way.
pub(crate) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.requests -= 1;
        self.0.settle(state);
    }
}

/// All connections of one frontend.
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

    /// A new connection; idle until its first request.
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

    /// Asks connections to close, the one that has been idle the longest
    /// first and one at a time, until the future is dropped.
    pub(super) async fn evict(&self) -> std::convert::Infallible {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the check, so that no change is lost.
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

/// A connection's place in the crowd; left when dropped.
pub(super) struct Member {
    crowd: Arc<Crowd>,
    id: u64,
    pub(super) activity: Arc<Activity>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.crowd.members.lock().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
