//! Block devices: flat ranges of blocks that are written in place.
//!
//! A volume's backing device is one, and so is the device of a cache of volumes.
//! A [`Device`](crate::Device) has zones and write pointers besides.

pub mod conformance;
pub mod faulty;
pub mod file;
pub mod flat;
pub mod history;
pub mod locked;
pub mod memory;
mod pages;
pub mod power;
mod reservation;

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock};

pub use reservation::{Holder, Reserved};

use floe_core::ByteSize;
use floe_core::layout::volume::VOLUME_SUPERBLOCK_BYTES;

use crate::buffer::{IoBuf, IoData};
use crate::config::OpenDeviceError;
use crate::contract::OpFuture;
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::file::contents::{Contents, Medium};
use crate::file::opening::io_error;
use crate::nvme;

/// A shared block device.
pub type SharedBlockDevice = Arc<dyn BlockDevice>;

/// The content of a write to the cache of volumes. Data of one kind is overwritten together, so a
/// drive with data placement has a handle for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The log, the table, superblocks.
    Metadata,
    /// Data that the backing device has, too.
    Clean,
    /// Data that only the cache has.
    Dirty,
}

/// A flat range of bytes, read and written in blocks.
///
/// Rules that every implementation keeps:
///
/// * An operation starts when the method is called, not when its future is first
///   polled, and finishes whether or not the future is kept.
/// * Buffers are owned and aligned. A dropped future frees nothing that the device
///   may still touch.
/// * Offsets and lengths are multiples of the block size and lie inside the device.
///   Anything else is rejected with
///   [`DeviceErrorKind::Invalid`] before any I/O.
/// * A short transfer is continued or reported as an error.
/// * A block is written whole or not at all. Nothing larger is.
/// * Operations in flight at once on the same bytes take effect in any order, block
///   by block. Callers who need an order wait.
pub trait BlockDevice: Send + Sync + fmt::Debug + 'static {
    /// Bytes of the device, a multiple of the block size.
    fn size_bytes(&self) -> u64;

    /// Asks the medium for its size, in whole blocks, which is the device's from then on.
    /// Devices that cannot change return the one they have.
    fn refresh_size(&self) -> OpFuture<u64> {
        OpFuture::ready(Ok(self.size_bytes()))
    }

    /// Gives the medium `size` bytes, whole blocks, durably; new ones read as zeros. If
    /// `allocates`, their space is taken, or nothing changes. Only files can do it.
    fn set_size(&self, size: u64, allocates: bool) -> OpFuture<()> {
        let _ = (size, allocates);
        let kind = DeviceErrorKind::Unsupported("only files are enlarged or truncated");
        OpFuture::ready(Err(DeviceError::new(Operation::Resize, None, kind)))
    }

    /// Bytes of a block: a power of two from 512 to 4096.
    fn block_bytes(&self) -> u32;

    /// A short human description: kind and path.
    fn describe(&self) -> String;

    /// A buffer of `len` zeroed or stale bytes for this device's I/O, from registered
    /// memory if the device has some left. Never blocks.
    fn allocate(&self, len: usize) -> IoBuf {
        IoBuf::zeroed(len)
    }

    /// True if a power loss erases flushed data too, as in memory. Wrappers answer for
    /// the device below.
    fn is_volatile(&self) -> bool {
        false
    }

    /// Fills all of `buf` from `at`, and returns it.
    fn read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf>;

    /// Writes `data` at `at`.
    fn write(&self, at: u64, data: IoData) -> OpFuture<()>;

    /// As [`write`](Self::write), on a drive with data placement apart from other `content`.
    fn write_of(&self, content: Content, at: u64, data: IoData) -> OpFuture<()> {
        let _ = content;
        self.write(at, data)
    }

    /// Writes `data` at `at`; when it succeeds, that data is on stable media. `None` if the
    /// device can do so only by flushing all that it was given.
    fn write_durably(&self, at: u64, data: IoData) -> Option<OpFuture<()>> {
        let _ = (at, data);
        None
    }

    /// Makes `range` read as zeros.
    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()>;

    /// Tells the device that the content of `range` is not needed. It reads as old
    /// data or as zeros, block by block. Succeeds without effect where the medium
    /// cannot discard.
    fn discard(&self, range: Range<u64>) -> OpFuture<()>;

    /// When it succeeds, every operation that had completed before the call is on
    /// stable media.
    fn flush(&self) -> OpFuture<()>;

    /// Reserves the medium for writes of this machine, by a `key` that other machines do not
    /// have, until it is [released](Self::release): also after the end of this process. If
    /// the machine of the key `taken_from` holds it, it is refused from then on.
    fn reserve(&self, key: u64, taken_from: Option<u64>) -> OpFuture<Reserved> {
        let _ = (key, taken_from);
        OpFuture::ready(Ok(Reserved::Unsupported))
    }

    /// Notes that all that another machine may have changed before a [`reserve`](Self::reserve)
    /// by `key` is known. Only then does the next one say that it was held meanwhile.
    fn confirm(&self, key: u64) -> OpFuture<()> {
        let _ = key;
        OpFuture::ready(Ok(()))
    }

    /// Gives up what [`reserve`](Self::reserve) took by `key`.
    fn release(&self, key: u64) -> OpFuture<()> {
        let _ = key;
        OpFuture::ready(Ok(()))
    }

    /// True once it is known that another machine has taken this one's reservation away, and
    /// may have written.
    fn is_taken_away(&self) -> bool {
        false
    }

    /// Counts of bytes and operations. Writes of zeros count as writes.
    fn counters(&self) -> &Counters;
}

/// The methods of a wrapper's [`BlockDevice`] that the device `below` it answers.
macro_rules! blocks_below {
    ($name:literal) => {
        $crate::block::blocks_below!($name, reserved by self.below);

        fn set_size(&self, size: u64, allocates: bool) -> $crate::OpFuture<()> {
            self.below.set_size(size, allocates)
        }
    };
    ($name:literal, reserved by self.$by:ident) => {
        $crate::contract::described_below!($name);

        fn size_bytes(&self) -> u64 {
            self.below.size_bytes()
        }

        fn refresh_size(&self) -> $crate::OpFuture<u64> {
            self.below.refresh_size()
        }

        fn block_bytes(&self) -> u32 {
            self.below.block_bytes()
        }

        fn is_volatile(&self) -> bool {
            self.below.is_volatile()
        }

        fn reserve(&self, key: u64, taken_from: Option<u64>) -> $crate::OpFuture<$crate::Reserved> {
            self.$by.reserve(key, taken_from)
        }

        fn confirm(&self, key: u64) -> $crate::OpFuture<()> {
            self.$by.confirm(key)
        }

        fn release(&self, key: u64) -> $crate::OpFuture<()> {
            self.$by.release(key)
        }

        fn is_taken_away(&self) -> bool {
            self.$by.is_taken_away()
        }
    };
}

pub(crate) use blocks_below;

/// Zeros to write, the most at once.
pub(crate) static ZEROS: LazyLock<IoData> = LazyLock::new(|| IoBuf::zeroed(256 << 10).freeze());

/// Checks that a device can have `size` bytes in blocks of `block_bytes`.
pub(crate) fn check_shape(
    device: &str,
    size: ByteSize,
    block_bytes: u32,
) -> Result<(), OpenDeviceError> {
    let block = u64::from(block_bytes);
    if !(512..=4096).contains(&block) || !block.is_power_of_two() {
        return Err(OpenDeviceError::LogicalBlock(ByteSize(block)));
    }
    if size.bytes() == 0 || !size.bytes().is_multiple_of(block) {
        return Err(OpenDeviceError::NotWholeBlocks {
            device: device.to_owned(),
            size,
            block_size: ByteSize(block),
        });
    }
    Ok(())
}

/// Checks that the file, block device or NVMe namespace at `path` is empty, or has a structure of
/// Floe's in the place of a volume superblock, before a cache of volumes is opened there. Reads
/// only.
///
/// # Errors
/// It has something else, or cannot be read.
pub fn refuse_foreign(path: &Path) -> Result<(), OpenDeviceError> {
    let found = match nvme::is_namespace(path) {
        true => nvme::block_device(path),
        false => None,
    };
    let path = found.as_deref().unwrap_or(path);
    let failed = |error| io_error(path, error);
    let file = File::open(path).map_err(failed)?;
    let medium = Medium::of(&file).map_err(failed)?;
    // Either copy of the superblock.
    for copy in [0, VOLUME_SUPERBLOCK_BYTES as u64] {
        if medium.is_claimed(copy).map_err(failed)? {
            return Ok(());
        }
    }
    match medium.contents(None).map_err(failed)? {
        Contents::Cache(_) => Err(OpenDeviceError::ForeignData {
            path: path.to_owned(),
            offset: 0,
            what: "a part of a cache of Floe's",
        }),
        other => other.cache(path).map(drop),
    }
}

/// The range of `len` bytes at `at`, if [`check_blocks`] accepts it.
pub fn check_range(
    device: &impl BlockDevice,
    at: u64,
    len: usize,
) -> Result<Range<u64>, DeviceErrorKind> {
    let range = at..at.saturating_add(len as u64);
    check_blocks(device, &range)?;
    Ok(range)
}

/// Checks that `range` is a non-empty run of whole blocks inside the device.
pub fn check_blocks(device: &impl BlockDevice, range: &Range<u64>) -> Result<(), DeviceErrorKind> {
    let (block, size) = (u64::from(device.block_bytes()), device.size_bytes());
    let Range { start, end } = *range;
    let is_aligned = start.is_multiple_of(block) && end.is_multiple_of(block);
    if start < end && end <= size && is_aligned {
        return Ok(());
    }
    Err(DeviceErrorKind::Invalid(format!(
        "bytes {start} to {end} are not whole blocks of {block} bytes inside the {size} bytes of the device"
    )))
}
