//! Mode `events`: cached metadata counts while notifications of changes arrive.
//!
//! A notification is lost unseen, so the mode has two bounds. Silence: a sender sends
//! something from time to time. After a silence, or a notification that could not be taken,
//! objects are validated as in mode `etag` until something is heard again, which begins a
//! session: metadata counts only in the session in which it was requested. Age: metadata
//! older than a limit is validated, even if messages arrive.

use std::time::Duration;

use floe_core::Tick;
use parking_lot::Mutex;

/// The session of notifications, if there is one.
#[derive(Debug, Default)]
pub(super) struct Events(Mutex<Option<Session>>);

#[derive(Clone, Copy, Debug)]
struct Session {
    /// Random, so that no other one has the same, before a restart either. Never 0.
    number: u64,
    heard: Tick,
}

impl Events {
    /// Something was heard that was sent at most `timeout` before `now`, after at most so much
    /// silence if it is of the same session. Later ones say nothing.
    pub(super) fn hear(&self, sent: Tick, now: Tick, timeout: Duration) {
        if now.since(sent) > timeout {
            return;
        }
        let mut session = self.0.lock();
        let kept = session.filter(|session| now.since(session.heard) <= timeout);
        *session = Some(Session {
            number: kept.map_or_else(|| rand::random::<u64>() | 1, |session| session.number),
            heard: kept.map_or(sent, |session| session.heard.max(sent)),
        });
    }

    /// Ends the session: a change may not have been heard.
    pub(super) fn miss(&self) {
        *self.0.lock() = None;
    }

    /// The number of the session; `None` during a silence, which ends it.
    pub(super) fn session(&self, now: Tick, timeout: Duration) -> Option<u64> {
        let mut session = self.0.lock();
        *session = session.filter(|session| now.since(session.heard) <= timeout);
        session.map(|session| session.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Tick {
        Tick::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_silence_or_a_miss_ends_a_session_for_good() {
        let events = Events::default();
        assert_eq!(events.session(at(100), TIMEOUT), None);
        events.hear(at(100), at(100), TIMEOUT);
        let first = events.session(at(100), TIMEOUT).unwrap();
        events.hear(at(110), at(110), TIMEOUT);
        assert_eq!(events.session(at(120), TIMEOUT), Some(first));
        assert_eq!(events.session(at(121), TIMEOUT), None);
        // It was seen to have ended.
        assert_eq!(events.session(at(115), TIMEOUT), None);
        events.hear(at(121), at(121), TIMEOUT);
        let second = events.session(at(121), TIMEOUT).unwrap();
        assert_ne!(second, first);
        // Nothing asked between this silence and the next message.
        events.hear(at(132), at(132), TIMEOUT);
        let third = events.session(at(132), TIMEOUT).unwrap();
        assert_ne!(third, second);
        events.miss();
        assert_eq!(events.session(at(132), TIMEOUT), None);
        events.hear(at(132), at(132), TIMEOUT);
        assert_ne!(events.session(at(132), TIMEOUT), Some(third));
    }

    #[test]
    fn late_news_says_nothing_and_counts_from_when_it_was_sent() {
        let events = Events::default();
        let session_after = |sent: u64, heard: u64, seconds: u64| {
            events.hear(at(sent), at(heard), TIMEOUT);
            events.session(at(seconds), TIMEOUT)
        };
        assert_eq!(session_after(89, 100, 100), None);
        let first = session_after(95, 100, 105);
        assert!(first.is_some());
        // An older one that comes later keeps the newer one's time.
        assert_eq!(session_after(92, 102, 105), first);
        assert_eq!(events.session(at(106), TIMEOUT), None);
    }
}
