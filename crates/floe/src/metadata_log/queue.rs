//! The queue of a log: requests that wait together share one append, and one flush if they need
//! it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use tokio::sync::{SemaphorePermit, TryAcquireError, oneshot};

use super::batch::{Batch, Driven};
use super::contents::{Contents, Demand};
use super::owner::Request;
use super::receipt::{Awaited, Receipt};
use super::shared::{GROUP, Shared};
use crate::error::CacheError;

/// A handle to a log. Once it is dropped, what is queued is written and the log ends.
pub(crate) struct Queue<C: Contents>(Arc<Shared<C>>);

impl<C: Contents> fmt::Debug for Queue<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.0.places.available_permits();
        f.debug_tuple("Queue").field(&places).finish()
    }
}

impl<C: Contents> Queue<C> {
    pub(super) fn new(shared: Arc<Shared<C>>) -> Self {
        Queue(shared)
    }

    /// Reserves a place in the queue. Waits while the queue is full.
    pub(crate) async fn place(&self) -> Result<Place<'_, C>, CacheError> {
        let permit = self.0.places.acquire().await;
        Ok(Place {
            shared: &self.0,
            permit: permit.map_err(|_| CacheError::Closed)?,
        })
    }

    /// Reserves a place in the queue, if there is one.
    pub(crate) fn try_place(&self) -> Result<Option<Place<'_, C>>, CacheError> {
        match self.0.places.try_acquire() {
            Ok(permit) => Ok(Some(Place {
                shared: &self.0,
                permit,
            })),
            Err(TryAcquireError::NoPermits) => Ok(None),
            Err(TryAcquireError::Closed) => Err(CacheError::Closed),
        }
    }

    /// True if the last block has only one copy, unless a group is under way.
    #[cfg(test)]
    pub(super) fn lacks_copy(&self) -> bool {
        self.0.lacks_copy.load(SeqCst)
    }

    /// Groups that were begun.
    #[cfg(test)]
    pub(super) fn groups(&self) -> u64 {
        self.0.groups.load(SeqCst)
    }

    /// Begins a batch: until it ends, a waiting request of this thread begins no group.
    pub(crate) fn batch(&self) -> Batch {
        Batch::begin(self.0.id, Arc::clone(&self.0) as Arc<dyn Driven>)
    }
}

impl<C: Contents> Drop for Queue<C> {
    fn drop(&mut self) {
        self.0.is_abandoned.store(true, SeqCst);
        self.0.is_active.store(true, SeqCst);
        self.0.combiner.wakers().wake_keeper();
    }
}

/// A reserved place in the queue: sending with it does not wait.
pub(crate) struct Place<'a, C: Contents> {
    shared: &'a Arc<Shared<C>>,
    permit: SemaphorePermit<'a>,
}

impl<C: Contents> Place<'_, C> {
    /// Sends entries.
    pub(crate) fn send(self, entries: C::Entries) -> Receipt {
        self.request(Some(entries), Demand::Append)
    }

    /// Sends entries that no caller waits for.
    pub(crate) fn send_unwatched(self, entries: C::Entries) {
        self.queue(Request {
            entries: Some(entries),
            demand: Demand::Append,
            done: None,
        });
    }

    /// Sends a demand.
    pub(crate) fn demand(self, demand: Demand) -> Receipt {
        self.request(None, demand)
    }

    fn request(self, entries: Option<C::Entries>, demand: Demand) -> Receipt {
        let (done, answer) = oneshot::channel();
        let log = Arc::clone(self.shared) as Arc<dyn Awaited>;
        let number = self.queue(Request {
            entries,
            demand,
            done: Some(done),
        });
        Receipt::new(number, answer, log)
    }

    /// Queues a request; returns its number.
    fn queue(self, request: Request<C>) -> u64 {
        let Place { shared, permit } = self;
        // It is given back when the request leaves the queue.
        permit.forget();
        let mut inbox = shared.inbox.lock();
        if inbox.has_ended {
            // Its answer is that the log is closed.
            return inbox.sent;
        }
        inbox.sent += 1;
        let number = inbox.sent;
        let has_waiter = request.done.is_some();
        inbox.requests.push(request);
        drop(inbox);
        let is_news = !shared.is_active.load(SeqCst) && !shared.is_active.swap(true, SeqCst);
        if is_news || !has_waiter {
            shared.combiner.wakers().wake_keeper();
        }
        number
    }
}

/// Bytes of memory of the requests that share one append.
pub(crate) const fn group_bytes<C: Contents>() -> u64 {
    (GROUP * size_of::<Request<C>>()) as u64
}
