//! Exact stack distances: Olken's algorithm with a Fenwick tree over the times
//! of last accesses.

use std::collections::HashMap;

use super::fenwick::Marks;
use super::histogram::Histogram;
use super::{Curve, StackDistances};

/// Fewest times that the tree has room for.
const TIMES_MIN: usize = 1 << 12;

/// Measures every access. Memory grows with the number of distinct keys, not
/// with the accesses.
#[derive(Debug, Default)]
pub struct Exact {
    stack: Stack,
    distances: Histogram,
}

impl StackDistances for Exact {
    fn access(&mut self, key: u64) {
        match self.stack.access(key) {
            Some(distance) => self.distances.add(distance, 1.0),
            None => self.distances.add_first(1.0),
        }
    }

    fn curve(&self) -> Curve {
        self.distances.curve(self.stack.len() as u64)
    }
}

/// The keys in the order of their last accesses.
#[derive(Debug)]
pub(super) struct Stack {
    times: HashMap<u64, usize>,
    /// A mark at the time of each key's last access.
    marks: Marks,
    now: usize,
}

impl Default for Stack {
    fn default() -> Self {
        Stack {
            times: HashMap::new(),
            marks: Marks::new(TIMES_MIN),
            now: 0,
        }
    }
}

impl Stack {
    /// Puts `key` on top. Returns its place from the top before, from 1, if it had
    /// one: an LRU cache of that many keys holds it.
    pub(super) fn access(&mut self, key: u64) -> Option<u64> {
        if self.now == self.marks.places() {
            self.compact();
        }
        let last = self.times.insert(key, self.now);
        let distance = last.map(|last| {
            let newer = self.times.len() as u64 - self.marks.up_to(last);
            self.marks.unmark(last);
            newer + 1
        });
        self.marks.mark(self.now);
        self.now += 1;
        distance
    }

    pub(super) fn remove(&mut self, key: u64) {
        if let Some(last) = self.times.remove(&key) {
            self.marks.unmark(last);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.times.len()
    }

    /// Numbers the last accesses anew without gaps, with as much room again.
    fn compact(&mut self) {
        let mut last: Vec<(usize, u64)> = self.times.iter().map(|(key, at)| (*at, *key)).collect();
        last.sort_unstable();
        for (at, (_, key)) in last.iter().enumerate() {
            self.times.insert(*key, at);
        }
        self.now = last.len();
        self.marks = Marks::all_marked((self.now * 2).max(TIMES_MIN), self.now);
    }
}
