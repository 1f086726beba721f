//! How the zones are used: a log of batches, or slots written in place.
//!
//! Everything above (shards, write buffer, RAM tier, lookups, streaming) is the
//! same for both; what differs is where bytes go and how deaths become durable.

use std::collections::BTreeMap;

use floe_core::ZoneId;
use floe_core::layout::{Note, SummaryEntry};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::slots::{Settled, SlotSpace};
use super::{Engine, ROOM_UNIT_BYTES};
use crate::error::CacheError;

/// Where values are placed, with what only that placement needs.
#[derive(Debug)]
pub(crate) enum Space {
    /// Batches appended to zones, which are evicted or collected as a whole.
    Log(LogSpace),
    /// Chunks in slots.
    Slots(Box<SlotSpace>),
}

/// What placement in a log keeps.
#[derive(Debug)]
pub(crate) struct LogSpace {
    /// Records of zones that are not closed yet, for their summaries.
    pub(super) unclosed: Box<[Mutex<Vec<SummaryEntry>>]>,
    /// Zones whose live records host GC is copying, or copying to, and how
    /// many collections do: a death of one of their keys must be noted there too.
    pub(super) relocating: Mutex<BTreeMap<ZoneId, u32>>,
    /// Room in the write buffer for values that host GC moves.
    pub(super) gc_room: std::sync::Arc<Semaphore>,
}

impl LogSpace {
    pub(super) fn new(zone_count: u32, batch_bytes: u64) -> Self {
        let gc_room = 16 * batch_bytes.max(1 << 20) / ROOM_UNIT_BYTES;
        LogSpace {
            unclosed: (0..zone_count).map(|_| Mutex::new(Vec::new())).collect(),
            relocating: Mutex::new(BTreeMap::new()),
            gc_room: std::sync::Arc::new(Semaphore::new(gc_room as usize)),
        }
    }
}

/// What must be durable before a delete or an overwrite is acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    /// For the journal.
    pub(super) notes: Vec<Note>,
    /// Changes of slot tables were queued.
    pub(super) in_tables: bool,
}

impl Engine {
    pub(super) fn slots(&self) -> Option<&SlotSpace> {
        match &self.placement {
            Space::Slots(slots) => Some(slots),
            Space::Log(_) => None,
        }
    }

    /// When this returns `Ok`, the deaths are as durable as configured.
    pub(super) async fn settle(&self, deaths: Deaths) -> Result<(), CacheError> {
        self.journal.commit(deaths.notes).await?;
        match self.slots() {
            Some(slots) if deaths.in_tables => slots.tables.settle(Settled::Durable).await,
            _ => Ok(()),
        }
    }

    /// The deaths become durable some time soon; waits only if too much is queued.
    async fn settle_later(&self, deaths: Deaths) {
        self.journal.commit_later(deaths.notes).await;
        if let (Some(slots), true) = (self.slots(), deaths.in_tables) {
            slots.tables.settle_later().await;
        }
    }

    /// One or the other, as whoever writes has it.
    pub(super) async fn settle_as(&self, deaths: Deaths, relaxed: bool) -> Result<(), CacheError> {
        if relaxed {
            self.settle_later(deaths).await;
            return Ok(());
        }
        self.settle(deaths).await
    }

    /// Adds to the records that `zone`'s summary will list.
    pub(super) fn list_records(&self, zone: ZoneId, records: &[SummaryEntry]) {
        if let Space::Log(log) = &self.placement {
            log.unclosed[zone.index()].lock().extend_from_slice(records);
        }
    }

    /// The records that `zone`'s summary lists, which are forgotten here.
    pub(super) fn take_listed(&self, zone: ZoneId) -> Vec<SummaryEntry> {
        match &self.placement {
            Space::Log(log) => std::mem::take(&mut *log.unclosed[zone.index()].lock()),
            Space::Slots(_) => Vec::new(),
        }
    }

    /// Deaths are noted in `zone`, too, until the same collection ends it.
    pub(super) fn start_relocating(&self, zone: ZoneId) {
        if let Space::Log(log) = &self.placement {
            *log.relocating.lock().entry(zone).or_default() += 1;
        }
    }

    /// The counterpart for all zones of a collection.
    pub(super) fn end_relocating(&self, zones: &[ZoneId]) {
        let Space::Log(log) = &self.placement else {
            return;
        };
        let mut relocating = log.relocating.lock();
        for zone in zones {
            if let Some(collections) = relocating.get_mut(zone) {
                *collections -= 1;
                if *collections == 0 {
                    relocating.remove(zone);
                }
            }
        }
    }
}
