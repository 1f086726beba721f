//! Time limits on a client that is sending a value or receiving a response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use floe_core::Tick;
use floe_device::Clock;
use floe_device::clock::Sleep;

use super::end::End;
use super::patience::Patience;
use crate::frontends::memcached::frontend::MemcachedFrontend;
use crate::frontends::memcached::memory::{Account, Transfer};
use std::sync::Arc;

/// The limits of one transfer: a stall limit, a least rate after a grace,
/// eviction while memory is short, and the deadline of a shutdown.
pub(super) struct Pace {
    clock: Clock,
    transfer: Transfer,
    stall_limit: Duration,
    grace: Duration,
    last: Tick,
    /// Fires at this time, which is not after the deadline.
    sleep: Option<(Tick, Sleep)>,
}

impl Pace {
    pub(super) fn new(frontend: &MemcachedFrontend, account: &Arc<Account>) -> Self {
        Pace {
            clock: frontend.clock.clone(),
            transfer: frontend.memory.transfer(account),
            stall_limit: frontend.stall_limit(),
            grace: Duration::from_secs(u64::from(frontend.config().min_rate_grace_seconds)),
            last: frontend.clock.now(),
            sleep: None,
        }
    }

    pub(super) fn transfer(&self) -> &Transfer {
        &self.transfer
    }

    /// Records progress.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.transfer.moved(bytes as u64);
        self.last = self.clock.now();
    }

    /// Restarts the stall limit after the client has waited for the server.
    pub(super) fn go_on(&mut self) {
        self.last = self.clock.now();
    }

    /// Ready when a limit is reached.
    pub(super) fn poll(&mut self, task: &mut Context<'_>, patience: &mut Patience) -> Poll<End> {
        if self.transfer.poll_evicted(task).is_ready() {
            return Poll::Ready(End::Evicted);
        }
        let drain_by = patience.drain_by(task);
        loop {
            let (deadline, end) = self.deadline(drain_by);
            let is_early = |(at, _): &(Tick, Sleep)| *at <= deadline;
            if !self.sleep.as_ref().is_some_and(is_early) {
                self.sleep = Some((deadline, self.clock.sleep_until(deadline)));
            }
            if let Some((_, sleep)) = &mut self.sleep {
                ready!(Pin::new(sleep).poll(task));
            }
            self.sleep = None;
            if self.clock.now() >= deadline {
                return Poll::Ready(end);
            }
        }
    }

    /// The earliest limit.
    fn deadline(&self, drain_by: Option<Tick>) -> (Tick, End) {
        let mut deadline = (self.last + self.stall_limit, End::Stalled);
        let others = [
            (self.transfer.slow_at(self.grace), End::Slow),
            (drain_by, End::CutOff),
        ];
        for (at, end) in others {
            if let Some(at) = at.filter(|at| *at < deadline.0) {
                deadline = (at, end);
            }
        }
        deadline
    }
}
