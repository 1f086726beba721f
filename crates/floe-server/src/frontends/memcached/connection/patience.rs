//! The idle limit of a connection, and the shutdown of the server.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use floe_core::Tick;
use floe_device::clock::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::end::End;
use crate::frontends::memcached::frontend::MemcachedFrontend;

/// How long a shutdown waits for a client in the middle of a transfer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The idle limit of a connection, and the shutdown of the server. Its futures
/// keep the task's waker, so they are polled only after the task was woken by
/// an event other than the socket.
pub(super) struct Patience {
    clock: floe_device::Clock,
    idle_limit: Option<Duration>,
    idle: Option<Sleep>,
    draining: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The deadline of transfers during a shutdown.
    drain_by: Option<Tick>,
    pub(super) is_armed: bool,
    /// Reads so far.
    pub(super) rounds: u64,
    /// Reads when the idle period began.
    rounds_then: u64,
}

impl Patience {
    pub(super) fn new(frontend: &MemcachedFrontend) -> Self {
        let seconds = frontend.config().idle_timeout_seconds;
        let limit = Duration::from_secs(u64::from(seconds));
        Patience {
            clock: frontend.clock.clone(),
            idle_limit: (seconds > 0).then_some(limit),
            idle: None,
            draining: Box::pin(frontend.draining.clone().cancelled_owned()),
            drain_by: None,
            is_armed: false,
            rounds: 0,
            rounds_then: 0,
        }
    }

    /// Forces a poll: while the task waited elsewhere, it may have missed a wake-up.
    pub(super) fn was_elsewhere(&mut self) {
        self.is_armed = false;
    }

    /// The deadline of transfers; `None` unless the server is shutting down.
    /// The task is woken when that changes.
    pub(super) fn drain_by(&mut self, task: &mut TaskContext<'_>) -> Option<Tick> {
        self.was_elsewhere();
        if self.drain_by.is_none() && self.draining.as_mut().poll(task).is_ready() {
            self.drain_by = Some(self.clock.now() + DRAIN_TIMEOUT);
        }
        self.drain_by
    }

    /// Waits until the server shuts down.
    pub(super) async fn drained(&mut self) {
        self.was_elsewhere();
        self.draining.as_mut().await;
        let drain_by = *self
            .drain_by
            .get_or_insert(self.clock.now() + DRAIN_TIMEOUT);
        self.clock.sleep_until(drain_by).await;
    }

    /// Ready with the reason when the wait for a request must end.
    pub(super) fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<End> {
        self.is_armed = true;
        if self.draining.as_mut().poll(task).is_ready() {
            return Poll::Ready(End::Draining);
        }
        let Some(limit) = self.idle_limit else {
            return Poll::Pending;
        };
        loop {
            let idle = self.idle.get_or_insert_with(|| {
                self.rounds_then = self.rounds;
                self.clock.sleep(limit)
            });
            ready!(Pin::new(idle).poll(task));
            self.idle = None;
            if self.rounds == self.rounds_then {
                return Poll::Ready(End::Idle);
            }
        }
    }
}
