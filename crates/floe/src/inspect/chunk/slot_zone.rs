//! Inspects a zone of slots.

use floe_core::layout::{
    LayoutError, SlotEntry, SlotGeometry, SummaryEntry, ValueKind, ZoneHeader, ZoneLife,
    decode_slot_block,
};

use super::super::finding::{Finding, RecordState, ZoneState};
use super::super::inspection::read_failure;
use super::walk::Walk;

/// The counts of a zone.
#[derive(Default)]
struct Found {
    records: u64,
    dead_records: u64,
    value_bytes: u64,
}

impl Walk<'_, '_> {
    pub(super) async fn slot_zone(&mut self, header: ZoneHeader) {
        let life = header.life;
        let plan = self.superblock.plan;
        let Some(slots) = SlotGeometry::new(plan.zone_capacity, plan.block_size, plan.chunk_bytes)
        else {
            let why = "the superblock's chunk size leaves no room for a slot";
            return self.inspection.damage(life.zone, 0, "zone header", why);
        };
        let mut found = Found::default();
        for table_block in 0..slots.table_blocks {
            let offset = slots.table_block_offset(table_block);
            let bytes = match self.read(life.zone, offset, self.block()).await {
                Ok(bytes) => bytes,
                Err(error) => {
                    let why = read_failure(&error);
                    self.inspection.damage(life.zone, offset, "slot table", why);
                    continue;
                }
            };
            match decode_slot_block(self.id(), life, &slots, table_block, &bytes) {
                Ok(entries) => {
                    for (slot, entry) in entries {
                        if let Some(entry) = entry {
                            self.slot(life, &slots, slot, &entry, &mut found).await;
                        }
                    }
                }
                // Not yet written in this life of the zone.
                Err(LayoutError::Blank | LayoutError::Stale { .. }) => {}
                Err(error) => self
                    .inspection
                    .damage(life.zone, offset, "slot table", error),
            }
        }
        self.inspection.emit(Finding::Zone {
            zone: life.zone.0,
            generation: life.generation.0,
            layout: header.layout.to_string(),
            state: ZoneState::Open,
            batches: found.records,
            records: found.records,
            dead_records: found.dead_records,
            value_bytes: found.value_bytes,
            end_offset: self.capacity(),
        });
    }

    async fn slot(
        &mut self,
        life: ZoneLife,
        slots: &SlotGeometry,
        slot: u32,
        entry: &SlotEntry,
        found: &mut Found,
    ) {
        let (offset, key, intact) = match entry.kind {
            // Only the index has the key; flash has the value.
            ValueKind::Small => (slots.payload_offset(slot), Vec::new(), None),
            ValueKind::Large => {
                let offset = slots.slot_offset(slot);
                let read = self.descriptor(life, offset, slots.descriptor_bytes).await;
                let Some((descriptor, checksum)) = read else {
                    return;
                };
                let agrees = checksum == entry.checksum
                    && descriptor.hash == entry.hash
                    && descriptor.sequence == entry.sequence;
                if !agrees {
                    let why = "the slot table and the descriptor disagree";
                    self.inspection.damage(life.zone, offset, "slot", why);
                    return;
                }
                let intact = self.verify_large(life, &descriptor).await;
                (offset, descriptor.key, intact)
            }
        };
        let state = self.state(false, life, entry.hash.0, entry.sequence.0);
        let listed = SummaryEntry {
            hash: entry.hash,
            sequence: entry.sequence,
            block: u32::try_from(offset / self.block()).unwrap_or(u32::MAX),
            value_bytes: entry.value_bytes,
            checksum: entry.checksum,
            expiry_unix_s: entry.expiry_unix_s,
            kind: entry.kind,
            key_bytes: entry.key_bytes,
        };
        self.record(life, &listed, offset, &key, state, intact);
        found.records += 1;
        found.dead_records += u64::from(state != RecordState::Present);
        found.value_bytes += u64::from(entry.value_bytes);
    }
}
