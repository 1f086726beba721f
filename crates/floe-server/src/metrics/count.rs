//! A counter without an atomic addition.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter that one thread adds to and any thread may read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds `n`; only the owning thread may call it.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
