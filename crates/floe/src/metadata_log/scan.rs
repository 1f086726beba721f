//! Reading a log, and finding the zone that holds when a cache is opened.

use std::cmp::Reverse;

use floe_core::ZoneId;
use floe_core::layout::{
    Identified, JournalChain, JournalRecord, LayoutError, Structure, identify,
};
use floe_device::{Address, DeviceError, IoBuf, SharedDevice};

use super::{LogSuperblock, METADATA, other};

/// Bytes at the beginning of each metadata zone that must be blank before a
/// device is formatted unasked: file systems, volume managers and partition
/// tables leave their first bytes blank, but sign somewhere in the first MiB.
const FOREIGN_CHECK_BYTES: u64 = 1 << 20;

/// Bytes read at once when a log is scanned.
const SCAN_BYTES: u64 = 1 << 20;

/// Why the metadata zones say nothing of a cache that could be opened.
#[derive(Debug)]
pub(crate) enum FindError {
    /// The device failed.
    Device(DeviceError),
    /// A superblock is of another format version.
    OtherVersion(LayoutError),
    /// A zone begins with something else, and no superblock was found.
    Foreign(LayoutError),
}

impl From<DeviceError> for FindError {
    fn from(error: DeviceError) -> Self {
        FindError::Device(error)
    }
}

/// The superblocks of the metadata zones, the newest first; none if the device
/// may be formatted.
pub(crate) async fn superblocks<S: LogSuperblock>(
    device: &SharedDevice,
) -> Result<Vec<(ZoneId, S)>, FindError> {
    let (mut found, mut foreign) = (Vec::new(), None);
    for zone in METADATA {
        let len = FOREIGN_CHECK_BYTES.min(device.geometry().zone_capacity);
        // Not skipped when it cannot be read: it may be the newer of the two.
        let head = device.allocate(len as usize);
        let head = device.read(Address::new(zone, 0), head).await?;
        match S::decode(&head) {
            Ok(superblock) => found.push((zone, superblock)),
            Err(error @ LayoutError::UnsupportedVersion { .. }) => {
                return Err(FindError::OtherVersion(error));
            }
            // A crash cut off a zone that was being begun.
            Err(LayoutError::BadChecksum) => {}
            Err(LayoutError::Unexpected(structure)) if structure == S::Record::BLOCK => {}
            Err(_) if holds_only(device, &head, S::Record::BLOCK) => {}
            Err(error) => foreign = foreign.or(Some(error)),
        }
    }
    found.sort_by_key(|(_, superblock): &(_, S)| Reverse(superblock.chain().epoch()));
    match foreign {
        // Beside a superblock nothing is foreign: a crash left it.
        Some(error) if found.is_empty() => Err(FindError::Foreign(error)),
        _ => Ok(found),
    }
}

/// Whether `head`, the beginning of a metadata zone, holds nothing but `blocks`
/// and zeros. A crash may keep a block of a log that was being begun, and lose
/// the superblock before it.
fn holds_only(device: &SharedDevice, head: &[u8], blocks: Structure) -> bool {
    head.chunks(device.geometry().block_size as usize)
        .map(identify)
        .all(|block| block == Identified::Blank || block == Identified::Claims(blocks))
}

/// The log that holds.
#[derive(Debug)]
pub(crate) struct Found<S: LogSuperblock> {
    pub(crate) zone: ZoneId,
    pub(crate) superblock: S,
    /// The highest epoch that was read, of a complete zone or not.
    pub(crate) epoch_max: u64,
    pub(crate) records: Vec<S::Record>,
    /// Records are lost: nothing that they may have spoken of is believed.
    pub(crate) damaged: bool,
}

/// The newest log that is complete or damaged, of [`superblocks`].
pub(crate) async fn newest<S: LogSuperblock>(
    device: &SharedDevice,
    mut superblocks: Vec<(ZoneId, S)>,
) -> Result<Option<Found<S>>, DeviceError> {
    let epoch = |superblock: &S| superblock.chain().epoch();
    let epoch_max = superblocks.first().map_or(0, |(_, newest)| epoch(newest));
    if let [(zone, superblock)] = superblocks[..] {
        // Where the other superblock is damaged, this may be the copy of it.
        superblocks.push((other(zone), superblock));
    }
    for (zone, superblock) in superblocks {
        let scan = scan(device, &superblock, zone, None).await?;
        if scan.damaged || scan.complete {
            return Ok(Some(Found {
                zone,
                superblock,
                epoch_max,
                records: scan.records,
                damaged: scan.damaged,
            }));
        }
    }
    Ok(None)
}

/// The log of a metadata zone.
#[derive(Debug)]
pub(super) struct Scan<R> {
    /// Its records, without the end of the checkpoint.
    pub(super) records: Vec<R>,
    /// Whether the checkpoint that the zone begins with is complete.
    pub(super) complete: bool,
    /// Whether a block in the middle cannot be read: records are missing.
    pub(super) damaged: bool,
    /// Whether the given end was reached.
    pub(super) reached_end: bool,
}

/// Reads the log behind `superblock` in `zone`, up to `end` if it is known.
pub(super) async fn scan<S: LogSuperblock>(
    device: &SharedDevice,
    superblock: &S,
    zone: ZoneId,
    end: Option<JournalChain>,
) -> Result<Scan<S::Record>, DeviceError> {
    let geometry = device.geometry();
    let block_size = geometry.block_size;
    let mut chain = superblock.chain();
    let mut scan = Scan {
        records: Vec::new(),
        complete: false,
        damaged: false,
        reached_end: false,
    };
    let mut offset = u64::from(block_size);
    let mut window_start = offset;
    let mut window = read_window(device, zone, offset).await?;
    loop {
        if end == Some(chain) {
            scan.reached_end = true;
            return Ok(scan);
        }
        let rest = window
            .get((offset - window_start) as usize..)
            .unwrap_or_default();
        match chain.decode::<S::Record>(block_size, rest) {
            Ok(block) => {
                offset += block.encoded_bytes as u64;
                for record in block.records {
                    match record.as_checkpoint_end() {
                        Some(count) => scan.complete = count == scan.records.len() as u64,
                        None => scan.records.push(record),
                    }
                }
            }
            Err(_) if offset > window_start && offset < geometry.zone_capacity => {
                // Perhaps cut off by the window: look again with the block at its start.
                window = read_window(device, zone, offset).await?;
                window_start = offset;
            }
            Err(_) => {
                // A torn last append has nothing behind it, for a log is
                // written one append at a time.
                scan.damaged = (block_size as usize..rest.len())
                    .step_by(block_size as usize)
                    .any(|at| chain.is_behind_next::<S::Record>(&rest[at..]));
                return Ok(scan);
            }
        }
    }
}

/// The next part of a log, from `offset` on; empty at the zone's end.
async fn read_window(
    device: &SharedDevice,
    zone: ZoneId,
    offset: u64,
) -> Result<IoBuf, DeviceError> {
    let len = SCAN_BYTES.min(device.geometry().zone_capacity.saturating_sub(offset));
    if len == 0 {
        return Ok(IoBuf::zeroed(0));
    }
    let buf = device.allocate(len as usize);
    device.read(Address::new(zone, offset), buf).await
}
