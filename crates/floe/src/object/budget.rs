//! The memory of all fetches together.
//!
//! A fetch takes its share before it sends a request to the origin. Clients
//! whose fetches wait for memory take turns. A flight that has landed keeps its
//! bytes for its readers. When another fetch waits for memory, such flights
//! release their bytes and their readers read the store instead, so a slow
//! reader cannot block other fetches.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::flight::Flight;
use crate::gauge::Gauge;
use crate::origin::Client;
use crate::origin::fair::{FairHeld, FairLimit};

/// Bytes of one unit of the limit.
const UNIT_BYTES: u64 = 1024;

pub(super) struct Budget {
    units: Arc<FairLimit>,
    total: u32,
    /// Units of which some may be held by what is no fetch.
    spare: usize,
    waiting: AtomicU64,
    retired: Mutex<VecDeque<Weak<Flight>>>,
}

impl Budget {
    /// The configuration limits `bytes` to 1 TiB. `fetch_max` is for the largest fetch.
    pub(super) fn new(bytes: u64, fetch_max: u64) -> Self {
        let total = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        Budget {
            units: FairLimit::new(total as usize),
            total,
            spare: total.saturating_sub(units(fetch_max)).min(total / 2) as usize,
            waiting: AtomicU64::new(0),
            retired: Mutex::new(VecDeque::new()),
        }
    }

    /// Waits for a share of `bytes`, which returns to the budget when dropped.
    pub(super) async fn acquire(&self, bytes: u64) -> Share {
        let units = units(bytes).min(self.total) as usize;
        if let Some(share) = self.units.try_hold(units) {
            return Share(Some(share));
        }
        let waiting = Gauge::rise(&self.waiting);
        self.shed();
        let share = self.units.hold(Client::current(), units, usize::MAX);
        let share = share.await;
        drop(waiting);
        // A queue without a limit is never full, so `share` is always `Ok`.
        Share(share.ok())
    }

    /// As [`acquire`](Budget::acquire), if it takes no waiting.
    pub(super) fn try_acquire(&self, bytes: u64) -> Option<Share> {
        let units = units(bytes).min(self.total) as usize;
        Some(Share(Some(self.units.try_hold(units)?)))
    }

    /// A share of `bytes` for what is no fetch, if half of the budget and a fetch of any size
    /// remain free.
    pub(super) fn try_spare(&self, bytes: u64) -> Option<Share> {
        let units = units(bytes) as usize;
        if self.units.held() + units > self.spare {
            return None;
        }
        self.try_acquire(bytes)
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
        self.units.held() as u64 * UNIT_BYTES
    }
}

/// A part of the budget.
pub(super) struct Share(Option<FairHeld>);

impl Share {
    /// Returns the excess over `bytes` to the budget.
    pub(super) fn shrink_to(&mut self, bytes: u64) {
        if let Some(held) = &mut self.0 {
            held.shrink_to(units(bytes) as usize);
        }
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_fetch_leaves_room_for_fetches() {
        const MIB: u64 = 1 << 20;
        let budget = Budget::new(4 * MIB, MIB);
        let spared: Vec<_> = (0..3).map(|_| budget.try_spare(MIB)).collect();
        assert_eq!(spared.iter().flatten().count(), 2, "half of it");
        drop(spared);
        assert!(budget.try_spare(3 * MIB).is_none());
        // The largest fetch has room beside it.
        let budget = Budget::new(4 * MIB, 3 * MIB);
        let spared: Vec<_> = (0..2).map(|_| budget.try_spare(MIB)).collect();
        assert_eq!(spared.iter().flatten().count(), 1);
        assert!(Budget::new(MIB, MIB).try_spare(1024).is_none());
    }
}
