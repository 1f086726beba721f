//! The steps of opening a file or block device that do not depend on its use.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_core::ByteSize;
use rustix::fs::FlockOperation;

use super::entries::EntryKind;
use super::rings::Rings;
use crate::arena::Arena;
use crate::buffer::IoBuf;
use crate::config::{Direct, IoChoice, OpenDeviceError, RingChoice};

/// The error to open `path` with, and its cure.
pub(crate) fn io_error(path: &Path, source: io::Error) -> OpenDeviceError {
    let path = path.to_owned();
    match source.raw_os_error() {
        Some(libc::EISDIR) => OpenDeviceError::IsDirectory(path),
        Some(libc::ENOENT | libc::ENOTDIR) => OpenDeviceError::NoDirectory(path),
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => OpenDeviceError::Permission(path),
        Some(libc::EBUSY | libc::EWOULDBLOCK) => OpenDeviceError::InUse(path),
        _ => OpenDeviceError::Io { path, source },
    }
}

/// The use of a file that is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// As `Write`; the file is created if it does not exist.
    Create,
}

/// Opens a file or block device. Only for reading may it be mounted.
pub(crate) fn open_file(path: &Path, access: Access) -> Result<File, OpenDeviceError> {
    say_where_link_leads(path);
    let mut options = OpenOptions::new();
    options.read(true).write(access != Access::Read).mode(0o600);
    // Opening a pipe or a terminal has effects, so check the kind first.
    // Opening must not block either if the file is replaced between the check
    // and the open.
    let mut flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    match std::fs::metadata(path).map(|found| found.file_type()) {
        Ok(kind) if kind.is_block_device() => {
            if access != Access::Read {
                // Makes the kernel reject a device that is mounted or otherwise in use.
                flags |= libc::O_EXCL;
            }
        }
        Ok(kind) => check_kind(kind, path)?,
        Err(_) if access == Access::Create => {
            options.create(true);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OpenDeviceError::NotFound(path.to_owned()));
        }
        Err(error) => return Err(io_error(path, error)),
    }
    options.custom_flags(flags);
    let file = patiently(|| options.open(path)).map_err(|error| io_error(path, error))?;
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

/// Tries again for a little while what fails because a file or device is in use: the
/// kernel releases those of a killed process only after its writes in flight, which could
/// overwrite ours.
pub(crate) fn patiently<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    const PATIENCE: Duration = Duration::from_secs(2);
    const STEP: Duration = Duration::from_millis(10);
    let began = Instant::now();
    loop {
        match attempt() {
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EWOULDBLOCK))
                    && began.elapsed() < PATIENCE =>
            {
                std::thread::sleep(STEP);
            }
            ended => return ended,
        }
    }
}

/// Locks the file, exclusively unless it is only read.
pub(crate) fn lock(file: &File, path: &Path, access: Access) -> Result<(), OpenDeviceError> {
    let operation = match access {
        Access::Read => FlockOperation::NonBlockingLockShared,
        Access::Write | Access::Create => FlockOperation::NonBlockingLockExclusive,
    };
    patiently(|| Ok(rustix::fs::flock(file, operation)?)).map_err(|error| io_error(path, error))
}

/// Locks all bytes of a file for this open file, which fails if another program, such as
/// QEMU, holds a lock on some.
pub(crate) fn lock_bytes(file: &File, path: &Path) -> Result<(), OpenDeviceError> {
    let whole = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: F_OFD_SETLK reads one `flock` from a pointer that is valid for the call.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const whole) };
    let error = io::Error::last_os_error();
    match (status, error.raw_os_error()) {
        (..0, Some(libc::EAGAIN | libc::EACCES)) => Err(OpenDeviceError::InUse(path.to_owned())),
        // Some file systems have no locks.
        _ => Ok(()),
    }
}

/// Bytes of a block device.
pub(crate) fn block_device_size(file: &File) -> io::Result<u64> {
    const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;
    let mut bytes = 0_u64;
    // SAFETY: BLKGETSIZE64 writes one u64 to a pointer that is valid for the call.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &mut bytes) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes)
}

/// Bytes of a block device's logical block.
pub(crate) fn logical_block_bytes(file: &File) -> io::Result<u32> {
    const BLKSSZGET: libc::Ioctl = 0x1268;
    let mut bytes: libc::c_int = 0;
    // SAFETY: BLKSSZGET writes one int to a pointer that is valid for the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), BLKSSZGET, &mut bytes) } {
        status if status < 0 => Err(io::Error::last_os_error()),
        _ => Ok(bytes.cast_unsigned()),
    }
}

/// Turns O_DIRECT on if that is configured and works for reads of one block. Returns
/// whether it is on.
pub(crate) fn choose_direct(
    file: &File,
    path: &Path,
    direct: Direct,
    block_size: ByteSize,
) -> Result<bool, OpenDeviceError> {
    if direct == Direct::Off {
        return Ok(false);
    }
    match set_direct(file, block_size.bytes() as usize) {
        Ok(()) => Ok(true),
        Err(source) if direct == Direct::On => Err(OpenDeviceError::DirectRejected {
            path: path.to_owned(),
            block_size,
            source,
        }),
        Err(error) => {
            tracing::info!(path = %path.display(), %error, "direct I/O is not possible here");
            Ok(false)
        }
    }
}

/// Turns O_DIRECT on for an open file and tries it with one block. Turns it off
/// again if that fails.
pub(crate) fn set_direct(file: &File, block_size: usize) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    rustix::fs::fcntl_setfl(file, flags | rustix::fs::OFlags::DIRECT)?;
    let mut block = IoBuf::zeroed(block_size);
    let tried = file.read_at(&mut block, 0);
    if tried.is_err() {
        rustix::fs::fcntl_setfl(file, flags)?;
    }
    tried.map(drop)
}

/// An arena of so many bytes, if it is not zero and memory allows it.
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

/// An arena of so many bytes, if memory allows it, and the rings of the first file. They
/// hold the others, too, until the last request has ended.
pub(crate) fn arena_and_rings(
    files: &[&File],
    registered_buffers: ByteSize,
    io: IoChoice,
    rings: RingChoice,
    entries: EntryKind,
) -> Result<(Option<Arc<Arena>>, Option<Rings>), OpenDeviceError> {
    let arena = make_arena(registered_buffers);
    let rings = choose_rings(files, arena.as_deref(), io, rings, entries)?;
    Ok((arena, rings))
}

/// The rings of the first file; none where threads execute its requests.
fn choose_rings(
    files: &[&File],
    arena: Option<&Arena>,
    io: IoChoice,
    rings: RingChoice,
    entries: EntryKind,
) -> Result<Option<Rings>, OpenDeviceError> {
    let new = || Rings::new(files, arena, rings, entries);
    match io {
        IoChoice::Threads => Ok(None),
        // On tmpfs every io_uring request is punted to a kernel thread.
        IoChoice::Auto if is_tmpfs(files[0]) => Ok(None),
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

/// True for a regular file on tmpfs. A block device's node is on one, too, its blocks
/// are not.
pub(crate) fn is_tmpfs(file: &File) -> bool {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    let is_regular = file.metadata().is_ok_and(|found| found.is_file());
    is_regular && rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == TMPFS_MAGIC)
}
