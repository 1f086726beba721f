//! Inspects caches of volumes, whose devices are flat and have no zones.

use floe_core::layout::volume::{
    MappedBlock, TABLE_PAGE_BYTES, TablePage, TableShape, VOLUME_SUPERBLOCK_BYTES, VolumeSuperblock,
};
use floe_core::layout::{FRAME_BYTES, Identified, LayoutError, Structure, identify};
use floe_core::volume::mode::Sector;
use floe_core::volume::{SECTOR_BYTES, VolumeId};
use floe_device::{DeviceError, SharedBlockDevice};
use serde::Serialize;

use super::inspection::{InspectError, read_failure};
use crate::volume::table::{Boot, ByPage, COPIES_BYTES, Disk, following, read_log};

/// Pages of the table that are read at once.
const PAGES_AT_ONCE: u32 = 128;

/// A finding in a cache of volumes. Offsets are bytes from the start of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum VolumeFinding {
    /// A copy of the superblock.
    VolumeSuperblock {
        /// Its offset.
        offset: u64,
        /// It is the newer copy, or the first of two equal ones.
        current: bool,
        /// The cache's identity.
        cache_id: String,
        /// When the cache was formatted, in seconds since 1970.
        created_unix_s: u64,
        /// The log's epoch.
        epoch: u64,
        /// Of two copies with one epoch the higher is newer.
        sequence: u64,
        /// The cache was closed, and not opened since.
        is_clean: bool,
        /// Bytes of a block of the device.
        block_size: u32,
        /// Bytes of the smallest block.
        granule_bytes: u32,
        /// Bit *i* stands for blocks of 2^*i* granules.
        classes: u32,
        /// Shards.
        shards: u32,
        /// Bytes of the log.
        log_bytes: u64,
        /// Bytes of all places.
        places_bytes: u64,
    },
    /// A batch of the log.
    Batch {
        /// Its number.
        number: u64,
        /// Batches with lower numbers survive a power loss.
        stable: u64,
        /// Its records.
        records: u64,
    },
    /// The log; follows its batches.
    BlockLog {
        /// Its offset.
        offset: u64,
        /// The first batch whose records the table lacks.
        first_batch: u64,
        /// Sound batches from that one on.
        batches: u64,
        /// Batches that survive a power loss.
        stable_batches: u64,
        /// Records that an opening of the cache applies.
        records: u64,
    },
    /// A block.
    Block {
        /// The offset of its data.
        offset: u64,
        /// Number of its volume.
        volume: u16,
        /// Its first byte within the volume.
        address: u64,
        /// Its size.
        bytes: u64,
        /// Bytes that are valid.
        valid_bytes: u64,
        /// Valid bytes that the backing device lacks.
        dirty_bytes: u64,
    },
    /// The table; follows its blocks, as they are with the records of the log.
    BlockTable {
        /// Its offset.
        offset: u64,
        /// Its pages.
        pages: u64,
        /// Pages that were never written.
        blank_pages: u64,
        /// Blocks.
        blocks: u64,
    },
    /// A volume; follows all blocks.
    Volume {
        /// Its number.
        volume: u16,
        /// Its name.
        name: String,
        /// Bytes of its backing device.
        size_bytes: u64,
        /// The superblock has a stamp of its backing device.
        has_stamp: bool,
        /// Its blocks.
        blocks: u64,
        /// Bytes that are valid in them.
        valid_bytes: u64,
        /// Valid bytes that the backing device lacks.
        dirty_bytes: u64,
    },
    /// Damage.
    Damage {
        /// Its offset.
        offset: u64,
        /// The expected structure.
        what: String,
        /// The fault.
        why: String,
    },
}

/// Counts over all findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VolumeTotals {
    /// Volumes.
    pub volumes: u64,
    /// Batches of the log.
    pub batches: u64,
    /// Blocks.
    pub blocks: u64,
    /// Valid bytes in them.
    pub valid_bytes: u64,
    /// Valid bytes that backing devices lack.
    pub dirty_bytes: u64,
    /// Damaged places.
    pub damage: u64,
}

/// True if `head`, the first 64 KiB of a device or less, begins as a cache of volumes:
/// with a superblock, which may be damaged, or with the second copy of one.
pub fn is_cache_of_volumes(head: &[u8]) -> bool {
    let structure = |at| identify(head.get(at..at + FRAME_BYTES).unwrap_or_default());
    match structure(0) {
        Identified::Claims(found) => found == Structure::VolumeSuperblock,
        _ => {
            let volumes = Identified::Claims(Structure::VolumeSuperblock);
            structure(VOLUME_SUPERBLOCK_BYTES) == volumes
        }
    }
}

/// Inspects the cache of volumes on `device`, and passes findings to `visit`: both
/// superblocks, the log, the table, blocks and volumes. Blocks carry no checksum, so
/// that their data is not read. Needs memory for the log and 24 bytes for each block.
///
/// # Errors
/// There is no cache of volumes, or the device is smaller than it. Other damage is a
/// [`VolumeFinding::Damage`], not an error.
pub async fn inspect_volumes(
    device: &SharedBlockDevice,
    visit: impl FnMut(&VolumeFinding) + Send,
) -> Result<VolumeTotals, InspectError> {
    let mut visit = visit;
    let mut report = Report {
        visit: &mut visit,
        totals: VolumeTotals::default(),
    };
    let superblock = superblocks(device, &mut report).await?;
    let (end, size) = (superblock.plan.end(), device.size_bytes());
    if end > size {
        let what = format!("it needs {end} bytes, and the device has {size}");
        return Err(InspectError::Shape(what));
    }
    let disk = Disk::new(device.clone(), &superblock);
    let records = log(&disk, &superblock, &mut report).await;
    let mut walk = Walk::new(&superblock, disk.shape, records.is_some());
    let records = records.unwrap_or_default();
    let records = ByPage::new(&disk, &records);
    walk.table(&disk, &records, &mut report).await;
    walk.volumes(&mut report);
    Ok(report.totals)
}

/// Passes findings on, and counts them.
struct Report<'a> {
    visit: &'a mut (dyn FnMut(&VolumeFinding) + Send),
    totals: VolumeTotals,
}

impl Report<'_> {
    fn emit(&mut self, finding: VolumeFinding) {
        let totals = &mut self.totals;
        match &finding {
            VolumeFinding::Batch { .. } => totals.batches += 1,
            VolumeFinding::Volume { .. } => totals.volumes += 1,
            VolumeFinding::Damage { .. } => totals.damage += 1,
            VolumeFinding::Block {
                valid_bytes,
                dirty_bytes,
                ..
            } => {
                totals.blocks += 1;
                totals.valid_bytes += valid_bytes;
                totals.dirty_bytes += dirty_bytes;
            }
            VolumeFinding::VolumeSuperblock { .. }
            | VolumeFinding::BlockLog { .. }
            | VolumeFinding::BlockTable { .. } => {}
        }
        (self.visit)(&finding);
    }

    fn damage(&mut self, offset: u64, what: &str, why: impl ToString) {
        self.emit(VolumeFinding::Damage {
            offset,
            what: what.to_owned(),
            why: why.to_string(),
        });
    }
}

/// Reports both copies of the superblock, and returns the newer.
async fn superblocks(
    device: &SharedBlockDevice,
    report: &mut Report<'_>,
) -> Result<VolumeSuperblock, InspectError> {
    const COPY: u64 = VOLUME_SUPERBLOCK_BYTES as u64;
    let mut copies = Vec::new();
    for offset in [0, COPY] {
        let buf = device.allocate(VOLUME_SUPERBLOCK_BYTES);
        let bytes = device.read(offset, buf).await?;
        copies.push(VolumeSuperblock::decode(&bytes));
    }
    let [first, second] = &copies[..] else {
        unreachable!("two copies were read");
    };
    let order = |superblock: &VolumeSuperblock| (superblock.epoch, superblock.sequence);
    let current = match (first, second) {
        (Ok(first), Ok(second)) => u64::from(order(second) > order(first)),
        (Ok(_), Err(_)) => 0,
        (Err(_), Ok(_)) => 1,
        (Err(first), Err(second)) => {
            let (first, second) = (*first, *second);
            return Err(InspectError::NoVolumes { first, second });
        }
    };
    let what = Structure::VolumeSuperblock.to_string();
    for (copy, found) in (0..).zip([first, second]) {
        match found {
            Ok(superblock) => report.emit(describe(superblock, copy * COPY, copy == current)),
            // The second copy is written last.
            Err(LayoutError::Blank) if copy == 1 => {}
            Err(error) => {
                report.damage(
                    copy * COPY,
                    &what,
                    format!("{error}; its other copy is sound"),
                );
            }
        }
    }
    if let (Ok(first), Ok(second)) = (first, second)
        && order(first) == order(second)
        && first != second
    {
        report.damage(
            COPY,
            &what,
            "it differs from the first copy of this sequence",
        );
    }
    let current = copies.swap_remove(current as usize);
    current.map_err(|first| InspectError::NoVolumes {
        second: first,
        first,
    })
}

fn describe(superblock: &VolumeSuperblock, offset: u64, current: bool) -> VolumeFinding {
    let plan = &superblock.plan;
    VolumeFinding::VolumeSuperblock {
        offset,
        current,
        cache_id: superblock.cache_id.to_string(),
        created_unix_s: superblock.formatted_at,
        epoch: superblock.epoch,
        sequence: superblock.sequence,
        is_clean: superblock.is_clean,
        block_size: plan.block_size,
        granule_bytes: plan.granule_bytes,
        classes: plan.classes,
        shards: plan.shards,
        log_bytes: plan.log_bytes,
        places_bytes: plan.places_bytes,
    }
}

/// Reports the log, and returns the records that an opening applies, unless they are
/// damaged.
async fn log(
    disk: &Disk,
    superblock: &VolumeSuperblock,
    report: &mut Report<'_>,
) -> Option<Vec<floe_core::layout::volume::BlockRecord>> {
    let (offset, what) = (disk.plan.log_offset, Structure::BlockLog.to_string());
    let batches = match read_log(disk, superblock).await {
        Ok(batches) => batches,
        Err(error) => {
            report.damage(offset, &what, read_failure(&error));
            return None;
        }
    };
    let mut stable = superblock.first_batch;
    for (batch, _) in batches.values() {
        stable = stable.max(batch.stable);
        report.emit(VolumeFinding::Batch {
            number: batch.number,
            stable: batch.stable,
            records: batch.records.len() as u64,
        });
    }
    let count = batches.len() as u64;
    let lost_power = Boot::of_this_machine().0 != superblock.boot;
    let followed = following(batches, superblock, lost_power);
    let records = match followed {
        Ok(following) => Some(following.records),
        Err(error) => {
            report.damage(offset, &what, error);
            None
        }
    };
    report.emit(VolumeFinding::BlockLog {
        offset,
        first_batch: superblock.first_batch,
        batches: count,
        stable_batches: stable - superblock.first_batch,
        records: records.as_ref().map_or(0, Vec::len) as u64,
    });
    records
}

/// The last block that was found, and its sectors so far.
struct Found {
    granule: u32,
    end: u32,
    block: MappedBlock,
    valid: u64,
    dirty: u64,
}

/// The address of a block: volume, first and last granule, and the granule of its place.
type Address = (VolumeId, u64, u64, u32);

/// Collects blocks from pages in their order.
struct Walk<'a> {
    superblock: &'a VolumeSuperblock,
    shape: TableShape,
    /// The records of the log are known, so that blocks must not contradict each other.
    is_current: bool,
    last: Option<Found>,
    addresses: Vec<Address>,
    /// Blocks, valid and dirty bytes of each volume.
    sums: Vec<[u64; 3]>,
}

impl<'a> Walk<'a> {
    fn new(superblock: &'a VolumeSuperblock, shape: TableShape, is_current: bool) -> Self {
        Walk {
            superblock,
            shape,
            is_current,
            last: None,
            addresses: Vec::new(),
            sums: vec![[0; 3]; superblock.volumes.len()],
        }
    }

    /// Reports the blocks of the table with `records` applied, and the table.
    async fn table(&mut self, disk: &Disk, records: &ByPage<'_>, report: &mut Report<'_>) {
        let (pages, what) = (
            self.shape.pages(disk.plan.granules()),
            Structure::BlockTable.to_string(),
        );
        let mut blank_pages = 0;
        let mut first = 0;
        while first < pages {
            let end = pages.min(first + PAGES_AT_ONCE);
            let at = page_offset(disk, first);
            let buf = disk.device.allocate((end - first) as usize * COPIES_BYTES);
            let read: Result<_, DeviceError> = disk.device.read(at, buf).await;
            match read {
                Ok(bytes) => {
                    for (number, copies) in (first..end).zip(bytes.chunks_exact(COPIES_BYTES)) {
                        let page = self.page(disk, records, number, copies, report);
                        blank_pages += u64::from(page.as_ref().is_some_and(|p| p.sequence == 0));
                        if let Some(mut page) = page {
                            records.apply(&mut page);
                            self.blocks(&page, report);
                        }
                    }
                }
                Err(error) => report.damage(at, &what, read_failure(&error)),
            }
            first = end;
        }
        self.end_block(report);
        self.compare_addresses(report);
        report.emit(VolumeFinding::BlockTable {
            offset: disk.plan.table_offset,
            pages: u64::from(pages),
            blank_pages,
            blocks: self.addresses.len() as u64,
        });
    }

    /// The newer of two copies of a page. A copy that recovery would write anew may have
    /// been cut off.
    fn page(
        &self,
        disk: &Disk,
        records: &ByPage<'_>,
        number: u32,
        copies: &[u8],
        report: &mut Report<'_>,
    ) -> Option<TablePage> {
        let (first, second) = copies.split_at(TABLE_PAGE_BYTES);
        let decode = |bytes| TablePage::decode(disk.id, self.shape, number, bytes);
        let at = page_offset(disk, number);
        let at_second = at + TABLE_PAGE_BYTES as u64;
        let what = format!("page {number} of the table of blocks");
        let may_be_cut_off = !self.superblock.is_clean || records.has(number);
        let (page, damaged) = match (decode(first), decode(second)) {
            (Ok(first), Ok(second)) => {
                let is_newer = second.sequence > first.sequence;
                let differs = second.sequence == first.sequence && second != first;
                if differs {
                    report.damage(at_second, &what, "it differs from its first copy");
                }
                (Some(if is_newer { second } else { first }), None)
            }
            (Ok(page), Err(error)) => (Some(page), Some((at_second, error))),
            (Err(error), Ok(page)) => (Some(page), Some((at, error))),
            (Err(LayoutError::Blank), Err(LayoutError::Blank)) => {
                return Some(TablePage::empty(self.shape, number));
            }
            // The first copy is written first, and alone for the first time.
            (Err(error), Err(LayoutError::Blank)) => (
                Some(TablePage::empty(self.shape, number)),
                Some((at, error)),
            ),
            (Err(error), Err(_)) => {
                report.damage(at, &what, format!("{error}, in both copies"));
                return None;
            }
        };
        if let Some((at, error)) = damaged.filter(|_| !may_be_cut_off) {
            report.damage(at, &what, format!("{error}; its other copy is sound"));
        }
        page
    }

    fn blocks(&mut self, page: &TablePage, report: &mut Report<'_>) {
        let first = page.number * self.shape.entries();
        let granules = self.superblock.plan.granules();
        for granule in first..granules.min(first.saturating_add(self.shape.entries())) {
            let entry = granule - first;
            if let Some(block) = page.block(entry) {
                self.begin_block(granule, block, report);
            }
            let Some(found) = self.last.as_mut().filter(|found| granule < found.end) else {
                continue;
            };
            for sector in 0..self.shape.sectors() {
                let state = page.sector(entry, sector);
                found.valid += u64::from(state != Sector::Missing);
                found.dirty += u64::from(state == Sector::Dirty);
            }
        }
    }

    fn begin_block(&mut self, granule: u32, block: MappedBlock, report: &mut Report<'_>) {
        let before = self.last.as_ref().map(|found| (found.granule, found.end));
        self.end_block(report);
        let plan = &self.superblock.plan;
        let granules = 1_u32 << block.class;
        let end = granule.saturating_add(granules);
        let address = block.address.checked_mul(plan.granule_bytes.into());
        let mut volumes = self.superblock.volumes.iter();
        let size = volumes.find(|volume| volume.volume == block.volume);
        let why = if plan.classes & granules == 0 {
            "the cache has no blocks of its size".to_owned()
        } else if !granule.is_multiple_of(granules) || end > plan.granules() {
            "it lies outside of the places of its size".to_owned()
        } else if let Some((of, _)) = before.filter(|(_, end)| granule < *end) {
            format!("it lies inside of the block at granule {of}")
        } else if size.is_none() {
            format!("the cache has no volume {}", block.volume.0)
        } else if !block.address.is_multiple_of(granules.into())
            || size
                .zip(address)
                .is_none_or(|(volume, at)| at >= volume.size_bytes)
        {
            "it lies outside of its volume".to_owned()
        } else {
            self.last = Some(Found {
                granule,
                end,
                block,
                valid: 0,
                dirty: 0,
            });
            return;
        };
        if self.is_current {
            report.damage(self.place(granule), &what_of(granule), why);
        }
    }

    fn end_block(&mut self, report: &mut Report<'_>) {
        let Some(found) = self.last.take() else {
            return;
        };
        let (volume, first) = (found.block.volume, found.block.address);
        let granule_bytes = u64::from(self.superblock.plan.granule_bytes);
        let granules = u64::from(found.end - found.granule);
        let (valid_bytes, dirty_bytes) = (found.valid * SECTOR_BYTES, found.dirty * SECTOR_BYTES);
        let address = (volume, first, first + granules, found.granule);
        self.addresses.push(address);
        let volumes = self.superblock.volumes.iter().zip(&mut self.sums);
        for (_, sums) in volumes.filter(|(known, _)| known.volume == volume) {
            sums[0] += 1;
            sums[1] += valid_bytes;
            sums[2] += dirty_bytes;
        }
        report.emit(VolumeFinding::Block {
            offset: self.place(found.granule),
            volume: volume.0,
            address: first * granule_bytes,
            bytes: granules * granule_bytes,
            valid_bytes,
            dirty_bytes,
        });
    }

    /// Reports addresses that two blocks have.
    fn compare_addresses(&mut self, report: &mut Report<'_>) {
        if !self.is_current {
            return;
        }
        self.addresses.sort_unstable();
        let pairs = self.addresses.iter().zip(self.addresses.iter().skip(1));
        for (&(of, _, end, granule), &(volume, first, _, other)) in pairs {
            if volume == of && first < end {
                let why = format!("it has an address of the block at granule {granule}");
                report.damage(self.place(other), &what_of(other), why);
            }
        }
    }

    /// Reports the volumes, with the sums of their blocks.
    fn volumes(&self, report: &mut Report<'_>) {
        for (volume, &[blocks, valid_bytes, dirty_bytes]) in
            self.superblock.volumes.iter().zip(&self.sums)
        {
            report.emit(VolumeFinding::Volume {
                volume: volume.volume.0,
                name: volume.name.clone(),
                size_bytes: volume.size_bytes,
                has_stamp: volume.stamp != [0; 32],
                blocks,
                valid_bytes,
                dirty_bytes,
            });
        }
    }

    /// The offset of a granule of the cache.
    fn place(&self, granule: u32) -> u64 {
        let plan = &self.superblock.plan;
        plan.places_offset + u64::from(granule) * u64::from(plan.granule_bytes)
    }
}

fn page_offset(disk: &Disk, number: u32) -> u64 {
    disk.plan.table_offset + u64::from(number) * COPIES_BYTES as u64
}

fn what_of(granule: u32) -> String {
    format!("block at granule {granule}")
}
