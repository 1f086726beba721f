//! Histories of keys: what each client was told, and when.
//!
//! A write whose client got no answer may take effect at any later time, until a read returns its
//! value: it has happened by the end of that read. A read must not return a value whose write has
//! happened, and which an answered write that began after that has replaced before the read
//! began. Of two answered writes that overlap, both may be the newest.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Result, bail};

/// A read returned a value that had been replaced.
#[derive(Debug)]
pub(super) struct Stale(String);

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Stale {}

/// The number of a write, which is the value that it writes.
pub(super) type Value = u64;

/// The writes of all keys.
pub(super) struct History(Vec<Mutex<Key>>);

#[derive(Default)]
struct Key {
    /// When the write of each value was answered, or first read without an answer.
    ends: HashMap<Value, Option<Instant>>,
    /// The answered writes in the order of their ends: the end, and the latest start so far.
    answered: Vec<(Instant, Instant)>,
}

impl History {
    pub(super) fn new(keys: usize) -> Self {
        History((0..keys).map(|_| Mutex::default()).collect())
    }

    fn key(&self, key: usize) -> MutexGuard<'_, Key> {
        self.0[key].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client is about to write `value`.
    pub(super) fn begin(&self, key: usize, value: Value) {
        self.key(key).ends.insert(value, None);
    }

    /// A write that began at `start` was answered; without a value it was a delete.
    pub(super) fn answered(&self, key: usize, value: Option<Value>, start: Instant) {
        let key = &mut *self.key(key);
        let now = Instant::now();
        let latest = key.answered.last().map_or(start, |&(_, latest)| latest);
        key.answered.push((now, latest.max(start)));
        if let Some(value) = value {
            // A read may have told earlier that it has happened.
            key.ends.entry(value).or_default().get_or_insert(now);
        }
    }

    /// A node refused to write `value`, so that no read may return it.
    pub(super) fn refused(&self, key: usize, value: Value) {
        self.key(key).ends.remove(&value);
    }

    /// Checks a read that began at `start`.
    ///
    /// # Errors
    /// The value was replaced before, or never written.
    pub(super) fn check(&self, key: usize, value: Value, start: Instant) -> Result<()> {
        let name = key;
        let key = &mut *self.key(key);
        let Some(end) = key.ends.get_mut(&value) else {
            bail!("key {name} has a value that was never written: {value}");
        };
        // It has happened by now, whether or not its client gets an answer.
        let end = *end.get_or_insert_with(Instant::now);
        let before = key.answered.partition_point(|&(end, _)| end < start);
        let latest = before.checked_sub(1).map(|last| key.answered[last].1);
        if let Some(latest) = latest.filter(|latest| *latest > end) {
            return Err(Stale(format!(
                "key {name}: a read returned {value}, which was replaced by a write that began {:?} \
                 after its answer, or after it was first read, and was answered before the read",
                latest.duration_since(end)
            ))
            .into());
        }
        Ok(())
    }

    /// True if a write of `key` was answered before `start`.
    pub(super) fn has_value(&self, key: usize, start: Instant) -> bool {
        let key = self.key(key);
        key.answered.first().is_some_and(|&(end, _)| end < start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_value_was_never_written() {
        let history = History::new(1);
        history.begin(0, 1);
        history.refused(0, 1);
        assert!(history.check(0, 1, Instant::now()).is_err());
    }

    #[test]
    fn only_what_was_certainly_replaced_is_stale() {
        let history = History::new(1);
        let write = |value| {
            history.begin(0, value);
            Instant::now()
        };
        let first = write(1);
        history.answered(0, Some(1), first);
        history.check(0, 1, Instant::now()).unwrap();
        // Under way, or without an answer: both values are right.
        let second = write(2);
        let read = Instant::now();
        history.check(0, 1, Instant::now()).unwrap();
        history.check(0, 2, Instant::now()).unwrap();
        history.answered(0, Some(2), second);
        // The read began before the answer.
        history.check(0, 1, read).unwrap();
        assert!(history.check(0, 1, Instant::now()).is_err());
        history.check(0, 2, Instant::now()).unwrap();
        history.answered(0, None, Instant::now());
        assert!(history.check(0, 2, Instant::now()).is_err());
        assert!(history.check(0, 3, Instant::now()).is_err());
        write(4);
        history.answered(0, Some(5), Instant::now());
        // It had no answer, and may happen after the other one.
        history.check(0, 4, Instant::now()).unwrap();
        history.answered(0, Some(6), Instant::now());
        assert!(
            history.check(0, 4, Instant::now()).is_err(),
            "a read has seen it before"
        );
    }
}
