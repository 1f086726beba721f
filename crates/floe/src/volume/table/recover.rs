//! Opening the table of a cache.
//!
//! The table's pages with the records of the log applied say what each place holds.
//! If the machine has started anew since the cache was last written, only stable
//! batches count: blocks of later records may never have reached the medium. The pages
//! that these name are durable, and the log begins anew, before the first block is read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use floe_core::hash::HashSeed;
use floe_core::layout::volume::{
    BlockBatch, BlockRecord, INTENT_BITS, TablePage, VOLUME_SUPERBLOCK_BYTES, VolumeFormatPlan,
    VolumeSuperblock, batch_bytes,
};
use floe_core::layout::{CacheId, FRAME_BYTES, Identified, LayoutError, Structure, identify};
use floe_device::{DeviceError, SharedBlockDevice};
use rand::RngExt as _;

use super::BlockTable;
use super::checkpoint::{ByPage, PageError, read_pages, write_pages};
use super::disk::Disk;
use super::log::{Log, write_superblock};
use super::read::{Trust, Unread};
use crate::volume::error::OpenVolumesError;
use crate::volume::sums::Sums;

/// Bytes that are read at once.
pub(super) const READ_BYTES: u64 = 1 << 20;

/// Bytes that are zeroed at once.
const ZERO_BYTES: u64 = 64 << 20;

/// The boot of the machine: with another one, what was not flushed may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Boot(pub(crate) [u8; 16]);

impl Boot {
    /// The boot of this machine. If it is not known, each one is another: after an unclean
    /// stop, writes that were not flushed are then left out.
    pub(crate) fn of_this_machine() -> Self {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let mut boot = [0; 16];
        if digits.len() != 32 {
            return Boot(rand::rng().random());
        }
        for (byte, pair) in boot.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).unwrap_or_default() as u8;
            *byte = digit(0) << 4 | digit(1);
        }
        Boot(boot)
    }
}

/// An open table.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) table: Arc<BlockTable>,
    pub(crate) superblock: VolumeSuperblock,
    /// The blocks of an earlier run, unless the cache is new.
    pub(crate) unread: Option<Unread>,
    /// The checksums of the blocks' data, if the cache has some.
    pub(crate) sums: Option<Arc<Sums>>,
    /// The superblock had the number of the witness before.
    pub(crate) had_witness: bool,
}

/// The newer copy of the superblock.
///
/// # Errors
/// The device's, or what the first copy is if neither is sound.
pub(crate) async fn read_superblock(
    device: &SharedBlockDevice,
) -> Result<Result<VolumeSuperblock, LayoutError>, DeviceError> {
    let buf = device.allocate(2 * VOLUME_SUPERBLOCK_BYTES);
    let bytes = device.read(0, buf).await?;
    let (first, second) = bytes.split_at(VOLUME_SUPERBLOCK_BYTES);
    let order = |superblock: &VolumeSuperblock| (superblock.epoch, superblock.sequence);
    Ok(
        match (
            VolumeSuperblock::decode(first),
            VolumeSuperblock::decode(second),
        ) {
            (Ok(first), Ok(second)) if order(&second) > order(&first) => Ok(second),
            (Ok(superblock), _) | (_, Ok(superblock)) => Ok(superblock),
            (Err(LayoutError::Blank), Err(error)) => Err(error),
            (Err(error), Err(_)) => Err(error),
        },
    )
}

/// Lays a cache out. The superblock comes last.
pub(crate) async fn format(
    device: SharedBlockDevice,
    plan: VolumeFormatPlan,
    (id, seed): (CacheId, HashSeed),
    formatted_at: u64,
    boot: Boot,
    witness: u32,
) -> Result<Opened, OpenVolumesError> {
    let superblock = VolumeSuperblock {
        cache_id: id,
        seed,
        formatted_at,
        epoch: 1,
        sequence: 0,
        plan,
        first_batch: 1,
        log_position: 0,
        boot: boot.0,
        is_clean: false,
        witness,
        intents: Box::new([0; INTENT_BITS as usize / 8]),
        volumes: Vec::new(),
    };
    let disk = Disk::new(device, &superblock);
    zero(&disk, plan.table_offset..plan.places_offset).await?;
    disk.flush().await?;
    write_superblock(&disk, &superblock).await?;
    Ok(Opened {
        sums: sums_of(&plan),
        table: Arc::new(BlockTable::new(disk, superblock.clone())),
        superblock,
        unread: None,
        had_witness: true,
    })
}

/// Writes zeros.
pub(super) async fn zero(disk: &Disk, range: Range<u64>) -> Result<(), DeviceError> {
    for at in range.clone().step_by(ZERO_BYTES as usize) {
        let end = range.end.min(at + ZERO_BYTES);
        disk.device.write_zeroes(at..end).await?;
    }
    Ok(())
}

/// Opens the cache of `superblock`.
///
/// The write-intent bits stay as they were, and so does the number of a witness that is
/// not the one of `trust`: until all blocks are read, another start finds the same ones
/// to leave out.
pub(crate) async fn open(
    device: SharedBlockDevice,
    mut superblock: VolumeSuperblock,
    boot: Boot,
    trust: Trust,
) -> Result<Opened, OpenVolumesError> {
    check_fits(&device, &superblock.plan)?;
    let disk = Disk::new(device, &superblock);
    let lost_power = boot.0 != superblock.boot;
    let batches = read_log(&disk, &superblock).await?;
    let Following { records, unstable } = following(batches, &superblock, lost_power)?;
    for record in &records {
        superblock.apply_intent(record);
    }
    if superblock.is_clean {
        superblock.intents.fill(0);
    }
    let pages = read_pages(&disk, ByPage::new(&disk, &records)).await;
    let pages = pages.map_err(PageError::when_opening)?;
    let unstable =
        unstable.map(|(number, at)| Log::resumed(disk.clone(), superblock.clone(), number, at));
    let earlier = superblock.clone();
    superblock.epoch += 1;
    superblock.sequence += 1;
    superblock.first_batch = 1;
    superblock.log_position = 0;
    superblock.boot = boot.0;
    superblock.is_clean = false;
    if trust.is_of(&earlier) {
        superblock.witness = trust.witness;
    }
    let had_witness = earlier.witness == trust.witness;
    let begun = begin_anew(&disk, &superblock, unstable, pages).await;
    let sums = sums_of(&superblock.plan);
    let lacking = match begun {
        Ok(()) => Vec::new(),
        Err(_) => records,
    };
    let unread = Unread {
        earlier,
        trust,
        records: ByPage::new(&disk, lacking),
        sums: sums.clone(),
    };
    let table = BlockTable::new(disk, superblock.clone());
    if let Err(error) = begun {
        // Reads go on: the device has the only copy of dirty data.
        table.fail(&error);
    }
    Ok(Opened {
        table: Arc::new(table),
        superblock,
        unread: Some(unread),
        sums,
        had_witness,
    })
}

/// Unknown checksums, if the cache of this plan has some.
fn sums_of(plan: &VolumeFormatPlan) -> Option<Arc<Sums>> {
    plan.checksums.then(|| Arc::new(Sums::new(plan)))
}

/// Makes durable what was recovered, and begins an empty log with `superblock`.
async fn begin_anew(
    disk: &Disk,
    superblock: &VolumeSuperblock,
    unstable: Option<Log>,
    pages: Vec<TablePage>,
) -> Result<(), DeviceError> {
    if let Some(mut log) = unstable {
        log.append(Vec::new(), true).await?;
    }
    write_pages(disk, pages).await?;
    write_superblock(disk, superblock).await
}

/// Checks that the device is as large, and its blocks as small, as the layout says.
fn check_fits(device: &SharedBlockDevice, plan: &VolumeFormatPlan) -> Result<(), OpenVolumesError> {
    let (size, block) = (device.size_bytes(), device.block_bytes());
    if plan.end() > size {
        let (wanted, found) = (format!("{} bytes", plan.end()), format!("{size} bytes"));
        return Err(OpenVolumesError::OtherDevice { wanted, found });
    }
    if block > plan.block_size {
        let wanted = format!("blocks of {} bytes", plan.block_size);
        let found = format!("blocks of {block} bytes");
        return Err(OpenVolumesError::OtherDevice { wanted, found });
    }
    Ok(())
}

/// Every sound batch of the log's epoch that the table lacks, by number, with the
/// offset of its end.
pub(crate) async fn read_log(
    disk: &Disk,
    superblock: &VolumeSuperblock,
) -> Result<BTreeMap<u64, (BlockBatch, u64)>, DeviceError> {
    let plan = &disk.plan;
    let mut ring = Vec::with_capacity(plan.log_bytes as usize);
    while (ring.len() as u64) < plan.log_bytes {
        let at = ring.len() as u64;
        let len = READ_BYTES.min(plan.log_bytes - at) as usize;
        let buf = disk
            .device
            .read(plan.log_offset + at, disk.allocate(len))
            .await?;
        ring.extend_from_slice(&buf);
    }
    let mut batches = BTreeMap::new();
    for at in (0..ring.len()).step_by(plan.block_size as usize) {
        let head = ring.get(at..at + FRAME_BYTES).unwrap_or_default();
        if identify(head) != Identified::Claims(Structure::BlockLog) {
            continue;
        }
        let Ok(batch) = BlockBatch::decode(disk.id, &ring[at..]) else {
            continue;
        };
        if batch.epoch == superblock.epoch && batch.number >= superblock.first_batch {
            let end = at + batch_bytes(batch.records.len(), plan.block_size);
            batches.insert(batch.number, (batch, end as u64));
        }
    }
    Ok(batches)
}

/// The records to follow.
pub(crate) struct Following {
    pub(crate) records: Vec<BlockRecord>,
    /// The number and the offset of the next batch, if the last ones are not stable.
    pub(crate) unstable: Option<(u64, u64)>,
}

/// The records of the batches that count.
///
/// # Errors
/// A batch that must be there is missing.
pub(crate) fn following(
    batches: BTreeMap<u64, (BlockBatch, u64)>,
    superblock: &VolumeSuperblock,
    lost_power: bool,
) -> Result<Following, OpenVolumesError> {
    let first = superblock.first_batch;
    let stable = batches.values().map(|(batch, _)| batch.stable);
    let stable = stable.max().unwrap_or(first).max(first);
    if let Some(missing) = (first..stable).find(|number| !batches.contains_key(number)) {
        let what = format!("batch {missing} of the log is missing or damaged");
        return Err(OpenVolumesError::Damaged(what));
    }
    let mut following = Following {
        records: Vec::new(),
        unstable: None,
    };
    let mut number = first;
    for (batch, end) in batches.into_values() {
        if batch.number != number || (lost_power && number >= stable) {
            break;
        }
        following.records.extend(batch.records);
        number += 1;
        following.unstable = (number > stable).then_some((number, end));
    }
    Ok(following)
}
