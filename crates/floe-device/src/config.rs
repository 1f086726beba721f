//! Configuration of the device to open.

use std::path::{Path, PathBuf};

use floe_core::tiny::nemo::Sizing;
use floe_core::{ByteSize, Geometry, GeometryError};
use serde::{Deserialize, Serialize};

use crate::array::ArrayError;
use crate::sim_config::SimConfig;

/// The kind of device to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A regular file or a block device, also a zoned one, or an NVMe namespace of any kind if the
    /// path names its character device or its drive's serial number.
    #[default]
    File,
    /// A zoned NVMe namespace, by passthrough.
    Zns,
    /// An NVMe namespace with flexible data placement, by passthrough.
    Fdp,
    /// A conventional NVMe namespace, by passthrough.
    Nvme,
    /// Memory, which the process loses when it ends.
    Memory,
    /// A simulated SSD in memory, in virtual or real time.
    Sim,
}

/// The use of the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direct {
    /// Bypass the page cache if the file system can.
    #[default]
    Auto,
    /// Bypass the page cache, or fail to open.
    On,
    /// Never bypass the page cache.
    Off,
}

/// How operations reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoChoice {
    /// io_uring if the kernel allows it and the file system benefits, otherwise
    /// threads.
    #[default]
    Auto,
    /// io_uring, or fail to open.
    Uring,
    /// A bounded number of threads with `pread` and `pwrite`, or the NVMe driver's
    /// ioctl.
    Threads,
}

/// The io_uring that an operation uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RingChoice {
    /// Every current_thread runtime, and so its thread, has its own ring. All
    /// multi_thread runtimes share one.
    #[default]
    Auto,
    /// All runtimes share one ring.
    Shared,
    /// Every thread that uses the device has its own ring, also those of
    /// multi_thread runtimes.
    PerThread,
}

impl DeviceKind {
    /// True for kinds that are opened by a path.
    pub fn is_storage(self) -> bool {
        !matches!(self, DeviceKind::Memory | DeviceKind::Sim)
    }
}

/// The lower of two limits, of which either may be absent.
pub(crate) fn lower(ours: Option<u32>, drives: Option<u32>) -> Option<u32> {
    ours.into_iter().chain(drives).min()
}

floe_core::parse_by_name!(DeviceKind, Direct, IoChoice, RingChoice);

/// A device to open. Sizes are in bytes or with a unit (`"64MiB"`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceConfig {
    /// The kind of device.
    pub kind: DeviceKind,
    /// The file, block device or NVMe namespace; required where `kind` is neither
    /// `memory` nor `sim`. `nvme:SERIAL` is a namespace of the drive with that serial
    /// number, `nvme:SERIAL:2` its namespace 2.
    pub path: Option<PathBuf>,
    /// Several of them, for an [`Array`](crate::Array); then `path` is unset, and `size`
    /// is that of each drive.
    pub paths: Vec<PathBuf>,
    /// Bytes to use. A file is created or extended (sparse) to this size and
    /// never shortened. Default: all of an existing file or block device; for a
    /// simulated SSD, the capacity of the simulated drive.
    pub size: Option<ByteSize>,
    /// Distance between the starts of two zones. A simulated zoned drive has
    /// its own. Default: that of the cache on the device, otherwise
    /// [`fitting_zone_size`], or by `zone_sizing`; 64 MiB if `kind` is `sim`.
    pub zone_size: Option<ByteSize>,
    /// Writable bytes of a zone. Default: `zone_size`, or the simulated zoned
    /// drive's.
    pub zone_capacity: Option<ByteSize>,
    /// The unit of reading and writing; with `fits_block_size`, its upper
    /// limit.
    pub block_size: ByteSize,
    /// Most zones that may be open at once. Default: no limit but the drive's.
    pub max_open_zones: Option<u32>,
    /// Most zones that may be active at once. Default: no limit but the drive's.
    pub max_active_zones: Option<u32>,
    /// Most bytes of one append; lowered to the zone capacity, and to what a zoned
    /// namespace takes.
    pub max_append: ByteSize,
    /// Bypass the page cache.
    pub direct: Direct,
    /// Free a zone's space when it is reset (hole or discard). Default: on for block
    /// devices and namespaces, off for files until their file system is full. Writes cost
    /// a file system least where it has written before.
    pub discard: Option<bool>,
    /// Allocate all space when the device is opened, to detect a full file system
    /// early. Only useful without `discard`.
    pub preallocate: bool,
    /// How operations reach the kernel.
    pub io: IoChoice,
    /// The io_uring that an operation uses if several threads use the device.
    pub rings: RingChoice,
    /// Bytes of buffers registered with the kernel; zero for none.
    pub registered_buffers: ByteSize,
    /// The simulated SSD, if `kind` is `sim`.
    pub sim: SimConfig,
    /// Open and extend a file with foreign data. Not a user setting: set it for a
    /// device that will be wiped.
    #[serde(skip)]
    pub accept_foreign: bool,
    /// Longest value of which a zone of a default size should hold several. Not
    /// a user setting: it follows from the chunk size.
    #[serde(skip)]
    pub value_size: ByteSize,
    /// Zones of a default size are set-groups of tiny objects. Not a user setting.
    #[serde(skip)]
    pub zone_sizing: Option<Sizing>,
    /// The block size is that of the cache on the device or, for a new
    /// cache, the largest block that the drive writes atomically. Not a user
    /// setting: true if the user set no block size. A regular file, or a drive
    /// that does not report it, keeps `block_size`.
    #[serde(skip)]
    pub fits_block_size: bool,
    /// `zone_size` is a default, and a zoned drive has its own. Not a user setting.
    #[serde(skip)]
    pub fits_zone_size: bool,
    /// Write no label of an array when it is opened. Not a user setting: set it for a
    /// device that will only be read.
    #[serde(skip)]
    pub read_only: bool,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        DeviceConfig {
            kind: DeviceKind::File,
            path: None,
            paths: Vec::new(),
            size: None,
            zone_size: None,
            zone_capacity: None,
            block_size: ByteSize::kib(4),
            max_open_zones: None,
            max_active_zones: None,
            max_append: ByteSize::mib(1),
            direct: Direct::Auto,
            discard: None,
            preallocate: false,
            io: IoChoice::Auto,
            rings: RingChoice::Auto,
            registered_buffers: ByteSize::mib(32),
            sim: SimConfig::default(),
            accept_foreign: false,
            value_size: ByteSize(0),
            zone_sizing: None,
            fits_block_size: false,
            fits_zone_size: false,
            read_only: false,
        }
    }
}

impl DeviceConfig {
    /// The zone size that a zoned drive must have.
    pub(crate) fn zone_size_of_drive(&self) -> Option<ByteSize> {
        self.zone_size.filter(|_| !self.fits_zone_size)
    }

    /// A file or block device at `path` of `size` bytes, with defaults
    /// otherwise.
    pub fn file(path: impl Into<PathBuf>, size: ByteSize) -> Self {
        DeviceConfig {
            path: Some(path.into()),
            size: Some(size),
            ..DeviceConfig::default()
        }
    }

    /// Memory of `size` bytes, with defaults otherwise.
    pub fn memory(size: ByteSize) -> Self {
        DeviceConfig {
            kind: DeviceKind::Memory,
            size: Some(size),
            ..DeviceConfig::default()
        }
    }

    /// A simulated SSD of `size` bytes, with defaults otherwise.
    pub fn sim(size: ByteSize) -> Self {
        DeviceConfig {
            kind: DeviceKind::Sim,
            size: Some(size),
            ..DeviceConfig::default()
        }
    }

    /// The geometry of a device with `available` bytes. Bytes that do not fill
    /// a zone stay unused.
    ///
    /// # Errors
    /// If the settings contradict each other, or not even one zone fits.
    pub fn geometry(&self, available: ByteSize) -> Result<Geometry, OpenDeviceError> {
        let wanted = self.zone_size_on(available);
        let (zone_size, block) = (wanted.bytes(), self.block_size.bytes());
        if !(512..=65536).contains(&block) || !block.is_power_of_two() {
            return Err(OpenDeviceError::BlockSize(self.block_size));
        }
        if zone_size == 0 || !zone_size.is_multiple_of(block) {
            return Err(OpenDeviceError::ZoneSize {
                zone_size: wanted,
                block_size: self.block_size,
                nearest: ByteSize(zone_size.next_multiple_of(block).max(block)),
            });
        }
        let capacity = self.zone_capacity.unwrap_or(wanted).bytes();
        let zones = available.bytes() / zone_size;
        if zones == 0 {
            return Err(OpenDeviceError::TooSmall {
                available,
                smallest: wanted,
            });
        }
        let geometry = Geometry {
            block_size: block as u32,
            zone_size,
            zone_capacity: capacity,
            zone_count: u32::try_from(zones).map_err(|_| OpenDeviceError::TooManyZones {
                available,
                smallest: ByteSize(
                    (available.bytes() / u64::from(u32::MAX) + 1).next_multiple_of(block),
                ),
            })?,
            max_open_zones: self.max_open_zones,
            max_active_zones: self.max_active_zones,
            max_append_bytes: self.max_append.bytes().min(capacity).min(1 << 30) as u32,
            random_writes: true,
            native_append: false,
            placement_handles: 0,
        };
        geometry.validate().map_err(OpenDeviceError::Geometry)?;
        Ok(geometry)
    }

    /// The zone size on a device with `available` bytes.
    pub fn zone_size_on(&self, available: ByteSize) -> ByteSize {
        match (self.zone_size, self.kind) {
            (Some(zone_size), _) => zone_size,
            (None, DeviceKind::Sim) => ZONE_SIZE_MAX,
            (None, _) => match &self.zone_sizing {
                Some(sizing) => sizing.zone_size(available),
                None => fitting_zone_size(available, self.block_size, self.value_size),
            },
        }
    }

    /// Every configured path.
    pub fn all_paths(&self) -> impl Iterator<Item = &Path> {
        self.path.iter().chain(&self.paths).map(PathBuf::as_path)
    }

    /// The configured path, for kinds that have one.
    pub(crate) fn required_path(&self) -> Result<&Path, OpenDeviceError> {
        self.path.as_deref().ok_or(OpenDeviceError::Missing("path"))
    }

    /// The configured size, for kinds that cannot detect one.
    pub(crate) fn required_size(&self) -> Result<ByteSize, OpenDeviceError> {
        self.size.ok_or(OpenDeviceError::Missing("size"))
    }
}

/// The largest zone size chosen by default.
const ZONE_SIZE_MAX: ByteSize = ByteSize::mib(64);

/// The smallest zone size chosen by default if 16 zones fit: several values of
/// 1 MiB, memcached's largest, should share a zone.
const ZONE_SIZE_MIN: ByteSize = ByteSize::mib(4);

/// Values that a zone of a default size should have room for.
const VALUES_PER_ZONE: u64 = 8;

/// The default zone size for a device with `available` bytes: a power of two that
/// makes at least 64 zones, but 4 to 64 MiB and room for 8 values of `value_size`.
/// Less than 64 MiB get at least 16 zones.
pub fn fitting_zone_size(
    available: ByteSize,
    block_size: ByteSize,
    value_size: ByteSize,
) -> ByteSize {
    let share = |zones: u64| {
        let bytes = (available.bytes() / zones).max(1);
        1 << bytes.ilog2()
    };
    let values = value_size.bytes().saturating_mul(VALUES_PER_ZONE);
    let least = values
        .clamp(ZONE_SIZE_MIN.bytes(), ZONE_SIZE_MAX.bytes())
        .next_power_of_two();
    let bytes = share(64).clamp(least, ZONE_SIZE_MAX.bytes()).min(share(16));
    ByteSize(bytes.max(block_size.bytes()))
}

/// The reason why a device could not be opened, and the cure.
#[derive(Debug, thiserror::Error)]
pub enum OpenDeviceError {
    /// A required setting is absent.
    #[error("device setting `{0}` is required for this kind of device; set it")]
    Missing(&'static str),
    /// The block size is invalid.
    #[error("block_size {0} is not a power of two from 512 to 64KiB; 4KiB fits every SSD")]
    BlockSize(ByteSize),
    /// A block device needs writes in place.
    #[error(
        "a block device cannot be made of `{0}`, which takes no writes in place; use a conventional drive"
    )]
    NoRandomWrites(String),
    /// The block size of a block device is invalid.
    #[error("the block size {0} of a block device is not a power of two from 512 to 4KiB")]
    LogicalBlock(ByteSize),
    /// The block device has larger blocks than configured.
    #[error(
        "`{path}` has logical blocks of {logical}, more than the configured {wanted}; set the block size to {logical} or more"
    )]
    BelowLogicalBlock {
        /// The block device.
        path: PathBuf,
        /// The setting.
        wanted: ByteSize,
        /// The device's logical block.
        logical: ByteSize,
    },
    /// The size of a block device is not whole blocks.
    #[error(
        "`{device}` has {} bytes, which are not a positive multiple of its block size of {} bytes; \
         resize it, or set a smaller block size if it allows one", size.bytes(), block_size.bytes()
    )]
    NotWholeBlocks {
        /// The device: its path or kind.
        device: String,
        /// Its size.
        size: ByteSize,
        /// Its block size.
        block_size: ByteSize,
    },
    /// The zone size is not whole blocks.
    #[error(
        "zone_size {zone_size} is not a positive multiple of block_size {block_size}; \
         {nearest} would be"
    )]
    ZoneSize {
        /// The setting.
        zone_size: ByteSize,
        /// The block size.
        block_size: ByteSize,
        /// The next size that works.
        nearest: ByteSize,
    },
    /// Not even one zone fits.
    #[error(
        "the device has {available}, which is less than one zone; it needs at least {smallest}, \
         or a smaller zone_size"
    )]
    TooSmall {
        /// The available size.
        available: ByteSize,
        /// The smallest size that works.
        smallest: ByteSize,
    },
    /// A device was to be cut to more than it has.
    #[error("the device has {available}, fewer than the {wanted} that are wanted of it")]
    CutTooLarge {
        /// Its size.
        available: ByteSize,
        /// The size that is wanted.
        wanted: ByteSize,
    },
    /// The device would have too many zones.
    #[error("{available} make more than 2^32 zones; set zone_size to at least {smallest}")]
    TooManyZones {
        /// The available size.
        available: ByteSize,
        /// The smallest zone size that works.
        smallest: ByteSize,
    },
    /// Other settings contradict each other.
    #[error("{0}; change the device settings")]
    Geometry(GeometryError),
    /// The block device is smaller than the setting.
    #[error("`{path}` has {available}, less than the configured size {wanted}; lower `size`")]
    SmallerThanConfigured {
        /// The device.
        path: PathBuf,
        /// Its size.
        available: ByteSize,
        /// The setting.
        wanted: ByteSize,
    },
    /// The path is a directory.
    #[error("`{0}` is a directory; name a file in it, such as `{0}/cache.floe`")]
    IsDirectory(PathBuf),
    /// The path is a socket, a pipe, a character device.
    #[error("`{path}` is {kind}; name a regular file or a block device")]
    NotStorage {
        /// The path.
        path: PathBuf,
        /// The kind of file at the path, with an article.
        kind: &'static str,
    },
    /// The path names no NVMe namespace of this machine.
    #[error(
        "`{0}` is no NVMe namespace of this machine; name one such as `/dev/ng0n1`, or \
         `nvme:SERIAL`; `floe device list` shows them"
    )]
    NotNvme(PathBuf),
    /// A drive has several namespaces, and the path names none of them.
    #[error("the drive of `{0}` has several namespaces; add the number: `{0}:1`")]
    SeveralNamespaces(PathBuf),
    /// The namespace is not of the configured kind.
    #[error("`{path}` is {found}, not what the kind `{wanted}` says; set the kind to `{kind}`")]
    OtherNamespace {
        /// The namespace.
        path: PathBuf,
        /// Its kind, with an article.
        found: &'static str,
        /// The setting.
        wanted: &'static str,
        /// The setting that fits.
        kind: &'static str,
    },
    /// Floe cannot use the NVMe namespace or zoned block device, or not with these settings.
    #[error("`{path}` cannot be used: {why}")]
    Unusable {
        /// The namespace or block device.
        path: PathBuf,
        /// The reason, and the cure if there is one.
        why: String,
    },
    /// The file or block device has foreign data.
    #[error(
        "`{path}` holds {what} (at byte {offset}), which Floe did not write; nothing was changed. \
         Use another path, or wipe it by formatting it"
    )]
    ForeignData {
        /// The file or block device.
        path: PathBuf,
        /// Byte offset of the foreign contents.
        offset: u64,
        /// Name of the foreign contents, with an article.
        what: &'static str,
    },
    /// The file has a cache of another size, and would have to be extended.
    #[error(
        "`{path}` holds a cache made for {found}, the configured size is {wanted}; nothing was \
         changed. Configure {found}, or format it"
    )]
    OtherSize {
        /// The file.
        path: PathBuf,
        /// The size that its cache was created with.
        found: ByteSize,
        /// The setting.
        wanted: ByteSize,
    },
    /// The path does not exist, and the file would not be created.
    #[error(
        "`{0}` does not exist; name a block device, or create a file of the wanted size, such as \
         with `truncate -s 10G {0}`"
    )]
    NotFound(PathBuf),
    /// The path's directory does not exist.
    #[error("the directory of `{0}` does not exist; create it")]
    NoDirectory(PathBuf),
    /// The process may not open the file.
    #[error(
        "no permission to read and write `{0}`; change its owner or mode, or run as a user who may"
    )]
    Permission(PathBuf),
    /// Another process, or this one, has it open.
    #[error(
        "`{0}` is in use by another process, as swap or mounted; stop that process, unmount it, or \
         use another path"
    )]
    InUse(PathBuf),
    /// The file system is full or the file would be too large for it.
    #[error(
        "cannot allocate {wanted} for `{path}`: {source}; its file system has {free} free: \
         free some space, lower `size`, or use another file system"
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Its size.
        wanted: ByteSize,
        /// Free space on its file system, the file's own blocks included.
        free: ByteSize,
        /// The error from the operating system.
        source: std::io::Error,
    },
    /// `direct = "on"`, but the file system does not support it.
    #[error(
        "`{path}` cannot be used with direct I/O in blocks of {block_size} ({source}); \
         set direct to `auto` or `off`, or use another file system or a larger block_size"
    )]
    DirectRejected {
        /// The file.
        path: PathBuf,
        /// The block size.
        block_size: ByteSize,
        /// The error from the operating system.
        source: std::io::Error,
    },
    /// `io = "uring"`, but the kernel does not allow it.
    #[error(
        "io_uring is not available ({0}); set io to `auto` or `threads`, or allow it (sysctl \
         kernel.io_uring_disabled, the container's seccomp profile, Linux 5.19 or later)"
    )]
    UringBlocked(std::io::Error),
    /// A setting of the simulated SSD is invalid.
    #[error("{0}")]
    Sim(String),
    /// A device with real latencies cannot run in virtual time.
    #[error("a device of this kind cannot run in virtual time; use kind `sim` or `memory`")]
    VirtualTime,
    /// The settings name one drive and several.
    #[error(
        "device.path and device.paths exclude each other, and only drives have paths; unset one"
    )]
    PathAndPaths,
    /// The drives are no array.
    #[error(transparent)]
    Array(ArrayError),
    /// Any other error from the operating system.
    #[error("cannot open `{path}`: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error from the operating system.
        source: std::io::Error,
    },
}
