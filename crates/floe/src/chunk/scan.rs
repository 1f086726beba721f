//! Reads a zone's records: from its summary, or from descriptor to descriptor.

use floe_core::chunk::Plan;
use floe_core::layout::{
    BatchHeader, BatchKind, CacheId, LargeDescriptor, SmallBatch, SummaryEntry, SummaryPage,
    SummaryShape, ValueKind, ZoneLife,
};
use floe_device::{Address, DeviceError, SharedDevice};

/// Bytes of the first read of a batch's descriptors; more take a second read.
const DESCRIPTOR_GUESS_BYTES: u64 = 16 << 10;

/// A record found on flash.
pub(super) struct ScannedRecord {
    pub(super) summary: SummaryEntry,
    pub(super) key: Vec<u8>,
}

impl ScannedRecord {
    pub(super) fn place(&self, life: ZoneLife, block_size: u32) -> Address {
        place(&self.summary, life, block_size)
    }
}

pub(super) fn place(summary: &SummaryEntry, life: ZoneLife, block_size: u32) -> Address {
    Address::new(life.zone, u64::from(summary.block) * u64::from(block_size))
}

/// The journal's notes about a zone in use.
pub(super) enum JournalState {
    Full(u64, u32),
    Closed(u64),
    Open,
}

pub(super) struct ZoneContent {
    pub(super) life: ZoneLife,
    pub(super) records: Vec<SummaryEntry>,
    pub(super) used_bytes: u64,
    pub(super) scanned: bool,
}

pub(super) async fn read_zone(
    device: SharedDevice,
    plan: Plan,
    id: CacheId,
    life: ZoneLife,
    noted: JournalState,
) -> Result<ZoneContent, DeviceError> {
    if let JournalState::Full(offset, count) = noted {
        match read_summary(&device, &plan, id, life, offset, count).await {
            Some(records) => {
                let used_bytes = plan.geometry.zone_capacity;
                return Ok(ZoneContent {
                    life,
                    records,
                    used_bytes,
                    scanned: false,
                });
            }
            None => {
                tracing::warn!(zone = %life.zone, "a zone's summary cannot be read; scanning the zone")
            }
        }
    }
    let end = match noted {
        JournalState::Closed(end) => end,
        _ => plan.geometry.zone_capacity,
    };
    let scan = scan_zone(&device, &plan, id, life, end).await?;
    let records = scan
        .records
        .into_iter()
        .map(|record| record.summary)
        .collect();
    Ok(ZoneContent {
        life,
        records,
        used_bytes: scan.end,
        scanned: true,
    })
}

async fn read_summary(
    device: &SharedDevice,
    plan: &Plan,
    id: CacheId,
    life: ZoneLife,
    offset: u64,
    count: u32,
) -> Option<Vec<SummaryEntry>> {
    let shape = SummaryShape::new(count as usize, plan.geometry.block_size);
    if offset.checked_add(shape.total_bytes() as u64)? > plan.geometry.zone_capacity {
        return None;
    }
    let mut entries = Vec::with_capacity(count as usize);
    for page in 0..shape.pages() {
        let at = Address::new(life.zone, offset + shape.page_offset(page) as u64);
        let buf = device
            .read(at, device.allocate(shape.page_bytes(page)))
            .await
            .ok()?;
        entries.extend(
            SummaryPage::decode(id, life, shape, page, &buf)
                .ok()?
                .entries(),
        );
    }
    Some(entries)
}

/// The result of a scan.
pub(super) struct ZoneScan {
    pub(super) records: Vec<ScannedRecord>,
    /// The end of the last intact batch.
    pub(super) end: u64,
}

/// Scans a zone's batches up to `end`, or to the first batch that is not intact.
pub(super) async fn scan_zone(
    device: &SharedDevice,
    plan: &Plan,
    id: CacheId,
    life: ZoneLife,
    end: u64,
) -> Result<ZoneScan, DeviceError> {
    let geometry = &plan.geometry;
    let block_size = geometry.block_size;
    let mut scan = ZoneScan {
        records: Vec::new(),
        end: u64::from(block_size),
    };
    while scan.end < end.min(geometry.zone_capacity) {
        let start = scan.end;
        let guess = geometry
            .round_up(DESCRIPTOR_GUESS_BYTES)
            .min(geometry.zone_capacity - start);
        // An unreadable block ends the scan like a torn one: later records are lost.
        let Ok(mut buf) = device
            .read(
                Address::new(life.zone, start),
                device.allocate(guess as usize),
            )
            .await
        else {
            break;
        };
        let Ok(header) = BatchHeader::decode(id, life, block_size, &buf) else {
            break;
        };
        let region = u64::from(header.descriptor_bytes);
        if start + u64::from(header.batch_bytes) > geometry.zone_capacity {
            break;
        }
        if region > guess {
            match device
                .read(
                    Address::new(life.zone, start),
                    device.allocate(region as usize),
                )
                .await
            {
                Ok(longer) => buf = longer,
                Err(_) => break,
            }
        }
        if !collect_batch(
            &header,
            id,
            life,
            block_size,
            start,
            &buf,
            &mut scan.records,
        ) {
            break;
        }
        scan.end = start + u64::from(header.batch_bytes);
    }
    Ok(scan)
}

fn collect_batch(
    header: &BatchHeader,
    id: CacheId,
    life: ZoneLife,
    block_size: u32,
    start: u64,
    region: &[u8],
    records: &mut Vec<ScannedRecord>,
) -> bool {
    let first_block = (start / u64::from(block_size)) as u32;
    match header.kind {
        BatchKind::Piece(_) => true,
        BatchKind::Small { .. } => {
            match SmallBatch::decode(id, life, block_size, region) {
                Ok(batch) => {
                    records.extend(batch.records().filter(|r| !r.flags.void).map(|r| {
                        ScannedRecord {
                            summary: SummaryEntry {
                                hash: r.hash,
                                sequence: r.sequence,
                                block: first_block + r.payload_offset / block_size,
                                value_bytes: r.payload_bytes,
                                checksum: r.checksum,
                                expiry_unix_s: r.expiry_unix_s,
                                kind: ValueKind::Small,
                                key_bytes: r.key.len() as u16,
                            },
                            key: r.key.to_vec(),
                        }
                    }));
                    true
                }
                Err(_) => false,
            }
        }
        BatchKind::Large { .. } => match LargeDescriptor::decode(id, life, block_size, region) {
            Ok((d, checksum)) => {
                records.push(ScannedRecord {
                    summary: SummaryEntry {
                        hash: d.hash,
                        sequence: d.sequence,
                        block: first_block,
                        value_bytes: d.value_bytes as u32,
                        checksum,
                        expiry_unix_s: d.expiry_unix_s,
                        kind: ValueKind::Large,
                        key_bytes: d.key.len() as u16,
                    },
                    key: d.key,
                });
                true
            }
            Err(_) => false,
        },
    }
}
