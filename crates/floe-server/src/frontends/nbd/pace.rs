//! Time limits on a client that is sending a message or receiving replies.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use floe_core::Tick;
use floe_device::clock::{Clock, Sleep};

use super::end::End;
use super::memory::Memory;

/// Interval of the checks.
const INTERVAL: Duration = Duration::from_millis(250);

/// How long a shutdown waits for a client that makes no progress.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// While memory is short, a transfer that is slower than this after
/// [`SHORTAGE_GRACE`] loses its connection.
const SHORTAGE_BYTES_PER_SECOND: u64 = 1 << 20;
const SHORTAGE_GRACE: Duration = Duration::from_secs(1);

/// One transfer.
pub(super) struct Pace {
    clock: Clock,
    limit: Duration,
    began: Tick,
    last: Tick,
    bytes: u64,
    sleep: Sleep,
}

impl Pace {
    /// A transfer that may make no progress for `limit`.
    pub(super) fn new(clock: &Clock, limit: Duration) -> Self {
        let now = clock.now();
        Pace {
            clock: clock.clone(),
            limit,
            began: now,
            last: now,
            bytes: 0,
            sleep: clock.sleep(INTERVAL),
        }
    }

    /// Records progress.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.last = self.clock.now();
    }

    /// Ready when a limit is reached.
    pub(super) fn poll(
        &mut self,
        task: &mut Context<'_>,
        memory: &Memory,
        is_draining: bool,
    ) -> Poll<End> {
        loop {
            ready!(Pin::new(&mut self.sleep).poll(task));
            let now = self.clock.now();
            let silence = now.since(self.last);
            if silence >= self.limit {
                return Poll::Ready(End::Stalled);
            }
            if is_draining && silence >= DRAIN_LIMIT {
                return Poll::Ready(End::Aborted);
            }
            let took = now.since(self.began);
            let expected = took.as_millis() as u64 * SHORTAGE_BYTES_PER_SECOND / 1000;
            if took >= SHORTAGE_GRACE && self.bytes < expected && memory.is_short() {
                return Poll::Ready(End::Slow);
            }
            self.sleep = self.clock.sleep(INTERVAL);
        }
    }
}
