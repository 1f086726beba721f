//! The metadata zones: superblocks and journals.

use std::collections::HashMap;

use floe_core::ZoneId;
use floe_core::layout::{
    Identified, JournalChain, LayoutError, Note, Structure, Superblock, ZoneLife, identify,
};
use floe_device::SharedDevice;

use super::finding::Finding;
use super::{Emitter, InspectError, Tombstones, read, read_failure};
use crate::metadata_log::other;

/// Most bytes of one journal block that are believed.
const JOURNAL_BLOCK_MAX: u64 = 64 << 20;

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
                let (journal, finding) = journal(device, zone, superblock, emitter).await?;
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
        let (journal, finding) = journal(device, zone, &superblock, emitter).await?;
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
) -> Result<(Journal, Finding), InspectError> {
    let block_size = device.geometry().block_size;
    let capacity = device.geometry().zone_capacity;
    let mut chain = JournalChain::new(superblock.id, superblock.epoch);
    let mut journal = Journal::default();
    let (mut notes, mut full_zones, mut tombstones) = (0, 0, 0);
    let mut offset = Superblock::encoded_bytes(block_size) as u64;
    while offset < capacity {
        let Some((block_notes, bytes)) =
            next_block(device, zone, offset, &mut chain, emitter).await
        else {
            break;
        };
        for note in block_notes {
            match note {
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
                Note::GenerationFloor { .. } | Note::SlotUse { .. } | Note::UseNoted { .. } => {}
                Note::ZoneClosed { life, end_offset } => {
                    let end = journal.closed.entry(life).or_insert(end_offset);
                    *end = end_offset.min(*end);
                }
                Note::CheckpointEnd { notes: before } => {
                    if before != notes {
                        let why = format!("it counts {before} notes, but {notes} stand before it");
                        emitter.damage(zone, offset, "checkpoint", why);
                    }
                    journal.complete = true;
                }
            }
            notes += 1;
        }
        offset += bytes;
    }
    let finding = Finding::Journal {
        zone: zone.0,
        epoch: superblock.epoch,
        blocks: chain.next_block(),
        notes,
        full_zones,
        tombstones,
        complete: journal.complete,
        end_offset: offset,
    };
    Ok((journal, finding))
}

/// The notes of the block at `offset` and its length, or `None` at the end.
async fn next_block<V: FnMut(&Finding)>(
    device: &SharedDevice,
    zone: ZoneId,
    offset: u64,
    chain: &mut JournalChain,
    emitter: &mut Emitter<V>,
) -> Option<(Vec<Note>, u64)> {
    let block_size = device.geometry().block_size;
    let left = device.geometry().zone_capacity - offset;
    let mut wanted = u64::from(block_size);
    loop {
        let bytes = match read(device, zone, offset, wanted).await {
            Ok(bytes) => bytes,
            Err(error) => {
                emitter.damage(zone, offset, "journal block", read_failure(&error));
                return None;
            }
        };
        match chain.decode(block_size, &bytes) {
            Ok(block) => return Some((block.records, block.encoded_bytes as u64)),
            Err(LayoutError::TooShort { needed, .. })
                if needed as u64 > wanted && (needed as u64) <= left.min(JOURNAL_BLOCK_MAX) =>
            {
                wanted = needed as u64;
            }
            Err(error) => {
                judge_end(device, zone, offset, chain, &bytes, error, emitter).await;
                return None;
            }
        }
    }
}

/// Tells a journal's end from damage in its middle: behind damage, the journal
/// goes on.
async fn judge_end<V: FnMut(&Finding)>(
    device: &SharedDevice,
    zone: ZoneId,
    offset: u64,
    chain: &JournalChain,
    bytes: &[u8],
    error: LayoutError,
    emitter: &mut Emitter<V>,
) {
    let block = u64::from(device.geometry().block_size);
    if matches!(error, LayoutError::Blank) {
        return;
    }
    if error == LayoutError::BadChecksum && is_of_epoch(bytes, chain.epoch()) {
        emitter.damage(
            zone,
            offset,
            "journal block",
            "checksum mismatch: torn by a crash, or damaged; notes behind it are lost",
        );
        return;
    }
    if offset + 2 * block > device.geometry().zone_capacity {
        return;
    }
    if let Ok(next) = read(device, zone, offset + block, block).await
        && is_of_epoch(&next, chain.epoch())
    {
        emitter.damage(zone, offset, "journal block", error);
    }
}

/// Whether a block claims to be of the journal of `epoch`, which stands at
/// offset 24. The claim is not checked.
fn is_of_epoch(bytes: &[u8], epoch: u64) -> bool {
    identify(bytes) == Identified::Claims(Structure::Journal)
        && bytes.get(24..32) == Some(&epoch.to_le_bytes()[..])
}
