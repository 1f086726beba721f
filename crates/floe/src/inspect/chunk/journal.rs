//! The content of the journal.

use std::collections::HashMap;

use floe_core::ZoneId;
use floe_core::layout::{Generation, Note, ZoneLife};

/// The note of a full zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullNote {
    pub(super) summary_offset: u64,
    pub(super) records: u32,
}

/// The notes of the current journal.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(super) full: HashMap<ZoneLife, FullNote>,
    /// The end of the valid batches of a closed life.
    pub(super) closed: HashMap<ZoneLife, u64>,
    /// The last life of a zone that was dropped.
    pub(super) dropped: HashMap<ZoneId, Generation>,
    /// The highest dead sequence, by life of the zone and key hash.
    pub(super) tombstones: HashMap<(ZoneLife, u64), u64>,
    pub(super) full_notes: u64,
    pub(super) tombstone_notes: u64,
}

impl Journal {
    pub(super) fn take(&mut self, note: Note) {
        match note {
            Note::ZoneFull {
                life,
                summary_offset,
                records,
            } => {
                self.full_notes += 1;
                let note = FullNote {
                    summary_offset,
                    records,
                };
                self.full.insert(life, note);
            }
            Note::Tombstone {
                life,
                hash,
                sequence,
            } => {
                self.tombstone_notes += 1;
                let dead = self.tombstones.entry((life, hash.0)).or_default();
                *dead = (*dead).max(sequence.0);
            }
            Note::ZoneClosed { life, end_offset } => {
                let end = self.closed.entry(life).or_insert(end_offset);
                *end = end_offset.min(*end);
            }
            Note::ZoneDropped { life } => {
                let dropped = self.dropped.entry(life.zone).or_insert(life.generation);
                *dropped = life.generation.max(*dropped);
            }
            Note::GenerationFloor { .. }
            | Note::SlotUse { .. }
            | Note::UseNoted { .. }
            | Note::Mark(_)
            | Note::CheckpointEnd { .. } => {}
        }
    }
}
