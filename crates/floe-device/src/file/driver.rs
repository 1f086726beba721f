//! The task that drives a ring for a runtime.

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

/// The task that drives a ring; one per runtime that uses it.
pub(super) struct Driver {
    inner: Weak<Inner>,
    ring: Weak<Ring>,
    events: AsyncFd<OwnedFd>,
    link: Arc<DriverLink>,
    /// Whether to yield through tokio's deferred wake-ups; see
    /// [`Driver::step_back`].
    defers: bool,
    /// Whether the last poll only yielded to other tasks.
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
    /// When a runtime shuts down, the next submission starts another driver.
    /// Operations in flight may have waiters on other runtimes, so a temporary
    /// thread waits for them.
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
            tracing::error!(%error, "cannot start a thread to wait for device operations");
        }
    }
}

/// State shared by submitters and a driver.
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
