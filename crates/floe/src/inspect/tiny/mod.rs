//! Inspects caches of tiny objects.

mod pages;
mod set_groups;

use floe_core::ZoneId;
use floe_core::layout::tiny::{TinyEngine, TinyNote, TinySuperblock};

use super::finding::Finding;
use super::format::{Format, LogExtent, Shape};
use super::inspection::Inspection;

/// Notes of a log.
#[derive(Default)]
pub(super) struct Notes {
    fences: u64,
    unfenced: bool,
}

impl Format for TinySuperblock {
    const NAME: &'static str = "tiny superblock";

    type Contents = Notes;

    fn shape(&self) -> Shape {
        Shape {
            block_size: self.plan.block_size,
            zone_count: self.plan.zone_count,
            zone_size: self.plan.zone_size,
            zone_capacity: self.plan.zone_capacity,
        }
    }

    fn take(notes: &mut Notes, note: TinyNote) {
        notes.fences += u64::from(matches!(note, TinyNote::Fence(_)));
        notes.unfenced |= note == TinyNote::Unfenced;
    }

    fn describe(&self, zone: ZoneId, current: bool) -> Finding {
        let plan = &self.plan;
        Finding::TinySuperblock {
            zone: zone.0,
            current,
            cache_id: self.cache_id.to_string(),
            created_unix_s: self.formatted_at,
            epoch: self.epoch,
            engine: plan.engine.to_string(),
            block_size: plan.block_size,
            zone_count: plan.zone_count,
            zone_size: plan.zone_size,
            zone_capacity: plan.zone_capacity,
            set_group_pages: plan.set_group_pages,
            sets: plan.sets,
            candidates: plan.candidates,
            instances: plan.instances,
        }
    }

    fn describe_log(&self, zone: ZoneId, log: &LogExtent, notes: &Notes) -> Finding {
        Finding::Fences {
            zone: zone.0,
            epoch: self.epoch,
            blocks: log.blocks,
            fences: notes.fences,
            unfenced: notes.unfenced,
            complete: log.complete,
            end_offset: log.end_offset,
        }
    }

    async fn walk(&self, _: Notes, inspection: &mut Inspection<'_>) {
        match self.plan.engine {
            TinyEngine::Nemo => set_groups::walk(self, inspection).await,
            // Only the memory of the others knew the places of objects.
            _ => pages::walk(self, inspection).await,
        }
    }
}
