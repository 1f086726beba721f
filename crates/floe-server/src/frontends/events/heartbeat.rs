//! Heartbeats: messages that a server sends to itself the way that notifications take.

use std::time::Duration;

use floe_core::Tick;
use floe_device::Clock;
use serde::{Deserialize, Serialize};

use super::receiver::Receiver;

/// Heartbeats within the silence that ends the mode.
pub(super) const HEARTBEATS_PER_TIMEOUT: u32 = 4;

/// A heartbeat, as a message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Heartbeat {
    /// The random name of its sender.
    floe: String,
    /// When it was sent, by the wall clock of that server.
    unix_seconds: u64,
    /// When it was sent, by its clock that counts sleep.
    nanoseconds: u64,
}

/// A random name of a sender.
pub(super) fn random_name() -> String {
    format!("{:032x}", rand::random::<u128>())
}

impl Heartbeat {
    /// A heartbeat that the sender `name` sends now.
    pub(super) fn new(name: &str, clock: &Clock) -> Self {
        Heartbeat {
            floe: name.to_owned(),
            unix_seconds: clock.unix_seconds(),
            nanoseconds: clock.now_with_sleep().0,
        }
    }

    /// The heartbeat in a message; `None` for every other message.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    pub(super) fn body(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn is_of(&self, name: &str) -> bool {
        self.floe == name
    }

    /// When it was sent, in nanoseconds by the clock of its sender that counts sleep.
    pub(super) fn nanoseconds(&self) -> u64 {
        self.nanoseconds
    }

    /// Takes a heartbeat of this run that came back: notifications arrive, if it took at most
    /// `timeout`.
    pub(super) fn count(&self, receiver: &Receiver, clock: &Clock, timeout: Duration) {
        // The clock of a paused machine stands still, and that of the wall may be set.
        let by_wall = clock.unix_seconds().saturating_sub(self.unix_seconds);
        let age = clock.now_with_sleep().since(Tick(self.nanoseconds));
        // Its seconds are rounded down at both ends.
        let age = age.max(Duration::from_secs(by_wall.saturating_sub(1)));
        if age <= timeout {
            receiver.messages.add(1);
            receiver.cache.hear_notifications(age);
        } else {
            // Notifications may be as late.
            receiver.cache.miss_notification();
        }
    }
}
