//! Exports: named ranges of blocks that clients read and write.

use std::fmt;

use floe::volume::{Volume, VolumeError};
use floe_device::{DeviceError, DeviceErrorKind, IoBuf, IoData, SharedBlockDevice};

use super::protocol::{Errno, Rejection};

/// The preferred length of a request, unless the export's blocks are larger.
const PREFERRED_BYTES: u32 = 4096;

/// Bytes of a block of a null export.
const NULL_BLOCK_BYTES: u32 = 512;

/// The blocks of an export. Offsets and lengths are multiples of the block size
/// and lie inside the export.
#[derive(Clone)]
pub(super) enum Export {
    /// Reads as zeros and drops writes.
    Null {
        size_bytes: u64,
        /// As long as the largest read.
        zeros: IoData,
    },
    /// A block device in memory.
    Memory(SharedBlockDevice),
    /// A cached volume.
    Volume(Volume),
}

/// A failed operation of an export.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

impl ExportError {
    /// The answer for the client.
    pub(super) fn rejection(&self) -> Rejection {
        let error = match self {
            ExportError::Device(error) => error,
            ExportError::Volume(VolumeError::Backing(error) | VolumeError::Cache(error)) => error,
            ExportError::Volume(VolumeError::ReadOnly) => {
                return Rejection::new(Errno::Perm, "the volume is read-only");
            }
            ExportError::Volume(VolumeError::OutOfRange { .. } | VolumeError::Unaligned { .. }) => {
                return Rejection::new(
                    Errno::Inval,
                    "the request is not within blocks of the volume",
                );
            }
            ExportError::Volume(VolumeError::Poisoned(_) | VolumeError::Table(_)) => {
                return Rejection::new(Errno::Io, "the volume is poisoned: it refuses writes");
            }
            ExportError::Volume(VolumeError::Closed | VolumeError::Volatile { .. }) => {
                return Rejection::new(Errno::Shutdown, "the volume is closed");
            }
            ExportError::Volume(VolumeError::TakenAway) => {
                return Rejection::new(Errno::Io, "another machine has taken the device over");
            }
        };
        match error.kind {
            DeviceErrorKind::NoSpace => Rejection::new(Errno::NoSpace, "the device is full"),
            DeviceErrorKind::Invalid(_) | DeviceErrorKind::Unsupported(_) => {
                Rejection::new(Errno::Inval, "the device does not know this request")
            }
            _ => Rejection::new(Errno::Io, "the device failed"),
        }
    }
}

impl Export {
    /// A null export; no read is longer than `read_bytes_max`.
    pub(super) fn null(size_bytes: u64, read_bytes_max: u32) -> Self {
        Export::Null {
            size_bytes,
            zeros: IoBuf::zeroed(read_bytes_max as usize).freeze(),
        }
    }

    /// True if it is `volume`, and not an earlier one of its name.
    pub(super) fn is_of(&self, volume: &Volume) -> bool {
        matches!(self, Export::Volume(own) if own.is_same(volume))
    }

    /// Waits until it is a volume no longer.
    pub(super) async fn detached(&self) {
        match self {
            Export::Volume(volume) => volume.detached().await,
            Export::Null { .. } | Export::Memory(_) => std::future::pending().await,
        }
    }

    pub(super) fn size_bytes(&self) -> u64 {
        match self {
            Export::Null { size_bytes, .. } => *size_bytes,
            Export::Memory(device) => device.size_bytes(),
            Export::Volume(volume) => volume.size_bytes(),
        }
    }

    pub(super) fn block_bytes(&self) -> u32 {
        match self {
            Export::Null { .. } => NULL_BLOCK_BYTES,
            Export::Memory(device) => device.block_bytes(),
            Export::Volume(volume) => volume.block_bytes(),
        }
    }

    pub(super) fn preferred_bytes(&self) -> u32 {
        self.block_bytes().max(PREFERRED_BYTES)
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Export::Null { .. } => "null".to_owned(),
            Export::Memory(device) => device.describe(),
            Export::Volume(volume) => format!("volume {}", volume.name()),
        }
    }

    /// True if writing zeros is faster than writing data. A device does not
    /// say, so that clients must write the zeros.
    pub(super) fn zeroes_fast(&self) -> bool {
        matches!(self, Export::Null { .. })
    }

    /// A buffer of `len` zeroed or stale bytes for the data of a write.
    pub(super) fn allocate(&self, len: usize) -> IoBuf {
        match self {
            Export::Null { .. } => IoBuf::zeroed(len),
            Export::Memory(device) => device.allocate(len),
            Export::Volume(volume) => volume.allocate(len),
        }
    }

    pub(super) async fn read(&self, at: u64, len: usize) -> Result<IoData, ExportError> {
        match self {
            Export::Null { zeros, .. } => Ok(zeros.slice(0..len)),
            Export::Memory(device) => Ok(device.read(at, device.allocate(len)).await?.freeze()),
            Export::Volume(volume) => Ok(volume.read_at(at, len).await?.freeze()),
        }
    }

    pub(super) async fn write(
        &self,
        at: u64,
        data: IoData,
        durable: bool,
    ) -> Result<(), ExportError> {
        match self {
            Export::Null { .. } => {}
            Export::Memory(device) => device.write(at, data).await?,
            Export::Volume(volume) => return Ok(volume.write_at(at, data, durable).await?),
        }
        self.settle(durable).await
    }

    pub(super) async fn write_zeroes(
        &self,
        at: u64,
        len: u64,
        durable: bool,
    ) -> Result<(), ExportError> {
        match self {
            Export::Null { .. } => {}
            Export::Memory(device) => device.write_zeroes(at..at + len).await?,
            Export::Volume(volume) => return Ok(volume.write_zeroes(at, len, durable).await?),
        }
        self.settle(durable).await
    }

    pub(super) async fn discard(&self, at: u64, len: u64) -> Result<(), ExportError> {
        match self {
            Export::Null { .. } => Ok(()),
            Export::Memory(device) => Ok(device.discard(at..at + len).await?),
            Export::Volume(volume) => Ok(volume.discard(at, len).await?),
        }
    }

    /// Reads a range ahead, where that makes a later read faster.
    pub(super) async fn prefetch(&self, at: u64, len: u64) -> Result<(), ExportError> {
        match self {
            Export::Null { .. } | Export::Memory(_) => Ok(()),
            Export::Volume(volume) => Ok(volume.prefetch(at, len).await?),
        }
    }

    /// Makes all completed writes durable, over all connections.
    pub(super) async fn flush(&self) -> Result<(), ExportError> {
        match self {
            Export::Null { .. } => Ok(()),
            Export::Memory(device) => Ok(device.flush().await?),
            Export::Volume(volume) => Ok(volume.flush().await?),
        }
    }

    /// Makes a change durable that must be.
    pub(super) async fn settle(&self, durable: bool) -> Result<(), ExportError> {
        match durable {
            true => self.flush().await,
            false => Ok(()),
        }
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}
