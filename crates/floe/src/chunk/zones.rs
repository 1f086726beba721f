//! The zone table and its waiters: both placements take zones from it, and the
//! reclaimer returns them.
//!
//! **`changed` wakes every wait for space or for a closed zone. `short` wakes
//! the reclaimer.** A waiter registers before it reads the table, so no change
//! is missed.
//!
//! A panic under the table's lock leaves it usable; at worst one zone keeps its
//! phase until the cache is reopened.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use floe_core::chunk::ZoneTable;
use floe_core::{Tick, ZoneId};
use floe_device::{DeviceError, ZoneState};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::futures::Notified;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, Notify};

use super::environment::Environment;
use super::stats::add;

/// How long zones without space below the device rest before another attempt.
const WITHDRAWN_REST: Duration = Duration::from_secs(60);

/// Zones that are known to be read-only or offline.
pub(crate) type Unwritable = HashSet<ZoneId>;

/// All data zones of a cache.
#[derive(Debug)]
pub(crate) struct Zones {
    env: Arc<Environment>,
    table: Mutex<ZoneTable>,
    /// Notified when a zone was opened, closed, freed or retired, or a slot was freed.
    changed: Notify,
    /// Notified when free space is short, or a write waits for some.
    short: Notify,
    /// Reclaims that freed nothing while nothing else was running.
    futile_reclaims: AtomicU64,
    /// Zones that were retired because they are read-only or offline. Locked while the
    /// device is asked for others.
    unwritable: AsyncMutex<Unwritable>,
    /// A zone with a failed operation that shows that it is unwritable.
    shown: Mutex<Option<(ZoneId, ZoneState)>>,
}

impl Zones {
    pub(crate) fn new(env: Arc<Environment>, table: ZoneTable, unwritable: Unwritable) -> Self {
        Zones {
            env,
            table: Mutex::new(table),
            changed: Notify::new(),
            short: Notify::new(),
            futile_reclaims: AtomicU64::new(0),
            unwritable: AsyncMutex::new(unwritable),
            shown: Mutex::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ZoneTable> {
        self.table.lock()
    }

    /// The next change; enable it before checking for space.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    pub(crate) fn notify_changed(&self) {
        self.changed.notify_waiters();
    }

    /// Wakes the reclaimer.
    pub(crate) fn wake_reclaimer(&self) {
        self.short.notify_one();
    }

    /// Waits until the reclaimer is needed.
    pub(crate) async fn until_needed(&self) {
        self.short.notified().await;
    }

    /// True if so few zones are free that others must be evicted.
    pub(crate) fn is_low(&self, table: &ZoneTable) -> bool {
        table.free_zones() <= table.water(self.env.plan.water).high
    }

    /// Zones to free up to the low watermark.
    pub(crate) fn lacking(&self) -> u32 {
        let table = self.lock();
        let low = table.water(self.env.plan.water).low;
        low.saturating_sub(table.free_zones())
    }

    pub(crate) fn futile_reclaims(&self) -> u64 {
        self.futile_reclaims.load(SeqCst)
    }

    /// Counts a reclaim that freed nothing. If nothing else is running that
    /// could, waiting writes must not wait forever.
    pub(crate) fn note_futile_reclaim(&self) {
        if self.lock().is_idle() {
            self.futile_reclaims.fetch_add(1, SeqCst);
            self.notify_changed();
        }
    }

    /// Retires `zone` until the cache is reopened.
    pub(crate) fn retire(&self, zone: ZoneId) {
        let is_new = self.lock().retire(zone);
        add(&self.env.counters.zones_retired, u64::from(is_new));
        self.notify_changed();
    }

    /// Locks the zones that are known to be unwritable.
    pub(crate) async fn unwritable(&self) -> AsyncMutexGuard<'_, Unwritable> {
        self.unwritable.lock().await
    }

    /// Has the reclaimer retire unwritable zones if `error` of an operation on `zone` shows
    /// one. Returns whether it does.
    pub(crate) fn note_unwritable(&self, zone: ZoneId, error: &DeviceError) -> bool {
        let Some(state) = error.unwritable() else {
            return false;
        };
        *self.shown.lock() = Some((zone, state));
        self.wake_reclaimer();
        true
    }

    /// Takes a zone that was shown to be unwritable.
    pub(crate) fn take_unwritable(&self) -> Option<(ZoneId, ZoneState)> {
        self.shown.lock().take()
    }

    /// Counts a failed write to `zone`; retires the zone after too many.
    pub(crate) fn failed(&self, zone: ZoneId) {
        let is_retired = self.lock().failed(zone);
        add(&self.env.counters.zones_retired, u64::from(is_retired));
    }

    /// Handles a failed write of a reservation: the zone accepts no more until
    /// its reset. If the storage below the device is full, also withdraws zones
    /// that would need more of it.
    pub(crate) fn reserved_write_failed(&self, zone: ZoneId, is_no_space: bool) {
        let (withdrawn, is_retired) = {
            let mut table = self.lock();
            table.done(zone);
            match is_no_space {
                true => (table.out_of_space(Some(zone)), false),
                false => (0, table.failed(zone)),
            }
        };
        self.note_withdrawn(withdrawn);
        add(&self.env.counters.zones_retired, u64::from(is_retired));
        self.wake_reclaimer();
    }

    /// Withdraws data zones because a metadata zone found the storage below the
    /// device full. A journal is small, so one zone frees enough.
    pub(crate) fn journal_out_of_space(&self) {
        let withdrawn = self.lock().out_of_space(None);
        self.note_withdrawn(withdrawn);
    }

    /// Withdraws the zones that were never written, which have no space below
    /// the device, and wakes the reclaimer to free space in the others.
    pub(crate) fn withdraw_unwritten(&self) {
        let withdrawn = self.lock().withdraw_unwritten();
        self.note_withdrawn(withdrawn);
        self.wake_reclaimer();
    }

    fn note_withdrawn(&self, zones: usize) {
        if zones > 0 {
            add(&self.env.counters.zones_retired, zones as u64);
            tracing::warn!(
                zones,
                "the storage below the device is full: zones are withdrawn temporarily"
            );
        }
    }

    /// Restores withdrawn zones when it is time. Returns the time of the next attempt.
    pub(crate) fn restore_withdrawn(&self, retry_at: Option<Tick>) -> Option<Tick> {
        let now = self.env.clock.now();
        let mut table = self.lock();
        match retry_at {
            _ if !table.any_withdrawn() => None,
            None => Some(now + WITHDRAWN_REST),
            Some(at) if now < at => Some(at),
            Some(_) => {
                let zones = table.restore_withdrawn();
                tracing::info!(zones, "withdrawn zones are in use again");
                self.notify_changed();
                None
            }
        }
    }
}
