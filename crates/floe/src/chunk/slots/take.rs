//! Takes slots, and divides zones into slots.

use std::sync::Arc;

use floe_core::ZoneId;
use floe_core::chunk::{ZonePhase, ZoneTable};
use floe_core::layout::{Generation, ZoneLayout, ZoneLife};
use floe_core::slots::SlotRun;
use floe_device::{Address, Operation, Placement};

use super::SlotStore;
use crate::abort::OnAbort;
use crate::chunk::stats::add;
use crate::chunk::write_error::WriteError;

impl SlotStore {
    /// Takes up to `most` adjacent slots; waits until one is free. `None` if
    /// none can become free, or the engine stops.
    pub(super) async fn take(self: &Arc<Self>, most: usize) -> Option<SlotRun> {
        let mut has_waited = false;
        loop {
            let changed = self.base.zones.changed();
            tokio::pin!(changed);
            // Registered before the check, so no change is lost.
            changed.as_mut().enable();
            if let Some(run) = self.try_take(most) {
                return Some(run);
            }
            if self.base.env.gives_up_writes() {
                return None;
            }
            if !self.divide_zone() {
                if self.map.lock().usable() == 0 {
                    return None;
                }
                self.base.zones.wake_reclaimer();
                if !std::mem::replace(&mut has_waited, true) {
                    add(&self.base.env.counters.foreground_waits, 1);
                }
            }
            changed.await;
        }
    }

    pub(super) fn try_take(&self, most: usize) -> Option<SlotRun> {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let run = self.map.lock().take_run(most);
        if run.is_some() && self.free_slots() <= self.high_water {
            self.base.zones.wake_reclaimer();
        }
        run
    }

    /// Free slots, including those of undivided zones.
    pub(super) fn free_slots(&self) -> u64 {
        let undivided = self.undivided_slots(&self.base.zones.lock());
        self.map.lock().free() + undivided
    }

    /// Slots that are not withdrawn, free or taken.
    pub(super) fn usable_slots(&self) -> u64 {
        let undivided = self.undivided_slots(&self.base.zones.lock());
        self.map.lock().usable() + undivided
    }

    pub(super) fn undivided_slots(&self, table: &ZoneTable) -> u64 {
        let opening = table.in_phase(ZonePhase::Opening).count() as u64;
        (u64::from(table.free_zones()) + opening) * u64::from(self.geometry.slots)
    }

    /// Divides one more zone, in a task, since the caller may be dropped. False
    /// if no zone is left and none is being divided.
    fn divide_zone(self: &Arc<Self>) -> bool {
        let (zone, generation) = {
            let mut table = self.base.zones.lock();
            if table.in_phase(ZonePhase::Opening).next().is_some() {
                return true;
            }
            match table.open_for_slots() {
                Some(found) => found,
                None => return false,
            }
        };
        let store = Arc::clone(self);
        tokio::spawn(async move {
            let abandoned = OnAbort::new(|| store.dividing_failed(zone));
            let divided = store.divide(zone, generation).await;
            abandoned.done();
            match divided {
                Ok(()) => {
                    store.map.lock().open(zone);
                    store.base.zones.lock().opened(zone);
                    store.base.zones.notify_changed();
                }
                Err(error) => {
                    tracing::warn!(%error, %zone, "a zone could not be divided into slots and is not used");
                    add(&store.base.env.counters.write_errors, 1);
                    store.dividing_failed(zone);
                    if let Some(state) = error.unwritable() {
                        store.retire_unwritable(zone, state).await;
                    }
                }
            }
        });
        true
    }

    fn dividing_failed(&self, zone: ZoneId) {
        // Its header's write may have left anything there.
        self.base.index.states().mark_unknown(zone);
        self.base.zones.failed(zone);
        self.base.zones.notify_changed();
    }

    /// Starts a life of `zone`: writes its header, then an empty table.
    async fn divide(&self, zone: ZoneId, generation: Generation) -> Result<(), WriteError> {
        let (env, states) = (&self.base.env, self.base.index.states());
        let life = ZoneLife::new(zone, generation);
        let begun = self
            .base
            .begin_life(life, ZoneLayout::Slots, Operation::Write);
        let header = begun.await?.freeze();
        let at = Address::new(zone, 0);
        env.device.write(at, header, Placement::METADATA).await?;
        // Like every zone's header, it must be durable before anything else is written there.
        self.tables.stabilise().await?;
        self.tables.blocks().write_empty_table(life).await?;
        states.open(zone, generation, env.clock.now().0);
        Ok(())
    }
}
