//! The state of the service, for systemd (sd_notify(3)). Without a supervisor, nothing is sent.

use std::time::Duration;

use sd_notify::NotifyState;

/// The interval of calls to [`alive`]: half of systemd's timeout, as
/// sd_watchdog_enabled(3) recommends.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    let period = sd_notify::watchdog_enabled()?;
    (!period.is_zero()).then_some(period / 2)
}

/// The frontends are serving.
pub(crate) fn ready() {
    send(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// The server is shutting down.
pub(crate) fn stopping() {
    let status = NotifyState::Status("finishing requests in flight");
    send(&[NotifyState::Stopping, status]);
}

/// The server is alive.
pub(crate) fn alive() {
    send(&[NotifyState::Watchdog]);
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the supervisor's socket does not accept messages");
    }
}
