//! Room in a zone, and zones that are opened for it.

use std::sync::Arc;
use std::time::Duration;

use floe_core::ZoneId;
use floe_core::chunk::{Eviction, Placed};
use floe_core::layout::{Generation, ZoneLayout, ZoneLife};
use floe_device::{Operation, Placement as Handle};

use super::Log;
use crate::chunk::stats::add;
use crate::chunk::write_error::WriteError;

/// Room in a zone, promised to its holder until it is dropped or fails.
#[derive(Debug)]
pub(crate) struct Reservation {
    log: Arc<Log>,
    life: ZoneLife,
    /// The zone's header is not written yet.
    is_opening: bool,
    has_failed: bool,
}

/// Whose bytes the room is for.
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

    /// The device's placement handle for this zone: zones that are open
    /// together get different ones, handle 0 is the metadata's.
    pub(super) fn handle(&self) -> Handle {
        let handles = u32::from(self.log.base.env.plan.geometry.placement_handles);
        if handles < 2 {
            return Handle(0);
        }
        Handle((1 + self.life.generation.0 % (handles - 1)) as u16)
    }

    /// The device failed a write there: the zone takes no more until it was reset.
    pub(crate) fn fail(mut self, error: &WriteError) {
        self.release_failed(error.is_no_space());
    }

    fn release_failed(&mut self, is_no_space: bool) {
        self.has_failed = true;
        let (log, zone) = (&self.log, self.life.zone);
        log.base.zones.reserved_write_failed(zone, is_no_space);
        let states = log.base.index.states();
        if states.life(zone) != self.life {
            // It was never opened: its header's write may have left anything there.
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

/// How long host GC waits at a time for an open zone to be closed.
const GC_PATIENCE: Duration = Duration::from_millis(50);
/// How often it does.
const GC_WAITS: usize = 8;

/// How often reclaim must have achieved nothing, with nothing else under way,
/// before a user's value is given up. One of them may have begun too early to
/// see what this value waits for.
const FUTILE_MAX: u64 = 2;

impl Log {
    /// Room for `bytes` and `records`; users wait for a free zone. `None` when
    /// no zone will ever be free, when reclaim cannot free one, or when the
    /// engine stops.
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
            // Registered before the question, so that an answer in between is not missed.
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
                    // In a task of its own, since the caller may be dropped.
                    let reservation = self.reserved(zone, generation, true);
                    let opened = tokio::spawn(Arc::clone(self).open_zone(reservation));
                    if let Ok(Some(reservation)) = opened.await {
                        return Some(reservation);
                    }
                }
                Placed::Wait if is_dead || self.base.env.gives_up_writes() => return None,
                Placed::Wait if purpose == Purpose::HostGc => {
                    // The reclaimer must not wait for a zone to be freed; only for one to be closed.
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

    fn reserved(
        self: &Arc<Self>,
        zone: ZoneId,
        generation: Generation,
        is_opening: bool,
    ) -> Reservation {
        Reservation {
            log: Arc::clone(self),
            life: ZoneLife::new(zone, generation),
            is_opening,
            has_failed: false,
        }
    }

    /// Makes the reserved zone ready for values.
    async fn open_zone(self: Arc<Self>, mut reservation: Reservation) -> Option<Reservation> {
        match self.write_header(&reservation).await {
            Ok(()) => {
                reservation.is_opening = false;
                Some(reservation)
            }
            Err(error) => {
                tracing::warn!(%error, zone = %reservation.life.zone, "a zone could not be opened");
                add(&self.base.env.counters.write_errors, 1);
                reservation.fail(&error);
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
        let handle = reservation.handle();
        env.device.append(life.zone, header, handle).await?;
        // Under zone LRU being written counts as use; the other policies ask only for reads.
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
