//! A part of the addresses: its blocks and its range locks behind one lock.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use floe_core::volume::{Cache, Piece};

use super::config::LockGranularity;
use super::lock::{Mutex, MutexGuard};
use super::locks::{LockNumber, RangeLocks};

/// A part of the addresses.
#[derive(Debug)]
pub(super) struct Shard {
    state: Mutex<State>,
    /// With coarse locks: held together with the lock of any shard.
    all: Option<Arc<Mutex<()>>>,
}

/// The state of a shard whose lock is held. No thread holds two at once.
pub(super) struct Locked<'a> {
    /// Released before the lock of all shards.
    state: MutexGuard<'a, State>,
    _all: Option<MutexGuard<'a, ()>>,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

/// What the lock of a shard guards.
#[derive(Debug)]
pub(super) struct State {
    pub(super) cache: Cache,
    pub(super) locks: RangeLocks,
    /// Blocks that have left, whose places are not released.
    pub(super) retired: Vec<Retired>,
    /// The blocks of an earlier run are read. Until then no request is decided.
    pub(super) is_loaded: bool,
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
    /// The shards of a cache, in the order of their numbers.
    pub(super) fn of_all(
        caches: Vec<Cache>,
        granularity: LockGranularity,
        is_loaded: bool,
    ) -> Vec<Self> {
        let all = match granularity {
            LockGranularity::Fine => None,
            LockGranularity::Coarse => Some(Arc::new(Mutex::new(()))),
        };
        let shards = caches.into_iter().map(|cache| Shard {
            state: Mutex::new(State {
                locks: RangeLocks::new(cache.plan().region_bytes()),
                cache,
                retired: Vec::new(),
                is_loaded,
            }),
            all: all.clone(),
        });
        shards.collect()
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        let all = self.all.as_ref().map(|all| all.lock());
        Locked {
            state: self.state.lock(),
            _all: all,
        }
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}
