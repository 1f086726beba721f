//! Waiters do a log's work on their own threads, as in flat combining (Hendler, Incze, Shavit and
//! Tzafrir, SPAA 2010), but for work that waits for a device.
//!
//! A task of the log's own would cost two changes of threads and four wake-ups for each group,
//! more than the group itself. So the work is a future without a task:
//!
//! * A waiter that finds the log idle begins a group with all queued requests.
//! * The device wakes one waiter of a group, its *poller*. One waiter of the queued requests is
//!   the *next poller*.
//! * Without a poller the keeper is woken, a task that is seldom needed. It also does long work.
//! * A waiter that is woken and not polled delays the others. So the keeper looks at the work
//!   now and then while there is some.
//!
//! Must not depend on: the kind of work, tokio, and devices.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Wake, Waker};

use super::lock::{AtomicBool, Mutex, fence};

/// Works that one call drives before it leaves the rest to others.
const TURNS: usize = 8;

/// Work of the log. It returns the log's state, or nothing at the log's end.
pub(super) type Work<T> = Pin<Box<dyn Future<Output = Option<T>> + Send>>;

/// The payload of a panic.
pub(super) type Payload = Box<dyn Any + Send>;

/// A caller of [`Combiner::drive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    Waiter,
    Keeper,
}

/// The present work.
enum Slot<T> {
    Idle(T),
    Busy(Work<T>),
    Ended,
    /// The work panicked.
    Panicked(Payload),
}

/// The work of a log whose state is a `T`.
pub(super) struct Combiner<T> {
    slot: Mutex<Slot<T>>,
    /// A thread found the slot locked. The holder of the lock checks this after unlocking.
    wanted: AtomicBool,
    wakers: Arc<Wakers>,
    waker: Waker,
}

impl<T: Send> Combiner<T> {
    /// An idle log.
    pub(super) fn new(state: T, wakers: Arc<Wakers>) -> Self {
        Combiner {
            slot: Mutex::new(Slot::Idle(state)),
            wanted: AtomicBool::new(false),
            waker: Waker::from(Arc::clone(&wakers)),
            wakers,
        }
    }

    pub(super) fn wakers(&self) -> &Arc<Wakers> {
        &self.wakers
    }

    /// Polls the work if it was woken. When the log is idle, asks `begin` for more: it gets the
    /// state, and returns work with the number of its last request, or the state. Returns false
    /// once the log has ended.
    pub(super) fn drive(
        &self,
        driver: Driver,
        mut begin: impl FnMut(T) -> Result<(Work<T>, u64), T>,
    ) -> bool {
        for _ in 0..TURNS {
            self.wanted.store(true, SeqCst);
            // Pairs with the fence below: either this thread gets the lock, or its holder sees
            // `wanted` after unlocking.
            fence(SeqCst);
            let Some(mut slot) = self.slot.try_lock() else {
                return true;
            };
            self.wanted.store(false, SeqCst);
            let (goes_on, former) = self.advance(&mut slot, driver, &mut begin);
            let has_ended = matches!(*slot, Slot::Ended | Slot::Panicked(_));
            drop(slot);
            // Without the lock: a task may end with its last waker.
            drop(former);
            fence(SeqCst);
            if has_ended || !(goes_on || self.wanted.load(SeqCst)) {
                // The keeper may have found the slot locked.
                self.wakers.remind_keeper(driver);
                return !has_ended;
            }
        }
        // The caller has other work, too.
        self.wakers.remind_keeper(driver);
        self.wakers.wake_next();
        true
    }

    /// Polls the work, or begins some. Returns true if it has ended, and a former poller.
    fn advance(
        &self,
        slot: &mut Slot<T>,
        driver: Driver,
        begin: &mut impl FnMut(T) -> Result<(Work<T>, u64), T>,
    ) -> (bool, Option<Waiter>) {
        let mut former = None;
        let mut work = match std::mem::replace(slot, Slot::Ended) {
            Slot::Busy(work) if self.wakers.take_ready(driver) => work,
            Slot::Idle(state) => match begin(state) {
                Ok((work, last)) => {
                    former = self.wakers.pollers.lock().begin(last);
                    work
                }
                Err(state) => {
                    *slot = Slot::Idle(state);
                    return (false, None);
                }
            },
            other => {
                *slot = other;
                return (false, None);
            }
        };
        let mut context = Context::from_waker(&self.waker);
        // A panic is the log's, not that of the waiter that happens to poll.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut context)));
        *slot = match polled {
            Ok(Poll::Pending) => {
                *slot = Slot::Busy(work);
                return (false, former);
            }
            Ok(Poll::Ready(state)) => state.map_or(Slot::Ended, Slot::Idle),
            Err(payload) => Slot::Panicked(payload),
        };
        self.wakers.for_keeper.store(false, SeqCst);
        (true, self.wakers.pollers.lock().end().or(former))
    }

    /// True if the work has not been woken since it was polled.
    pub(super) fn awaits_device(&self) -> bool {
        let slot = self.slot.try_lock();
        slot.is_some_and(|slot| matches!(*slot, Slot::Busy(_))) && !self.wakers.ready.load(SeqCst)
    }

    /// The panic that ended the log, for one caller.
    pub(super) fn panic(&self) -> Option<Payload> {
        let mut slot = self.slot.lock();
        match std::mem::replace(&mut *slot, Slot::Ended) {
            Slot::Panicked(payload) => Some(payload),
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Ends the log, and drops its work.
    pub(super) fn end(&self) {
        *self.slot.lock() = Slot::Ended;
    }
}

impl<T> fmt::Debug for Combiner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combiner").finish_non_exhaustive()
    }
}

/// The waker of the work, and the tasks that it wakes.
pub(super) struct Wakers {
    /// The work was woken and has not been polled since.
    ready: AtomicBool,
    /// Only the keeper polls the present work.
    for_keeper: AtomicBool,
    pollers: Mutex<Pollers>,
    wake_keeper: Box<dyn Fn() + Send + Sync>,
}

impl Wakers {
    /// With what wakes the keeper, which must then [`drive`](Combiner::drive).
    pub(super) fn new(wake_keeper: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Wakers {
            ready: AtomicBool::new(false),
            for_keeper: AtomicBool::new(false),
            pollers: Mutex::new(Pollers::default()),
            wake_keeper: Box::new(wake_keeper),
        })
    }

    /// Notes the waker of the waiter of request `number`. Requests are numbered from 1 as they
    /// are queued.
    pub(super) fn register(&self, number: u64, waker: &Waker) {
        // Dropped without the lock: a task may end with its last waker.
        let _replaced = self.pollers.lock().register(number, waker);
    }

    /// The waiter of request `number` is gone before its answer.
    pub(super) fn unregister(&self, number: u64) {
        let _removed = self.pollers.lock().unregister(number);
        self.wake_keeper();
    }

    pub(super) fn wake_keeper(&self) {
        (self.wake_keeper)();
    }

    /// Wakes the next poller, or the keeper.
    pub(super) fn wake_next(&self) {
        let next = self.pollers.lock().next.clone();
        match next {
            Some((_, waker)) => waker.wake(),
            None => self.wake_keeper(),
        }
    }

    /// If the work was woken, wakes the keeper from now on: the poller may not be polled.
    pub(super) fn relieve_poller(&self) {
        if self.ready.load(SeqCst) {
            let _former = self.pollers.lock().present.take();
        }
    }

    /// Leaves the rest of the present work to the keeper. The work waits for this.
    pub(super) async fn change_to_keeper(&self) {
        let mut has_changed = false;
        poll_fn(|_| {
            if has_changed {
                return Poll::Ready(());
            }
            has_changed = true;
            self.for_keeper.store(true, SeqCst);
            let _former = self.pollers.lock().present.take();
            self.ready.store(true, SeqCst);
            self.wake_keeper();
            Poll::Pending
        })
        .await;
    }

    /// Wakes the keeper if the present work is its own and was woken.
    fn remind_keeper(&self, driver: Driver) {
        let is_its_own = driver == Driver::Waiter && self.for_keeper.load(SeqCst);
        if is_its_own && self.ready.load(SeqCst) {
            self.wake_keeper();
        }
    }

    fn take_ready(&self, driver: Driver) -> bool {
        let may_poll = driver == Driver::Keeper || !self.for_keeper.load(SeqCst);
        may_poll && self.ready.swap(false, SeqCst)
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.store(true, SeqCst);
        if self.for_keeper.load(SeqCst) {
            return self.wake_keeper();
        }
        let present = self.pollers.lock().present.clone();
        match present {
            Some((_, waker)) => waker.wake(),
            None => self.wake_keeper(),
        }
    }
}

impl fmt::Debug for Wakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakers").finish_non_exhaustive()
    }
}

/// A waiter, by the number of its request.
type Waiter = (u64, Waker);

/// Waiters that poll the work.
#[derive(Default)]
struct Pollers {
    /// The last request of the present work, or of the last one.
    taken: u64,
    /// The last request of a work that has ended.
    ended: u64,
    /// A waiter of the present work.
    present: Option<Waiter>,
    /// A waiter of the queued requests.
    next: Option<Waiter>,
}

impl Pollers {
    /// Returns a waker that is not needed any more.
    fn register(&mut self, number: u64, waker: &Waker) -> Option<Waker> {
        let place = match number {
            // It has its answer.
            _ if number <= self.ended => return None,
            _ if number <= self.taken => &mut self.present,
            _ => &mut self.next,
        };
        match place {
            Some((other, present)) => {
                let is_newer = *other == number && !present.will_wake(waker);
                is_newer.then(|| std::mem::replace(present, waker.clone()))
            }
            None => {
                *place = Some((number, waker.clone()));
                None
            }
        }
    }

    fn unregister(&mut self, number: u64) -> [Option<Waiter>; 2] {
        let places = [&mut self.present, &mut self.next];
        places.map(|place| place.take_if(|(waiter, _)| *waiter == number))
    }

    /// Work begins with the requests up to `last`. Returns the former poller.
    fn begin(&mut self, last: u64) -> Option<Waiter> {
        self.taken = self.taken.max(last);
        let present = self.next.take_if(|(waiter, _)| *waiter <= last);
        std::mem::replace(&mut self.present, present)
    }

    /// The work has ended. Returns its poller.
    fn end(&mut self) -> Option<Waiter> {
        self.ended = self.taken;
        self.present.take()
    }
}
