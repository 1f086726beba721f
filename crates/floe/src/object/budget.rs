//! The memory of all fetches together.
//!
//! A fetch takes its share before it sends a request to the origin. A flight
//! that has landed keeps its bytes for its readers. When another fetch waits
//! for memory, such flights release their bytes and their readers read the
//! store instead, so a slow reader cannot block other fetches.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::flight::Flight;
use crate::gauge::Gauge;

/// Bytes of one semaphore permit.
const UNIT_BYTES: u64 = 1024;

pub(super) struct Budget {
    units: Arc<Semaphore>,
    total: u32,
    waiting: AtomicU64,
    retired: Mutex<VecDeque<Weak<Flight>>>,
}

impl Budget {
    /// The configuration limits `bytes` to 1 TiB.
    pub(super) fn new(bytes: u64) -> Self {
        let total = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let total = total.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Budget {
            units: Arc::new(Semaphore::new(total as usize)),
            total,
            waiting: AtomicU64::new(0),
            retired: Mutex::new(VecDeque::new()),
        }
    }

    /// Waits for a share of `bytes`, which returns to the budget when dropped.
    pub(super) async fn acquire(&self, bytes: u64) -> Share {
        let units = units(bytes).min(self.total);
        if let Ok(share) = Arc::clone(&self.units).try_acquire_many_owned(units) {
            return Share(Some(share));
        }
        let waiting = Gauge::rise(&self.waiting);
        self.shed();
        let share = Arc::clone(&self.units).acquire_many_owned(units).await;
        drop(waiting);
        // The semaphore is never closed, so `share` is always `Ok`.
        Share(share.ok())
    }

    /// A share of `bytes`, if as much is free.
    pub(super) fn try_acquire(&self, bytes: u64) -> Option<Share> {
        let share = Arc::clone(&self.units).try_acquire_many_owned(units(bytes));
        Some(Share(Some(share.ok()?)))
    }

    /// Registers a flight that may release its bytes when memory is short.
    pub(super) fn retired(&self, flight: &Arc<Flight>) {
        let mut retired = self.retired.lock();
        while retired.front().is_some_and(|f| f.strong_count() == 0) {
            retired.pop_front();
        }
        retired.push_back(Arc::downgrade(flight));
        if retired.len() > 2 * self.total as usize + 64 {
            retired.retain(|f| f.strong_count() > 0);
        }
        drop(retired);
        if self.waiting.load(SeqCst) > 0 {
            self.shed();
        }
    }

    /// Has flights that have landed release their bytes.
    pub(super) fn shed(&self) {
        let retired = std::mem::take(&mut *self.retired.lock());
        for flight in retired.iter().filter_map(Weak::upgrade) {
            flight.shed();
        }
    }

    /// Bytes in use.
    pub(super) fn used_bytes(&self) -> u64 {
        let free = self.units.available_permits() as u64;
        u64::from(self.total).saturating_sub(free) * UNIT_BYTES
    }
}

/// A part of the budget.
pub(super) struct Share(Option<OwnedSemaphorePermit>);

impl Share {
    /// Returns the excess over `bytes` to the budget.
    pub(super) fn shrink_to(&mut self, bytes: u64) {
        if let Some(permit) = &mut self.0 {
            let surplus = permit.num_permits().saturating_sub(units(bytes) as usize);
            drop(permit.split(surplus));
        }
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}
