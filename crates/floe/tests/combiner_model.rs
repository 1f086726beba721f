//! The combining of a log's work under a model checker: the production source with the checker's
//! lock and atomics, in thousands of interleavings.
//!
//! Clients queue requests and wait for them, as in `metadata_log/queue.rs`. A device ends each
//! group's write on a thread of its own. Some clients go away before their answer. The keeper
//! only does what it is woken for, so that none relies on its looking now and then.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker};

use combiner::{Combiner, Driver, Wakers, Work};
use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicBool, AtomicU64};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

#[allow(dead_code)]
#[path = "../src/metadata_log/combiner.rs"]
mod combiner;

/// The module that the kernel imports.
#[allow(dead_code, unused_imports)]
#[path = "common/model_lock.rs"]
mod lock;

/// The write of a group, which the device ends.
#[derive(Default)]
struct Write {
    is_done: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Write {
    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        *self.waker.lock().unwrap() = Some(context.waker().clone());
        match self.is_done.load(SeqCst) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn end(&self) {
        self.is_done.store(true, SeqCst);
        if let Some(waker) = self.waker.lock().unwrap().take() {
            waker.wake();
        }
    }
}

#[derive(Default)]
struct Inbox {
    requests: Vec<Arc<Request>>,
    sent: u64,
}

#[derive(Default)]
struct Request {
    is_done: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// The bell of the keeper.
#[derive(Default)]
struct Bell {
    is_rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.is_rung.lock().unwrap() = true;
        self.rings.notify_one();
    }

    fn wait(&self) {
        let mut is_rung = self.is_rung.lock().unwrap();
        while !*is_rung {
            is_rung = self.rings.wait(is_rung).unwrap();
        }
        *is_rung = false;
    }
}

struct World {
    combiner: Combiner<()>,
    inbox: Mutex<Inbox>,
    device: Mutex<Sender<Arc<Write>>>,
    bell: Arc<Bell>,
    /// Requests of groups whose write has ended.
    answered: Arc<AtomicU64>,
    is_over: AtomicBool,
}

impl World {
    fn new() -> (Arc<Self>, Receiver<Arc<Write>>) {
        let (device, writes) = channel();
        let bell = Arc::<Bell>::default();
        let rung = Arc::clone(&bell);
        let world = World {
            combiner: Combiner::new((), Wakers::new(move || rung.ring())),
            inbox: Mutex::default(),
            device: Mutex::new(device),
            bell,
            answered: Arc::default(),
            is_over: AtomicBool::new(false),
        };
        (Arc::new(world), writes)
    }

    fn drive(&self, driver: Driver) {
        self.combiner.drive(driver, |()| {
            let mut inbox = self.inbox.lock().unwrap();
            if inbox.requests.is_empty() {
                return Err(());
            }
            let requests = std::mem::take(&mut inbox.requests);
            let last = inbox.sent;
            drop(inbox);
            let write = Arc::<Write>::default();
            self.device
                .lock()
                .unwrap()
                .send(Arc::clone(&write))
                .unwrap();
            let wakers = Arc::clone(self.combiner.wakers());
            let answered = Arc::clone(&self.answered);
            let is_long = last.is_multiple_of(2);
            let work: Work<()> = Box::pin(async move {
                if is_long {
                    wakers.change_to_keeper().await;
                }
                std::future::poll_fn(|context| write.poll(context)).await;
                answered.fetch_add(requests.len() as u64, SeqCst);
                for request in requests {
                    request.is_done.store(true, SeqCst);
                    if let Some(waker) = request.waker.lock().unwrap().take() {
                        waker.wake();
                    }
                }
                Some(())
            });
            Ok((work, last))
        });
    }

    fn send(self: &Arc<Self>) -> Receipt {
        let request = Arc::<Request>::default();
        let mut inbox = self.inbox.lock().unwrap();
        inbox.sent += 1;
        inbox.requests.push(Arc::clone(&request));
        Receipt {
            number: inbox.sent,
            request,
            world: Arc::clone(self),
        }
    }
}

/// As the production receipt.
struct Receipt {
    number: u64,
    request: Arc<Request>,
    world: Arc<World>,
}

impl Receipt {
    fn is_done(&self, context: &Context<'_>) -> bool {
        *self.request.waker.lock().unwrap() = Some(context.waker().clone());
        self.request.is_done.load(SeqCst)
    }
}

impl Future for Receipt {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.is_done(context) {
            return Poll::Ready(());
        }
        let wakers = self.world.combiner.wakers();
        wakers.register(self.number, context.waker());
        self.world.drive(Driver::Waiter);
        match self.is_done(context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if !self.request.is_done.load(SeqCst) {
            self.world.combiner.wakers().unregister(self.number);
        }
    }
}

/// Runs clients, each of which waits for `each` requests. The requests of the first one may be
/// polled once and dropped.
fn run(count: usize, each: usize, first_leaves: bool) {
    let (world, writes) = World::new();
    let device = thread::spawn(move || {
        while let Ok(write) = writes.recv() {
            thread::yield_now();
            write.end();
        }
    });
    let keeper = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            while !world.is_over.load(SeqCst) {
                world.bell.wait();
                world.drive(Driver::Keeper);
            }
        })
    };
    let clients: Vec<_> = (0..count)
        .map(|client| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for _ in 0..each {
                    let mut receipt = world.send();
                    if first_leaves && client == 0 {
                        block_on(std::future::poll_fn(|context| {
                            let _ = Pin::new(&mut receipt).poll(context);
                            Poll::Ready(())
                        }));
                    } else {
                        block_on(receipt);
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    // The keeper ends what the first client left.
    while world.answered.load(SeqCst) < (count * each) as u64 {
        thread::yield_now();
    }
    world.is_over.store(true, SeqCst);
    world.bell.ring();
    keeper.join().unwrap();
    let (gone, _) = channel();
    *world.device.lock().unwrap() = gone;
    device.join().unwrap();
}

#[test]
fn every_request_is_answered_without_a_task_of_the_log() {
    shuttle::check_random(|| run(3, 2, false), 3_000);
    shuttle::check_pct(|| run(3, 2, false), 4_000, 5);
}

#[test]
fn waiters_that_go_away_keep_none_waiting() {
    shuttle::check_random(|| run(3, 1, true), 3_000);
    shuttle::check_pct(|| run(3, 2, true), 4_000, 5);
    // None is left but the one that goes away.
    shuttle::check_random(|| run(1, 1, true), 1_000);
}
