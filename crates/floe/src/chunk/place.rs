//! Finding room in a zone, opening zones, closing them with a summary.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use floe_core::ZoneId;
use floe_core::chunk::{Eviction, Placed, ZoneTable};
use floe_core::layout::{
    Generation, Note, Sequence, SummaryEntry, SummaryShape, ZoneHeader, ZoneLayout, ZoneLife,
    encode_summary_page,
};
use floe_device::{IoBuf, Placement as Handle};

use super::Engine;
use super::stats::add;
use super::write::WriteError;

/// Room in a zone, promised to its holder until it is dropped or fails.
#[derive(Debug)]
pub(crate) struct Placement {
    engine: Arc<Engine>,
    life: ZoneLife,
    ended: bool,
}

impl Placement {
    /// The zone and which of its lives.
    pub(crate) fn life(&self) -> ZoneLife {
        self.life
    }

    /// The device's placement handle for this zone: zones that are open
    /// together get different ones, handle 0 is the metadata's.
    pub(crate) fn handle(&self) -> Handle {
        let handles = u32::from(self.engine.plan.geometry.placement_handles);
        if handles < 2 {
            return Handle(0);
        }
        Handle((1 + self.life.generation.0 % (handles - 1)) as u16)
    }

    /// The device failed a write there: the zone takes no more until it was reset.
    pub(crate) fn fail(mut self, error: &WriteError) {
        self.ended = true;
        let zone = self.life.zone;
        let (withdrawn, failed) = {
            let mut zones = self.engine.zones.lock();
            zones.done(zone);
            match error.is_no_space() {
                true => (zones.out_of_space(Some(zone)), false),
                false => (0, zones.failed(zone)),
            }
        };
        self.engine.note_withdrawn(withdrawn);
        add(&self.engine.counters.zones_retired, u64::from(failed));
        self.engine.reclaim_wake.notify_one();
        if self.engine.states.life(self.life.zone) != self.life {
            // It was never opened: what its header's write left there is unknown.
            self.engine.states.mark_unknown(self.life.zone);
        }
        self.engine.space.notify_waiters();
        self.engine.close_ready_zones();
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        if !self.ended {
            self.engine.zones.lock().done(self.life.zone);
            self.engine.close_ready_zones();
        }
    }
}

/// How long host GC waits at a time for an open zone to be closed.
const GC_PATIENCE: Duration = Duration::from_millis(50);

/// How often reclaim must have achieved nothing, with nothing else under way,
/// before a user's value is given up. One of them may have begun too early to
/// see what this value waits for.
const FUTILE_MAX: u64 = 2;

/// Whose bytes are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    User,
    HostGc,
}

impl Engine {
    /// Room for `bytes` and `records` of a user's values; waits for a free
    /// zone. `None` when no zone will ever be free, when reclaim cannot free
    /// one, or when the engine stops.
    pub(super) async fn place(self: &Arc<Self>, bytes: u64, records: u32) -> Option<Placement> {
        self.place_for(Purpose::User, bytes, records).await
    }

    pub(super) async fn place_for(
        self: &Arc<Self>,
        purpose: Purpose,
        bytes: u64,
        records: u32,
    ) -> Option<Placement> {
        let mut waited = false;
        let mut patience = 8;
        let futile = self.futile_reclaims.load(SeqCst);
        loop {
            let changed = self.space.notified();
            tokio::pin!(changed);
            // Registered before the question, so that an answer in between is not missed.
            changed.as_mut().enable();
            let (placed, low, dead) = {
                let mut zones = self.zones.lock();
                let placed = match purpose {
                    Purpose::User => zones.place(bytes, records),
                    Purpose::HostGc => zones.place_for_gc(bytes, records),
                };
                (placed, self.is_low(&zones), zones.is_dead())
            };
            self.close_ready_zones();
            if low {
                self.reclaim_wake.notify_one();
            }
            match placed {
                Placed::In(zone, generation) => return Some(self.placement(zone, generation)),
                Placed::AfterOpening(zone, generation) => {
                    // In a task of its own, since whoever asks may go away.
                    let placement = self.placement(zone, generation);
                    let opened = tokio::spawn(Arc::clone(self).open_zone(placement));
                    if let Ok(Some(placement)) = opened.await {
                        return Some(placement);
                    }
                }
                Placed::Wait if dead || self.is_stopped() => return None,
                Placed::Wait if purpose == Purpose::HostGc => {
                    // Whoever frees zones must not wait for one to be freed; only for one to be closed.
                    if patience == 0 {
                        return None;
                    }
                    patience -= 1;
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = self.clock.sleep(GC_PATIENCE) => {}
                    }
                }
                Placed::Wait if self.futile_reclaims.load(SeqCst) - futile >= FUTILE_MAX => {
                    return None;
                }
                Placed::Wait => {
                    if !std::mem::replace(&mut waited, true) {
                        add(&self.counters.foreground_waits, 1);
                    }
                    changed.await;
                }
            }
        }
    }

    fn placement(self: &Arc<Self>, zone: ZoneId, generation: Generation) -> Placement {
        Placement {
            engine: Arc::clone(self),
            life: ZoneLife::new(zone, generation),
            ended: false,
        }
    }

    /// Makes the zone of `placement` ready for values.
    async fn open_zone(self: Arc<Self>, placement: Placement) -> Option<Placement> {
        match self.write_zone_header(&placement).await {
            Ok(()) => Some(placement),
            Err(error) => {
                tracing::warn!(%error, zone = %placement.life().zone, "a zone could not be opened");
                add(&self.counters.write_errors, 1);
                placement.fail(&error);
                None
            }
        }
    }

    async fn write_zone_header(&self, placement: &Placement) -> Result<(), WriteError> {
        let life = placement.life();
        // The number of a life is never used twice, whatever is lost: see `Journal::reserve_generation`.
        self.journal
            .reserve_generation(life.generation)
            .await
            .map_err(|_| {
                floe_device::DeviceError::new(
                    floe_device::Operation::Append,
                    life.zone,
                    floe_device::DeviceErrorKind::Gone,
                )
            })?;
        if self.states.take_unknown(life.zone) {
            self.device.reset(life.zone).await?;
        }
        let block = self.plan.geometry.block_size;
        let header = ZoneHeader {
            life,
            layout: ZoneLayout::Log,
            opened_sequence: Sequence(self.sequence.load(std::sync::atomic::Ordering::Relaxed)),
        };
        let mut buf = IoBuf::zeroed(ZoneHeader::encoded_bytes(block));
        header.encode(self.id, block, &mut buf)?;
        let _ = self.take_listed(life.zone);
        self.device
            .append(life.zone, buf.freeze(), placement.handle())
            .await?;
        // Under zone LRU being written counts as use; the other policies ask only for reads.
        let now = if self.plan.eviction == Eviction::Zplru {
            self.clock.now().0
        } else {
            0
        };
        self.states.open(life.zone, life.generation, now);
        self.zones.lock().opened(life.zone);
        self.space.notify_waiters();
        Ok(())
    }

    /// Starts to close every zone that is ready for it.
    pub(super) fn close_ready_zones(self: &Arc<Self>) {
        let ready = self.zones.lock().take_closable();
        for zone in ready {
            let engine = Arc::clone(self);
            tokio::spawn(async move { engine.close_zone(zone).await });
        }
    }

    /// Closes every open zone and waits for it.
    pub(super) async fn close_open_zones(self: &Arc<Self>) {
        self.zones.lock().close_all();
        loop {
            let changed = self.space.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            self.close_ready_zones();
            if !self.zones.lock().any_closing() {
                return;
            }
            changed.await;
        }
    }

    /// Writes a zone's summary, gives up its remaining capacity and journals
    /// that it is full. Without a summary recovery scans the zone: slower, not wrong.
    async fn close_zone(self: Arc<Self>, zone: ZoneId) {
        let life = self.states.life(zone);
        let entries = self.take_listed(zone);
        let summary = self.write_summary(life, &entries).await;
        let finished = self.device.finish(zone).await;
        if let Err(error) = &finished {
            tracing::warn!(%error, "a zone could not be finished");
        }
        match summary {
            Ok(summary_offset) => {
                let note = Note::ZoneFull {
                    life,
                    summary_offset,
                    records: entries.len() as u32,
                };
                self.journal.commit_later(vec![note]).await;
            }
            Err(error) => {
                tracing::warn!(%error, "a zone has no summary; the next start scans it");
                add(&self.counters.write_errors, 1);
            }
        }
        {
            let mut zones = self.zones.lock();
            zones.closed(zone);
            if self.is_low(&zones) {
                self.reclaim_wake.notify_one();
            }
        }
        self.space.notify_waiters();
    }

    async fn write_summary(
        &self,
        life: ZoneLife,
        entries: &[SummaryEntry],
    ) -> Result<u64, WriteError> {
        let shape = SummaryShape::new(entries.len(), self.plan.geometry.block_size);
        let mut start = None;
        for page in 0..shape.pages() {
            let mut buf = self.device.allocate(shape.page_bytes(page));
            encode_summary_page(self.id, life, shape, page, entries, &mut buf)?;
            // One at a time: pages must lie one behind the other.
            let at = self
                .device
                .append(life.zone, buf.freeze(), Handle(0))
                .await?;
            start.get_or_insert(at.offset);
        }
        Ok(start.unwrap_or(0))
    }

    /// Counts and tells that `zones` were withdrawn for want of space.
    pub(super) fn note_withdrawn(&self, zones: usize) {
        if zones > 0 {
            add(&self.counters.zones_retired, zones as u64);
            tracing::warn!(
                zones,
                "no space below the device: zones are withdrawn for a while"
            );
        }
    }

    /// Whether so few zones are free that others are to be evicted.
    pub(super) fn is_low(&self, zones: &ZoneTable) -> bool {
        zones.free_zones() <= zones.water(self.plan.water).high
    }

    /// Takes a zone out of use until the cache is opened again.
    pub(super) fn retire(self: &Arc<Self>, zone: ZoneId) {
        self.zones.lock().retire(zone);
        add(&self.counters.zones_retired, 1);
        self.space.notify_waiters();
        self.close_ready_zones();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopping.load(std::sync::atomic::Ordering::SeqCst) && self.room.is_closed()
    }
}
