//! A part of the addresses: its blocks and its range locks behind one lock.

use floe_core::volume::{Cache, Piece};

use super::lock::{Mutex, MutexGuard};
use super::locks::{LockNumber, RangeLocks};

/// A part of the addresses.
#[derive(Debug)]
pub(super) struct Shard(Mutex<State>);

/// What the lock of a shard guards.
#[derive(Debug)]
pub(super) struct State {
    pub(super) cache: Cache,
    pub(super) locks: RangeLocks,
    /// Blocks that have left, whose places are not released.
    pub(super) retired: Vec<Retired>,
}

/// A block that has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retired {
    pub(super) block: Piece,
    /// Requests with later locks know nothing of the block.
    pub(super) latest: LockNumber,
}

impl State {
    /// True if no request reads `retired` any more. Those that came after it left do not
    /// count: with them a block that is always asked for would never be released.
    pub(super) fn is_unused(&self, retired: &Retired) -> bool {
        self.locks
            .is_free_up_to(retired.latest, retired.block.extent)
    }
}

impl Shard {
    pub(super) fn new(cache: Cache) -> Self {
        let region_bytes = cache.plan().region_bytes();
        Shard(Mutex::new(State {
            cache,
            locks: RangeLocks::new(region_bytes),
            retired: Vec::new(),
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}
