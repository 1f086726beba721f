//! The task that drives a ring for a runtime.
//!
//! Must not depend on: the ring, which is [`Driven`].

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;

/// A ring, as far as it exists.
pub(super) trait Driven: Unpin {
    /// Submits queued requests and reaps completions. False if there is no ring
    /// any more.
    fn turn(&self) -> bool;

    /// The driver of `link` ends.
    fn driver_ended(&self, link: &DriverLink);
}

/// The task that drives a ring; one per runtime that uses it.
pub(super) struct Driver<D: Driven> {
    driven: D,
    events: AsyncFd<OwnedFd>,
    link: Arc<DriverLink>,
    /// Yields through tokio's deferred wake-ups; see
    /// [`Driver::step_back`].
    defers: bool,
    /// The last poll only yielded to other tasks.
    yielded: bool,
}

impl<D: Driven> Driver<D> {
    pub(super) fn new(
        driven: D,
        events: AsyncFd<OwnedFd>,
        link: Arc<DriverLink>,
        is_multi_thread: bool,
    ) -> Self {
        Driver {
            driven,
            events,
            link,
            defers: is_multi_thread,
            yielded: false,
        }
    }

    /// Has this task polled again after the tasks that are ready now.
    ///
    /// On a multi_thread runtime a task that wakes itself also wakes an idle
    /// worker, which then steals the task. A deferred task runs on its own worker
    /// after all others.
    fn step_back(cx: &mut Context<'_>, defers: bool) {
        if defers {
            let deferred = std::pin::pin!(tokio::task::yield_now()).poll(cx);
            debug_assert!(deferred.is_pending(), "it has given way at its first poll");
        } else {
            cx.waker().wake_by_ref();
        }
    }
}

impl<D: Driven> Future for Driver<D> {
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
        // A submitter woke the driver. Tokio runs a woken task next, before other
        // tasks that have operations to submit: yield to them first.
        if !events && !self.yielded {
            self.yielded = true;
            Self::step_back(cx, self.defers);
            return Poll::Pending;
        }
        self.yielded = false;
        // Cleared before the queue is read, so that later submitters wake the
        // driver again.
        self.link.notified.store(false, Ordering::SeqCst);
        match self.driven.turn() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }
}

impl<D: Driven> Drop for Driver<D> {
    fn drop(&mut self) {
        *self.link.waker.lock() = None;
        self.driven.driver_ended(&self.link);
    }
}

/// State shared by submitters and a driver.
#[derive(Debug, Default)]
pub(super) struct DriverLink {
    waker: Mutex<Option<Waker>>,
    /// The driver was woken and has not run since.
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

    /// Marks the driver as notified. Returns true if it was not yet; then the
    /// caller must wake it.
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
