//! The written states: for every object, the states that a correct read may return.

use std::ops::Range;
use std::sync::Mutex;

use crate::blackbox::content;

/// A requested state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Deleted, or never written.
    Absent,
    /// Content number `version`, `len` bytes long.
    Present {
        /// Determines the bytes.
        version: u32,
        /// Bytes of the object.
        len: usize,
    },
}

/// One object's history. Writers of one object are serialised (see
/// [`Ledger::write`]); readers may come at any time.
pub(crate) struct Ledger {
    key: String,
    turn: Mutex<()>,
    history: Mutex<History>,
}

struct History {
    /// Every requested state, oldest first.
    states: Vec<State>,
    /// The newest acknowledged state.
    acknowledged: usize,
}

/// Taken before a read: the oldest state that it may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since(usize);

/// The server's response to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Acknowledged.
    Done,
    /// Rejected without a change.
    Rejected,
    /// Failed, with or without a change.
    Unknown,
}

impl Ledger {
    /// An object that starts in `state`.
    pub(super) fn new(key: String, state: State) -> Self {
        let history = History {
            states: vec![state],
            acknowledged: 0,
        };
        Ledger {
            key,
            turn: Mutex::new(()),
            history: Mutex::new(history),
        }
    }

    /// The object's key.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Requests a new state through `operation`, which returns whether the
    /// server acknowledged it, rejected it, or did neither. `None` if another
    /// writer is active.
    pub(super) fn write<E>(
        &self,
        state: impl FnOnce(u32) -> State,
        operation: impl FnOnce(State) -> Result<Written, E>,
    ) -> Option<Result<Written, E>> {
        let _turn = self.turn.try_lock().ok()?;
        let (state, number) = {
            let mut history = lock(&self.history);
            let number = history.states.len();
            let state = state(u32::try_from(number).unwrap_or(u32::MAX));
            history.states.push(state);
            (state, number)
        };
        let result = operation(state);
        match result {
            Ok(Written::Done) => lock(&self.history).acknowledged = number,
            // Writers are serialised, so it is still the last one.
            Ok(Written::Rejected) => lock(&self.history).states.truncate(number),
            Ok(Written::Unknown) | Err(_) => {}
        }
        Some(result)
    }

    /// Call before a read.
    pub(super) fn begin_read(&self) -> Since {
        Since(lock(&self.history).acknowledged)
    }

    /// Judges the result of a read of `range`: `Ok` if a state since `since` explains it.
    pub(super) fn judge(
        &self,
        since: Since,
        range: Option<Range<usize>>,
        seen: &Seen,
    ) -> Result<(), String> {
        let history = lock(&self.history);
        let candidates = &history.states[since.0..];
        if candidates
            .iter()
            .any(|state| self.explains(*state, range.clone(), seen))
        {
            return Ok(());
        }
        let older = history.states[..since.0]
            .iter()
            .rposition(|state| self.explains(*state, range.clone(), seen));
        let verdict = match older {
            Some(age) => format!("a value that was overwritten or deleted returned (state {age})"),
            None => "bytes that were never written".to_owned(),
        };
        Err(format!(
            "{}: {verdict}: saw {seen}, range {range:?}, allowed states from {} on: {candidates:?}",
            self.key, since.0
        ))
    }

    fn explains(&self, state: State, range: Option<Range<usize>>, seen: &Seen) -> bool {
        match (state, seen) {
            (State::Absent, Seen::Absent) => true,
            (State::Present { version, len }, Seen::Bytes(bytes)) => {
                let range = range.unwrap_or(0..len);
                let clipped = range.start.min(len)..range.end.min(len);
                bytes.len() == clipped.len() && *bytes == content(&self.key, version, len)[clipped]
            }
            // A range that begins past the object's end.
            (State::Present { len, .. }, Seen::NotSatisfiable) => {
                range.is_some_and(|range| range.start >= len)
            }
            _ => false,
        }
    }
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum Seen {
    /// No such object.
    Absent,
    /// These bytes.
    Bytes(Vec<u8>),
    /// The range begins past the object's end.
    NotSatisfiable,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Seen::Absent => f.write_str("no object"),
            Seen::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Seen::NotSatisfiable => f.write_str("range not satisfiable"),
        }
    }
}

/// A panicking thread has already failed the run: its data is still valid.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present(version: u32, len: usize) -> Ledger {
        Ledger::new("k".into(), State::Present { version, len })
    }

    #[test]
    fn an_old_value_is_recognised_as_a_lie() {
        let ledger = present(0, 10);
        let old = Seen::Bytes(content("k", 0, 10));
        let new = Seen::Bytes(content("k", 1, 7));
        assert!(ledger.judge(ledger.begin_read(), None, &old).is_ok());

        let before = ledger.begin_read();
        ledger
            .write(
                |version| State::Present { version, len: 7 },
                |_| Ok::<_, ()>(Written::Done),
            )
            .expect("nobody else writes")
            .expect("the operation says so");
        assert!(
            ledger.judge(before, None, &old).is_ok(),
            "a read that began before may see it"
        );
        assert!(ledger.judge(ledger.begin_read(), None, &old).is_err());
        assert!(ledger.judge(ledger.begin_read(), None, &new).is_ok());
    }

    #[test]
    fn an_unacknowledged_write_may_or_may_not_have_happened() {
        let ledger = present(0, 10);
        let outcome = ledger.write(|_| State::Absent, |_| Err("connection lost"));
        assert!(outcome.is_some_and(|r| r.is_err()));
        let since = ledger.begin_read();
        assert!(ledger.judge(since, None, &Seen::Absent).is_ok());
        assert!(
            ledger
                .judge(since, None, &Seen::Bytes(content("k", 0, 10)))
                .is_ok()
        );
        assert!(
            ledger
                .judge(since, None, &Seen::Bytes(content("k", 0, 9)))
                .is_err()
        );
    }

    #[test]
    fn a_rejected_write_must_not_be_read() {
        let ledger = Ledger::new("k".into(), State::Absent);
        let rejected = ledger.write(
            |version| State::Present { version, len: 7 },
            |_| Ok::<_, ()>(Written::Rejected),
        );
        assert_eq!(rejected, Some(Ok(Written::Rejected)));
        let seen = Seen::Bytes(content("k", 1, 7));
        assert!(ledger.judge(ledger.begin_read(), None, &seen).is_err());
    }

    #[test]
    fn ranges_are_clipped_like_http_does() {
        let ledger = present(3, 100);
        let tail = Seen::Bytes(content("k", 3, 100)[90..].to_vec());
        let since = ledger.begin_read();
        assert!(ledger.judge(since, Some(90..200), &tail).is_ok());
        assert!(ledger.judge(since, Some(89..200), &tail).is_err());
        assert!(
            ledger
                .judge(since, Some(100..200), &Seen::NotSatisfiable)
                .is_ok()
        );
        assert!(
            ledger
                .judge(since, Some(99..200), &Seen::NotSatisfiable)
                .is_err()
        );
    }
}
