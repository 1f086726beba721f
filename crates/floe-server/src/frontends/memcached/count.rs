//! A count that costs its thread no atomic addition.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count that one thread adds to and any may read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds; only the thread that owns the counters may.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
