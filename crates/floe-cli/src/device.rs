//! Opens devices, and explains failures.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use floe::inspect::Shape;
use floe_core::ByteSize;
use floe_core::layout::{LayoutError, Structure};
use floe_device::config::DeviceKind;
use floe_device::nvme;
use floe_device::{Clock, DeviceConfig, OpenDeviceError, SharedDevice};

use crate::failure::Failure;

/// The cache on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The cache of chunks.
    Chunks,
    /// The cache of tiny objects.
    Tiny,
}

impl Part {
    /// The command that wipes the device at `path`.
    pub(crate) fn format_command(self, path: &Path) -> String {
        match self {
            Part::Chunks => format!("floe format --force --device-path {}", path.display()),
            Part::Tiny => format!("floe format --tiny --force --tiny-path {}", path.display()),
        }
    }

    /// The remedy for an unusable cache.
    pub(crate) fn start_anew(self) -> &'static str {
        match self {
            Part::Chunks => "start empty with `floe format --force`",
            Part::Tiny => "start empty with `floe format --tiny --force`",
        }
    }
}

/// Opens a device, or an array of several.
///
/// # Errors
/// The cause and the remedy.
pub(crate) async fn open(
    part: Part,
    config: &DeviceConfig,
    clock: &Clock,
) -> Result<SharedDevice, Failure> {
    let opened = floe_device::open_drives(config, clock).await;
    opened.map_err(|error| explain(part, error))
}

/// As [`open`], but retries for a while if the device is in use: a killed
/// process holds its files until the kernel has completed its I/O.
///
/// # Errors
/// As [`open`].
pub(crate) async fn open_patiently(
    part: Part,
    config: &DeviceConfig,
    clock: &Clock,
) -> Result<SharedDevice, Failure> {
    let opened = patiently(clock, || floe_device::open_drives(config, clock)).await;
    opened.map_err(|error| explain(part, error))
}

/// Opens something, and retries for a while if it is in use.
///
/// # Errors
/// As `open`.
pub(crate) async fn patiently<T, Opening>(
    clock: &Clock,
    open: impl Fn() -> Opening,
) -> Result<T, OpenDeviceError>
where
    Opening: Future<Output = Result<T, OpenDeviceError>>,
{
    const PATIENCE: Duration = Duration::from_secs(10);
    let began = clock.now();
    let mut is_announced = false;
    loop {
        match open().await {
            Err(OpenDeviceError::InUse(path)) if clock.now().since(began) < PATIENCE => {
                if !is_announced {
                    tracing::warn!(path = %path.display(), "the device is in use; waiting for it");
                    is_announced = true;
                }
                clock.sleep(Duration::from_millis(20)).await;
            }
            opened => return opened,
        }
    }
}

/// Opens an existing device with the geometry of its cache, without changing the device.
///
/// # Errors
/// The cause and the remedy.
pub(crate) async fn open_existing(
    part: Part,
    config: &DeviceConfig,
    clock: &Clock,
) -> Result<SharedDevice, Failure> {
    if !config.paths.is_empty() {
        let config = DeviceConfig {
            size: None,
            read_only: true,
            ..config.clone()
        };
        return open(part, &config, clock).await;
    }
    let Some(path) = config.path.as_ref().filter(|_| config.kind.is_storage()) else {
        return Err(Failure::usage(
            "only a file, block device or NVMe namespace can be read offline",
        )
        .cure("name one with --device-path"));
    };
    let mut config = config.clone();
    // The character device of a namespace cannot be read as a file.
    let readable = nvme::block_device(path).unwrap_or_else(|| path.clone());
    let error = match shape(&readable)? {
        Ok(shape) => {
            take_shape(part, &mut config, &readable, &shape)?;
            return open(part, &config, clock).await;
        }
        Err(error) => error,
    };
    if error == LayoutError::Unexpected(Structure::ArrayLabel) {
        return Err(
            Failure::environment(format!("`{}` is one drive of an array", path.display()))
                .cure("name all its drives with --device-paths"),
        );
    }
    // A cache with damaged superblocks is read with the geometry of the settings.
    config.size = None;
    let device = open(part, &config, clock).await;
    match error {
        LayoutError::Blank | LayoutError::Foreign => device.map_err(|_| {
            Failure::environment(format!("`{}` holds no Floe cache", path.display()))
                .because(error)
                .cure("name the cache with --device-path, or its directory with --data-dir")
        }),
        _ => device,
    }
}

/// The geometry in the superblock at `path`, of any kind of cache: in the
/// first zone or, if there is none, in the second.
///
/// # Errors
/// The path cannot be read. The inner error describes the first zone.
fn shape(path: &Path) -> Result<Result<Shape, LayoutError>, Failure> {
    let find = || {
        let file = File::open(path)?;
        let mut block = [0; 4096];
        let length = read_at(&file, &mut block, 0)?;
        let error = match floe::inspect::shape(&block[..length]) {
            Ok(shape) => return Ok(Ok(shape)),
            Err(error) => error,
        };
        for start in second_zone_starts() {
            let length = read_at(&file, &mut block, start)?;
            if length == 0 {
                break;
            }
            // A superblock at another offset may be part of a value.
            if let Ok(shape) = floe::inspect::shape(&block[..length])
                && shape.zone_size == start
            {
                return Ok(Ok(shape));
            }
        }
        Ok(Err(error))
    };
    find().map_err(|error| cannot_read(path, error))
}

/// Possible offsets of the second zone, for any configured zone size.
fn second_zone_starts() -> impl Iterator<Item = u64> {
    const MIB: usize = 1 << 20;
    let fine = (4096..16 * MIB).step_by(4096);
    let coarse = (16 * MIB..=4096 * MIB).step_by(64 << 10);
    fine.chain(coarse).map(|start| start as u64)
}

/// Reads until the block is full or the file ends.
fn read_at(file: &File, block: &mut [u8], start: u64) -> io::Result<usize> {
    let mut length = 0;
    while length < block.len() {
        match file.read_at(&mut block[length..], start + length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    Ok(length)
}

fn cannot_read(path: &Path, error: io::Error) -> Failure {
    let cure = match error.kind() {
        io::ErrorKind::NotFound => {
            "name the cache with --device-path, or its directory with --data-dir"
        }
        io::ErrorKind::PermissionDenied => "change its owner or mode, or run as a user who may",
        _ => "check the path and the device",
    };
    Failure::environment(format!("cannot read `{}`", path.display()))
        .because(error)
        .cure(cure)
}

fn take_shape(
    part: Part,
    config: &mut DeviceConfig,
    path: &Path,
    plan: &Shape,
) -> Result<(), Failure> {
    let size = plan.zone_size.saturating_mul(u64::from(plan.zone_count));
    let metadata = std::fs::metadata(path).map_err(|error| cannot_read(path, error))?;
    if metadata.is_file() && metadata.len() < size {
        return Err(Failure::damage(format!(
            "`{}` was truncated: it has {} bytes, but its cache was created with {size}",
            path.display(),
            metadata.len()
        ))
        .cure(format!("restore the file, or {}", part.start_anew())));
    }
    config.block_size = ByteSize(u64::from(plan.block_size));
    config.zone_size = Some(ByteSize(plan.zone_size));
    config.zone_capacity = Some(ByteSize(plan.zone_capacity));
    config.size = Some(ByteSize(size));
    config.max_append = ByteSize(config.max_append.bytes().min(plan.zone_capacity));
    Ok(())
}

/// Explains whether the settings or the machine are at fault.
pub fn explain(part: Part, error: OpenDeviceError) -> Failure {
    use OpenDeviceError as E;
    let what = match part {
        Part::Chunks => "the device cannot be opened",
        Part::Tiny => "the device of tiny objects cannot be opened",
    };
    match error {
        E::ForeignData { ref path, .. } => {
            let format = part.format_command(path);
            Failure::environment(what).because(error).cure(format!(
                "another path; or wipe the device permanently with `{format}`"
            ))
        }
        E::OtherSize { ref path, .. } => {
            let format = part.format_command(path);
            Failure::usage(what).because(error).cure(format!(
                "change the setting back; or discard the cached data with `{format}`"
            ))
        }
        E::Missing(_)
        | E::BlockSize(_)
        | E::ZoneSize { .. }
        | E::TooSmall { .. }
        | E::TooManyZones { .. }
        | E::Geometry(_)
        | E::NotNvme(_)
        | E::SeveralNamespaces(_)
        | E::OtherNamespace { .. }
        | E::PathAndPaths
        | E::VirtualTime => Failure::usage(what).because(error),
        E::Array(_) => Failure::environment(what).because(error).cure(format!(
            "name all drives of the array with --device-paths, and bring back those that are missing; or name those that are there, and {}",
            part.start_anew()
        )),
        _ => Failure::environment(what).because(error),
    }
}

/// Free bytes of the file system at `path`.
///
/// # Errors
/// The error from the operating system.
pub(crate) fn free_space(path: &Path) -> Result<ByteSize, Failure> {
    let found = rustix::fs::statvfs(path).map_err(|error| {
        Failure::environment(format!(
            "cannot read the free space of `{}`",
            path.display()
        ))
        .because(io::Error::from(error))
    })?;
    Ok(ByteSize(found.f_bavail.saturating_mul(found.f_frsize)))
}

/// The path of a device that is a file.
pub(crate) fn path_of(config: &DeviceConfig) -> Option<PathBuf> {
    match config.kind {
        DeviceKind::File => config.path.clone(),
        _ => None,
    }
}
