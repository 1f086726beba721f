//! Virtual time: code that waits through [`Clock`] runs without real waiting,
//! and identically every time.
//!
//! A run has one thread. When no task can run, the clock advances to the next
//! event and wakes its waiters. Events of one tick happen in the order in which
//! they were requested. Real I/O, other threads, and tokio's own timers must
//! not be used in a run.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::virtual_clock::Shared;
pub use crate::virtual_clock::{EPOCH_UNIX_SECONDS, VirtualClock, VirtualTimeError};

/// Default limit of a run's virtual time; see [`VirtualTime::limit`].
pub const LIMIT_DEFAULT: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Runs `main` to its end in virtual time.
///
/// # Panics
/// On an error of [`VirtualTime::run`], which the message has.
pub fn run<F: Future>(seed: u64, main: impl FnOnce(Clock) -> F) -> F::Output {
    match VirtualTime::new(seed).run(main) {
        Ok(output) => output,
        Err(error) => panic!("{error} (seed {seed})"),
    }
}

/// The settings of a run in virtual time.
#[derive(Clone, Debug)]
pub struct VirtualTime {
    seed: u64,
    limit: Duration,
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

    /// Runs `main` to its end. Then tasks that it spawned are dropped.
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
        // Pending events may refer to the clock, so they are cleared however
        // the run ends.
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

/// Runs `main` until it completes or the run fails. `main` is polled with a
/// waker of our own, because the runtime parks (and so would advance time) even
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

#[cfg(test)]
mod tests {
    use floe_core::Tick;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use tokio::sync::{Semaphore, mpsc, oneshot};

    use super::*;

    /// Runs tasks that sleep, wait for a semaphore, send to each other and
    /// cancel sleeps, and records which task did a step when.
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
    fn sleeps_end_when_due_and_in_the_order_of_calls() {
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
    fn events_without_a_waiter_do_not_stop_time() {
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
