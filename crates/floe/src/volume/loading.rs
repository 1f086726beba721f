//! The progress of reading the blocks of an earlier run. Must not depend on: the cache.

use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::error::VolumeError;

/// The progress of reading the blocks of an earlier run.
#[derive(Debug)]
pub(super) struct Loading {
    /// Requests wait for these shards.
    wanted: Vec<AtomicBool>,
    /// Bytes of places whose blocks are not read; 0 once all are.
    unread_bytes: AtomicU64,
    /// A shard is read, or none will be any more.
    changed: Notify,
    failure: OnceLock<VolumeError>,
}

impl Loading {
    /// Reading `unread_bytes` of places in so many shards.
    pub(super) fn new(shards: usize, unread_bytes: u64) -> Self {
        Loading {
            wanted: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            unread_bytes: AtomicU64::new(unread_bytes),
            changed: Notify::new(),
            failure: OnceLock::new(),
        }
    }

    /// Bytes of places whose blocks are not read.
    pub(super) fn unread_bytes(&self) -> u64 {
        self.unread_bytes.load(SeqCst)
    }

    /// Notes what is not read any more, and wakes what waited for it.
    pub(super) fn progress(&self, unread_bytes: u64) {
        self.unread_bytes.store(unread_bytes, SeqCst);
        self.changed.notify_waiters();
    }

    /// A future that ends with the next progress, or with a failure, from now on.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Notes that requests wait for a shard.
    pub(super) fn want(&self, shard: usize) {
        self.wanted[shard].store(true, Relaxed);
    }

    pub(super) fn is_wanted(&self, shard: usize) -> bool {
        self.wanted[shard].load(Relaxed)
    }

    /// Ends the wait for shards that are not read.
    pub(super) fn fail(&self, error: VolumeError) {
        let _ = self.failure.set(error);
        self.changed.notify_waiters();
    }

    /// Why reading has failed, if it has.
    pub(super) fn check(&self) -> Result<(), VolumeError> {
        self.failure.get().cloned().map_or(Ok(()), Err)
    }
}
