//! Reads a log, and finds the valid one when a cache is opened.

use std::cmp::Reverse;

use floe_core::ZoneId;
use floe_core::layout::{
    Identified, JournalChain, JournalRecord, LayoutError, Structure, identify,
};
use floe_device::{Address, DeviceError, SharedDevice};

use super::reader::Reader;
use super::{LogSuperblock, METADATA, other};

/// Bytes at the beginning of each metadata zone that must be blank before a
/// device is formatted without consent. File systems, volume managers and
/// partition tables may leave their first bytes blank, but have a signature
/// somewhere in the first MiB.
const FOREIGN_CHECK_BYTES: u64 = 1 << 20;

/// The reason why the metadata zones describe no cache that can be opened.
#[derive(Debug)]
pub(crate) enum FindError {
    /// The device failed.
    Device(DeviceError),
    /// A superblock has another format version.
    OtherVersion(LayoutError),
    /// A zone begins with the superblock of another kind of cache.
    OtherKind(LayoutError),
    /// A zone begins with foreign data, and neither has a superblock.
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
        // An unreadable zone is an error: it may be the newer of the two.
        let head = device.allocate(len as usize);
        let head = device.read(Address::new(zone, 0), head).await?;
        match S::decode(&head) {
            Ok(superblock) => found.push((zone, superblock)),
            Err(error @ LayoutError::UnsupportedVersion { .. }) => {
                return Err(FindError::OtherVersion(error));
            }
            // A crash interrupted the beginning of this zone.
            Err(LayoutError::BadChecksum) => {}
            Err(LayoutError::Unexpected(structure)) if structure == S::Record::BLOCK => {}
            Err(_) if holds_only(device, &head, S::Record::BLOCK) => {}
            Err(error) => foreign = foreign.or(Some(error)),
        }
    }
    found.sort_by_key(|(_, superblock): &(_, S)| Reverse(superblock.chain().epoch()));
    match foreign {
        // Next to a superblock, other data is the remains of a crash.
        Some(error) if found.is_empty() => Err(match error {
            LayoutError::Unexpected(kind) if kind.is_superblock() => FindError::OtherKind(error),
            error => FindError::Foreign(error),
        }),
        _ => Ok(found),
    }
}

/// True if `head`, the beginning of a metadata zone, has only `blocks` and
/// zeros. A crash may keep a block of a new log and lose the superblock before it.
fn holds_only(device: &SharedDevice, head: &[u8], blocks: Structure) -> bool {
    head.chunks(device.geometry().block_size as usize)
        .map(identify)
        .all(|block| block == Identified::Blank || block == Identified::Claims(blocks))
}

/// The valid log.
#[derive(Debug)]
pub(crate) struct Found<S: LogSuperblock> {
    pub(crate) zone: ZoneId,
    pub(crate) superblock: S,
    /// The highest epoch of either zone, complete or not.
    pub(crate) epoch_max: u64,
    pub(crate) records: Vec<S::Record>,
    /// Records are lost: every key that they may have named is suspect.
    pub(crate) damaged: bool,
}

/// The newest complete and undamaged log among [`superblocks`], otherwise the
/// newest damaged one. An older complete log may replace a damaged one: its zone
/// is reset before any record that only its successor has is acknowledged.
pub(crate) async fn newest<S: LogSuperblock>(
    device: &SharedDevice,
    mut superblocks: Vec<(ZoneId, S)>,
) -> Result<Option<Found<S>>, DeviceError> {
    let epoch = |superblock: &S| superblock.chain().epoch();
    let epoch_max = superblocks.first().map_or(0, |(_, newest)| epoch(newest));
    if let [(zone, superblock)] = superblocks[..] {
        // If the other superblock is damaged, this one may be its copy.
        superblocks.push((other(zone), superblock));
    }
    let mut damaged = None;
    for (zone, superblock) in superblocks {
        let scan = scan(device, &superblock, zone, None).await?;
        let found = Found {
            zone,
            superblock,
            epoch_max,
            records: scan.records,
            damaged: scan.damaged,
        };
        if scan.damaged {
            damaged = damaged.or(Some(found));
        } else if scan.complete {
            return Ok(Some(found));
        }
    }
    Ok(damaged)
}

/// The log of a metadata zone.
#[derive(Debug)]
pub(super) struct Scan<R> {
    /// Its records, without the end of the checkpoint.
    pub(super) records: Vec<R>,
    /// The checkpoint at the beginning of the zone is complete.
    pub(super) complete: bool,
    /// Records are missing: no copy of some block can be read.
    pub(super) damaged: bool,
    /// The given end was reached.
    pub(super) reached_end: bool,
}

/// Reads the log behind `superblock` in `zone`, up to `end` if it is known.
pub(super) async fn scan<S: LogSuperblock>(
    device: &SharedDevice,
    superblock: &S,
    zone: ZoneId,
    end: Option<JournalChain>,
) -> Result<Scan<S::Record>, DeviceError> {
    let mut reader = Reader::new(device, superblock, zone);
    let mut scan = Scan {
        records: Vec::new(),
        complete: false,
        damaged: false,
        reached_end: false,
    };
    loop {
        if end == Some(reader.chain()) {
            scan.reached_end = true;
            return Ok(scan);
        }
        let Some(block) = reader.next().await? else {
            scan.damaged = reader.goes_on();
            return Ok(scan);
        };
        for record in block.records {
            match record.as_checkpoint_end() {
                Some(count) => scan.complete = count == scan.records.len() as u64,
                None => scan.records.push(record),
            }
        }
    }
}
