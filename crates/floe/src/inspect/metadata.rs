//! The metadata zones of any format: superblocks and logs.

use floe_core::ZoneId;
use floe_core::layout::{JournalRecord as _, LayoutError};

use super::format::{Format, LogExtent};
use super::inspection::{InspectError, Inspection, read_failure};
use crate::metadata_log::{Damage, METADATA, Reader, other};

/// A superblock, and the log of a metadata zone behind it.
struct Candidate<F: Format> {
    zone: ZoneId,
    superblock: F,
    log: LogExtent,
    contents: F::Contents,
}

/// Inspects both metadata zones, whose first blocks are `heads`, and returns the
/// superblock and the content of the log that hold.
///
/// # Errors
/// Neither block is a superblock of this format.
pub(super) async fn current<F: Format>(
    heads: [&[u8]; 2],
    inspection: &mut Inspection<'_>,
) -> Result<(F, F::Contents), InspectError> {
    let [first, second] = heads.map(F::decode);
    let mut candidates = Vec::new();
    for (zone, found) in METADATA.into_iter().zip([&first, &second]) {
        match found {
            Ok(superblock) => candidates.push(candidate(zone, *superblock, inspection).await),
            // The copy in the other zone is written last.
            Err(LayoutError::Blank) => {}
            Err(error) => inspection.damage(zone, 0, F::NAME, error),
        }
    }
    if let [
        Candidate {
            zone,
            superblock,
            log: LogExtent {
                complete: false, ..
            },
            ..
        },
    ] = candidates[..]
    {
        // Perhaps the copy of a damaged one.
        let copied = candidate(other(zone), superblock, inspection).await;
        if copied.log.complete {
            candidates.push(copied);
        }
    }
    let epoch = |candidate: &Candidate<F>| candidate.superblock.chain().epoch();
    let epoch_max = candidates.iter().map(epoch).max();
    let current = candidates
        .iter()
        .enumerate()
        .max_by_key(|(_, candidate)| (candidate.log.complete, epoch(candidate)))
        .map(|(index, _)| index);
    let mut holds = None;
    for (index, candidate) in candidates.into_iter().enumerate() {
        let is_current = Some(index) == current;
        // A copy has no log of its own.
        let is_copy =
            !is_current && !candidate.log.complete && Some(epoch(&candidate)) == epoch_max;
        let Candidate {
            zone,
            superblock,
            log,
            contents,
        } = candidate;
        inspection.emit(superblock.describe(zone, is_current));
        if !is_copy {
            inspection.emit(superblock.describe_log(zone, &log, &contents));
        }
        if is_current {
            holds = Some((superblock, contents));
        }
    }
    holds.ok_or_else(|| InspectError::NoCache {
        first: first.err().unwrap_or(LayoutError::Blank),
        second: second.err().unwrap_or(LayoutError::Blank),
    })
}

/// Walks the log of `zone` behind `superblock`, and reports damage, of second
/// copies too.
async fn candidate<F: Format>(
    zone: ZoneId,
    superblock: F,
    inspection: &mut Inspection<'_>,
) -> Candidate<F> {
    let structure = F::Record::BLOCK.to_string();
    let mut contents = F::Contents::default();
    let mut reader = Reader::new(inspection.device, &superblock, zone);
    let (mut records, mut complete) = (0, false);
    loop {
        let block = match reader.next().await {
            Ok(Some(block)) => block,
            Ok(None) => break,
            Err(error) => {
                let offset = reader.offset();
                inspection.damage(zone, offset, &structure, read_failure(&error));
                break;
            }
        };
        if let Some(Damage { offset, error }) = block.damage {
            let why = format!("{error}; its other copy is sound");
            inspection.damage(zone, offset, &structure, why);
        }
        for record in block.records {
            if let Some(before) = record.as_checkpoint_end() {
                complete = before == records;
                if !complete {
                    let why = format!("it counts {before} records, but {records} stand before it");
                    inspection.damage(zone, block.offset, "checkpoint", why);
                }
            }
            records += 1;
            F::take(&mut contents, record);
        }
    }
    if let Some(Damage { offset, error }) = reader.damage_at_end() {
        inspection.damage(zone, offset, &structure, error);
    }
    let log = LogExtent {
        blocks: reader.chain().next_block(),
        records,
        complete,
        end_offset: reader.offset(),
    };
    Candidate {
        zone,
        superblock,
        log,
        contents,
    }
}
