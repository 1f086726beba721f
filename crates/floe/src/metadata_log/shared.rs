//! The shared state of a log's handles, with which their threads do its work.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::task::Context;

use floe_device::Device;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

use super::batch::{Batch, Driven, LogId};
use super::combiner::{Combiner, Driver, Work};
use super::contents::Contents;
use super::owner::{Owner, Request};
use super::receipt::Awaited;
use crate::runtimes;

/// Requests that share one append.
pub(super) const GROUP: usize = 2048;

/// The state of a log that does nothing.
pub(super) type State<C> = Box<Owner<C>>;

/// The shared state of a log's handles.
pub(super) struct Shared<C: Contents> {
    pub(super) id: LogId,
    pub(super) combiner: Combiner<State<C>>,
    pub(super) inbox: Mutex<Inbox<C>>,
    /// Free places in the queue.
    pub(super) places: Semaphore,
    /// The runtime of the keeper.
    pub(super) home: Handle,
    pub(super) device: Weak<dyn Device>,
    /// The device ends an operation even if the runtime that began it has ended.
    pub(super) has_rings: bool,
    pub(super) keeper: Arc<Notify>,
    /// The keeper looks at the work now and then.
    pub(super) is_active: AtomicBool,
    /// The queue was dropped.
    pub(super) is_abandoned: AtomicBool,
    /// The last block has only one copy.
    pub(super) lacks_copy: AtomicBool,
    /// Groups that were begun.
    pub(super) groups: AtomicU64,
}

/// Requests that wait for a group.
pub(super) struct Inbox<C: Contents> {
    pub(super) requests: Vec<Request<C>>,
    /// The number of the last request.
    pub(super) sent: u64,
    pub(super) has_ended: bool,
}

impl<C: Contents> Shared<C> {
    /// Drives the log on this thread: with the thread's own runtime and ring, if it has them.
    fn drive_here(&self) {
        let own = runtimes::Context::of_this_thread().filter(|_| self.has_rings);
        let _entered = own.as_ref().map_or(&self.home, |own| own.handle()).enter();
        let goes_on = self.combiner.drive(Driver::Waiter, |owner| {
            let has_batch = Batch::is_open_here(self.id);
            match has_batch && self.inbox.lock().requests.len() < GROUP {
                true => Err(owner),
                false => self.take(owner),
            }
        });
        if !goes_on {
            self.refuse();
        }
    }

    /// The work of writing the queued requests, if there are some.
    pub(super) fn take(&self, owner: State<C>) -> Result<(Work<State<C>>, u64), State<C>> {
        self.lacks_copy.store(owner.log.lacks_copy(), SeqCst);
        let mut inbox = self.inbox.lock();
        let count = inbox.requests.len().min(GROUP);
        if count == 0 {
            return Err(owner);
        }
        let rest = match inbox.requests.len() == count {
            true => Vec::with_capacity(count),
            false => inbox.requests.split_off(count),
        };
        let requests = std::mem::replace(&mut inbox.requests, rest);
        let last = inbox.sent - inbox.requests.len() as u64;
        // With the lock: the keeper sees one or the other.
        self.groups.fetch_add(1, SeqCst);
        drop(inbox);
        self.places.add_permits(count);
        Ok((Box::pin(owner.write_group(requests)), last))
    }

    /// The log has ended: waiting and new requests fail as closed.
    pub(super) fn refuse(&self) {
        self.places.close();
        let mut inbox = self.inbox.lock();
        inbox.has_ended = true;
        let requests = std::mem::take(&mut inbox.requests);
        drop(inbox);
        drop(requests);
        self.keeper.notify_one();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inbox.lock().requests.is_empty()
    }
}

impl<C: Contents> Driven for Shared<C> {
    fn drive(&self) {
        if !self.is_empty() {
            self.drive_here();
        }
    }

    fn leave_to_keeper(&self) {
        self.combiner.wakers().wake_keeper();
    }
}

impl<C: Contents> Awaited for Shared<C> {
    fn help(&self, number: u64, context: &Context<'_>) {
        self.combiner.wakers().register(number, context.waker());
        self.drive_here();
    }

    fn leave(&self, number: u64) {
        self.combiner.wakers().unregister(number);
    }
}
