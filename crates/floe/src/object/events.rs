//! Mode `events`: cached metadata counts while notifications of changes arrive.
//!
//! A notification is lost unseen, so the mode has two bounds. Silence: a sender sends
//! something from time to time, and without it objects are validated as in mode `etag`;
//! when it is heard again, nothing counts that was validated before. Age: metadata that the
//! origin has not confirmed for long is validated, whatever was heard.

use parking_lot::Mutex;

/// When the notifications were heard, in seconds since 1970.
#[derive(Debug, Default)]
pub(super) struct Events(Mutex<Option<Heard>>);

#[derive(Clone, Copy, Debug)]
struct Heard {
    /// The first second from which on all changes were heard.
    since: u64,
    last: u64,
}

impl Heard {
    fn is_silent(self, now_unix_s: u64, timeout_s: u64) -> bool {
        // A clock that stepped back counts as silence.
        now_unix_s
            .checked_sub(self.last)
            .is_none_or(|silence_s| silence_s > timeout_s)
    }
}

impl Events {
    /// Something was heard. Changes before it may not have been, if there was silence.
    pub(super) fn hear(&self, now_unix_s: u64, timeout_s: u64) {
        let mut heard = self.0.lock();
        let kept = heard.filter(|heard| !heard.is_silent(now_unix_s, timeout_s));
        *heard = Some(Heard {
            // What was validated within this second may be older than the first change heard.
            since: kept.map_or(now_unix_s + 1, |heard| heard.since),
            last: now_unix_s,
        });
    }

    /// The second from which on all changes were heard; `None` during a silence.
    pub(super) fn since(&self, now_unix_s: u64, timeout_s: u64) -> Option<u64> {
        let heard = (*self.0.lock())?;
        (!heard.is_silent(now_unix_s, timeout_s)).then_some(heard.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_forgets_what_was_validated_before_it() {
        let events = Events::default();
        assert_eq!(events.since(100, 10), None);
        events.hear(100, 10);
        assert_eq!(events.since(100, 10), Some(101));
        events.hear(109, 10);
        assert_eq!(events.since(119, 10), Some(101));
        assert_eq!(events.since(120, 10), None);
        // Whether anyone asked meanwhile does not matter.
        events.hear(120, 10);
        assert_eq!(events.since(120, 10), Some(121));
        assert_eq!(events.since(119, 10), None);
    }
}
