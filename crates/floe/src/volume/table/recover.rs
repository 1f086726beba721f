//! Reading the table and the log when a cache is opened.
//!
//! The table's pages with the records of the log applied say what each place holds.
//! If the machine has started anew since the cache was last written, only stable
//! batches count: blocks of later records may never have reached the medium. After an
//! unclean stop, sectors that are clean and lie at addresses with a write-intent bit
//! are left out. The result is durable, and the log begins anew, before a request is
//! served.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use floe_core::hash::HashSeed;
use floe_core::layout::volume::{
    BlockBatch, BlockRecord, INTENT_BITS, MappedBlock, NO_SUM, TablePage, VOLUME_SUPERBLOCK_BYTES,
    VolumeFormatPlan, VolumeSuperblock, batch_bytes,
};
use floe_core::layout::{CacheId, FRAME_BYTES, Identified, LayoutError, Structure, identify};
use floe_core::volume::mode::Sector;
use floe_core::volume::{ByteRange, Extent, SECTOR_BYTES, VolumeId};
use floe_device::{DeviceError, SharedBlockDevice};
use rand::RngExt as _;

use super::BlockTable;
use super::checkpoint::{ByPage, COPIES_BYTES, PageError, newest, read_page, write_pages};
use super::disk::Disk;
use super::log::{Log, write_superblock};
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

/// A block that an earlier run left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundBlock {
    /// The place, in granules.
    pub(crate) granule: u32,
    pub(crate) block: MappedBlock,
    /// Its valid bytes of the volume, and whether they are dirty.
    pub(crate) valid: Vec<(ByteRange, bool)>,
}

/// Tells the blocks that went stale while the cache device could not be written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// The number of the witness, or zero without one.
    pub(crate) witness: u32,
    /// Volumes all of whose blocks are stale.
    pub(crate) stale: Vec<VolumeId>,
}

/// An open table, and what it says.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) table: Arc<BlockTable>,
    pub(crate) superblock: VolumeSuperblock,
    /// In the order of places.
    pub(crate) blocks: Vec<FoundBlock>,
    /// The checksums of the blocks' data, if the cache has some.
    pub(crate) sums: Option<Arc<Sums>>,
    /// The superblock on the device has the number of the witness.
    pub(crate) has_witness: bool,
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
        blocks: Vec::new(),
        has_witness: witness != 0,
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
pub(crate) async fn open(
    device: SharedBlockDevice,
    mut superblock: VolumeSuperblock,
    boot: Boot,
    trust: &Trust,
) -> Result<Opened, OpenVolumesError> {
    check_fits(&device, &superblock.plan)?;
    let disk = Disk::new(device, &superblock);
    let lost_power = boot.0 != superblock.boot;
    let batches = read_log(&disk, &superblock).await?;
    let following = following(batches, &superblock, lost_power)?;
    for record in &following.records {
        superblock.apply_intent(record);
    }
    let sums = sums_of(&superblock.plan);
    let reader = TableReader::new(&disk, &superblock, trust, sums.as_deref());
    let (pages, blocks) = read_table(reader, &following.records).await?;
    // The pages get the last records: no later recovery may leave them out.
    let unstable = following
        .unstable
        .map(|(number, position)| Log::resumed(disk.clone(), superblock.clone(), number, position));
    superblock.epoch += 1;
    superblock.sequence += 1;
    superblock.first_batch = 1;
    superblock.log_position = 0;
    superblock.boot = boot.0;
    superblock.is_clean = false;
    superblock.intents.fill(0);
    let had_witness = superblock.witness == trust.witness;
    superblock.witness = trust.witness;
    let begun = begin_anew(&disk, &superblock, unstable, pages).await;
    let table = BlockTable::new(disk, superblock.clone());
    if let Err(error) = begun {
        // Reads go on: the device has the only copy of dirty data.
        table.fail(&error);
    }
    Ok(Opened {
        has_witness: trust.witness != 0 && (had_witness || table.check().is_ok()),
        table: Arc::new(table),
        superblock,
        blocks,
        sums,
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

/// Reads the table with `records` applied. Returns the pages that changed, and the
/// blocks.
async fn read_table(
    mut reader: TableReader<'_>,
    records: &[BlockRecord],
) -> Result<(Vec<TablePage>, Vec<FoundBlock>), OpenVolumesError> {
    let disk = reader.disk;
    let records = ByPage::new(disk, records);
    let pages = disk.shape.pages(disk.plan.granules());
    let at_once = (READ_BYTES / COPIES_BYTES as u64) as u32;
    let mut kept: BTreeMap<u32, TablePage> = BTreeMap::new();
    let mut first = 0;
    while first < pages {
        let end = pages.min(first + at_once);
        let len = (end - first) as usize * COPIES_BYTES;
        let at = disk.plan.table_offset + u64::from(first) * COPIES_BYTES as u64;
        let bytes = disk.device.read(at, disk.allocate(len)).await?;
        for (number, copies) in (first..end).zip(bytes.chunks_exact(COPIES_BYTES)) {
            let page = newest(disk, number, copies);
            let mut page = page.map_err(page_error)?;
            let has_changed = records.apply(&mut page);
            reader.read(&page)?;
            if has_changed {
                kept.insert(number, page);
            }
        }
        first = end;
    }
    reader.end_block()?;
    // Blocks that are left out, in part or whole.
    let dropped = std::mem::take(&mut reader.pending);
    let blocks = std::mem::take(&mut reader.blocks);
    let dropped = ByPage::new(disk, &dropped);
    for number in dropped.pages() {
        let page = match kept.remove(&number) {
            Some(mut page) => {
                dropped.apply(&mut page);
                page
            }
            None => read_page(disk, number, &dropped)
                .await
                .map_err(page_error)?,
        };
        kept.insert(number, page);
    }
    Ok((kept.into_values().collect(), blocks))
}

fn page_error(error: PageError) -> OpenVolumesError {
    match error {
        PageError::Device(error) => OpenVolumesError::Device(error),
        error => OpenVolumesError::Damaged(error.to_string()),
    }
}

/// Collects blocks from pages in their order. A block's entries may lie in two pages.
struct TableReader<'a> {
    disk: &'a Disk,
    superblock: &'a VolumeSuperblock,
    trust: &'a Trust,
    sums: Option<&'a Sums>,
    blocks: Vec<FoundBlock>,
    /// The checksums of the last block: granules, units in them, checksums.
    sums_of_last: Vec<(u32, u32, u32)>,
    /// Records of what is left out.
    pending: Vec<BlockRecord>,
    /// The granule after the last block.
    free_from: u32,
}

impl<'a> TableReader<'a> {
    fn new(
        disk: &'a Disk,
        superblock: &'a VolumeSuperblock,
        trust: &'a Trust,
        sums: Option<&'a Sums>,
    ) -> Self {
        TableReader {
            disk,
            superblock,
            trust,
            sums,
            blocks: Vec::new(),
            sums_of_last: Vec::new(),
            pending: Vec::new(),
            free_from: 0,
        }
    }

    fn read(&mut self, page: &TablePage) -> Result<(), OpenVolumesError> {
        let shape = self.disk.shape;
        let granules = self.disk.plan.granules();
        for entry in 0..shape.entries() {
            let granule = page.number * shape.entries() + entry;
            if granule >= granules {
                break;
            }
            if let Some(block) = page.block(entry) {
                self.end_block()?;
                self.free_from = self.check(granule, block).map_err(|why| {
                    let what = format!("the block at granule {granule} {why}");
                    OpenVolumesError::Damaged(what)
                })?;
                self.blocks.push(FoundBlock {
                    granule,
                    block,
                    valid: Vec::new(),
                });
            }
            self.read_sectors(page, entry, granule);
        }
        Ok(())
    }

    /// Checks the size, the place and the address of a block. Returns the granule after
    /// it.
    fn check(&self, granule: u32, block: MappedBlock) -> Result<u32, &'static str> {
        let plan = &self.disk.plan;
        let granules = 1_u32 << block.class;
        if plan.classes & granules == 0 {
            return Err("has a size that the cache does not have");
        }
        let end = granule.checked_add(granules);
        let end = end.filter(|end| *end <= plan.granules() && granule.is_multiple_of(granules));
        let end = end.ok_or("lies outside of the places of its size")?;
        if granule < self.free_from {
            return Err("lies inside of another");
        }
        let start = block.address.checked_mul(u64::from(plan.granule_bytes));
        let mut volumes = self.superblock.volumes.iter();
        let size = volumes.find(|known| known.volume == block.volume);
        let size = size.map_or(u64::MAX, |known| known.size_bytes);
        if !block.address.is_multiple_of(granules.into()) || start.is_none_or(|at| at >= size) {
            return Err("has an address outside of its volume");
        }
        Ok(end)
    }

    /// Adds the sectors of a granule to the block that has it.
    fn read_sectors(&mut self, page: &TablePage, entry: u32, granule: u32) {
        let Some(found) = self.blocks.last_mut() else {
            return;
        };
        let within = granule - found.granule;
        if within >= 1 << found.block.class {
            return;
        }
        let granule_bytes = u64::from(self.disk.plan.granule_bytes);
        let base = (found.block.address + u64::from(within)) * granule_bytes;
        let sectors = self.disk.shape.sectors();
        let mut first = 0;
        while first < sectors {
            let state = page.sector(entry, first);
            let alike = |&sector: &u32| page.sector(entry, sector) == state;
            let end = (first..sectors).take_while(alike).last().unwrap_or(first) + 1;
            if state != Sector::Missing {
                let range = ByteRange {
                    start: base + u64::from(first) * SECTOR_BYTES,
                    end: base + u64::from(end) * SECTOR_BYTES,
                };
                push(&mut found.valid, range, state == Sector::Dirty);
            }
            first = end;
        }
        for unit in 0..self.disk.shape.sums() {
            let sum = page.sum(entry, unit);
            if sum != NO_SUM {
                self.sums_of_last.push((granule, unit, sum));
            }
        }
    }

    /// Checks the last block, now that all of its sectors are known, and leaves out
    /// what may not be served.
    fn end_block(&mut self) -> Result<(), OpenVolumesError> {
        let sums_of_last = std::mem::take(&mut self.sums_of_last);
        let Some(found) = self.blocks.last_mut() else {
            return Ok(());
        };
        let MappedBlock {
            volume,
            class,
            address,
        } = found.block;
        let granule_bytes = u64::from(self.disk.plan.granule_bytes);
        let start = address * granule_bytes;
        let extent = Extent {
            volume,
            range: ByteRange::at(start, granule_bytes << class),
        };
        if self.trust.stale.contains(&volume) {
            self.drop_last();
            return Ok(());
        }
        let mut volumes = self.superblock.volumes.iter();
        let is_known = volumes.any(|known| known.volume == volume);
        let of_witness = self.superblock.witness;
        let is_trusted = of_witness == 0 || of_witness == self.trust.witness;
        let is_settled = self.superblock.is_clean || !self.superblock.has_intent(extent);
        if is_known && is_trusted && is_settled {
            if let Some(sums) = self.sums {
                let known = sums_of_last.into_iter();
                known.for_each(|(granule, unit, sum)| sums.restore(granule, unit, sum));
            }
            if found.valid.is_empty() {
                self.drop_last();
            }
            return Ok(());
        }
        let granule = found.granule;
        let dirty = found.valid.iter().any(|(_, is_dirty)| *is_dirty);
        if !is_known && dirty {
            let what = format!("the block at granule {granule} belongs to no volume");
            return Err(OpenVolumesError::Damaged(what));
        }
        if !dirty {
            self.drop_last();
            return Ok(());
        }
        if !is_trusted {
            return Err(OpenVolumesError::OtherWitness);
        }
        for (range, is_dirty) in &found.valid {
            let state = match is_dirty {
                false => Sector::Missing,
                // Its checksums become unknown.
                true if self.sums.is_some() => Sector::Dirty,
                true => continue,
            };
            self.pending.push(BlockRecord::Mark {
                granule,
                first: ((range.start - start) / SECTOR_BYTES) as u16,
                end: ((range.end - start) / SECTOR_BYTES) as u16,
                state,
            });
        }
        found.valid.retain(|(_, is_dirty)| *is_dirty);
        Ok(())
    }

    fn drop_last(&mut self) {
        if let Some(found) = self.blocks.pop() {
            let granule = found.granule;
            self.pending.push(BlockRecord::Unmap { granule });
        }
    }
}

/// Adds a run, and joins it with the last one if it can.
fn push(valid: &mut Vec<(ByteRange, bool)>, range: ByteRange, is_dirty: bool) {
    match valid.last_mut() {
        Some((last, of_last)) if last.end == range.start && *of_last == is_dirty => {
            last.end = range.end;
        }
        _ => {
            if valid.is_empty() {
                // Most blocks have one run; a growing vector begins with room for four.
                valid.reserve_exact(1);
            }
            valid.push((range, is_dirty));
        }
    }
}
