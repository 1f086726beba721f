//! Virtual time: code that waits through [`Clock`] runs to its end as fast as
//! it can be computed, and the same way every time.
//!
//! A run has one thread. Whenever no task is runnable, the clock moves to the
//! next event, and what waits for it goes on; events of one tick happen in the
//! order in which they were asked for. Real I/O, other threads, and tokio's
//! own timers have no place in a run.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use floe_core::Tick;
use parking_lot::Mutex;

use crate::clock::Clock;

/// Wall-clock time at the start of every run: 2025-01-01 00:00:00 UTC.
pub const EPOCH_UNIX_SECONDS: u64 = 1_735_689_600;

/// Virtual time that a run may take unless [`VirtualTime::limit`] says otherwise.
pub const LIMIT_DEFAULT: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Runs `main` in virtual time, to its end.
///
/// # Panics
/// Where [`VirtualTime::run`] would return an error, naming it.
pub fn run<F: Future>(seed: u64, main: impl FnOnce(Clock) -> F) -> F::Output {
    match VirtualTime::new(seed).run(main) {
        Ok(output) => output,
        Err(error) => panic!("{error} (seed {seed})"),
    }
}

/// How to run something in virtual time.
#[derive(Clone, Debug)]
pub struct VirtualTime {
    seed: u64,
    limit: Duration,
}

/// Why a run ended before its main future did.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VirtualTimeError {
    /// No task is runnable and no event is due: what is awaited never comes.
    #[error(
        "deadlock at virtual time {now}: no task can run and no event is due, but the main \
         future is not done; it waits for something that nobody will do, or for a real thread \
         or real I/O, which have no place in virtual time"
    )]
    Deadlock {
        /// When.
        now: Tick,
    },
    /// The next event lies beyond the limit.
    #[error("the limit of {limit:?} of virtual time was reached; the next event is at {next}")]
    Limit {
        /// The limit.
        limit: Duration,
        /// When the next event is due.
        next: Tick,
    },
}

impl VirtualTime {
    /// A run whose randomness comes from `seed`.
    pub fn new(seed: u64) -> Self {
        VirtualTime {
            seed,
            limit: LIMIT_DEFAULT,
        }
    }

    /// Ends the run with an error when `limit` has passed in virtual time.
    pub fn limit(self, limit: Duration) -> Self {
        VirtualTime { limit, ..self }
    }

    /// Runs `main` to its end. Tasks that it spawned and that are not done by
    /// then are dropped.
    ///
    /// # Errors
    /// On a deadlock, or when the limit is reached.
    ///
    /// # Panics
    /// If called inside a tokio runtime, or if `main` panics.
    pub fn run<F: Future>(
        self,
        main: impl FnOnce(Clock) -> F,
    ) -> Result<F::Output, VirtualTimeError> {
        let shared = Arc::new(Shared {
            seed: self.seed,
            limit: self.limit,
            now: AtomicU64::new(0),
            events: Mutex::default(),
            main: Arc::default(),
            failure: Mutex::new(None),
        });
        let parked = Arc::clone(&shared);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .on_thread_park(move || parked.advance())
            .build()
            .expect("a runtime without drivers asks the system for nothing");
        let clock = Clock::Virtual(VirtualClock(Arc::clone(&shared)));
        // Whatever way the run ends: what is scheduled may refer to the clock.
        let _cleared = ClearOnDrop(Arc::clone(&shared));
        runtime.block_on(supervise(&shared, main(clock)))
    }
}

struct ClearOnDrop(Arc<Shared>);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        let events = std::mem::take(&mut *self.0.events.lock());
        drop(events);
    }
}

/// Runs `main` until it is done or the run has failed. `main` is polled with a
/// waker of our own, because the runtime parks (and so would move time) even
/// when its `block_on` future was just woken.
async fn supervise<F: Future>(shared: &Shared, main: F) -> Result<F::Output, VirtualTimeError> {
    let mut main = pin!(main);
    let waker = Waker::from(Arc::clone(&shared.main));
    std::future::poll_fn(|cx| {
        if let Some(failure) = shared.failure.lock().take() {
            return Poll::Ready(Err(failure));
        }
        *shared.main.waker.lock() = Some(cx.waker().clone());
        if !shared.main.is_runnable.swap(false, Ordering::Relaxed) {
            return Poll::Pending;
        }
        main.as_mut().poll(&mut Context::from_waker(&waker)).map(Ok)
    })
    .await
}

/// The main future's waker.
struct Main {
    is_runnable: AtomicBool,
    waker: Mutex<Option<Waker>>,
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
pub struct VirtualClock(Arc<Shared>);

impl fmt::Debug for VirtualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VirtualClock({})", self.now())
    }
}

impl VirtualClock {
    /// Now.
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

struct Shared {
    seed: u64,
    limit: Duration,
    now: AtomicU64,
    events: Mutex<Events>,
    main: Arc<Main>,
    failure: Mutex<Option<VirtualTimeError>>,
}

/// When, and which of that tick's.
type Key = (Tick, u64);

#[derive(Default)]
struct Events {
    /// A map rather than a heap, because sleeps are cancelled more often than
    /// they end (timeouts), and a cancelled one must not move the clock.
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

    /// Called when the runtime is about to park: moves time to the next event
    /// and lets everything of that tick happen.
    fn advance(&self) {
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
        // A sleep until a time that is past ends now.
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
        // Perhaps nobody was woken (an operation whose future was dropped).
        // The runtime must come back here then, and not park for good.
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
            // The run is over, and its events with it.
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

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use tokio::sync::{Semaphore, mpsc, oneshot};

    use super::*;

    /// Tasks that sleep, queue for a semaphore, send to each other and cancel
    /// sleeps, writing down who did what when.
    fn trace(seed: u64) -> Vec<(Tick, u32)> {
        run(seed, |clock| async move {
            let (sender, mut receiver) = mpsc::channel(4);
            let places = Arc::new(Semaphore::new(3));
            for id in 0..20 {
                let (clock, sender, places) = (clock.clone(), sender.clone(), places.clone());
                tokio::spawn(async move {
                    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed + u64::from(id));
                    for _ in 0..50 {
                        let place = places.acquire().await.unwrap();
                        let short = Duration::from_nanos(random.random_range(1..100));
                        let timeout = clock.sleep(Duration::from_secs(1));
                        tokio::select! {
                            biased;
                            () = clock.sleep(short) => {}
                            () = timeout => panic!("the shorter sleep ends first"),
                        }
                        drop(place);
                        sender.send((clock.now(), id)).await.unwrap();
                    }
                });
            }
            drop(sender);
            let mut trace = Vec::new();
            while let Some(entry) = receiver.recv().await {
                trace.push(entry);
            }
            assert!(
                clock.now() < Tick(1_000_000),
                "cancelled sleeps do not count"
            );
            trace
        })
    }

    #[test]
    fn the_same_seed_gives_the_same_trace() {
        let first = trace(7);
        assert_eq!(first.len(), 1000);
        assert_eq!(first, trace(7));
        assert_ne!(first, trace(8));
    }

    #[test]
    fn sleeps_end_when_due_and_in_order_of_asking() {
        run(0, |clock| async move {
            let (sender, mut receiver) = mpsc::unbounded_channel();
            for (id, ns) in [(0, 50), (1, 10), (2, 50), (3, 10)] {
                let (clock, sender) = (clock.clone(), sender.clone());
                let sleep = clock.sleep(Duration::from_nanos(ns));
                tokio::spawn(async move {
                    sleep.await;
                    sender.send((id, clock.now().0)).unwrap();
                });
            }
            drop(sender);
            let mut ended = Vec::new();
            while let Some(entry) = receiver.recv().await {
                ended.push(entry);
            }
            assert_eq!(ended, [(1, 10), (3, 10), (0, 50), (2, 50)]);
            clock.sleep(Duration::from_secs(90)).await;
            assert_eq!(clock.unix_seconds(), EPOCH_UNIX_SECONDS + 90);
        });
    }

    #[test]
    fn time_stands_still_while_main_is_runnable() {
        run(0, |clock| async move {
            let mut later = pin!(clock.sleep(Duration::from_secs(1)));
            for _ in 0..100 {
                let (sender, receiver) = oneshot::channel();
                tokio::spawn(async move { sender.send(()) });
                tokio::select! {
                    biased;
                    () = &mut later => panic!("nothing took any time"),
                    received = receiver => received.unwrap(),
                }
            }
            assert_eq!(clock.now(), Tick::ZERO);
        });
    }

    #[test]
    fn a_deadlock_is_named_instead_of_hanging() {
        let result = VirtualTime::new(1).run(|clock| async move {
            clock.sleep(Duration::from_nanos(5)).await;
            std::future::pending::<()>().await;
        });
        assert_eq!(result, Err(VirtualTimeError::Deadlock { now: Tick(5) }));
    }

    #[test]
    fn events_that_wake_nobody_do_not_stop_time() {
        run(0, |clock| async move {
            for ns in 1..100 {
                clock.at(Tick(ns), || ());
            }
            clock.sleep(Duration::from_nanos(200)).await;
            assert_eq!(clock.now(), Tick(200));
        });
    }

    #[test]
    fn the_limit_ends_a_run() {
        let limit = Duration::from_secs(10);
        let result = VirtualTime::new(1).limit(limit).run(|clock| async move {
            loop {
                clock.sleep(Duration::from_secs(3)).await;
            }
        });
        let next = Tick(12_000_000_000);
        assert_eq!(
            result,
            Err::<(), _>(VirtualTimeError::Limit { limit, next })
        );
    }
}
