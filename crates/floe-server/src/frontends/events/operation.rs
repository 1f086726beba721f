//! Requests to a service that sends notifications: their failures, limits and pauses.

use std::fmt::Display;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use floe_device::Clock;

use crate::metrics::Counter;

/// The pause after a failure, and its limit after several.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A kind of request to the service of a setting.
pub(super) struct Operation {
    setting: &'static str,
    name: &'static str,
    is_failing: AtomicBool,
    failures: Counter,
}

impl Operation {
    pub(super) fn new(setting: &'static str, name: &'static str) -> Self {
        Operation {
            setting,
            name,
            is_failing: AtomicBool::new(false),
            failures: Counter::default(),
        }
    }

    /// Its name, and how many such requests failed.
    pub(super) fn failures(&self) -> (&'static str, u64) {
        (self.name, self.failures.get())
    }

    /// Counts a failure, and logs the first one of several.
    pub(super) fn note<T, E: Display>(&self, result: Result<T, E>) -> Option<T> {
        let (setting, operation) = (self.setting, self.name);
        match result {
            Ok(found) => {
                if self.is_failing.swap(false, Relaxed) {
                    tracing::info!(operation, "the service of {setting} answers again");
                }
                Some(found)
            }
            Err(error) => {
                self.failures.add(1);
                if !self.is_failing.swap(true, Relaxed) {
                    tracing::warn!(operation, %error, "a request to {setting} failed");
                }
                None
            }
        }
    }
}

/// The pauses after failures in a row.
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Self {
        Backoff(PAUSE)
    }

    /// The pause after one more failure.
    pub(super) fn next_pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSE_MAX);
        pause
    }

    /// A request succeeded.
    pub(super) fn reset(&mut self) {
        *self = Self::new();
    }
}

/// The result of `request`, or the error `late` if it takes longer than `limit`.
pub(super) async fn within<T, E>(
    clock: &Clock,
    limit: Duration,
    late: impl FnOnce(Duration) -> E,
    request: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    tokio::select! {
        biased;
        result = request => result,
        () = clock.sleep(limit) => Err(late(limit)),
    }
}
