//! A limit on concurrent use of a resource that is fair between clients.
//!
//! A caller takes free units at once. While there are too few, callers wait, grouped by client:
//! units that become free go to the clients in rotation, and to the waiters of one client in
//! order. So the wait of one client does not grow with the number of another's waiters.
//!
//! Each step under the lock is O(log n) in the number of waiters. Units are handed over as a
//! value in a channel: a waiter that leaves at any moment drops the value, which passes the
//! units on.
//!
//! `tests/fair_model.rs` runs this file under a model checker.
//!
//! Must not depend on tasks, clocks or counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::client::Client;
use super::lock::Mutex;

/// A limit on units that are held concurrently, which can change at runtime.
#[derive(Debug)]
pub(crate) struct FairLimit {
    state: Mutex<State>,
}

/// The queue is full, and the client has its share of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

type Answer = Result<FairHeld, QueueFull>;

impl FairLimit {
    pub(crate) fn new(units: usize) -> Arc<Self> {
        Arc::new(FairLimit {
            state: Mutex::new(State {
                units,
                held: 0,
                waiters: Waiters::default(),
            }),
        })
    }

    /// Changes the limit. Held units stay held.
    pub(crate) fn set(self: &Arc<Self>, units: usize) {
        let mut state = self.state.lock();
        state.units = units;
        let next = state.next();
        drop(state);
        self.serve(next);
    }

    /// Units that are held.
    pub(crate) fn held(&self) -> usize {
        self.state.lock().held
    }

    /// Takes `units` if they are free and none waits for them.
    pub(crate) fn try_hold(self: &Arc<Self>, units: usize) -> Option<FairHeld> {
        let is_taken = self.state.lock().take(units);
        is_taken.then(|| FairHeld::new(self, units))
    }

    /// Waits for `units`, which must not exceed the limit, among at most `waiters_max` waiters.
    ///
    /// # Errors
    /// There are as many. A full queue refuses the newest waiter of the client that has the most
    /// waiters, unless that would leave it fewer than the newcomer's client then has: in that
    /// case, the newcomer. So of `n` clients none is refused that has fewer than `waiters_max / n`
    /// waiters.
    pub(crate) async fn hold(
        self: &Arc<Self>,
        client: Client,
        units: usize,
        waiters_max: usize,
    ) -> Answer {
        let mut waiting = match self.enter(client, units, waiters_max)? {
            Entry::Held(held) => return Ok(held),
            Entry::Waiting(waiting) => waiting,
        };
        // Unreachable error: each waiter that leaves the queue before its future is answered.
        (&mut waiting.receiver).await.unwrap_or(Err(QueueFull))
    }

    fn enter(
        self: &Arc<Self>,
        client: Client,
        units: usize,
        waiters_max: usize,
    ) -> Result<Entry<'_>, QueueFull> {
        if let Some(held) = self.try_hold(units) {
            return Ok(Entry::Held(held));
        }
        let (answer, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        if state.take(units) {
            drop(state);
            return Ok(Entry::Held(FairHeld::new(self, units)));
        }
        let mut refused = None;
        if state.waiters.count >= waiters_max {
            refused = Some(state.waiters.make_room(client).ok_or(QueueFull)?);
        }
        let number = state.waiters.push(client, Waiter { units, answer });
        drop(state);
        if let Some(refused) = refused {
            // Fails if that waiter has just left.
            let _ = refused.answer.send(Err(QueueFull));
        }
        Ok(Entry::Waiting(Waiting {
            limit: self,
            client,
            number,
            receiver,
        }))
    }

    /// Hands units over to `next`, for which they are taken, and serves the waiters after it while
    /// units suffice.
    fn serve(self: &Arc<Self>, mut next: Option<Waiter>) {
        while let Some(Waiter { units, answer }) = next {
            let handed = answer.send(Ok(FairHeld::new(self, units)));
            let mut state = self.state.lock();
            // The waiter has just left.
            if let Err(Ok(mut held)) = handed {
                state.held -= std::mem::take(&mut held.units);
            }
            next = state.next();
        }
    }
}

/// Units of a limit, returned on drop.
#[derive(Debug)]
pub(crate) struct FairHeld {
    limit: Arc<FairLimit>,
    units: usize,
}

impl FairHeld {
    fn new(limit: &Arc<FairLimit>, units: usize) -> Self {
        FairHeld {
            limit: Arc::clone(limit),
            units,
        }
    }

    /// Returns the units beyond `units`.
    pub(crate) fn shrink_to(&mut self, units: usize) {
        let surplus = self.units.saturating_sub(units);
        if surplus == 0 {
            return;
        }
        self.units -= surplus;
        let mut state = self.limit.state.lock();
        state.held -= surplus;
        let next = state.next();
        drop(state);
        self.limit.serve(next);
    }
}

impl Drop for FairHeld {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// The way in which a caller gets its units.
enum Entry<'a> {
    Held(FairHeld),
    Waiting(Waiting<'a>),
}

/// A place in the queue, until dropped.
struct Waiting<'a> {
    limit: &'a Arc<FairLimit>,
    client: Client,
    number: u64,
    receiver: oneshot::Receiver<Answer>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.limit.state.lock();
        // One that is not in the queue has its answer, or gets it: dropping units returns them.
        let left = state.waiters.remove(self.client, self.number);
        // This one may have waited for more units than the next one needs.
        let next = left.is_some().then(|| state.next()).flatten();
        drop(state);
        drop(left);
        self.limit.serve(next);
    }
}

#[derive(Debug)]
struct State {
    units: usize,
    /// More than `units` after the limit was lowered.
    held: usize,
    waiters: Waiters,
}

impl State {
    fn free(&self) -> usize {
        self.units.saturating_sub(self.held)
    }

    /// Takes units for a caller that has not waited.
    fn take(&mut self, units: usize) -> bool {
        let is_free = self.waiters.count == 0 && units <= self.free();
        if is_free {
            self.held += units;
        }
        is_free
    }

    /// Takes units for the next waiter, if they suffice.
    fn next(&mut self) -> Option<Waiter> {
        let units = self.waiters.first()?.units;
        if units > self.free() {
            return None;
        }
        self.held += units;
        self.waiters.pop()
    }
}

#[derive(Debug)]
struct Waiter {
    units: usize,
    answer: oneshot::Sender<Answer>,
}

/// The waiters of one client, by their numbers.
#[derive(Debug)]
struct Group {
    waiters: BTreeMap<u64, Waiter>,
    /// The number of its next turn.
    turn: u64,
}

/// The queue.
#[derive(Debug, Default)]
struct Waiters {
    count: usize,
    next_number: u64,
    /// Those that have waiters.
    groups: BTreeMap<Client, Group>,
    /// The clients by the numbers of their next turns.
    rotation: BTreeMap<u64, Client>,
    /// The clients by how many waiters they have.
    sizes: BTreeSet<(usize, Client)>,
}

impl Waiters {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Adds a waiter; returns its number.
    fn push(&mut self, client: Client, waiter: Waiter) -> u64 {
        let number = self.number();
        let group = self.groups.entry(client).or_insert_with(|| {
            self.rotation.insert(number, client);
            Group {
                waiters: BTreeMap::new(),
                turn: number,
            }
        });
        group.waiters.insert(number, waiter);
        let size = group.waiters.len();
        self.count += 1;
        self.resize(client, size - 1, size);
        number
    }

    /// The waiter whose turn is next.
    fn first(&self) -> Option<&Waiter> {
        let (_, client) = self.rotation.first_key_value()?;
        let (_, waiter) = self.groups.get(client)?.waiters.first_key_value()?;
        Some(waiter)
    }

    /// Removes the waiter whose turn is next. Its client's next turn comes after all others'.
    fn pop(&mut self) -> Option<Waiter> {
        let (_, client) = self.rotation.pop_first()?;
        let turn = self.number();
        let group = self.groups.get_mut(&client)?;
        group.turn = turn;
        self.rotation.insert(turn, client);
        let (&number, _) = group.waiters.first_key_value()?;
        self.remove(client, number)
    }

    fn remove(&mut self, client: Client, number: u64) -> Option<Waiter> {
        let group = self.groups.get_mut(&client)?;
        let waiter = group.waiters.remove(&number)?;
        let size = group.waiters.len();
        if size == 0 {
            self.rotation.remove(&group.turn);
            self.groups.remove(&client);
        }
        self.count -= 1;
        self.resize(client, size + 1, size);
        Some(waiter)
    }

    /// Removes the newest waiter of the client with the most, if `client` has no more with a
    /// further one than that one without it.
    fn make_room(&mut self, client: Client) -> Option<Waiter> {
        let own = self.groups.get(&client);
        let own = own.map_or(0, |group| group.waiters.len());
        let &(most, largest) = self.sizes.last()?;
        if own + 1 >= most {
            return None;
        }
        let (&newest, _) = self.groups.get(&largest)?.waiters.last_key_value()?;
        self.remove(largest, newest)
    }

    fn resize(&mut self, client: Client, before: usize, now: usize) {
        self.sizes.remove(&(before, client));
        if now > 0 {
            self.sizes.insert((now, client));
        }
    }
}
