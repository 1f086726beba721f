//! Time for flows: real, or virtual and deterministic.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use floe_core::Tick;

/// Where flows get their time. Flows wait only through this, never through
/// `tokio::time` directly, so that they run unchanged in virtual time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clock.
    Real {
        /// What `Tick::ZERO` means.
        start: Instant,
    },
}

impl Clock {
    /// The machine's clock, starting now.
    pub fn real() -> Self {
        Clock::Real {
            start: Instant::now(),
        }
    }

    /// Now.
    pub fn now(&self) -> Tick {
        match self {
            Clock::Real { start } => {
                Tick(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
        }
    }

    /// Wall-clock seconds since 1970: what expiry times are written in.
    pub fn unix_seconds(&self) -> u64 {
        match self {
            Clock::Real { .. } => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_secs()),
        }
    }

    /// Waits for `duration`.
    pub fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match self {
            Clock::Real { .. } => Box::pin(tokio::time::sleep(duration)),
        }
    }
}
