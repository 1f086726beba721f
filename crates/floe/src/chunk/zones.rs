//! The zone table and its waiters: both placements take zones from it, the
//! reclaimer gives them back.
//!
//! **`changed` wakes every wait for space or for a closed zone. `short` wakes the
//! reclaimer.** A waiter registers before it asks the table, so that a change in
//! between is not missed.
//!
//! A panic under the table's lock leaves it usable; at worst one zone keeps its
//! phase until the cache is opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use floe_core::chunk::ZoneTable;
use floe_core::{Tick, ZoneId};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::environment::Environment;
use super::stats::add;

/// How long zones without space below the device rest before they are tried again.
const WITHDRAWN_REST: Duration = Duration::from_secs(60);

/// All data zones of a cache.
#[derive(Debug)]
pub(crate) struct Zones {
    env: Arc<Environment>,
    table: Mutex<ZoneTable>,
    /// A zone was opened, closed, freed or retired, or a slot was freed.
    changed: Notify,
    /// Free space is short, or a write waits for some.
    short: Notify,
    /// How often reclaim freed nothing while nothing else was under way.
    futile_reclaims: AtomicU64,
}

impl Zones {
    pub(crate) fn new(env: Arc<Environment>, table: ZoneTable) -> Self {
        Zones {
            env,
            table: Mutex::new(table),
            changed: Notify::new(),
            short: Notify::new(),
            futile_reclaims: AtomicU64::new(0),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ZoneTable> {
        self.table.lock()
    }

    /// The next change; enable it before asking whether there is space.
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
    pub(crate) async fn ran_short(&self) {
        self.short.notified().await;
    }

    /// Whether so few zones are free that others are to be evicted.
    pub(crate) fn is_low(&self, table: &ZoneTable) -> bool {
        table.free_zones() <= table.water(self.env.plan.water).high
    }

    /// Free zones that are missing up to the low water mark.
    pub(crate) fn lacking(&self) -> u32 {
        let table = self.lock();
        let low = table.water(self.env.plan.water).low;
        low.saturating_sub(table.free_zones())
    }

    pub(crate) fn futile_reclaims(&self) -> u64 {
        self.futile_reclaims.load(SeqCst)
    }

    /// Reclaim freed nothing. If nothing is under way that could, waiting writes
    /// must not wait for ever.
    pub(crate) fn note_futile_reclaim(&self) {
        if self.lock().is_idle() {
            self.futile_reclaims.fetch_add(1, SeqCst);
            self.notify_changed();
        }
    }

    /// Takes `zone` out of use until the cache is opened again.
    pub(crate) fn retire(&self, zone: ZoneId) {
        self.lock().retire(zone);
        add(&self.env.counters.zones_retired, 1);
        self.notify_changed();
    }

    /// A write to `zone` failed; retires the zone if too many have.
    pub(crate) fn failed(&self, zone: ZoneId) {
        let is_retired = self.lock().failed(zone);
        add(&self.env.counters.zones_retired, u64::from(is_retired));
    }

    /// The write of a reservation in `zone` failed: the zone takes no more until
    /// it was reset. Where there was no space below the device, zones that would
    /// find none either are withdrawn.
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

    /// A metadata zone found no space below the device: withdraws data zones. A
    /// journal takes little, so what one zone gives back is enough.
    pub(crate) fn journal_out_of_space(&self) {
        let withdrawn = self.lock().out_of_space(None);
        self.note_withdrawn(withdrawn);
    }

    /// Withdraws the zones that were never written, for which there is no space
    /// below the device, and wakes the reclaimer to make room in the others.
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
                "no space below the device: zones are withdrawn for a while"
            );
        }
    }

    /// Puts withdrawn zones back, if it is time. Returns when it will be.
    pub(crate) fn restore_withdrawn(&self, retry_at: Option<Tick>) -> Option<Tick> {
        let now = self.env.clock.now();
        let mut table = self.lock();
        match retry_at {
            _ if !table.any_withdrawn() => None,
            None => Some(now + WITHDRAWN_REST),
            Some(at) if now < at => Some(at),
            Some(_) => {
                let zones = table.restore_withdrawn();
                tracing::info!(zones, "looking whether there is space for all zones");
                self.notify_changed();
                None
            }
        }
    }
}
