//! The group commit of fences under a model checker: the production source of
//! the order, with the checker's lock and queue, in thousands of interleavings.
//!
//! Two clients send fences. One task collects the queued ones, writes them and
//! announces the highest durable number, as in `tiny/journal.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use order::Order;
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

#[path = "../src/tiny/order.rs"]
mod order;

/// The module that the kernel imports.
#[allow(dead_code, unused_imports)]
#[path = "common/model_lock.rs"]
mod lock;

/// A fence: its number and its client.
type Fence = (u64, u32);

/// How fences are numbered.
enum Numbers {
    /// As in the journal.
    Ordered(Order),
    /// In two steps: first the number, then the queue.
    TwoSteps(shuttle::sync::atomic::AtomicU64),
}

struct World {
    numbers: Numbers,
    /// The durable fences.
    durable: Mutex<BTreeSet<u32>>,
    /// Fences up to this number are announced as durable.
    written: Mutex<u64>,
    moved: Condvar,
}

impl World {
    fn send(&self, queue: &Sender<Fence>, whose: u32) {
        let send = |number| queue.send((number, whose)).expect("the task is there");
        match &self.numbers {
            Numbers::Ordered(order) => {
                order.queue(send);
            }
            Numbers::TwoSteps(last) => {
                send(last.fetch_add(1, shuttle::sync::atomic::Ordering::SeqCst) + 1);
            }
        }
    }

    fn last(&self) -> u64 {
        match &self.numbers {
            Numbers::Ordered(order) => order.last(),
            Numbers::TwoSteps(last) => last.load(shuttle::sync::atomic::Ordering::SeqCst),
        }
    }

    /// The journal's work: makes all queued fences durable together.
    fn write_groups(&self, inbox: &Receiver<Fence>) {
        while let Ok(first) = inbox.recv() {
            let mut group = vec![first];
            while let Ok(next) = inbox.try_recv() {
                group.push(next);
            }
            // The append and the flush, during which others queue.
            thread::yield_now();
            let fences = group.iter().map(|(_, whose)| *whose);
            self.durable.lock().unwrap().extend(fences);
            let last = group.iter().map(|(number, _)| *number).max();
            let mut written = self.written.lock().unwrap();
            let last = last.unwrap_or(0);
            assert!(last > *written, "what was durable stays so");
            *written = last;
            self.moved.notify_all();
        }
    }

    /// A client: a write that needs a fence, then a write of the same key that
    /// reuses the latest fence of any client.
    fn client(&self, queue: &Sender<Fence>, whose: u32) {
        self.send(queue, whose);
        let upto = self.last();
        let mut written = self.written.lock().unwrap();
        while *written < upto {
            written = self.moved.wait(written).unwrap();
        }
        drop(written);
        let durable = self.durable.lock().unwrap();
        assert!(durable.contains(&whose), "acknowledged and not durable");
    }
}

fn explore(numbers: impl Fn() -> Numbers + Send + Sync + 'static) {
    shuttle::check_random(
        move || {
            let world = Arc::new(World {
                numbers: numbers(),
                durable: Mutex::default(),
                written: Mutex::default(),
                moved: Condvar::new(),
            });
            let (queue, inbox) = channel();
            let clients: Vec<_> = (0..3)
                .map(|whose| {
                    let (world, queue) = (Arc::clone(&world), queue.clone());
                    thread::spawn(move || world.client(&queue, whose))
                })
                .collect();
            drop(queue);
            let task = Arc::clone(&world);
            let task = thread::spawn(move || task.write_groups(&inbox));
            for client in clients {
                client.join().unwrap();
            }
            task.join().unwrap();
            assert_eq!(world.durable.lock().unwrap().len(), 3);
        },
        5_000,
    );
}

#[test]
fn acknowledged_writes_are_durable() {
    explore(|| Numbers::Ordered(Order::default()));
}

/// Shows that the checker detects the error.
#[test]
#[should_panic]
fn numbering_fences_before_enqueueing_would_break_durability() {
    explore(|| Numbers::TwoSteps(Default::default()));
}
