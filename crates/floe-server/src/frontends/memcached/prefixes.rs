//! The counts of `stats detail`: requests by key prefix.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

/// The end of a prefix. Keys without it are not counted, as in memcached.
const DELIMITER: u8 = b':';

/// Most prefixes to count; requests of further ones are ignored.
const PREFIXES_MAX: usize = 4096;

/// Counts by prefix, while `stats detail` is on.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    is_on: AtomicBool,
    counts: Mutex<BTreeMap<Box<[u8]>, Counts>>,
}

/// The requests of one prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) gets: u64,
    pub(super) hits: u64,
    pub(super) sets: u64,
    pub(super) deletes: u64,
}

impl Prefixes {
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    pub(super) fn turn(&self, is_on: bool) {
        self.is_on.store(is_on, Relaxed);
    }

    pub(super) fn note_get(&self, key: &[u8], is_hit: bool) {
        self.note(key, |counts| {
            counts.gets += 1;
            counts.hits += u64::from(is_hit);
        });
    }

    pub(super) fn note_set(&self, key: &[u8]) {
        self.note(key, |counts| counts.sets += 1);
    }

    pub(super) fn note_delete(&self, key: &[u8]) {
        self.note(key, |counts| counts.deletes += 1);
    }

    pub(super) fn forget(&self) {
        self.counts.lock().clear();
    }

    /// Each prefix with its counts.
    pub(super) fn all(&self) -> Vec<(Box<[u8]>, Counts)> {
        let counts = self.counts.lock();
        counts.iter().map(|(p, c)| (p.clone(), *c)).collect()
    }

    fn note(&self, key: &[u8], change: impl FnOnce(&mut Counts)) {
        if !self.is_on() {
            return;
        }
        let Some(end) = memchr::memchr(DELIMITER, key) else {
            return;
        };
        let mut counts = self.counts.lock();
        if let Some(known) = counts.get_mut(&key[..end]) {
            change(known);
        } else if counts.len() < PREFIXES_MAX {
            change(counts.entry(key[..end].into()).or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_prefixes_is_bounded() {
        let prefixes = Prefixes::default();
        prefixes.note_set(b"early:1");
        assert!(prefixes.all().is_empty());
        prefixes.turn(true);
        for number in 0..PREFIXES_MAX + 10 {
            prefixes.note_set(format!("p{number}:x").as_bytes());
        }
        assert_eq!(prefixes.all().len(), PREFIXES_MAX);
        prefixes.note_get(b"p1:other", true);
        let counts = prefixes.all().into_iter().find(|(p, _)| **p == *b"p1");
        let expected = Counts {
            gets: 1,
            hits: 1,
            sets: 1,
            deletes: 0,
        };
        assert_eq!(counts.map(|(_, counts)| counts), Some(expected));
        prefixes.forget();
        assert!(prefixes.all().is_empty());
    }
}
