//! The state of an inspection of chunks, and records in zones of either layout.

use std::future::Future;

use floe_core::ZoneId;
use floe_core::layout::{CacheId, LargeDescriptor, SummaryEntry, Superblock, ValueKind, ZoneLife};
use floe_device::{DeviceError, IoBuf};

use super::super::finding::{Finding, RecordState, key_text};
use super::super::inspection::{Inspection, read_failure};
use super::journal::Journal;

/// Bytes of one read of unknown content.
pub(super) const SCAN_BYTES: u64 = 1 << 20;

pub(super) struct Walk<'a, 'd> {
    pub(super) superblock: &'a Superblock,
    pub(super) journal: Journal,
    pub(super) inspection: &'a mut Inspection<'d>,
}

impl<'d> Walk<'_, 'd> {
    pub(super) fn id(&self) -> CacheId {
        self.superblock.id
    }

    pub(super) fn block(&self) -> u64 {
        u64::from(self.superblock.plan.block_size)
    }

    pub(super) fn capacity(&self) -> u64 {
        self.superblock.plan.zone_capacity
    }

    pub(super) fn read(
        &self,
        zone: ZoneId,
        offset: u64,
        len: u64,
    ) -> impl Future<Output = Result<IoBuf, DeviceError>> + Send + use<'d> {
        self.inspection.read(zone, offset, len)
    }

    /// Reads the large descriptor at `offset`.
    pub(super) async fn descriptor(
        &mut self,
        life: ZoneLife,
        offset: u64,
        region_bytes: u64,
    ) -> Option<(LargeDescriptor, u32)> {
        let what = "large descriptor";
        let bytes = match self.read(life.zone, offset, region_bytes).await {
            Ok(bytes) => bytes,
            Err(error) => {
                let why = read_failure(&error);
                self.inspection.damage(life.zone, offset, what, why);
                return None;
            }
        };
        let block_size = self.superblock.plan.block_size;
        match LargeDescriptor::decode(self.id(), life, block_size, &bytes) {
            Ok(found) => Some(found),
            Err(error) => {
                self.inspection.damage(life.zone, offset, what, error);
                None
            }
        }
    }

    /// Reads a large value in steps and verifies every unit. `None` if values
    /// are not to be read.
    pub(super) async fn verify_large(
        &mut self,
        life: ZoneLife,
        descriptor: &LargeDescriptor,
    ) -> Option<bool> {
        if !self.inspection.scope.payloads {
            return None;
        }
        let block_size = self.superblock.plan.block_size;
        let mut start = 0;
        while start < descriptor.value_bytes {
            let step = start..start.saturating_add(SCAN_BYTES);
            for part in descriptor.reads(step.clone(), block_size) {
                let inside = part
                    .zone_offset
                    .checked_add(u64::from(part.bytes))
                    .is_some_and(|end| end <= self.capacity());
                if !inside {
                    return Some(false);
                }
                let bytes = self
                    .read(life.zone, part.zone_offset, u64::from(part.bytes))
                    .await;
                let intact = bytes.is_ok_and(|bytes| {
                    bytes
                        .get(..part.bytes as usize)
                        .is_some_and(|bytes| descriptor.verify_read(life.generation, &part, bytes))
                });
                if !intact {
                    return Some(false);
                }
            }
            start = step.end;
        }
        Some(true)
    }

    /// Reports a record, and damage if its value is not intact.
    pub(super) fn record(
        &mut self,
        life: ZoneLife,
        entry: &SummaryEntry,
        offset: u64,
        key: &[u8],
        state: RecordState,
        intact: Option<bool>,
    ) {
        self.inspection.emit(Finding::Record {
            zone: life.zone.0,
            offset,
            key: key_text(key),
            hash: entry.hash.0,
            sequence: entry.sequence.0,
            value_bytes: u64::from(entry.value_bytes),
            expiry_unix_s: entry.expiry_unix_s,
            large: entry.kind == ValueKind::Large,
            state,
            intact,
        });
        // A dead value is never read, so it may be torn.
        if intact == Some(false) && state == RecordState::Present {
            let what = format!("value of `{}`", key_text(key));
            let why = "its bytes do not match its checksum: damaged, or torn by a loss of power";
            self.inspection.damage(life.zone, offset, &what, why);
        }
    }

    pub(super) fn state(
        &self,
        void: bool,
        life: ZoneLife,
        hash: u64,
        sequence: u64,
    ) -> RecordState {
        if void {
            RecordState::Void
        } else if self.noted_dead(life, hash, sequence) {
            RecordState::Dead
        } else {
            RecordState::Present
        }
    }

    /// True if a tombstone in the journal covers this record, or its zone was dropped.
    fn noted_dead(&self, life: ZoneLife, hash: u64, sequence: u64) -> bool {
        let Journal {
            tombstones,
            dropped,
            ..
        } = &self.journal;
        let buried = tombstones.get(&(life, hash));
        let dropped = dropped.get(&life.zone);
        buried.is_some_and(|dead| sequence <= *dead)
            || dropped.is_some_and(|&up_to| life.generation <= up_to)
    }
}
