//! The fair limit under a model checker: the production source with the checker's lock, in many
//! thousands of interleavings.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Waker};

use Caller::{Leaves, Waits};
use client::Client;
use fair::{FairHeld, FairLimit, QueueFull};
use shuttle::future::block_on;
use shuttle::thread;

#[allow(dead_code)]
#[path = "../src/origin/fair.rs"]
mod fair;

/// The module that the limit imports.
mod client {
    pub(crate) use floe::origin::Client;
}

mod lock {
    use std::ops::{Deref, DerefMut};

    /// The checker's lock with the production lock's interface.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> Guard<'_, T> {
            Guard(Some(self.0.lock().unwrap()))
        }
        pub(crate) fn new(value: T) -> Self {
            Mutex(shuttle::sync::Mutex::new(value))
        }
    }

    /// Other threads may run as soon as it is released: the checker does not know the channels,
    /// over which a waiter gets its units later.
    pub(crate) struct Guard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

    impl<T> Deref for Guard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    impl<T> Drop for Guard<'_, T> {
        fn drop(&mut self) {
            drop(self.0.take());
            shuttle::thread::yield_now();
        }
    }
}

fn client(number: u8) -> Client {
    Client::at(Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))))
}

/// A caller: the number of its client, and of its units.
#[derive(Clone, Copy)]
enum Caller {
    /// Waits, and returns its units.
    Waits(u8, usize),
    /// Asks once, and leaves with or without an answer.
    Leaves(u8, usize),
}

/// Runs callers on threads of their own; `sizes` are limits that the first thread sets meanwhile.
/// None may wait forever, which the checker would find, and no unit may be lost.
fn explore(units: usize, callers: &'static [Caller], sizes: &'static [usize], waiters_max: usize) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    let scheduler = shuttle::scheduler::RandomScheduler::new(3_000);
    shuttle::Runner::new(scheduler, config).run(move || {
        let limit = FairLimit::new(units);
        let used = Arc::new(AtomicUsize::new(0));
        let most = sizes.iter().copied().max().unwrap_or(0).max(units);
        let threads: Vec<_> = callers
            .iter()
            .map(|caller| {
                let (limit, used) = (Arc::clone(&limit), Arc::clone(&used));
                thread::spawn(move || run(&limit, &used, *caller, most, waiters_max))
            })
            .collect();
        for size in sizes {
            limit.set(*size);
            thread::yield_now();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(limit.held(), 0);
        assert!(limit.try_hold(1).is_some());
    });
}

fn run(
    limit: &Arc<FairLimit>,
    used: &AtomicUsize,
    caller: Caller,
    most: usize,
    waiters_max: usize,
) {
    let uses = |held: FairHeld, units: usize| {
        assert!(used.fetch_add(units, SeqCst) + units <= most);
        thread::yield_now();
        used.fetch_sub(units, SeqCst);
        drop(held);
    };
    match caller {
        Waits(of, units) => match block_on(limit.hold(client(of), units, waiters_max)) {
            Ok(held) => uses(held, units),
            Err(QueueFull) => assert!(waiters_max < usize::MAX),
        },
        Leaves(of, units) => {
            let mut hold = pin!(limit.hold(client(of), units, waiters_max));
            let mut context = Context::from_waker(Waker::noop());
            let answer = hold.as_mut().poll(&mut context);
            thread::yield_now();
            drop(answer);
        }
    }
}

#[test]
fn waiters_that_leave_pass_their_turns_on() {
    const CALLERS: &[Caller] = &[
        Waits(1, 1),
        Leaves(1, 1),
        Leaves(2, 1),
        Waits(2, 1),
        Waits(2, 1),
    ];
    explore(1, CALLERS, &[], usize::MAX);
}

#[test]
fn wide_waiters_and_limits_that_change_lose_no_units() {
    const CALLERS: &[Caller] = &[Waits(1, 2), Leaves(1, 3), Waits(2, 1), Waits(3, 2)];
    explore(3, CALLERS, &[1, 4, 3], usize::MAX);
}

#[test]
fn a_full_queue_answers_every_waiter() {
    const CALLERS: &[Caller] = &[
        Waits(1, 1),
        Waits(1, 1),
        Waits(1, 1),
        Leaves(1, 1),
        Waits(2, 1),
    ];
    explore(1, CALLERS, &[], 2);
}
