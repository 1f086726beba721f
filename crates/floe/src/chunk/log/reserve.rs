//! Reserves space in zones, and opens zones for it.

use std::sync::Arc;
use std::time::Duration;

use floe_core::ZoneId;
use floe_core::chunk::{Eviction, Placed};
use floe_core::layout::{Generation, ZoneLayout, ZoneLife};
use floe_device::{Operation, Placement};

use super::Log;
use crate::chunk::stats::add;
use crate::chunk::write_error::WriteError;

/// Space in a zone, reserved until dropped or failed.
#[derive(Debug)]
pub(crate) struct Reservation {
    log: Arc<Log>,
    life: ZoneLife,
    placement: Placement,
    /// The zone's header is not written yet.
    is_opening: bool,
    has_failed: bool,
}

/// The source of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    User,
    HostGc,
}

impl Reservation {
    /// The life of the zone.
    pub(crate) fn life(&self) -> ZoneLife {
        self.life
    }

    /// The placement of the zone.
    pub(super) fn placement(&self) -> Placement {
        self.placement
    }

    /// Handles a failed write: the zone accepts no more until its reset.
    pub(crate) fn fail(mut self, error: &WriteError) {
        self.release_failed(error.is_no_space());
    }

    fn release_failed(&mut self, is_no_space: bool) {
        self.has_failed = true;
        let (log, zone) = (&self.log, self.life.zone);
        log.base.zones.reserved_write_failed(zone, is_no_space);
        let states = log.base.index.states();
        if states.life(zone) != self.life {
            // The zone was never opened: its header's write may have left anything there.
            states.mark_unknown(zone);
        }
        log.base.zones.notify_changed();
        log.close_ready_zones();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.is_opening && !self.has_failed {
            // The task that opens the zone panicked or was cancelled.
            self.release_failed(false);
        } else if !self.has_failed {
            self.log.base.zones.lock().done(self.life.zone);
            self.log.close_ready_zones();
        }
    }
}

/// How long host GC waits for an open zone to be closed.
const GC_PATIENCE: Duration = Duration::from_millis(50);
/// How many times it waits.
const GC_WAITS: usize = 8;

/// Futile reclaims, with nothing else running, before a user's value is
/// dropped. One of them may have begun too early to see the space that this
/// value needs.
const FUTILE_MAX: u64 = 2;

impl Log {
    /// Reserves `bytes` and `records`; users wait for a free zone. `None` if no
    /// zone can become free, or the engine stops.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        purpose: Purpose,
        bytes: u64,
        records: u32,
    ) -> Option<Reservation> {
        let mut has_waited = false;
        let mut gc_waits = 0;
        let futile = self.base.zones.futile_reclaims();
        loop {
            let changed = self.base.zones.changed();
            tokio::pin!(changed);
            // Registered before the check, so no change is lost.
            changed.as_mut().enable();
            let (placed, is_low, is_dead) = {
                let mut table = self.base.zones.lock();
                let placed = match purpose {
                    Purpose::User => table.place(bytes, records),
                    Purpose::HostGc => table.place_for_gc(bytes, records),
                };
                (placed, self.base.zones.is_low(&table), table.is_dead())
            };
            self.close_ready_zones();
            if is_low {
                self.base.zones.wake_reclaimer();
            }
            match placed {
                Placed::In(zone, generation) => {
                    return Some(self.reserved(zone, generation, false));
                }
                Placed::AfterOpening(zone, generation) => {
                    // A task, since the caller may be dropped.
                    let reservation = self.reserved(zone, generation, true);
                    let opened = tokio::spawn(Arc::clone(self).open_zone(reservation));
                    if let Ok(Some(reservation)) = opened.await {
                        return Some(reservation);
                    }
                }
                Placed::Wait if is_dead || self.base.env.gives_up_writes() => return None,
                Placed::Wait if purpose == Purpose::HostGc => {
                    // The reclaimer must not wait for a zone to be freed; only
                    // for one to be closed.
                    if gc_waits == GC_WAITS {
                        return None;
                    }
                    gc_waits += 1;
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = self.base.env.clock.sleep(GC_PATIENCE) => {}
                    }
                }
                Placed::Wait if self.base.zones.futile_reclaims() - futile >= FUTILE_MAX => {
                    return None;
                }
                Placed::Wait => {
                    if !std::mem::replace(&mut has_waited, true) {
                        add(&self.base.env.counters.foreground_waits, 1);
                    }
                    changed.await;
                }
            }
        }
    }

    /// The placement of all that is written to `zone` in its current life.
    pub(super) fn placement(&self, zone: ZoneId) -> Placement {
        let stream = self.base.zones.lock().stream(zone);
        self.base.env.handles.of(stream)
    }

    fn reserved(
        self: &Arc<Self>,
        zone: ZoneId,
        generation: Generation,
        is_opening: bool,
    ) -> Reservation {
        Reservation {
            log: Arc::clone(self),
            life: ZoneLife::new(zone, generation),
            placement: self.placement(zone),
            is_opening,
            has_failed: false,
        }
    }

    /// Opens the reserved zone.
    async fn open_zone(self: Arc<Self>, mut reservation: Reservation) -> Option<Reservation> {
        match self.write_header(&reservation).await {
            Ok(()) => {
                reservation.is_opening = false;
                Some(reservation)
            }
            Err(error) => {
                tracing::warn!(%error, zone = %reservation.life.zone, "a zone could not be opened");
                add(&self.base.env.counters.write_errors, 1);
                let zone = reservation.life.zone;
                reservation.fail(&error);
                self.leave_unwritable(zone, &error).await;
                None
            }
        }
    }

    async fn write_header(&self, reservation: &Reservation) -> Result<(), WriteError> {
        let (env, life) = (&self.base.env, reservation.life);
        let begun = self
            .base
            .begin_life(life, ZoneLayout::Log, Operation::Append);
        let header = begun.await?.freeze();
        let _ = self.take_listed(life.zone);
        let placement = reservation.placement();
        env.device.append(life.zone, header, placement).await?;
        // Under zone LRU a write counts as a use; the other policies consider only reads.
        let now = match env.plan.eviction {
            Eviction::Zplru => env.clock.now().0,
            _ => 0,
        };
        let states = self.base.index.states();
        states.open(life.zone, life.generation, now);
        self.base.zones.lock().opened(life.zone);
        self.base.zones.notify_changed();
        Ok(())
    }
}
