//! Values in a log: batches appended to zones, which are evicted as a whole.
//!
//! | file | content |
//! |---|---|
//! | `reserve.rs` | reserves space in a zone, opens zones |
//! | `append.rs` | batches of small values |
//! | `stream.rs` | large values, piece by piece |
//! | `close.rs` | closes zones with a summary |
//! | `evict.rs` | evicts zones |
//! | `relocation.rs` | zones with second copies while host GC moves values |
//!
//! A panic in a task of the log poisons no lock. A zone that was being opened is
//! reset and used again, one that was being closed is retired, and other writes
//! into a zone count as done. `small_writer.rs` says what becomes of a batch.

mod append;
mod close;
mod evict;
mod relocation;
mod reserve;
mod stream;

use std::sync::Arc;

use floe_core::ZoneId;
use floe_core::chunk::Found;
use floe_core::hash::KeyHash;
use floe_core::layout::{Generation, Note, Sequence, SummaryEntry, ZoneLife};
use floe_device::ZoneState;
use parking_lot::Mutex;

use super::base::Base;
use super::shard::{Shard, has_expired};
use super::tombstones::Unsent;
use super::write_error::WriteError;
use crate::error::CacheError;
use relocation::RelocatingZones;

pub(crate) use relocation::Relocation;
pub(crate) use reserve::{Purpose, Reservation};
pub(crate) use stream::{LogStream, Moving};

/// The log of a cache.
#[derive(Debug)]
pub(crate) struct Log {
    base: Base,
    /// Records of open zones, for their summaries.
    unclosed: Box<[Mutex<Vec<SummaryEntry>>]>,
    relocating: Arc<RelocatingZones>,
}

impl Log {
    pub(crate) fn new(base: &Base) -> Arc<Self> {
        let zone_count = base.env.plan.geometry.zone_count;
        Arc::new(Log {
            base: base.clone(),
            unclosed: (0..zone_count).map(|_| Mutex::default()).collect(),
            relocating: Arc::default(),
        })
    }

    /// Invalidates the value of `hash`, because a write or delete of sequence
    /// `at` replaces it. Returns whether there was one, and the tombstones that
    /// must be durable before the replacement is acknowledged.
    pub(crate) fn invalidate(
        &self,
        shard: &mut Shard,
        hash: KeyHash,
        at: Sequence,
    ) -> (bool, Vec<Note>) {
        let states = self.base.index.states();
        let mut notes = Vec::new();
        let mut add_tombstone = |life: ZoneLife| {
            // The zone was reset meanwhile and has no life: nothing is left to bury.
            if life.generation < Generation::FIRST {
                return;
            }
            states.add_tombstone(life.zone);
            notes.push(Note::Tombstone {
                life,
                hash,
                sequence: at,
            });
        };
        let mut was_served = shard.ram_remove(hash);
        if let Some(slot) = shard.remove_pending(hash) {
            was_served = true;
            slot.life.into_iter().for_each(&mut add_tombstone);
        }
        if let Some(found) = shard.index.remove(hash) {
            let entry = found.entry();
            if let Found::Live(entry) = found {
                was_served |= !has_expired(entry.expiry_unix_s, &self.base.env.clock);
                states.remove_live(&entry);
            }
            let zone = entry.place.zone;
            add_tombstone(states.life(zone));
            let relocating = &self.relocating;
            relocating.for_each_other(zone, |copies| add_tombstone(states.life(copies)));
        }
        // Under the shard's lock: the next write or delete of the key must find them.
        self.base.journal.enqueue(&notes);
        (was_served, self.base.journal.pending(hash))
    }

    /// Holds tombstones until they are settled, if there are some.
    pub(crate) fn hold(&self, notes: Vec<Note>) -> Option<Unsent> {
        (!notes.is_empty()).then(|| self.base.journal.hold(notes))
    }

    /// Makes the tombstones as durable as configured. If `relaxed`, waits only
    /// for a place in the journal's queue.
    pub(crate) async fn settle(&self, notes: Vec<Note>, relaxed: bool) -> Result<(), CacheError> {
        if relaxed {
            self.base.journal.commit_later(notes).await;
            return Ok(());
        }
        self.base.journal.commit(notes).await
    }

    /// Retires unwritable zones if `error` of a write to `zone` shows one. Returns whether
    /// it does.
    async fn leave_unwritable(self: &Arc<Self>, zone: ZoneId, error: &WriteError) -> bool {
        let state = error.unwritable();
        if let Some(state) = state {
            self.retire_unwritable(zone, state).await;
        }
        state.is_some()
    }

    /// Retires all unwritable zones, of which `zone` is one.
    pub(crate) async fn retire_unwritable(self: &Arc<Self>, zone: ZoneId, state: ZoneState) {
        self.base.retire_unwritable(zone, state, true).await;
        self.close_ready_zones();
    }

    /// Adds records for `zone`'s summary.
    fn list_records(&self, zone: ZoneId, records: &[SummaryEntry]) {
        self.unclosed[zone.index()]
            .lock()
            .extend_from_slice(records);
    }

    /// Takes the records for `zone`'s summary.
    fn take_listed(&self, zone: ZoneId) -> Vec<SummaryEntry> {
        std::mem::take(&mut *self.unclosed[zone.index()].lock())
    }
}
