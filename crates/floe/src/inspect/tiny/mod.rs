//! Inspects caches of tiny objects.

mod pages;
mod set_groups;

use floe_core::ZoneId;
use floe_core::layout::tiny::{TinyEngine, TinyNote, TinySuperblock};

use super::finding::Finding;
use super::format::{Format, LogExtent, Shape};
use super::inspection::Inspection;

impl Format for TinySuperblock {
    const NAME: &'static str = "tiny superblock";

    /// The number of fences.
    type Contents = u64;

    fn shape(&self) -> Shape {
        Shape {
            block_size: self.plan.block_size,
            zone_count: self.plan.zone_count,
            zone_size: self.plan.zone_size,
            zone_capacity: self.plan.zone_capacity,
        }
    }

    fn take(fences: &mut u64, note: TinyNote) {
        *fences += u64::from(matches!(note, TinyNote::Fence(_)));
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

    fn describe_log(&self, zone: ZoneId, log: &LogExtent, fences: &u64) -> Finding {
        Finding::Fences {
            zone: zone.0,
            epoch: self.epoch,
            blocks: log.blocks,
            fences: *fences,
            complete: log.complete,
            end_offset: log.end_offset,
        }
    }

    async fn walk(&self, _: u64, inspection: &mut Inspection<'_>) {
        match self.plan.engine {
            TinyEngine::Nemo => set_groups::walk(self, inspection).await,
            // Only the memory of the others knew the places of objects.
            _ => pages::walk(self, inspection).await,
        }
    }
}
