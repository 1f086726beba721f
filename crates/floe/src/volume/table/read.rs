//! Reading the blocks that an earlier run left.
//!
//! Requests are served meanwhile, of blocks that have been read. After an unclean stop,
//! sectors that are clean and lie at addresses with a write-intent bit are left out. No
//! such bit of the earlier run is cleared before all blocks have been read.

use std::ops::Range;
use std::sync::Arc;

use floe_core::layout::volume::{BlockRecord, MappedBlock, NO_SUM, TablePage, VolumeSuperblock};
use floe_core::volume::mode::Sector;
use floe_core::volume::{ByteRange, Extent, SECTOR_BYTES, VolumeId};

use super::BlockTable;
use super::checkpoint::{ByPage, PageError, any_sound, page_bytes};
use super::disk::Disk;
use crate::volume::error::OpenVolumesError;
use crate::volume::sums::Sums;

/// Tells the blocks that went stale while the cache device could not be written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// The number of the witness, or zero without one.
    pub(crate) witness: u32,
    /// Volumes all of whose blocks are stale.
    pub(crate) stale: Vec<VolumeId>,
}

impl Trust {
    /// True if the witness is the one of the run that left `superblock`, or that had none.
    pub(super) fn is_of(&self, superblock: &VolumeSuperblock) -> bool {
        superblock.witness == 0 || superblock.witness == self.witness
    }
}

/// A block that an earlier run left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::volume) struct FoundBlock {
    /// The place, in granules.
    pub(in crate::volume) granule: u32,
    pub(in crate::volume) block: MappedBlock,
    /// Its valid bytes of the volume, and whether they are dirty.
    pub(in crate::volume) valid: Vec<(ByteRange, bool)>,
}

/// Tells how to read the blocks of an earlier run, and which of them may be served.
#[derive(Debug)]
pub(in crate::volume) struct Unread {
    /// The superblock with the records of the log: tells which blocks may be served.
    pub(super) earlier: VolumeSuperblock,
    pub(super) trust: Trust,
    /// The records of the log, if the pages lack them because the device cannot be written.
    pub(super) records: ByPage<'static>,
    pub(super) sums: Option<Arc<Sums>>,
}

/// The blocks of some places.
#[derive(Debug, Default)]
pub(in crate::volume) struct Found {
    /// In the order of places.
    pub(in crate::volume) blocks: Vec<FoundBlock>,
    /// Records of what is left out.
    pub(in crate::volume) left_out: Vec<BlockRecord>,
}

impl Unread {
    /// True if no request may be served before all blocks are read: of what is left out, the
    /// write-intent bits do not tell another start.
    pub(in crate::volume) fn comes_first(&self) -> bool {
        !self.trust.is_of(&self.earlier) || !self.trust.stale.is_empty()
    }
}

impl BlockTable {
    /// Granules that one page of the table describes.
    pub(in crate::volume) fn granules_of_page(&self) -> u32 {
        self.disk().shape.entries()
    }

    /// Reads the blocks at `granules`, which ascend and are read in one go. No block crosses
    /// the ends of a range, and none there has changed since the cache was opened.
    pub(in crate::volume) async fn read_blocks(
        &self,
        unread: &Unread,
        granules: &[Range<u32>],
    ) -> Result<Found, OpenVolumesError> {
        let read = read_blocks(&self.disk(), unread, granules).await;
        read.map_err(PageError::when_opening)?
    }

    /// As [`BlockTable::read_blocks`], while no checkpoint writes a page for other blocks of
    /// it.
    pub(in crate::volume) async fn read_blocks_alone(
        &self,
        unread: &Unread,
        granules: &[Range<u32>],
    ) -> Result<Found, OpenVolumesError> {
        let _no_checkpoint = self.checkpoint.lock().await;
        self.read_blocks(unread, granules).await
    }
}

/// Reads the blocks at `granules`, or fails to read a page of them.
async fn read_blocks(
    disk: &Disk,
    unread: &Unread,
    granules: &[Range<u32>],
) -> Result<Result<Found, OpenVolumesError>, PageError> {
    let (Some(start), Some(end)) = (granules.first(), granules.last()) else {
        return Ok(Ok(Found::default()));
    };
    let (first, _) = disk.shape.locate(start.start);
    let (last, _) = disk.shape.locate(end.end.saturating_sub(1));
    let bytes = page_bytes(disk, first..last + 1);
    let buf = disk.allocate((bytes.end - bytes.start) as usize);
    let bytes = disk.device.read(bytes.start, buf).await?;
    let mut reader = TableReader::new(disk, unread);
    for (number, copies) in (first..=last).zip(bytes.chunks_exact(super::COPIES_BYTES)) {
        let mut page = any_sound(disk, number, copies)?;
        unread.records.apply(&mut page);
        for granules in granules {
            if let Err(error) = reader.read(&page, granules) {
                return Ok(Err(error));
            }
        }
    }
    Ok(reader.end_block().map(|()| reader.found))
}

/// Collects blocks from pages in their order. A block's entries may lie in two pages.
struct TableReader<'a> {
    disk: &'a Disk,
    unread: &'a Unread,
    found: Found,
    /// The checksums of the last block: granules, units in them, checksums.
    sums_of_last: Vec<(u32, u32, u32)>,
    /// The granule after the last block.
    free_from: u32,
}

impl<'a> TableReader<'a> {
    fn new(disk: &'a Disk, unread: &'a Unread) -> Self {
        TableReader {
            disk,
            unread,
            found: Found::default(),
            sums_of_last: Vec::new(),
            free_from: 0,
        }
    }

    /// Reads what `page` says of `granules`.
    fn read(&mut self, page: &TablePage, granules: &Range<u32>) -> Result<(), OpenVolumesError> {
        let entries = self.disk.shape.entries();
        let first = page.number * entries;
        let start = granules.start.max(first);
        let end = granules.end.min(first + entries);
        for granule in start..end {
            let entry = granule - first;
            if let Some(block) = page.block(entry) {
                self.end_block()?;
                self.free_from = self.check(granule, block).map_err(|why| {
                    let what = format!("the block at granule {granule} {why}");
                    OpenVolumesError::Damaged(what)
                })?;
                self.found.blocks.push(FoundBlock {
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
        let mut volumes = self.unread.earlier.volumes.iter();
        let size = volumes.find(|known| known.volume == block.volume);
        let size = size.map_or(u64::MAX, |known| known.size_bytes);
        if !block.address.is_multiple_of(granules.into()) || start.is_none_or(|at| at >= size) {
            return Err("has an address outside of its volume");
        }
        Ok(end)
    }

    /// Adds the sectors of a granule to the block that has it.
    fn read_sectors(&mut self, page: &TablePage, entry: u32, granule: u32) {
        let Some(found) = self.found.blocks.last_mut() else {
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

    /// Checks the last block, now that all of its sectors are known, and leaves out the
    /// sectors that may not be served.
    fn end_block(&mut self) -> Result<(), OpenVolumesError> {
        let sums_of_last = std::mem::take(&mut self.sums_of_last);
        let Some(found) = self.found.blocks.last_mut() else {
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
        let Unread {
            earlier,
            trust,
            sums,
            ..
        } = self.unread;
        if trust.stale.contains(&volume) {
            self.drop_last();
            return Ok(());
        }
        let is_known = earlier.volumes.iter().any(|known| known.volume == volume);
        let is_trusted = trust.is_of(earlier);
        if is_known && is_trusted && !earlier.has_intent(extent) {
            if let Some(sums) = sums {
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
                true if sums.is_some() => Sector::Dirty,
                true => continue,
            };
            self.found.left_out.push(BlockRecord::Mark {
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
        if let Some(found) = self.found.blocks.pop() {
            let granule = found.granule;
            self.found.left_out.push(BlockRecord::Unmap { granule });
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
