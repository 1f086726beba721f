//! Opening a file or block device.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use floe_core::ByteSize;
use parking_lot::Mutex;
use rustix::fs::FallocateFlags;

use super::FileDevice;
use super::contents::{CacheShape, Medium};
use super::entries::EntryKind;
use super::opening::{
    Access, arena_and_rings, block_device_size, choose_direct, io_error, lock, open_file,
};
use super::operations::Operations;
use super::owner::OpenFile;
use super::states::ZoneStates;
use crate::buffer::IoBuf;
use crate::config::{DeviceConfig, OpenDeviceError};
use crate::contract::ZoneState;
use crate::zones::ZoneTable;

impl FileDevice {
    /// Opens the configured file, and creates or extends it if necessary.
    ///
    /// # Errors
    /// See [`OpenDeviceError`].
    pub fn open(config: &DeviceConfig) -> Result<Self, OpenDeviceError> {
        let path = config.required_path()?;
        if let Some(size) = config.size {
            // Before anything is created.
            config.geometry(size)?;
        }
        let file = match config.size {
            Some(_) => open_file(path, Access::Create)?,
            None => open_file(path, Access::Write).map_err(size_is_missing)?,
        };
        lock(&file, path, Access::Write)?;
        let cache = match config.accept_foreign {
            true => None,
            false => cache_on(&file, path, config)?,
        };
        let config = &fitted(config, cache, || whole_block(&file));
        let available = size_file(&file, path, config)?;
        let geometry = config.geometry(available)?;
        let is_direct = choose_direct(&file, path, config.direct, config.block_size)?;
        let (buffers, io) = (config.registered_buffers, config.io);
        let (arena, rings) =
            arena_and_rings(&[&file], buffers, io, config.rings, EntryKind::Transfers)?;
        let open = OpenFile::new(path, file, is_direct, arena);
        let operations = Operations {
            zones: ZoneStates::new(ZoneTable::new(&geometry, ZoneState::Unknown)),
            zeros: IoBuf::zeroed(geometry.block_size as usize).freeze(),
            geometry,
            discard: AtomicBool::new(config.discard.unwrap_or(open.is_block_device)),
            discards_when_full: AtomicBool::new(config.discard.is_none() && !open.is_block_device),
            kept: Mutex::default(),
            open,
        };
        Ok(FileDevice::over(operations, rings))
    }
}

/// The settings with the zone size and block size of the cache on a device. A new cache
/// gets the largest block, up to the configured one, that the drive writes whole, if
/// `whole_block` is known.
pub(crate) fn fitted(
    config: &DeviceConfig,
    cache: Option<CacheShape>,
    whole_block: impl FnOnce() -> Option<ByteSize>,
) -> DeviceConfig {
    DeviceConfig {
        // A cache that was created with another default stays readable.
        zone_size: config
            .zone_size
            .or(cache.map(|cache| ByteSize(cache.zone_size))),
        block_size: match (config.fits_block_size, cache) {
            (false, _) => config.block_size,
            (true, Some(cache)) => ByteSize(cache.block_size.into()),
            (true, None) => {
                whole_block().map_or(config.block_size, |whole| whole.min(config.block_size))
            }
        },
        ..config.clone()
    }
}

/// Without a size, no file is created.
fn size_is_missing(error: OpenDeviceError) -> OpenDeviceError {
    match error {
        OpenDeviceError::NotFound(_) => OpenDeviceError::Missing("size"),
        other => other,
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
        let medium = Medium::of(file)?;
        let contents = medium.contents(config.zone_size.map(ByteSize::bytes))?;
        Ok((medium.len, contents))
    };
    let (len, contents) = look().map_err(|error| io_error(path, error))?;
    match (contents.cache(path)?, config.size) {
        (Some(shape), Some(wanted))
            if wanted.bytes() > len && shape.size + shape.zone_size <= wanted.bytes() =>
        {
            Err(OpenDeviceError::OtherSize {
                path: path.to_owned(),
                found: ByteSize(shape.size),
                wanted,
            })
        }
        (shape, _) => Ok(shape),
    }
}

/// Detects or sets the file's size.
fn size_file(file: &File, path: &Path, config: &DeviceConfig) -> Result<ByteSize, OpenDeviceError> {
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
        return Ok(wanted);
    }
    let found = ByteSize(metadata.len());
    let wanted = match config.size {
        Some(size) => size,
        None if found.bytes() == 0 => return Err(OpenDeviceError::Missing("size")),
        None => found,
    };
    make_room(file, path, found, wanted, config.preallocate)?;
    Ok(wanted)
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

/// The smallest unit that a block device writes without reading, or tearing,
/// its neighbours; `None` for a file, or if the kernel does not report it.
pub(crate) fn whole_block(file: &File) -> Option<ByteSize> {
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
