//! Mode `events`: cached metadata counts while notifications of changes arrive.
//!
//! A notification is lost unseen, so the mode has two bounds. Silence: a sender sends
//! something from time to time. After a silence, or a notification that could not be taken,
//! objects are validated as in mode `etag` until something is heard again, which begins a
//! session: metadata counts only in the session in which it was requested. Age: metadata
//! older than a limit is validated, even if messages arrive.

use std::time::Duration;

use floe_core::Tick;
use floe_device::Clock;
use parking_lot::Mutex;

/// The session of notifications, if there is one.
#[derive(Debug, Default)]
pub(super) struct Events(Mutex<Option<Session>>);

#[derive(Clone, Copy, Debug)]
struct Session {
    /// Random, so that no other one has the same, before a restart either. Never 0.
    number: u64,
    heard: Time,
}

/// A time by two clocks: one stands still while the machine is paused, the other may be set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    /// Counts sleep.
    tick: Tick,
    unix_seconds: u64,
}

impl Time {
    pub(super) fn now(clock: &Clock) -> Self {
        Time {
            tick: clock.now_with_sleep(),
            unix_seconds: clock.unix_seconds(),
        }
    }

    /// The time so long before; `None` before the clocks began.
    fn before(self, age: Duration) -> Option<Self> {
        let nanoseconds = u64::try_from(age.as_nanos()).ok()?;
        Some(Time {
            tick: Tick(self.tick.0.checked_sub(nanoseconds)?),
            unix_seconds: self.unix_seconds.checked_sub(age.as_secs())?,
        })
    }

    /// True if at most `most` has passed since `earlier` by both clocks, of which none was set
    /// back. Seconds of the wall clock are rounded down at both ends.
    fn is_within(self, most: Duration, earlier: Time) -> bool {
        let by_wall = self.unix_seconds.checked_sub(earlier.unix_seconds);
        let limit = most.as_secs() + 1;
        self.tick.since(earlier.tick) <= most && by_wall.is_some_and(|seconds| seconds <= limit)
    }
}

impl Events {
    /// Something was heard that was sent `age` before `now`, after at most `timeout` of silence
    /// if it is of the same session. One that is older says nothing.
    pub(super) fn hear(&self, age: Duration, now: Time, timeout: Duration) {
        let Some(sent) = now.before(age).filter(|_| age <= timeout) else {
            return;
        };
        let mut session = self.0.lock();
        let kept = session.filter(|session| now.is_within(timeout, session.heard));
        *session = Some(match kept {
            // An older message that comes later.
            Some(session) if session.heard.tick > sent.tick => session,
            Some(session) => Session {
                heard: sent,
                ..session
            },
            None => Session {
                number: rand::random::<u64>() | 1,
                heard: sent,
            },
        });
    }

    /// Ends the session: a change may not have been heard.
    pub(super) fn miss(&self) {
        *self.0.lock() = None;
    }

    /// The number of the session; `None` during a silence, which ends it.
    pub(super) fn session(&self, now: Time, timeout: Duration) -> Option<u64> {
        let mut session = self.0.lock();
        *session = session.filter(|session| now.is_within(timeout, session.heard));
        session.map(|session| session.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Time {
        Time {
            tick: Tick::ZERO + Duration::from_secs(seconds),
            unix_seconds: seconds,
        }
    }

    fn hear(events: &Events, seconds: u64) {
        events.hear(Duration::ZERO, at(seconds), TIMEOUT);
    }

    #[test]
    fn a_silence_or_a_miss_ends_a_session_for_good() {
        let events = Events::default();
        assert_eq!(events.session(at(100), TIMEOUT), None);
        hear(&events, 100);
        let first = events.session(at(100), TIMEOUT).unwrap();
        hear(&events, 110);
        assert_eq!(events.session(at(120), TIMEOUT), Some(first));
        assert_eq!(events.session(at(121), TIMEOUT), None);
        // It was seen to have ended.
        assert_eq!(events.session(at(115), TIMEOUT), None);
        hear(&events, 121);
        let second = events.session(at(121), TIMEOUT).unwrap();
        assert_ne!(second, first);
        // Nothing asked between this silence and the next message.
        hear(&events, 132);
        let third = events.session(at(132), TIMEOUT).unwrap();
        assert_ne!(third, second);
        events.miss();
        assert_eq!(events.session(at(132), TIMEOUT), None);
        hear(&events, 132);
        assert_ne!(events.session(at(132), TIMEOUT), Some(third));
    }

    #[test]
    fn late_news_says_nothing_and_counts_from_when_it_was_sent() {
        let events = Events::default();
        let session_after = |age: u64, heard: u64, seconds: u64| {
            events.hear(Duration::from_secs(age), at(heard), TIMEOUT);
            events.session(at(seconds), TIMEOUT)
        };
        assert_eq!(session_after(11, 100, 100), None);
        let first = session_after(5, 100, 105);
        assert!(first.is_some());
        // An older one that comes later keeps the newer one's time.
        assert_eq!(session_after(10, 102, 105), first);
        assert_eq!(events.session(at(106), TIMEOUT), None);
    }

    #[test]
    fn a_pause_of_the_machine_and_a_clock_set_back_end_a_session() {
        let by = |tick: u64, unix_seconds: u64| Time {
            unix_seconds,
            ..at(tick)
        };
        for (later, is_kept) in [
            (by(105, 105), true),
            (by(105, 111), true),
            // Paused for minutes.
            (by(105, 400), false),
            (by(105, 99), false),
        ] {
            let events = Events::default();
            hear(&events, 100);
            assert_eq!(
                events.session(later, TIMEOUT).is_some(),
                is_kept,
                "{later:?}"
            );
        }
    }
}
