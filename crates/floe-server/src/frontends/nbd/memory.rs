//! Memory for data in transfer, over all connections.
//!
//! A connection holds a share for the requests in flight and for the replies
//! that its client has not taken. It waits for a share only while it holds
//! none, so that waiting connections cannot block each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use floe::limit::{Held, Limit};
use futures::future::BoxFuture;

/// Bytes of one unit.
const UNIT_BYTES: u64 = 4096;

/// Units that a connection takes at once, so that it rarely takes some.
const STEP_UNITS: u32 = 64;

/// The fraction (1/4) of the memory that one connection may hold.
const CONNECTION_SHARE: u32 = 4;

/// The memory of all connections.
#[derive(Debug)]
pub(super) struct Memory {
    pool: Arc<Limit>,
    waiting: AtomicU32,
    waits: AtomicU64,
}

impl Memory {
    pub(super) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Memory {
            pool: Limit::new(pool_units(bytes)),
            waiting: AtomicU32::new(0),
            waits: AtomicU64::new(0),
        })
    }

    /// Changes the limit. Shares stay valid.
    pub(super) fn set(&self, bytes: u64) {
        self.pool.set(pool_units(bytes));
    }

    /// True if a connection waits for a share.
    pub(super) fn is_short(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Times that a connection waited for a share.
    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Relaxed)
    }

    /// Bytes that connections hold.
    pub(super) fn held_bytes(&self) -> u64 {
        self.pool.held() as u64 * UNIT_BYTES
    }

    fn units(&self) -> u32 {
        u32::try_from(self.pool.units()).unwrap_or(u32::MAX)
    }

    /// Waits for `units`, at most all there are.
    fn hold(self: &Arc<Self>, units: u32) -> BoxFuture<'static, Held> {
        let (pool, waiting) = (Arc::clone(&self.pool), Waiting::new(self));
        let units = units.min(self.units());
        Box::pin(async move {
            let held = pool.hold(units).await;
            drop(waiting);
            held
        })
    }
}

fn pool_units(bytes: u64) -> usize {
    usize::try_from(bytes / UNIT_BYTES).unwrap_or(usize::MAX)
}

/// A connection that waits, until dropped.
struct Waiting(Arc<Memory>);

impl Waiting {
    fn new(memory: &Arc<Memory>) -> Self {
        memory.waiting.fetch_add(1, Relaxed);
        memory.waits.fetch_add(1, Relaxed);
        Waiting(Arc::clone(memory))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

/// The memory of one connection.
pub(super) struct Share {
    memory: Arc<Memory>,
    held: Option<Held>,
    units: u32,
}

impl Share {
    pub(super) fn new(memory: &Arc<Memory>) -> Self {
        Share {
            memory: Arc::clone(memory),
            held: None,
            units: 0,
        }
    }

    /// Makes the share at least `bytes`; `false` if there is no memory at once.
    pub(super) fn reserve(&mut self, bytes: u64) -> bool {
        let Some(missing) = units(bytes)
            .checked_sub(self.units)
            .filter(|more| *more > 0)
        else {
            return true;
        };
        let all = self.memory.units();
        // The first request of a connection may have any size.
        let is_first = self.units == 0 && missing <= all;
        let step = missing.max(STEP_UNITS);
        for more in [step, missing] {
            let is_fair =
                (self.units + more) <= all / CONNECTION_SHARE || (is_first && more == missing);
            if is_fair && let Some(more_held) = self.memory.pool.try_hold(more) {
                self.add(more_held, more);
                return true;
            }
        }
        false
    }

    /// Waits for `bytes`, for a connection that uses none.
    pub(super) fn wait(&mut self, bytes: u64) -> BoxFuture<'static, Held> {
        self.release();
        self.memory.hold(units(bytes))
    }

    /// Keeps the result of [`wait`](Self::wait) for `bytes`.
    pub(super) fn keep(&mut self, held: Held, bytes: u64) {
        self.add(held, units(bytes));
    }

    /// Releases memory after requests have ended that leave `used_bytes`: all of
    /// it if nothing is used, and the rest if other connections wait.
    pub(super) fn trim(&mut self, used_bytes: u64) {
        if used_bytes == 0 {
            return self.release();
        }
        let spare = self.units.saturating_sub(units(used_bytes));
        if spare > 0 && self.memory.is_short() {
            self.units -= spare;
            let held = self.held.as_mut();
            drop(held.and_then(|held| held.split(spare as usize)));
        }
    }

    fn release(&mut self) {
        self.held = None;
        self.units = 0;
    }

    fn add(&mut self, more: Held, units: u32) {
        self.units += units;
        match &mut self.held {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}
