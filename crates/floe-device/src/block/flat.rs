//! A device with zones as a flat range of blocks.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use floe_core::{Address, ByteSize, ZoneId};

use super::pages::pieces;
use super::{BlockDevice, Content, ZEROS, check_blocks, check_range, check_shape};
use crate::buffer::{IoBuf, IoData};
use crate::config::{DeviceConfig, OpenDeviceError};
use crate::contract::{OpFuture, Placement, SharedDevice};
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::nvme::{Drive, Interface, NvmeDevice};

/// The writable bytes of all zones of a device with random writes, one after the other.
///
/// It lets an NVMe namespace by passthrough, or a simulated SSD in virtual time, be the
/// device of a cache of volumes.
/// Operations are split at the ends of zones. A discard has no effect: a reset rejects
/// writes that start before it ends, and those of a block device must not fail.
#[derive(Debug)]
pub struct Flat {
    below: SharedDevice,
    size: u64,
}

impl Flat {
    /// The blocks of the device `below`, which nothing else must write.
    ///
    /// # Errors
    /// If the device has no random writes, or blocks larger than 4096 bytes.
    pub fn new(below: SharedDevice) -> Result<Self, OpenDeviceError> {
        let geometry = below.geometry();
        if !geometry.random_writes {
            return Err(OpenDeviceError::NoRandomWrites(below.describe()));
        }
        let size = u64::from(geometry.zone_count) * geometry.zone_capacity;
        check_shape(&below.describe(), ByteSize(size), geometry.block_size)?;
        Ok(Flat { below, size })
    }

    /// The NVMe namespace at `path` by passthrough, for writing: its character device, or
    /// `nvme:SERIAL`. Its blocks are the drive's own.
    ///
    /// # Errors
    /// As [`NvmeDevice::open`] and [`new`](Self::new), except that any content is accepted.
    /// Nothing was changed.
    pub fn open_namespace(path: &Path) -> Result<Self, OpenDeviceError> {
        let found = Drive::open(path)?;
        let namespace = found.namespace();
        let config = DeviceConfig {
            path: Some(path.to_owned()),
            // One zone, so that no transfer is split at the end of another.
            zone_size: Some(ByteSize(namespace.bytes())),
            block_size: ByteSize(namespace.block_bytes.into()),
            accept_foreign: true,
            ..DeviceConfig::default()
        };
        if matches!(found.interface(), Interface::Zoned(_)) {
            return Err(OpenDeviceError::NoRandomWrites(path.display().to_string()));
        }
        drop(found);
        Flat::new(Arc::new(NvmeDevice::open(&config)?))
    }

    /// The first `size` bytes of it.
    ///
    /// # Errors
    /// If it has fewer, or `size` is not a positive multiple of its block size.
    pub fn cut(self, size: ByteSize) -> Result<Self, OpenDeviceError> {
        check_shape(&self.describe(), size, self.block_bytes())?;
        if size.bytes() > self.size {
            return Err(OpenDeviceError::CutTooLarge {
                available: ByteSize(self.size),
                wanted: size,
            });
        }
        let size = size.bytes();
        Ok(Flat { size, ..self })
    }

    /// The parts of `range` in each zone, of at most `bytes_max`: address and offset
    /// from the start of `range`.
    fn parts(
        &self,
        range: Range<u64>,
        bytes_max: u64,
    ) -> impl Iterator<Item = (Address, Range<usize>)> + use<> {
        let (capacity, start) = (self.below.geometry().zone_capacity, range.start);
        let zones = pieces(range, capacity);
        let parts = zones.flat_map(move |part| {
            let ends = (part.start..part.end).step_by(bytes_max as usize);
            ends.map(move |at| at..at.saturating_add(bytes_max).min(part.end))
        });
        parts.map(move |part| {
            // The zones of a device count in 32 bits.
            let zone = ZoneId((part.start / capacity) as u32);
            let at = Address::new(zone, part.start % capacity);
            (
                at,
                (part.start - start) as usize..(part.end - start) as usize,
            )
        })
    }

    /// The handle of a kind of content. All data shares one if there are two.
    fn placement(&self, content: Content) -> Placement {
        let of_data = self.below.geometry().placement_handles.saturating_sub(1);
        match content {
            Content::Metadata => Placement::METADATA,
            Content::Clean => Placement(of_data.min(1)),
            Content::Dirty => Placement(of_data.min(2)),
        }
    }

    fn reject<T: Send + 'static>(
        &self,
        operation: Operation,
        kind: DeviceErrorKind,
    ) -> OpFuture<T> {
        Counters::add(&self.below.counters().errors, 1);
        OpFuture::ready(Err(DeviceError::new(operation, None, kind)))
    }
}

impl BlockDevice for Flat {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn block_bytes(&self) -> u32 {
        self.below.geometry().block_size
    }

    fn describe(&self) -> String {
        format!("flat {}", self.below.describe())
    }

    fn allocate(&self, len: usize) -> IoBuf {
        self.below.allocate(len)
    }

    fn read(&self, at: u64, mut buf: IoBuf) -> OpFuture<IoBuf> {
        let range = match check_range(self, at, buf.len()) {
            Ok(range) => range,
            Err(kind) => return self.reject(Operation::Read, kind),
        };
        let parts: Vec<_> = self.parts(range, u64::MAX).collect();
        if let [(at, _)] = parts[..] {
            return self.below.read(at, buf);
        }
        let start = |(at, part): (Address, Range<usize>)| {
            let read = self.below.read(at, self.below.allocate(part.len()));
            (read, part)
        };
        let reads: Vec<_> = parts.into_iter().map(start).collect();
        OpFuture::new(async move {
            for (read, part) in reads {
                buf[part].copy_from_slice(&read.await?);
            }
            Ok(buf)
        })
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        self.write_of(Content::Dirty, at, data)
    }

    fn write_of(&self, content: Content, at: u64, data: IoData) -> OpFuture<()> {
        let range = match check_range(self, at, data.len()) {
            Ok(range) => range,
            Err(kind) => return self.reject(Operation::Write, kind),
        };
        let placement = self.placement(content);
        let start = |(at, part)| self.below.write(at, data.slice(part), placement);
        OpFuture::all(self.parts(range, u64::MAX).map(start).collect())
    }

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        if let Err(kind) = check_blocks(self, &range) {
            return self.reject(Operation::WriteZeroes, kind);
        }
        let placement = self.placement(Content::Dirty);
        let start = |(at, part): (Address, Range<usize>)| {
            let zeros = ZEROS.slice(0..part.len());
            self.below.write(at, zeros, placement)
        };
        OpFuture::all(self.parts(range, ZEROS.len() as u64).map(start).collect())
    }

    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        match check_blocks(self, &range) {
            Ok(()) => OpFuture::ready(Ok(())),
            Err(kind) => self.reject(Operation::Discard, kind),
        }
    }

    fn flush(&self) -> OpFuture<()> {
        self.below.flush()
    }

    fn counters(&self) -> &Counters {
        self.below.counters()
    }
}
