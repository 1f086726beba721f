//! Time as an engine core sees it: a number that its driver passes in.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds since the start of the environment (process start on a real
/// clock, zero in virtual time). Monotonic; not wall-clock time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// The start of time.
    pub const ZERO: Tick = Tick(0);
    /// Later than every reachable tick.
    pub const MAX: Tick = Tick(u64::MAX);

    /// The tick `seconds` after the start.
    pub const fn from_seconds(seconds: u32) -> Tick {
        Tick(seconds as u64 * 1_000_000_000)
    }

    /// The duration from `earlier` to `self`, or zero if `earlier` is later.
    pub fn since(self, earlier: Tick) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Tick {
    type Output = Tick;
    /// Saturates at [`Tick::MAX`].
    fn add(self, rhs: Duration) -> Tick {
        let ns = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Tick(self.0.saturating_add(ns))
    }
}

impl Sub for Tick {
    type Output = Duration;
    fn sub(self, rhs: Tick) -> Duration {
        self.since(rhs)
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09}s",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000
        )
    }
}
