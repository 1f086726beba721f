//! Counts of what is under way.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Increments a count while it lives.
#[derive(Debug)]
pub(crate) struct Gauge<'a>(&'a AtomicU64);

impl<'a> Gauge<'a> {
    pub(crate) fn rise(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, SeqCst);
        Gauge(count)
    }
}

impl Drop for Gauge<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}
