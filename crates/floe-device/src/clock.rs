//! Time for drivers: real, or virtual and deterministic.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use floe_core::Tick;

use crate::virtual_clock::{VirtualClock, VirtualSleep};

/// The source of time for drivers. They wait only through it, never through
/// `tokio::time` directly, so that they run unchanged in virtual time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clock.
    Real {
        /// The instant of `Tick::ZERO`.
        start: Instant,
    },
    /// The clock of a [`virtual_time`](crate::virtual_time) run.
    Virtual(VirtualClock),
}

impl Clock {
    /// The machine's clock, starting now.
    pub fn real() -> Self {
        Clock::Real {
            start: Instant::now(),
        }
    }

    /// True if this is virtual time.
    pub fn is_virtual(&self) -> bool {
        matches!(self, Clock::Virtual(_))
    }

    /// The current time.
    pub fn now(&self) -> Tick {
        match self {
            Clock::Real { start } => {
                Tick(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
            Clock::Virtual(clock) => clock.now(),
        }
    }

    /// The time since a moment in the past, also that in which the machine slept.
    pub fn now_with_sleep(&self) -> Tick {
        match self {
            Clock::Real { .. } => {
                let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
                Tick(seconds.saturating_mul(1_000_000_000) + nanoseconds)
            }
            Clock::Virtual(clock) => clock.now(),
        }
    }

    /// Wall-clock seconds since 1970, the unit of expiry times.
    pub fn unix_seconds(&self) -> u64 {
        match self {
            Clock::Real { .. } => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_secs()),
            Clock::Virtual(clock) => clock.unix_seconds(),
        }
    }

    /// Waits for `duration`, counted from this call. The future may be dropped
    /// at any time.
    ///
    /// # Panics
    /// On the machine's clock, outside a tokio runtime with time enabled.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep(match self {
            Clock::Real { .. } => SleepKind::Real(Box::pin(tokio::time::sleep(duration))),
            Clock::Virtual(clock) => SleepKind::Virtual(clock.sleep_until(clock.now() + duration)),
        })
    }

    /// Waits until `when`; returns at once if that is past.
    pub fn sleep_until(&self, when: Tick) -> Sleep {
        self.sleep(when.since(self.now()))
    }

    /// Runs `action` at `when`. In virtual time, actions of the same tick run
    /// in the order of these calls.
    pub(crate) fn at(&self, when: Tick, action: impl FnOnce() + Send + 'static) {
        match self {
            Clock::Virtual(clock) => clock.at(when, Box::new(action)),
            Clock::Real { .. } => match tokio::runtime::Handle::try_current() {
                Ok(runtime) => {
                    let clock = self.clone();
                    runtime.spawn(async move {
                        clock.sleep_until(when).await;
                        action();
                    });
                }
                // Outside a runtime, nothing can wait.
                Err(_) => action(),
            },
        }
    }
}

/// The future of [`Clock::sleep`].
#[derive(Debug)]
#[must_use = "a sleep does nothing unless awaited"]
pub struct Sleep(SleepKind);

#[derive(Debug)]
enum SleepKind {
    Real(Pin<Box<tokio::time::Sleep>>),
    Virtual(VirtualSleep),
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            SleepKind::Real(sleep) => ready!(sleep.as_mut().poll(cx)),
            SleepKind::Virtual(sleep) => ready!(sleep.poll(cx)),
        }
        Poll::Ready(())
    }
}
