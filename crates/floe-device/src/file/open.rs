//! Opening a file or block device.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use floe_core::ByteSize;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation};

use super::FileDevice;
use super::contents::{CacheShape, Contents, Medium};
use super::operations::Operations;
use super::rings::Rings;
use super::threads::Threads;
use crate::arena::Arena;
use crate::buffer::IoBuf;
use crate::config::{DeviceConfig, Direct, IoChoice, OpenDeviceError};
use crate::contract::ZoneState;
use crate::counters::Counters;
use crate::zones::ZoneTable;

impl FileDevice {
    /// Opens the configured file, and creates or extends it if necessary.
    ///
    /// # Errors
    /// See [`OpenDeviceError`].
    pub fn open(config: &DeviceConfig) -> Result<Self, OpenDeviceError> {
        let path = config
            .path
            .as_deref()
            .ok_or(OpenDeviceError::Missing("path"))?;
        if let Some(size) = config.size {
            // Before anything is created.
            config.geometry(size)?;
        }
        let file = open_file(path, config.size.is_some())?;
        lock(&file, path)?;
        let cache = match config.accept_foreign {
            true => None,
            false => cache_on(&file, path, config)?,
        };
        let config = &DeviceConfig {
            // A cache that was created with another default stays readable.
            zone_size: config
                .zone_size
                .or(cache.map(|cache| ByteSize(cache.zone_size))),
            block_size: match (config.fits_block_size, cache) {
                (false, _) => config.block_size,
                (true, Some(cache)) => ByteSize(cache.block_size.into()),
                (true, None) => whole_block(&file)
                    .map_or(config.block_size, |whole| whole.min(config.block_size)),
            },
            ..config.clone()
        };
        let (is_block_device, available) = size_file(&file, path, config)?;
        let geometry = config.geometry(available)?;
        let file = choose_direct(file, path, config)?;
        let arena = make_arena(config.registered_buffers);
        let rings = choose_rings(&file.file, config, arena.as_deref())?;
        let operations = Operations {
            zones: Mutex::new(ZoneTable::new(&geometry, ZoneState::Unknown)),
            zeros: IoBuf::zeroed(geometry.block_size as usize).freeze(),
            geometry,
            path: path.to_owned(),
            is_block_device,
            is_direct: file.is_direct,
            discard: AtomicBool::new(config.discard),
            kept: Mutex::default(),
            waiting_resets: Mutex::default(),
            counters: Counters::default(),
            arena,
            file: file.file,
        };
        Ok(FileDevice {
            rings,
            threads: Arc::new(Threads::new(operations)),
        })
    }
}

fn io_error(path: &Path, source: io::Error) -> OpenDeviceError {
    let path = path.to_owned();
    match source.raw_os_error() {
        Some(libc::EISDIR) => OpenDeviceError::IsDirectory(path),
        Some(libc::ENOENT | libc::ENOTDIR) => OpenDeviceError::NoDirectory(path),
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => OpenDeviceError::Permission(path),
        Some(libc::EBUSY) => OpenDeviceError::InUse(path),
        _ => OpenDeviceError::Io { path, source },
    }
}

/// Opens the file for reading and writing; creates it only if `may_create`.
fn open_file(path: &Path, may_create: bool) -> Result<File, OpenDeviceError> {
    say_where_link_leads(path);
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    // Opening a pipe or a terminal has effects, so check the kind first.
    // Opening must not block either if the file is replaced between the check
    // and the open.
    let mut flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    match std::fs::metadata(path).map(|found| found.file_type()) {
        // Makes the kernel reject a device that is mounted or otherwise in use.
        Ok(kind) if kind.is_block_device() => flags |= libc::O_EXCL,
        Ok(kind) => check_kind(kind, path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !may_create => {
            return Err(OpenDeviceError::Missing("size"));
        }
        Err(_) => {
            options.create(true);
        }
    }
    options.custom_flags(flags);
    let file = options.open(path).map_err(|error| io_error(path, error))?;
    let metadata = file.metadata().map_err(|error| io_error(path, error))?;
    check_kind(metadata.file_type(), path)?;
    // With O_NONBLOCK, io_uring returns EAGAIN where it would have to wait.
    rustix::fs::fcntl_getfl(&file)
        .and_then(|flags| rustix::fs::fcntl_setfl(&file, flags - rustix::fs::OFlags::NONBLOCK))
        .map_err(|error| io_error(path, error.into()))?;
    Ok(file)
}

/// Rejects anything but regular files and block devices.
fn check_kind(kind: FileType, path: &Path) -> Result<(), OpenDeviceError> {
    if kind.is_dir() {
        return Err(OpenDeviceError::IsDirectory(path.to_owned()));
    }
    if kind.is_file() || kind.is_block_device() {
        return Ok(());
    }
    Err(OpenDeviceError::NotStorage {
        path: path.to_owned(),
        kind: match () {
            () if kind.is_fifo() => "a pipe",
            () if kind.is_socket() => "a socket",
            () if kind.is_char_device() => "a character device",
            () => "something else",
        },
    })
}

fn say_where_link_leads(path: &Path) {
    if let Ok(target) = std::fs::read_link(path) {
        tracing::info!(path = %path.display(), target = %target.display(), "the device's path is a symbolic link; it is followed");
    }
}

/// The cache in the file, if it is not empty.
///
/// # Errors
/// If the file has foreign data, or a cache of another size that would have to
/// be extended.
fn cache_on(
    file: &File,
    path: &Path,
    config: &DeviceConfig,
) -> Result<Option<CacheShape>, OpenDeviceError> {
    let look = || {
        let metadata = file.metadata()?;
        let is_block_device = metadata.file_type().is_block_device();
        let len = match is_block_device {
            true => block_device_size(file)?,
            false => metadata.len(),
        };
        let medium = Medium {
            file,
            len,
            is_block_device,
        };
        Ok((len, medium.contents(config.zone_size.map(ByteSize::bytes))?))
    };
    let (len, contents) = look().map_err(|error| io_error(path, error))?;
    match (contents, config.size) {
        (Contents::Foreign { offset, what }, _) => Err(OpenDeviceError::ForeignData {
            path: path.to_owned(),
            offset,
            what,
        }),
        (Contents::Cache(Some(shape)), Some(wanted))
            if wanted.bytes() > len && shape.size + shape.zone_size <= wanted.bytes() =>
        {
            Err(OpenDeviceError::OtherSize {
                path: path.to_owned(),
                found: ByteSize(shape.size),
                wanted,
            })
        }
        (Contents::Cache(shape), _) => Ok(shape),
        (Contents::Empty, _) => Ok(None),
    }
}

/// Waits a little for the lock. The kernel unlocks a killed process's file only
/// after its writes in flight, which could overwrite ours.
fn lock(file: &File, path: &Path) -> Result<(), OpenDeviceError> {
    const PATIENCE: Duration = Duration::from_secs(2);
    const STEP: Duration = Duration::from_millis(10);
    let began = Instant::now();
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < PATIENCE => {
                std::thread::sleep(STEP);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(OpenDeviceError::InUse(path.to_owned()));
            }
            Err(error) => return Err(io_error(path, error.into())),
        }
    }
}

/// Detects or sets the file's size. Returns whether it is a block device.
fn size_file(
    file: &File,
    path: &Path,
    config: &DeviceConfig,
) -> Result<(bool, ByteSize), OpenDeviceError> {
    let metadata = file.metadata().map_err(|error| io_error(path, error))?;
    if metadata.file_type().is_block_device() {
        let available = ByteSize(block_device_size(file).map_err(|e| io_error(path, e))?);
        let wanted = config.size.unwrap_or(available);
        if wanted > available {
            return Err(OpenDeviceError::SmallerThanConfigured {
                path: path.to_owned(),
                available,
                wanted,
            });
        }
        return Ok((true, wanted));
    }
    let found = ByteSize(metadata.len());
    let wanted = match config.size {
        Some(size) => size,
        None if found.bytes() == 0 => return Err(OpenDeviceError::Missing("size")),
        None => found,
    };
    make_room(file, path, found, wanted, config.preallocate)?;
    Ok((false, wanted))
}

/// Extends a regular file to `wanted`. With `preallocate`, all blocks are
/// allocated; without it, a full disk shows only when it is written.
fn make_room(
    file: &File,
    path: &Path,
    found: ByteSize,
    wanted: ByteSize,
    preallocate: bool,
) -> Result<(), OpenDeviceError> {
    let free = free_for(file).map_err(|error| io_error(path, error))?;
    let no_space = |source: io::Error| OpenDeviceError::NoSpace {
        path: path.to_owned(),
        wanted,
        free,
        source,
    };
    let grows = found < wanted;
    if preallocate && free < wanted {
        // Fail before allocating half of the disk in vain.
        return Err(no_space(io::ErrorKind::StorageFull.into()));
    }
    if grows {
        file.set_len(wanted.bytes()).map_err(no_space)?;
    }
    if preallocate
        && let Err(error) = rustix::fs::fallocate(file, FallocateFlags::empty(), 0, wanted.bytes())
    {
        if grows {
            // Frees a partial allocation. If that fails, too, the first error
            // is more useful.
            let _ = file.set_len(found.bytes());
        }
        return Err(no_space(error.into()));
    }
    if free < wanted {
        tracing::warn!(
            path = %path.display(),
            "the file system has room for {free} of a cache of {wanted}; what does not fit is not cached"
        );
    }
    Ok(())
}

/// The largest size of `file`: its own blocks and the free ones.
fn free_for(file: &File) -> io::Result<ByteSize> {
    const STAT_BLOCK: u64 = 512;
    let system = rustix::fs::fstatvfs(file)?;
    let own = file.metadata()?.blocks().saturating_mul(STAT_BLOCK);
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    Ok(ByteSize(free.saturating_add(own)))
}

fn block_device_size(file: &File) -> io::Result<u64> {
    const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;
    let mut bytes = 0_u64;
    // SAFETY: BLKGETSIZE64 writes one u64 to a pointer that is valid for the call.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &mut bytes) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes)
}

/// The smallest unit that a block device writes without reading, or tearing,
/// its neighbours; `None` for a file, or if the kernel does not report it.
fn whole_block(file: &File) -> Option<ByteSize> {
    let metadata = file.metadata().ok()?;
    if !metadata.file_type().is_block_device() {
        return None;
    }
    let (major, minor) = (
        rustix::fs::major(metadata.rdev()),
        rustix::fs::minor(metadata.rdev()),
    );
    let device = format!("/sys/dev/block/{major}:{minor}");
    // A partition's queue is that of its drive.
    ["queue", "../queue"]
        .iter()
        .find_map(|queue| whole_block_of(&Path::new(&device).join(queue)))
}

/// As [`whole_block`], from the kernel's description of the drive's queue.
/// `None` without both of the drive's block sizes; few drives report a unit of
/// atomic writes.
pub(super) fn whole_block_of(queue: &Path) -> Option<ByteSize> {
    let bytes = |name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(queue.join(name)).ok()?;
        text.trim().parse().ok()
    };
    let blocks = bytes("logical_block_size")?.max(bytes("physical_block_size")?);
    let whole = blocks.max(bytes("atomic_write_unit_max_bytes").unwrap_or(0));
    whole.is_power_of_two().then_some(ByteSize(whole))
}

struct Chosen {
    file: File,
    is_direct: bool,
}

/// Turns O_DIRECT on if it is configured and works for reads of one block.
fn choose_direct(
    file: File,
    path: &Path,
    config: &DeviceConfig,
) -> Result<Chosen, OpenDeviceError> {
    let buffered = |file| Chosen {
        file,
        is_direct: false,
    };
    if config.direct == Direct::Off {
        return Ok(buffered(file));
    }
    match set_direct(&file, config.block_size.bytes() as usize) {
        Ok(()) => Ok(Chosen {
            file,
            is_direct: true,
        }),
        Err(source) if config.direct == Direct::On => Err(OpenDeviceError::DirectRejected {
            path: path.to_owned(),
            block_size: config.block_size,
            source,
        }),
        Err(error) => {
            tracing::info!(path = %path.display(), %error, "direct I/O is not possible here");
            Ok(buffered(file))
        }
    }
}

/// Turns O_DIRECT on for an open file and tries it with one block. Turns it off
/// again if that fails.
fn set_direct(file: &File, block_size: usize) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    rustix::fs::fcntl_setfl(file, flags | rustix::fs::OFlags::DIRECT)?;
    let mut block = IoBuf::zeroed(block_size);
    let tried = file.read_at(&mut block, 0);
    if tried.is_err() {
        rustix::fs::fcntl_setfl(file, flags)?;
    }
    tried.map(drop)
}

fn make_arena(bytes: ByteSize) -> Option<Arc<Arena>> {
    // The kernel takes at most 1 GiB as one registered buffer.
    let len = usize::try_from(bytes.bytes())
        .unwrap_or(usize::MAX)
        .min(1 << 30);
    if len == 0 {
        return None;
    }
    match Arena::new(len) {
        Ok(arena) => Some(Arc::new(arena)),
        Err(error) => {
            tracing::warn!(%error, arena_bytes = len, "no memory for the buffer arena");
            None
        }
    }
}

fn choose_rings(
    file: &File,
    config: &DeviceConfig,
    arena: Option<&Arena>,
) -> Result<Option<Rings>, OpenDeviceError> {
    let new = || Rings::new(file, arena, config.rings);
    match config.io {
        IoChoice::Threads => Ok(None),
        // On tmpfs every io_uring request is punted to a kernel thread.
        IoChoice::Auto if is_tmpfs(file) => Ok(None),
        IoChoice::Uring => new().map(Some).map_err(OpenDeviceError::UringBlocked),
        IoChoice::Auto => match new() {
            Ok(rings) => Ok(Some(rings)),
            Err(error) => {
                tracing::warn!(%error, "io_uring is not available; using threads");
                Ok(None)
            }
        },
    }
}

fn is_tmpfs(file: &File) -> bool {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == TMPFS_MAGIC)
}
