//! The metadata zones: superblocks and journals.

use std::collections::HashMap;

use floe_core::ZoneId;
use floe_core::layout::{JournalRecord as _, LayoutError, Note, Superblock, ZoneLife};
use floe_device::SharedDevice;

use super::finding::Finding;
use super::{Emitter, InspectError, Tombstones, read, read_failure};
use crate::metadata_log::{Damage, LogSuperblock, Reader, other};

/// What a full zone's note says.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullNote {
    pub(super) summary_offset: u64,
    pub(super) records: u32,
}

/// What the journal that holds says.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pub(super) full: HashMap<ZoneLife, FullNote>,
    /// Where the batches of a closed life end to be believed.
    pub(super) closed: HashMap<ZoneLife, u64>,
    pub(super) tombstones: Tombstones,
    complete: bool,
}

/// Reads both metadata zones and answers with the pair that holds.
pub(super) async fn read_both<V: FnMut(&Finding)>(
    device: &SharedDevice,
    emitter: &mut Emitter<V>,
) -> Result<(Superblock, Journal), InspectError> {
    let first = superblock(device, ZoneId(0)).await?;
    let second = superblock(device, ZoneId(1)).await?;
    let mut candidates = Vec::new();
    for (zone, found) in [(ZoneId(0), &first), (ZoneId(1), &second)] {
        match found {
            Ok(superblock) => {
                let (journal, finding) = journal(device, zone, superblock, emitter).await;
                candidates.push((zone, *superblock, journal, finding));
            }
            // The copy in the other zone is written last.
            Err(LayoutError::Blank) => {}
            Err(error) => emitter.damage(zone, 0, "superblock", error),
        }
    }
    if let [
        (
            zone,
            superblock,
            Journal {
                complete: false, ..
            },
            _,
        ),
    ] = candidates[..]
    {
        // Perhaps the copy of a damaged one.
        let zone = other(zone);
        let (journal, finding) = journal(device, zone, &superblock, emitter).await;
        if journal.complete {
            candidates.push((zone, superblock, journal, finding));
        }
    }
    let current = candidates
        .iter()
        .enumerate()
        .max_by_key(|(_, (_, superblock, journal, _))| (journal.complete, superblock.epoch))
        .map(|(index, _)| index);
    let mut holds = None;
    let epoch_max = candidates
        .iter()
        .map(|(_, superblock, ..)| superblock.epoch)
        .max();
    for (index, (zone, superblock, journal, finding)) in candidates.into_iter().enumerate() {
        let is_current = Some(index) == current;
        emitter.emit(describe(zone, &superblock, is_current));
        // A copy has no journal of its own.
        let is_copy = !is_current && !journal.complete && Some(superblock.epoch) == epoch_max;
        if !is_copy {
            emitter.emit(finding);
        }
        if is_current {
            holds = Some((superblock, journal));
        }
    }
    holds.ok_or_else(|| InspectError::NoCache {
        first: first.err().unwrap_or(LayoutError::Blank),
        second: second.err().unwrap_or(LayoutError::Blank),
    })
}

async fn superblock(
    device: &SharedDevice,
    zone: ZoneId,
) -> Result<Result<Superblock, LayoutError>, InspectError> {
    let block = u64::from(device.geometry().block_size);
    let bytes = read(device, zone, 0, block).await?;
    Ok(Superblock::decode(&bytes))
}

fn describe(zone: ZoneId, superblock: &Superblock, current: bool) -> Finding {
    let plan = &superblock.plan;
    Finding::Superblock {
        zone: zone.0,
        current,
        cache_id: superblock.id.to_string(),
        created_unix_s: superblock.created_unix_s,
        epoch: superblock.epoch,
        block_size: plan.block_size,
        zone_count: plan.zone_count,
        zone_size: plan.zone_size,
        zone_capacity: plan.zone_capacity,
        chunk_bytes: plan.chunk_bytes,
        piece_bytes: plan.piece_bytes,
        layout: plan.layout.to_string(),
    }
}

/// Walks the journal behind `superblock` to its end.
async fn journal<V: FnMut(&Finding)>(
    device: &SharedDevice,
    zone: ZoneId,
    superblock: &Superblock,
    emitter: &mut Emitter<V>,
) -> (Journal, Finding) {
    let mut journal = Journal::default();
    let (mut full_zones, mut tombstones) = (0, 0);
    let log = log(device, zone, superblock, emitter, |note| match note {
        Note::ZoneFull {
            life,
            summary_offset,
            records,
        } => {
            full_zones += 1;
            let note = FullNote {
                summary_offset,
                records,
            };
            journal.full.insert(life, note);
        }
        Note::Tombstone {
            life,
            hash,
            sequence,
        } => {
            tombstones += 1;
            let dead = journal.tombstones.entry((life, hash.0)).or_default();
            *dead = (*dead).max(sequence.0);
        }
        Note::ZoneClosed { life, end_offset } => {
            let end = journal.closed.entry(life).or_insert(end_offset);
            *end = end_offset.min(*end);
        }
        Note::GenerationFloor { .. }
        | Note::SlotUse { .. }
        | Note::UseNoted { .. }
        | Note::CheckpointEnd { .. } => {}
    })
    .await;
    journal.complete = log.complete;
    let finding = Finding::Journal {
        zone: zone.0,
        epoch: superblock.epoch,
        blocks: log.blocks,
        notes: log.records,
        full_zones,
        tombstones,
        complete: log.complete,
        end_offset: log.end_offset,
    };
    (journal, finding)
}

/// The extent of the log of a metadata zone.
pub(super) struct LogExtent {
    /// Blocks, without their second copies.
    pub(super) blocks: u64,
    pub(super) records: u64,
    /// Whether the checkpoint that the zone begins with is complete.
    pub(super) complete: bool,
    pub(super) end_offset: u64,
}

/// Walks the log behind `superblock`, hands its records to `take`, and reports
/// damage, of second copies too.
pub(super) async fn log<S: LogSuperblock, V: FnMut(&Finding)>(
    device: &SharedDevice,
    zone: ZoneId,
    superblock: &S,
    emitter: &mut Emitter<V>,
    mut take: impl FnMut(S::Record),
) -> LogExtent {
    let structure = S::Record::BLOCK.to_string();
    let mut reader = Reader::new(device, superblock, zone);
    let (mut records, mut complete) = (0, false);
    loop {
        let block = match reader.next().await {
            Ok(Some(block)) => block,
            Ok(None) => break,
            Err(error) => {
                let offset = reader.offset();
                emitter.damage(zone, offset, &structure, read_failure(&error));
                break;
            }
        };
        if let Some(Damage { offset, error }) = block.damage {
            let why = format!("{error}; its other copy is sound");
            emitter.damage(zone, offset, &structure, why);
        }
        for record in block.records {
            if let Some(before) = record.as_checkpoint_end() {
                complete = before == records;
                if !complete {
                    let why = format!("it counts {before} records, but {records} stand before it");
                    emitter.damage(zone, block.offset, "checkpoint", why);
                }
            }
            records += 1;
            take(record);
        }
    }
    if let Some(Damage { offset, error }) = reader.damage_at_end() {
        emitter.damage(zone, offset, &structure, error);
    }
    LogExtent {
        blocks: reader.chain().next_block(),
        records,
        complete,
        end_offset: reader.offset(),
    }
}
