//! Inspects caches of chunks.

mod journal;
mod log_zone;
mod slot_zone;
mod walk;

use floe_core::ZoneId;
use floe_core::layout::{
    BatchHeader, Generation, LayoutError, Note, SlotGeometry, Superblock, ZoneHeader, ZoneLayout,
    ZoneLife, decode_slot_block,
};

use super::finding::Finding;
use super::format::{Format, LogExtent, Shape};
use super::inspection::{Inspection, read_failure};
use crate::metadata_log::METADATA;
use journal::Journal;
use walk::Walk;

impl Format for Superblock {
    const NAME: &'static str = "superblock";

    type Contents = Journal;

    fn shape(&self) -> Shape {
        Shape {
            block_size: self.plan.block_size,
            zone_count: self.plan.zone_count,
            zone_size: self.plan.zone_size,
            zone_capacity: self.plan.zone_capacity,
        }
    }

    fn take(journal: &mut Journal, note: Note) {
        journal.take(note);
    }

    fn describe(&self, zone: ZoneId, current: bool) -> Finding {
        let plan = &self.plan;
        Finding::Superblock {
            zone: zone.0,
            current,
            cache_id: self.id.to_string(),
            created_unix_s: self.created_unix_s,
            epoch: self.epoch,
            block_size: plan.block_size,
            zone_count: plan.zone_count,
            zone_size: plan.zone_size,
            zone_capacity: plan.zone_capacity,
            chunk_bytes: plan.chunk_bytes,
            piece_bytes: plan.piece_bytes,
            layout: plan.layout.to_string(),
        }
    }

    fn describe_log(&self, zone: ZoneId, log: &LogExtent, journal: &Journal) -> Finding {
        Finding::Journal {
            zone: zone.0,
            epoch: self.epoch,
            blocks: log.blocks,
            notes: log.records,
            full_zones: journal.full_notes,
            tombstones: journal.tombstone_notes,
            complete: log.complete,
            end_offset: log.end_offset,
        }
    }

    async fn walk(&self, journal: Journal, inspection: &mut Inspection<'_>) {
        let (device, scope) = (inspection.device, inspection.scope);
        let mut walk = Walk {
            superblock: self,
            journal,
            inspection,
        };
        for zone in device.geometry().zones().skip(METADATA.len()) {
            if scope.includes(zone) {
                walk.zone(zone).await;
            }
        }
    }
}

impl Walk<'_, '_> {
    async fn zone(&mut self, zone: ZoneId) {
        let head = match self.read(zone, 0, self.block()).await {
            Ok(head) => head,
            Err(error) => {
                self.inspection
                    .damage(zone, 0, "zone header", read_failure(&error));
                return;
            }
        };
        let header = match ZoneHeader::decode(self.id(), zone, &head) {
            Ok(header) => header,
            Err(LayoutError::Blank) => {
                self.inspection.emit(Finding::EmptyZone { zone: zone.0 });
                return;
            }
            Err(error) => {
                if self.is_in_use(zone).await {
                    self.inspection.damage(zone, 0, "zone header", error);
                } else {
                    self.inspection.emit(Finding::Leftover {
                        zone: zone.0,
                        what: error.to_string(),
                    });
                }
                return;
            }
        };
        match header.layout {
            ZoneLayout::Log => self.log_zone(header).await,
            ZoneLayout::Slots => self.slot_zone(header).await,
        }
    }

    /// True if this cache wrote a zone without a valid header, according to the
    /// journal or to the bytes after the header. Otherwise its bytes are from
    /// before the cache was formatted, or were dropped.
    async fn is_in_use(&mut self, zone: ZoneId) -> bool {
        if self.journal.dropped.contains_key(&zone) {
            return false;
        }
        let noted = self.journal.full.keys().chain(self.journal.closed.keys());
        if noted.into_iter().any(|life| life.zone == zone) {
            return true;
        }
        let Ok(next) = self.read(zone, self.block(), self.block()).await else {
            return false;
        };
        // Batches and slot tables have zone and generation at the same offset.
        let Some((first, second)) = next
            .get(24..32)
            .and_then(|life| life.split_first_chunk::<4>())
            .and_then(|(first, rest)| Some((first, rest.first_chunk::<4>()?)))
        else {
            return false;
        };
        let life = ZoneLife::new(
            ZoneId(u32::from_le_bytes(*first)),
            Generation(u32::from_le_bytes(*second)),
        );
        let plan = &self.superblock.plan;
        let is_batch = BatchHeader::decode(self.id(), life, plan.block_size, &next).is_ok();
        let is_table = || {
            SlotGeometry::new(plan.zone_capacity, plan.block_size, plan.chunk_bytes)
                .is_some_and(|slots| decode_slot_block(self.id(), life, &slots, 0, &next).is_ok())
        };
        life.zone == zone && (is_batch || is_table())
    }
}
