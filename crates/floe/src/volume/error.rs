//! Errors of volumes.

use std::sync::Arc;

use floe_core::layout::LayoutError;
use floe_core::volume::mode::Mode;
use floe_core::volume::{ConfigError, RestoreError};
use floe_device::DeviceError;

use super::reservation_key::ReservationKey;

/// Why a request of a volume failed. A clone tells every caller that waited.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VolumeError {
    /// The request passes the end of the volume.
    #[error("bytes {at} to {end} pass the end of the volume, which has {size} bytes")]
    OutOfRange {
        /// The first byte of the request.
        at: u64,
        /// The byte after its last.
        end: u64,
        /// Bytes of the volume.
        size: u64,
    },
    /// The request does not begin and end at blocks.
    #[error("bytes {at} to {end} are not whole blocks of {block} bytes")]
    Unaligned {
        /// The first byte of the request.
        at: u64,
        /// The byte after its last.
        end: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// The volume was opened for reading only.
    #[error("the volume is read-only")]
    ReadOnly,
    /// Data that was acknowledged could not be kept: reads go on, writes are refused.
    #[error("the volume is poisoned, so that writes are refused: {0}")]
    Poisoned(Arc<str>),
    /// The backing device failed the request.
    #[error("the backing device failed: {0}")]
    Backing(Arc<DeviceError>),
    /// The cache device failed the request.
    #[error("the cache device failed: {0}")]
    Cache(Arc<DeviceError>),
    /// The table of blocks on the cache device cannot be written.
    #[error("the table of blocks cannot be written: {0}")]
    Table(Arc<str>),
    /// The volume was closed or detached.
    #[error("the volume is closed")]
    Closed,
    /// This machine has lost its lock of the backing device.
    #[error(
        "this machine has lost the lock of the backing device, and another one may have written to it: the log tells who has it. Detach the volume, with --keep-dirty if no other machine has written"
    )]
    TakenAway,
    /// The mode makes data dirty, and a power loss erases the cache device.
    #[error(
        "mode {mode} keeps the only copy of data in the cache, and a power loss erases the cache device ({device}): choose write-through, or accept the loss with allow_data_loss"
    )]
    Volatile {
        /// The mode.
        mode: Mode,
        /// The cache device.
        device: String,
    },
}

impl VolumeError {
    pub(super) fn backing(error: DeviceError) -> Self {
        VolumeError::Backing(Arc::new(error))
    }

    pub(super) fn cache(error: DeviceError) -> Self {
        VolumeError::Cache(Arc::new(error))
    }
}

/// Why a volume cannot be detached.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DetachError {
    /// No volume of this name is attached.
    #[error("volume {0} is not attached")]
    NotAttached(String),
    /// Its dirty data cannot be written back, or the table cannot be written. The volume
    /// stays attached.
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

/// Why a cache of volumes cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenVolumesError {
    /// A setting cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device is too small for a cache.
    #[error(
        "the cache device has {size} bytes; a cache of volumes needs {needed} at least: make it larger"
    )]
    TooSmall {
        /// Bytes of the device.
        size: u64,
        /// Bytes that are needed.
        needed: u64,
    },
    /// A page of the table has no room for the checksums of one of the smallest blocks.
    #[error(
        "checksums of blocks of {granule} bytes on a cache device with blocks of {block_size} bytes do not fit: choose smaller `sizes`, or a device with blocks of 4,096 bytes"
    )]
    TooManySums {
        /// Bytes of the smallest block.
        granule: u32,
        /// Bytes of a block of the device.
        block_size: u32,
    },
    /// The device has something else.
    #[error(
        "{device} is not blank, and has no cache of volumes: {source}; format it only if nothing on it is needed"
    )]
    NotBlank {
        /// The device.
        device: String,
        /// The content of its first bytes.
        source: LayoutError,
    },
    /// The device was laid out with other settings.
    #[error(
        "the cache was formatted with {field} {on_device}, and the settings say {wanted}: set it back, or write all dirty data back and format the cache anew"
    )]
    PlanDiffers {
        /// The setting.
        field: &'static str,
        /// Its value on the device.
        on_device: String,
        /// Its value in the settings.
        wanted: String,
    },
    /// The device is not shaped as the one that the cache was laid out on.
    #[error(
        "the cache was laid out on a device with {wanted}, and this one has {found}: give the cache its device back"
    )]
    OtherDevice {
        /// Of the device that the cache was laid out on.
        wanted: String,
        /// Of this device.
        found: String,
    },
    /// The metadata is damaged where acknowledged writes may have been.
    #[error("the metadata of the cache is damaged: {0}; `floe check` shows the extent")]
    Damaged(String),
    /// A block cannot be put back.
    #[error("the table of blocks contradicts itself: {0}")]
    Restore(#[from] RestoreError),
    /// The backing device of a volume with dirty data is not the one it had.
    #[error(
        "volume {name} has dirty data for another backing device ({difference}): attach that one; to lose the dirty data, wipe the cache device and format it anew"
    )]
    OtherBacking {
        /// The volume.
        name: String,
        /// The difference.
        difference: String,
    },
    /// Another machine has reserved the backing device.
    #[error(
        "the backing device of volume {name} is reserved by another machine, {holder}; this one's key is {own}. Detach the volume there first. If that machine is gone for good, and its dirty data with it, take the reservation away: take-from=KEY in the volume's settings"
    )]
    Reserved {
        /// The volume.
        name: String,
        /// The other machine, as far as it is known.
        holder: String,
        /// The key of this cache.
        own: ReservationKey,
    },
    /// The reservation or the lock of a backing device cannot be asked for.
    #[error(
        "whether another machine has the backing device of volume {name} cannot be found out: {error}"
    )]
    ReservationUnknown {
        /// The volume.
        name: String,
        /// The error of the device, or of etcd.
        #[source]
        error: DeviceError,
    },
    /// The backing device was reserved, is no more, and the volume has dirty data.
    #[error(
        "the backing device of volume {name} has lost its reservation for this machine, so another one may have written to it, and the volume has dirty data. If no other machine has used it, because the device itself forgot its reservations, or etcd its keys, confirm that by take-from={own} in the volume's settings; if one has, empty the cache device by `blkdiscard --zeroout`"
    )]
    ReservationLost {
        /// The volume.
        name: String,
        /// The key of this cache.
        own: ReservationKey,
    },
    /// The backing device must be reserved, and has no reservations.
    #[error(
        "{0} has no reservations, or this process may not make them: reserve=auto goes on without"
    )]
    NoReservations(String),
    /// The cache has dirty data, and its witness is missing or another one.
    #[error(
        "the cache was not closed cleanly, and the witness that it was opened with is missing: dirty data may be older than what the backing device has; open the cache with that witness (`volumes.witness` in the data directory)"
    )]
    OtherWitness,
    /// A volume of this name is attached.
    #[error("volume {0} is attached already")]
    InUse(String),
    /// The name of a volume is too long.
    #[error("the name {0} of a volume has more than {1} bytes")]
    NameTooLong(String, usize),
    /// There are as many volumes as a cache can have.
    #[error("the cache has {0} volumes, and can have no more")]
    TooManyVolumes(usize),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A structure cannot be encoded.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The table of blocks cannot be written.
    #[error(transparent)]
    Volume(#[from] VolumeError),
}
