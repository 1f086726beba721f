//! The clock of a run in virtual time, and its events.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use floe_core::Tick;
use parking_lot::Mutex;

/// Wall-clock time at the start of every run: 2025-01-01 00:00:00 UTC.
pub const EPOCH_UNIX_SECONDS: u64 = 1_735_689_600;

/// The reason why a run ended before its main future.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VirtualTimeError {
    /// No task can run and no event is due, so the main future can never
    /// complete.
    #[error(
        "deadlock at virtual time {now}: no task can run and no event is due, but the main \
         future has not completed; it waits for an event that cannot happen, or for a real thread \
         or real I/O, which virtual time does not support"
    )]
    Deadlock {
        /// Virtual time of the deadlock.
        now: Tick,
    },
    /// The next event lies beyond the limit.
    #[error("the limit of {limit:?} of virtual time was reached; the next event is at {next}")]
    Limit {
        /// The limit.
        limit: Duration,
        /// Time of the next event.
        next: Tick,
    },
}

/// The main future's waker.
pub(crate) struct Main {
    pub(crate) is_runnable: AtomicBool,
    pub(crate) waker: Mutex<Option<Waker>>,
}

impl Default for Main {
    fn default() -> Self {
        Main {
            is_runnable: AtomicBool::new(true),
            waker: Mutex::default(),
        }
    }
}

impl Main {
    fn rouse(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }
}

impl Wake for Main {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_runnable.swap(true, Ordering::Relaxed) {
            self.rouse();
        }
    }
}

/// A handle on the clock of a run.
#[derive(Clone)]
pub struct VirtualClock(pub(crate) Arc<Shared>);

impl fmt::Debug for VirtualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VirtualClock({})", self.now())
    }
}

impl VirtualClock {
    /// The current time.
    pub fn now(&self) -> Tick {
        Tick(self.0.now.load(Ordering::Relaxed))
    }

    /// The run's seed.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    pub(crate) fn unix_seconds(&self) -> u64 {
        EPOCH_UNIX_SECONDS + self.now().0 / 1_000_000_000
    }

    pub(crate) fn sleep_until(&self, when: Tick) -> VirtualSleep {
        let key = self.0.schedule(when, Event::Sleep(None));
        VirtualSleep {
            clock: self.clone(),
            key,
        }
    }

    pub(crate) fn at(&self, when: Tick, action: Box<dyn FnOnce() + Send>) {
        self.0.schedule(when, Event::Action(action));
    }
}

/// The state of a run.
pub(crate) struct Shared {
    pub(crate) seed: u64,
    pub(crate) limit: Duration,
    pub(crate) now: AtomicU64,
    pub(crate) events: Mutex<Events>,
    pub(crate) main: Arc<Main>,
    pub(crate) failure: Mutex<Option<VirtualTimeError>>,
}

/// An event's tick, and its number.
type Key = (Tick, u64);

#[derive(Default)]
pub(crate) struct Events {
    /// A map instead of a heap, because most sleeps are cancelled (timeouts),
    /// and a cancelled sleep must not advance the clock.
    due: BTreeMap<Key, Event>,
    scheduled: u64,
}

enum Event {
    Sleep(Option<Waker>),
    Action(Box<dyn FnOnce() + Send>),
}

impl Shared {
    fn schedule(&self, when: Tick, event: Event) -> Key {
        let mut events = self.events.lock();
        let key = (when, events.scheduled);
        events.scheduled += 1;
        events.due.insert(key, event);
        key
    }

    /// Called when the runtime is about to park: advances time to the next
    /// event and runs all events of that tick.
    pub(crate) fn advance(&self) {
        if self.main.is_runnable.load(Ordering::Relaxed) {
            return;
        }
        let mut events = self.events.lock();
        let Some((&(tick, _), _)) = events.due.first_key_value() else {
            drop(events);
            return self.fail(VirtualTimeError::Deadlock {
                now: Tick(self.now.load(Ordering::Relaxed)),
            });
        };
        if tick > Tick::ZERO + self.limit {
            drop(events);
            return self.fail(VirtualTimeError::Limit {
                limit: self.limit,
                next: tick,
            });
        }
        // A sleep until a past time ends now.
        self.now.fetch_max(tick.0, Ordering::Relaxed);
        while let Some(entry) = events.due.first_entry() {
            if entry.key().0 != tick {
                break;
            }
            let event = entry.remove();
            drop(events);
            match event {
                Event::Sleep(Some(waker)) => waker.wake(),
                Event::Sleep(None) => {}
                Event::Action(action) => action(),
            }
            events = self.events.lock();
        }
        drop(events);
        // An event may wake no task, if its future was dropped. The runtime
        // must then call this again instead of parking for good.
        self.main.rouse();
    }

    fn fail(&self, failure: VirtualTimeError) {
        *self.failure.lock() = Some(failure);
        self.main.rouse();
    }
}

/// A sleep in virtual time.
pub(crate) struct VirtualSleep {
    clock: VirtualClock,
    key: Key,
}

impl VirtualSleep {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.key.0 {
            return Poll::Ready(());
        }
        match self.clock.0.events.lock().due.get_mut(&self.key) {
            Some(Event::Sleep(waker)) => {
                if !waker.as_ref().is_some_and(|old| old.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
            // The run has ended, and so have its events.
            _ => Poll::Pending,
        }
    }
}

impl Drop for VirtualSleep {
    fn drop(&mut self) {
        let cancelled = self.clock.0.events.lock().due.remove(&self.key);
        drop(cancelled);
    }
}

impl fmt::Debug for VirtualSleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VirtualSleep(until {})", self.key.0)
    }
}
