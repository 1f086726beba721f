//! State shared by all parts: device, clock, plan, identity, sequences, counters.
//! Must not depend on any part.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use floe_core::chunk::Plan;
use floe_core::hash::{HashSeed, KeyHash};
use floe_core::layout::{CacheId, Sequence};
use floe_core::placement::Handles;
use floe_device::{Clock, SharedDevice};

use super::stats::ChunkCounters;
use crate::error::CacheError;
use crate::value::PutOptions;

/// The environment of one open cache.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) device: SharedDevice,
    pub(crate) clock: Clock,
    pub(crate) plan: Plan,
    /// The placement of each stream of writes.
    pub(crate) handles: Handles,
    pub(crate) id: CacheId,
    seed: HashSeed,
    pub(crate) counters: ChunkCounters,
    next_sequence: AtomicU64,
    closing: AtomicBool,
    stopped: AtomicBool,
    poisoned: AtomicBool,
}

impl Environment {
    pub(crate) fn new(
        device: SharedDevice,
        clock: Clock,
        plan: Plan,
        (id, seed): (CacheId, HashSeed),
        next_sequence: u64,
    ) -> Self {
        Environment {
            device,
            clock,
            handles: Handles::new(plan.geometry.placement_handles, plan.streams()),
            plan,
            id,
            seed,
            counters: ChunkCounters::default(),
            next_sequence: AtomicU64::new(next_sequence),
            closing: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
        }
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::of(self.seed, key)
    }

    pub(crate) fn block_size(&self) -> u32 {
        self.plan.geometry.block_size
    }

    /// A new sequence.
    pub(crate) fn draw_sequence(&self) -> Sequence {
        Sequence(self.next_sequence.fetch_add(1, Relaxed))
    }

    /// The next sequence.
    pub(crate) fn next_sequence(&self) -> Sequence {
        Sequence(self.next_sequence.load(SeqCst))
    }

    /// The expiry of a value written now, in Unix seconds; 0 for never.
    pub(crate) fn expiry(&self, options: PutOptions) -> u32 {
        options.ttl.map_or(0, |ttl| {
            let now = self.clock.unix_seconds();
            let at = now.saturating_add(ttl.as_secs().max(1));
            u32::try_from(at).unwrap_or(u32::MAX)
        })
    }

    /// Rejects operations from now on. Returns false if closing had begun before.
    pub(crate) fn begin_closing(&self) -> bool {
        !self.closing.swap(true, SeqCst)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }

    /// Ends background tasks once they are idle. Later than `begin_closing`,
    /// because the last flush needs them.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    /// A background task panicked: writes are rejected from now on, since they
    /// could wait for it for ever.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, SeqCst);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Relaxed)
    }

    /// True if writes that wait for room are given up.
    pub(crate) fn gives_up_writes(&self) -> bool {
        self.is_stopped() || self.poisoned.load(SeqCst)
    }

    /// The reason why a write is rejected.
    pub(crate) fn write_error(&self) -> CacheError {
        match self.is_poisoned() {
            true => CacheError::Poisoned,
            false => CacheError::Closed,
        }
    }
}
