//! The memory that all fetches together may hold.
//!
//! A fetch takes its share before it asks the origin. Flights that have landed
//! keep theirs until their readers are done; when somebody waits, they are
//! shed, and their readers read the store instead. So a slow reader cannot keep
//! others from fetching.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::flight::Flight;

/// What one permit of the semaphore stands for.
const UNIT_BYTES: u64 = 1024;

pub(super) struct Budget {
    units: Arc<Semaphore>,
    total: u32,
    waiting: AtomicUsize,
    retired: Mutex<VecDeque<Weak<Flight>>>,
}

impl Budget {
    /// At most 1 TiB, which the configuration sees to.
    pub(super) fn new(bytes: u64) -> Self {
        let total = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let total = total.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Budget {
            units: Arc::new(Semaphore::new(total as usize)),
            total,
            waiting: AtomicUsize::new(0),
            retired: Mutex::new(VecDeque::new()),
        }
    }

    /// Waits for a share of `bytes`; given back when dropped.
    pub(super) async fn acquire(&self, bytes: u64) -> Share {
        let units = units(bytes).min(self.total);
        if let Ok(share) = Arc::clone(&self.units).try_acquire_many_owned(units) {
            return Share(Some(share));
        }
        let waiting = Waiting::new(&self.waiting);
        self.shed();
        let share = Arc::clone(&self.units).acquire_many_owned(units).await;
        drop(waiting);
        // The semaphore is never closed, so there always is a share.
        Share(share.ok())
    }

    /// Notes a flight whose bytes may be let go when memory is short.
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

    fn shed(&self) {
        let retired = std::mem::take(&mut *self.retired.lock());
        for flight in retired.iter().filter_map(Weak::upgrade) {
            flight.shed();
        }
    }

    /// Bytes that are taken.
    pub(super) fn used_bytes(&self) -> u64 {
        let free = self.units.available_permits() as u64;
        u64::from(self.total).saturating_sub(free) * UNIT_BYTES
    }
}

/// A part of the memory.
pub(super) struct Share(Option<OwnedSemaphorePermit>);

impl Share {
    /// Gives back what is more than `bytes`.
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

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, SeqCst);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}
