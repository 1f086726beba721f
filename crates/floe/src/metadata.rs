//! The metadata zones as the journal of tiny objects uses them.

use floe_core::ZoneId;
use floe_core::layout::{Identified, Structure, identify};
use floe_device::{Address, DeviceError, IoBuf, Placement, SharedDevice};

pub(crate) use crate::metadata_log::{METADATA, other};

/// Bytes at the beginning of each metadata zone that must be blank before a
/// device is formatted unasked: file systems, volume managers and partition
/// tables leave their first bytes blank, but sign somewhere in the first MiB.
pub(crate) const FOREIGN_CHECK_BYTES: u64 = 1 << 20;

/// Bytes read at once when a journal is scanned.
const SCAN_BYTES: u64 = 1 << 20;

/// Space below the device that each journal keeps, so that one can go on where
/// a disk is full: what a journal must hold fits, and moves to the other zone.
const RESERVED_BYTES: u64 = 1 << 20;

/// Takes the space that the journals need below a device.
pub(crate) fn reserve(device: &SharedDevice) {
    let bytes = RESERVED_BYTES.min(device.geometry().zone_capacity);
    for zone in METADATA {
        if let Err(error) = device.reserve(zone, bytes) {
            tracing::warn!(%error, "no space is set aside for the journal; where it lacks some, writes are refused");
        }
    }
}

/// Empties the metadata zone of an earlier epoch and leaves a copy of the
/// superblock in force there, so that the cache is known by it where the other
/// one is damaged. The old zone must not stay: it would be taken for the newer.
pub(crate) async fn leave_copy(device: &SharedDevice, zone: ZoneId, superblock: IoBuf) {
    if let Err(error) = device.reset(zone).await {
        tracing::warn!(%error, "the old journal zone could not be reset");
        return;
    }
    let copied = device.append(zone, superblock.freeze(), Placement(0)).await;
    if let Err(error) = copied {
        tracing::warn!(%error, "the second copy of the superblock could not be written");
    }
}

/// Whether there is nothing in `head`, the beginning of a metadata zone, but
/// `blocks` and zeros. A crash may have kept a block of a journal that was
/// being begun, and lost the superblock before it.
pub(crate) fn holds_only(device: &SharedDevice, head: &[u8], blocks: Structure) -> bool {
    head.chunks(device.geometry().block_size as usize)
        .map(identify)
        .all(|block| block == Identified::Blank || block == Identified::Claims(blocks))
}

/// The next part of a journal, from `offset` on; empty at the zone's end.
pub(crate) async fn read_window(
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

/// Whether blocks that `is_later` knows as this journal's stand behind the one
/// that `rest` begins with and that could not be decoded: then it was damaged,
/// and notes are lost. A torn last append has nothing behind it, for a journal
/// is written one append at a time.
pub(crate) fn goes_on(block_size: u32, rest: &[u8], is_later: impl Fn(&[u8]) -> bool) -> bool {
    let block = block_size as usize;
    (block..rest.len())
        .step_by(block)
        .any(|at| is_later(&rest[at..]))
}
