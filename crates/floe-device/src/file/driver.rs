//! The task that looks after a ring on a runtime's behalf.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;

use super::Inner;
use super::ring::Ring;

/// The task that looks after a ring; one per runtime that uses it, all alike.
pub(super) struct Driver {
    inner: Weak<Inner>,
    ring: Weak<Ring>,
    events: AsyncFd<OwnedFd>,
    link: Arc<DriverLink>,
    /// Whether to let others go first by tokio's deferred wake-ups; see [`Driver::step_back`].
    defers: bool,
    /// Whether the last poll only let other tasks go first.
    yielded: bool,
}

impl Driver {
    pub(super) fn new(
        inner: &Arc<Inner>,
        ring: &Arc<Ring>,
        events: AsyncFd<OwnedFd>,
        link: Arc<DriverLink>,
        is_multi_thread: bool,
    ) -> Self {
        Driver {
            inner: Arc::downgrade(inner),
            ring: Arc::downgrade(ring),
            events,
            link,
            defers: is_multi_thread,
            yielded: false,
        }
    }

    /// Has this task polled again after the tasks that are ready now.
    ///
    /// A task that wakes itself on a multi_thread runtime makes it wake an
    /// idle worker, too, which finds nothing to do but to take this task away;
    /// a deferred one runs when its worker has nothing else left.
    fn step_back(cx: &mut Context<'_>, defers: bool) {
        if defers {
            let deferred = std::pin::pin!(tokio::task::yield_now()).poll(cx);
            debug_assert!(deferred.is_pending(), "it has given way at its first poll");
        } else {
            cx.waker().wake_by_ref();
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.link.register(cx.waker());
        let mut events = false;
        // The eventfd is edge-triggered and never read: each completion is a
        // new edge. Readiness is cleared before reaping, so none is missed.
        while let Poll::Ready(ready) = self.events.poll_read_ready(cx) {
            match ready {
                Ok(mut guard) => {
                    guard.clear_ready();
                    events = true;
                }
                Err(_) => return Poll::Ready(()),
            }
        }
        // A submitter woke us. Tokio runs such a task next, before the other
        // tasks that have something to submit: let them go first.
        if !events && !self.yielded {
            self.yielded = true;
            Self::step_back(cx, self.defers);
            return Poll::Pending;
        }
        self.yielded = false;
        // Before looking at the queue, so that later submitters wake us again.
        self.link.notified.store(false, Ordering::SeqCst);
        match (self.inner.upgrade(), self.ring.upgrade()) {
            (Some(inner), Some(ring)) => {
                ring.turn(&inner);
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for Driver {
    /// A driver whose runtime shuts down leaves nothing behind: the next
    /// submission starts another, and what is in flight is seen out by a
    /// thread that ends with it, for its waiters may live on other runtimes.
    fn drop(&mut self) {
        *self.link.waker.lock() = None;
        let (Some(inner), Some(ring)) = (self.inner.upgrade(), self.ring.upgrade()) else {
            return self.link.end();
        };
        if !ring.driver_ended(&self.link) {
            return inner.retire(&ring);
        }
        let drained = std::thread::Builder::new()
            .name("floe-drain".to_owned())
            .spawn(move || {
                ring.drain(&inner);
                inner.retire(&ring);
            });
        if let Err(error) = drained {
            tracing::error!(%error, "no thread to see device operations out");
        }
    }
}

/// What submitters and a driver share.
#[derive(Debug, Default)]
pub(super) struct DriverLink {
    waker: Mutex<Option<Waker>>,
    /// Whether the driver was woken and has not run since.
    notified: AtomicBool,
    has_ended: AtomicBool,
}

impl DriverLink {
    pub(super) fn is_running(&self) -> bool {
        !self.has_ended.load(Ordering::Acquire)
    }

    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    pub(super) fn notify(&self) {
        if self.claim_notice() {
            self.wake();
        }
    }

    /// Whether the driver does not know yet: the caller has to wake it.
    pub(super) fn claim_notice(&self) -> bool {
        !self.notified.swap(true, Ordering::AcqRel)
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }

    fn register(&self, waker: &Waker) {
        let mut slot = self.waker.lock();
        if !slot.as_ref().is_some_and(|old| old.will_wake(waker)) {
            *slot = Some(waker.clone());
        }
    }
}
