//! Inspects a zone of batches.

use std::collections::HashMap;

use floe_core::ZoneId;
use floe_core::layout::{
    BatchHeader, BatchKind, Identified, LayoutError, SmallBatch, Structure, SummaryEntry,
    SummaryPage, SummaryShape, ValueKind, ZoneHeader, ZoneLife, identify,
};

use super::super::finding::{Finding, RecordState, ZoneState};
use super::super::inspection::read_failure;
use super::journal::FullNote;
use super::walk::{SCAN_BYTES, Walk};

/// Larger descriptor regions are damage: no batch comes near this.
const DESCRIPTOR_MAX: u64 = 64 << 20;

/// The counts of a zone.
#[derive(Default)]
struct Found {
    batches: u64,
    records: u64,
    dead_records: u64,
    value_bytes: u64,
    end_offset: u64,
    /// By the block that a summary names.
    by_block: HashMap<u32, SummaryEntry>,
}

impl Walk<'_, '_> {
    pub(super) async fn log_zone(&mut self, header: ZoneHeader) {
        let life = header.life;
        let closed = self.journal.closed.get(&life).copied();
        // A closed zone's summary is invalid.
        let full = self.journal.full.get(&life).copied();
        let full = full.filter(|_| closed.is_none());
        let mut end = self.capacity();
        if let Some(note) = full {
            if note.summary_offset > end || !note.summary_offset.is_multiple_of(self.block()) {
                let why = format!("the journal puts it at {}", note.summary_offset);
                self.inspection.damage(life.zone, 0, "summary", why);
            } else {
                end = note.summary_offset;
            }
        }
        let mut found = Found {
            end_offset: self.block(),
            ..Found::default()
        };
        let mut offset = self.block();
        let believed = closed.unwrap_or(end).min(end);
        while offset < believed {
            match self.batch(life, offset, end, &mut found).await {
                Some(bytes) => {
                    offset += bytes;
                    found.end_offset = offset;
                }
                None => match self.skip_gap(life, offset, believed).await {
                    Some(next) => offset = next,
                    None => break,
                },
            }
        }
        if let Some(note) = full.filter(|note| note.summary_offset == end) {
            self.summary(life, note, &mut found).await;
        }
        self.inspection.emit(Finding::Zone {
            zone: life.zone.0,
            generation: life.generation.0,
            layout: header.layout.to_string(),
            state: match (full, closed) {
                (Some(_), _) => ZoneState::Full,
                (None, Some(_)) => ZoneState::Closed,
                (None, None) => ZoneState::Open,
            },
            batches: found.batches,
            records: found.records,
            dead_records: found.dead_records,
            value_bytes: found.value_bytes,
            end_offset: found.end_offset,
        });
    }

    /// Inspects the batch at `offset`; returns its length, or `None` if none starts there.
    async fn batch(
        &mut self,
        life: ZoneLife,
        offset: u64,
        end: u64,
        found: &mut Found,
    ) -> Option<u64> {
        let block_size = self.superblock.plan.block_size;
        let head = self.read(life.zone, offset, self.block()).await.ok()?;
        let header = BatchHeader::decode(self.id(), life, block_size, &head).ok()?;
        let batch_bytes = u64::from(header.batch_bytes);
        if batch_bytes > end - offset {
            let why = format!("its {batch_bytes} bytes reach beyond {end}");
            self.inspection.damage(life.zone, offset, "batch", why);
            return None;
        }
        found.batches += 1;
        let region_bytes = u64::from(header.descriptor_bytes);
        match header.kind {
            // A piece is verified through the descriptor that lists it.
            BatchKind::Piece(_) => {}
            _ if region_bytes > DESCRIPTOR_MAX => {
                let why = format!("its descriptor claims {region_bytes} bytes");
                self.inspection.damage(life.zone, offset, "batch", why);
            }
            BatchKind::Small { .. } => self.small(life, offset, &header, found).await,
            BatchKind::Large { .. } => {
                let listed = self.large(life, offset, region_bytes).await;
                if let Some((entry, state)) = listed {
                    found.add(&entry, state);
                }
            }
        }
        Some(batch_bytes)
    }

    async fn small(
        &mut self,
        life: ZoneLife,
        offset: u64,
        header: &BatchHeader,
        found: &mut Found,
    ) {
        let block_size = self.superblock.plan.block_size;
        let batch_bytes = u64::from(header.batch_bytes);
        let whole = self.inspection.scope.payloads && batch_bytes <= 4 * SCAN_BYTES;
        let wanted = if whole {
            batch_bytes
        } else {
            u64::from(header.descriptor_bytes)
        };
        let bytes = match self.read(life.zone, offset, wanted).await {
            Ok(bytes) => bytes,
            Err(error) => {
                let why = read_failure(&error);
                return self.inspection.damage(life.zone, offset, "batch", why);
            }
        };
        let batch = match SmallBatch::decode(self.id(), life, block_size, &bytes) {
            Ok(batch) => batch,
            Err(error) => return self.inspection.damage(life.zone, offset, "batch", error),
        };
        for record in batch.records() {
            let at = offset + u64::from(record.payload_offset);
            let state = self.state(record.flags.void, life, record.hash.0, record.sequence.0);
            let read;
            let payload = if !self.inspection.scope.payloads {
                None
            } else if whole {
                record.payload_in(&bytes)
            } else {
                read = self
                    .read(life.zone, at, u64::from(record.payload_bytes).max(1))
                    .await;
                read.as_ref()
                    .ok()
                    .and_then(|payload| payload.get(..record.payload_bytes as usize))
            };
            let intact = self
                .inspection
                .scope
                .payloads
                .then(|| payload.is_some_and(|p| record.verify(life.generation, p)));
            let entry = SummaryEntry {
                hash: record.hash,
                sequence: record.sequence,
                block: u32::try_from(at / self.block()).unwrap_or(u32::MAX),
                value_bytes: record.payload_bytes,
                checksum: record.checksum,
                expiry_unix_s: record.expiry_unix_s,
                kind: ValueKind::Small,
                key_bytes: u16::try_from(record.key.len()).unwrap_or(u16::MAX),
            };
            self.record(life, &entry, at, record.key, state, intact);
            found.add(&entry, state);
        }
    }

    /// Inspects the large value whose descriptor is at `offset`.
    async fn large(
        &mut self,
        life: ZoneLife,
        offset: u64,
        region_bytes: u64,
    ) -> Option<(SummaryEntry, RecordState)> {
        let (descriptor, checksum) = self.descriptor(life, offset, region_bytes).await?;
        let entry = SummaryEntry {
            hash: descriptor.hash,
            sequence: descriptor.sequence,
            block: u32::try_from(offset / self.block()).unwrap_or(u32::MAX),
            value_bytes: u32::try_from(descriptor.value_bytes).unwrap_or(u32::MAX),
            checksum,
            expiry_unix_s: descriptor.expiry_unix_s,
            kind: ValueKind::Large,
            key_bytes: u16::try_from(descriptor.key.len()).unwrap_or(u16::MAX),
        };
        let void = descriptor.flags.void;
        let state = self.state(void, life, entry.hash.0, entry.sequence.0);
        let intact = self.verify_large(life, &descriptor).await;
        self.record(life, &entry, offset, &descriptor.key, state, intact);
        Some((entry, state))
    }

    /// Looks for the next batch of this life after `offset`, where none starts;
    /// returns its offset.
    async fn skip_gap(&mut self, life: ZoneLife, offset: u64, end: u64) -> Option<u64> {
        let block = self.block();
        let block_size = self.superblock.plan.block_size;
        let mut suspect = false;
        let mut at = offset;
        while at < end {
            let wanted = SCAN_BYTES.next_multiple_of(block).min(end - at);
            let bytes = match self.read(life.zone, at, wanted).await {
                Ok(bytes) => bytes,
                Err(error) => {
                    self.inspection
                        .damage(life.zone, at, "zone", read_failure(&error));
                    return None;
                }
            };
            for (index, bytes) in bytes.chunks(block_size as usize).enumerate() {
                let here = at + index as u64 * block;
                match BatchHeader::decode(self.id(), life, block_size, bytes) {
                    Ok(_) if here > offset => {
                        self.report_gap(life.zone, offset, here, suspect);
                        return Some(here);
                    }
                    // Its header is valid, but not its content.
                    Ok(_) => {}
                    // Further in, an older cache may have written the header.
                    Err(error) => {
                        suspect |= here == offset && is_broken_batch(life, bytes, error);
                    }
                }
            }
            at += wanted;
        }
        if suspect {
            self.report_gap(life.zone, offset, end, suspect);
        }
        None
    }

    fn report_gap(&mut self, zone: ZoneId, offset: u64, end: u64, suspect: bool) {
        if suspect {
            let why = "checksum mismatch: damaged, or torn by a crash";
            self.inspection.damage(zone, offset, "batch", why);
        } else {
            self.inspection.emit(Finding::Gap {
                zone: zone.0,
                offset,
                bytes: end - offset,
            });
        }
    }

    /// Compares the summary with the batches.
    async fn summary(&mut self, life: ZoneLife, note: FullNote, found: &mut Found) {
        let what = "summary";
        let shape = SummaryShape::new(note.records as usize, self.superblock.plan.block_size);
        let total = shape.total_bytes() as u64;
        if total > self.capacity().saturating_sub(note.summary_offset) {
            let why = format!("the journal counts {} records in it", note.records);
            return self
                .inspection
                .damage(life.zone, note.summary_offset, what, why);
        }
        for page in 0..shape.pages() {
            let offset = note.summary_offset + shape.page_offset(page) as u64;
            let bytes = match self
                .read(life.zone, offset, shape.page_bytes(page) as u64)
                .await
            {
                Ok(bytes) => bytes,
                Err(error) => {
                    let why = read_failure(&error);
                    self.inspection.damage(life.zone, offset, what, why);
                    continue;
                }
            };
            match SummaryPage::decode(self.id(), life, shape, page, &bytes) {
                Ok(page) => {
                    for entry in page.entries() {
                        self.compare(life, &entry, found);
                    }
                }
                Err(error) => self.inspection.damage(life.zone, offset, what, error),
            }
        }
        found.end_offset = note.summary_offset + total;
        self.inspection.emit(Finding::Summary {
            zone: life.zone.0,
            offset: note.summary_offset,
            entries: u64::from(note.records),
        });
    }

    fn compare(&mut self, life: ZoneLife, entry: &SummaryEntry, found: &Found) {
        let offset = u64::from(entry.block) * self.block();
        let why = match found.by_block.get(&entry.block) {
            Some(record) if record == entry => return,
            Some(_) => "the summary and the batch disagree about this record",
            None => "the summary lists a record that no batch describes",
        };
        self.inspection.damage(life.zone, offset, "record", why);
    }
}

impl Found {
    fn add(&mut self, entry: &SummaryEntry, state: RecordState) {
        self.records += 1;
        self.dead_records += u64::from(state != RecordState::Present);
        self.value_bytes += u64::from(entry.value_bytes);
        self.by_block.insert(entry.block, *entry);
    }
}

/// True if bytes after a batch have the header of the next one of this life but
/// are invalid. A batch of an earlier life is what a reset left.
fn is_broken_batch(life: ZoneLife, bytes: &[u8], error: LayoutError) -> bool {
    let zone = life.zone.0.to_le_bytes();
    let generation = life.generation.0.to_le_bytes();
    identify(bytes) == Identified::Claims(Structure::Batch)
        && !matches!(error, LayoutError::Stale { .. })
        // One of the two fields may be the damaged one.
        && (bytes.get(24..28) == Some(&zone[..]) || bytes.get(28..32) == Some(&generation[..]))
}
