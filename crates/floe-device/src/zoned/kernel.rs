//! The kernel's interface to zoned block devices: `linux/blkzoned.h`, and the drive's
//! limits in `/sys/dev/block`.
//!
//! Must not depend on: the device above.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::contract::ZoneState;

/// The kernel counts in sectors of this size, for drives with larger blocks too.
const SECTOR_BYTES: u64 = 512;

/// A zone as the kernel reports it. Positions are bytes from the device's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelZone {
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// Writable bytes.
    pub(crate) capacity: u64,
    /// Bytes written, from the zone's start.
    pub(crate) written: u64,
    /// `None` for a conventional zone.
    pub(crate) state: Option<ZoneState>,
}

impl KernelZone {
    /// True if the next write to this sequential zone belongs at `offset`.
    pub(crate) fn takes_write_at(&self, offset: u64) -> bool {
        let closed = |state: ZoneState| state.is_unwritable() || state == ZoneState::Full;
        self.written == offset && self.state.is_some_and(|state| !closed(state))
    }
}

/// The kernel's `struct blk_zone`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawZone {
    start: u64,
    len: u64,
    write_pointer: u64,
    kind: u8,
    condition: u8,
    non_sequential: u8,
    reset: u8,
    reserved: [u8; 4],
    capacity: u64,
    reserved_too: [u8; 24],
}

/// Zones of one report: 64 KiB.
const REPORTED_MAX: usize = 1024;

/// The kernel's `struct blk_zone_report`, with room for zones.
#[repr(C)]
struct RawReport {
    sector: u64,
    zones_len: u32,
    flags: u32,
    zones: [RawZone; REPORTED_MAX],
}

const CONVENTIONAL: u8 = 1;
const HAS_CAPACITY: u32 = 1;

impl RawZone {
    fn decode(&self, has_capacity: bool) -> KernelZone {
        let len = self.len * SECTOR_BYTES;
        // Values of `enum blk_zone_cond`, which are those of ZNS and ZBC.
        let state = match self.condition {
            1 => ZoneState::Empty,
            2 | 3 => ZoneState::Open,
            4 => ZoneState::Closed,
            0xd => ZoneState::ReadOnly,
            0xe => ZoneState::Full,
            0xf => ZoneState::Offline,
            _ => ZoneState::Unknown,
        };
        // A drive may leave the pointer of an empty or full zone undefined.
        let written = self.write_pointer.saturating_sub(self.start);
        let written = written.saturating_mul(SECTOR_BYTES);
        KernelZone {
            start: self.start * SECTOR_BYTES,
            len,
            capacity: match has_capacity {
                true => self.capacity * SECTOR_BYTES,
                false => len,
            },
            written: if state == ZoneState::Empty {
                0
            } else {
                written
            },
            state: (self.kind != CONVENTIONAL).then_some(state),
        }
    }
}

/// The zones from byte `start` on, at most 1024; empty at the device's end.
pub(crate) fn report(file: &File, start: u64) -> io::Result<Vec<KernelZone>> {
    report_some(file, start, REPORTED_MAX as u32)
}

/// The zone that begins at byte `start`.
pub(crate) fn report_one(file: &File, start: u64) -> io::Result<KernelZone> {
    let zones = report_some(file, start, 1)?;
    let zone = zones.into_iter().find(|zone| zone.start == start);
    zone.ok_or_else(|| io::Error::other("the kernel reports no zone there"))
}

fn report_some(file: &File, start: u64, zones: u32) -> io::Result<Vec<KernelZone>> {
    const BLKREPORTZONE: libc::Ioctl = 0xc010_1282_u32 as libc::Ioctl;
    let mut report = Box::new(RawReport {
        sector: start / SECTOR_BYTES,
        zones_len: zones,
        flags: 0,
        zones: [RawZone::default(); REPORTED_MAX],
    });
    // SAFETY: BLKREPORTZONE writes at most `zones_len` zones behind the head of the
    // report, which has room for as many, and is valid for the call.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), BLKREPORTZONE, &raw mut *report) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    let has_capacity = report.flags & HAS_CAPACITY != 0;
    let reported = report.zones.iter().take(report.zones_len as usize);
    Ok(reported.map(|zone| zone.decode(has_capacity)).collect())
}

/// A change of a zone's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Reset,
    Close,
    Finish,
}

/// Changes the state of the zone of `len` bytes at byte `start`.
pub(crate) fn change(file: &File, start: u64, len: u64, change: Change) -> io::Result<()> {
    const BLKRESETZONE: libc::Ioctl = 0x4010_1283;
    const BLKCLOSEZONE: libc::Ioctl = 0x4010_1287;
    const BLKFINISHZONE: libc::Ioctl = 0x4010_1288;
    let request = match change {
        Change::Reset => BLKRESETZONE,
        Change::Close => BLKCLOSEZONE,
        Change::Finish => BLKFINISHZONE,
    };
    let range = [start, len].map(|bytes| bytes / SECTOR_BYTES);
    // SAFETY: these requests read two u64 from a pointer that is valid for the call.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), request, range.as_ptr()) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The kernel's description of a block device's queue.
#[derive(Clone, Debug)]
pub(crate) struct Queue(PathBuf);

impl Queue {
    /// The queue of the block device at `path`; `None` if there is no block device.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        let (major, minor) = (
            rustix::fs::major(metadata.rdev()),
            rustix::fs::minor(metadata.rdev()),
        );
        let is_block_device = metadata.file_type().is_block_device();
        is_block_device.then(|| Queue(format!("/sys/dev/block/{major}:{minor}/queue").into()))
    }

    /// True if zones must be written in sequence.
    pub(crate) fn is_host_managed(&self) -> bool {
        self.text("zoned")
            .is_some_and(|kind| kind == "host-managed")
    }

    /// A limit of the drive; `None` if it has none, or the kernel does not tell.
    pub(crate) fn limit(&self, name: &str) -> Option<u32> {
        let limit = self.text(name)?.parse().ok()?;
        (limit > 0).then_some(limit)
    }

    /// Bytes of the largest request that the kernel never splits, even if the memory is
    /// scattered.
    pub(crate) fn request_bytes_max(&self) -> Option<u64> {
        const PAGE_BYTES: u64 = 4096;
        let kib = self.limit("max_sectors_kb")?;
        let segments = self.limit("max_segments")?;
        Some((u64::from(kib) << 10).min(u64::from(segments) * PAGE_BYTES))
    }

    fn text(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.0.join(name)).ok()?;
        Some(text.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_are_those_of_the_kernel() {
        assert_eq!(size_of::<RawZone>(), 64);
        assert_eq!(std::mem::offset_of!(RawReport, zones), 16);
        assert_eq!(std::mem::offset_of!(RawZone, capacity), 32);
    }

    #[test]
    fn zones_are_decoded_in_bytes() {
        let raw = RawZone {
            start: 0x2_0000,
            len: 0x2_0000,
            write_pointer: 0x2_0008,
            kind: 2,
            condition: 4,
            capacity: 0x1_f000,
            ..RawZone::default()
        };
        let zone = raw.decode(true);
        let expected = KernelZone {
            start: 64 << 20,
            len: 64 << 20,
            capacity: 62 << 20,
            written: 4096,
            state: Some(ZoneState::Closed),
        };
        assert_eq!(zone, expected);
        assert_eq!(
            raw.decode(false).capacity,
            64 << 20,
            "an old kernel tells none"
        );
        let conventional = RawZone {
            kind: CONVENTIONAL,
            condition: 0,
            ..raw
        };
        assert_eq!(conventional.decode(true).state, None);
        let empty = RawZone {
            condition: 1,
            write_pointer: u64::MAX,
            ..raw
        };
        assert_eq!(empty.decode(true).written, 0);
    }
}
