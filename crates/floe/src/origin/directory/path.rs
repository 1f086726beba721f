//! Maps untrusted keys to files below the root.
//!
//! Every file is opened relative to its bucket's directory with
//! `openat2(RESOLVE_BENEATH)`: the kernel rejects `..`, absolute paths and
//! symbolic links that leave the directory, without a race. On a kernel without
//! that call, the path is walked and no symbolic link is followed.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::origin::error::OriginError;

/// Bytes of the longest file name on Linux.
const NAME_BYTES_MAX: usize = 255;

/// How files are opened. Without `NONBLOCK`, a FIFO with a key's name would hang the open.
pub(super) const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);

/// The reason why a key cannot be a path below its bucket, if any.
pub(super) fn objection(key: &str) -> Option<&'static str> {
    if key.is_empty() {
        return Some("it is empty");
    }
    if key.len() > 4000 {
        return Some("it is longer than a path may be");
    }
    if key.contains('\0') {
        return Some("it contains NUL");
    }
    key.split('/').find_map(|part| match part {
        "" => Some("it begins or ends with a slash, or has two in a row"),
        "." | ".." => Some("`.` and `..` are no names of files"),
        long if long.len() > NAME_BYTES_MAX => Some("a part of it is longer than 255 bytes"),
        _ => None,
    })
}

/// True if a name can be a bucket: not a path, and not one of Floe's own directories.
pub(super) fn is_bucket(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with('.')
        && !name.contains(['/', '\0'])
}

pub(super) fn invalid(key: &str, reason: impl Into<String>) -> OriginError {
    OriginError::InvalidKey {
        key: key.to_owned(),
        reason: reason.into(),
    }
}

/// File systems that open a file and tell its metadata without asking another machine or
/// process. Not overlayfs, whose layers may be any.
const LOCAL: [i64; 8] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683E, // Btrfs
    0xF2F5_2010, // F2FS
    0x2FC1_2FC1, // ZFS
    0xCA45_1A4E, // Bcachefs
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
];

/// True if `directory` is on a file system of this machine.
pub(super) fn is_local(directory: &OwnedFd) -> bool {
    let found = rustix::fs::fstatfs(directory);
    found.is_ok_and(|found| LOCAL.contains(&found.f_type))
}

/// As [`open_beneath`], if all parts of the path are in the kernel's cache and on the file
/// system of `directory`. What is not is [`Errno::AGAIN`] or [`Errno::XDEV`].
pub(super) fn open_cached(
    directory: impl AsFd,
    path: &str,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV
        | ResolveFlags::CACHED;
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve)
}

/// Opens the file or directory `path` below `directory`.
pub(super) fn open_beneath(
    directory: impl AsFd,
    path: &str,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(&directory, path, flags, Mode::empty(), resolve) {
            Err(Errno::NOSYS) => return walk(directory, path, flags),
            // A concurrent rename disturbed the resolution of `..` in a link.
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
}

fn walk(directory: impl AsFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let step = |fd: &dyn AsFd, name: &str, flags: OFlags| match name {
        "" | "." | ".." => Err(Errno::XDEV),
        name => rustix::fs::openat(fd.as_fd(), name, flags | OFlags::NOFOLLOW, Mode::empty()),
    };
    let Some((parents, name)) = path.rsplit_once('/') else {
        return step(&directory, path, flags);
    };
    let mut current: Option<OwnedFd> = None;
    for part in parents.split('/') {
        let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        current = Some(match &current {
            Some(fd) => step(fd, part, through)?,
            None => step(&directory, part, through)?,
        });
    }
    match &current {
        Some(fd) => step(fd, name, flags),
        None => step(&directory, name, flags),
    }
}

/// A key's directory and file name.
pub(super) fn parent_and_name(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or((".", key))
}

/// Opens a key's directory.
pub(super) fn open_parent(bucket: impl AsFd, parent: &str) -> Result<OwnedFd, Errno> {
    open_beneath(bucket, parent, OFlags::PATH | OFlags::DIRECTORY)
}

/// Opens a path's directory, and creates missing parts of it.
pub(super) fn make_parent(bucket: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    let (parent, _) = parent_and_name(path);
    let mut made = 0;
    loop {
        match open_parent(bucket, parent) {
            Err(Errno::NOENT) if made < 64 => made += 1,
            result => return result,
        }
        make_directories(bucket, parent)?;
    }
}

fn make_directories(bucket: &OwnedFd, parent: &str) -> Result<(), Errno> {
    let ends = parent.match_indices('/').map(|(at, _)| at);
    for end in ends.chain([parent.len()]) {
        let (above, name) = parent_and_name(&parent[..end]);
        let above = match open_parent(bucket, above) {
            Ok(above) => above,
            // Another process removed it again; the caller retries.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST | Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Removes a key's empty directories, so that their names can be keys.
pub(super) fn remove_empty_parents(bucket: &OwnedFd, key: &str) {
    let mut path = parent_and_name(key).0;
    while path != "." {
        let (above, name) = parent_and_name(path);
        let Ok(directory) = open_parent(bucket, above) else {
            return;
        };
        if rustix::fs::unlinkat(&directory, name, AtFlags::REMOVEDIR).is_err() {
            return;
        }
        path = above;
    }
}

/// True for an error of writing or reading a path where another key's file or directory is, or
/// that is too long for the file system.
pub(super) fn is_taken(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOTDIR | Errno::ISDIR | Errno::NOTEMPTY | Errno::NAMETOOLONG
    )
}

/// Converts an error of a file that was to become a key's.
pub(super) fn cannot_become(key: &str, errno: Errno) -> OriginError {
    match errno {
        Errno::XDEV => invalid(
            key,
            "a symbolic link in its path leads out of its bucket, or its directory is on another \
             file system than the origin's root",
        ),
        other => cannot_be(key, other),
    }
}

/// Converts an error of a key's file.
pub(super) fn cannot_be(key: &str, errno: Errno) -> OriginError {
    match errno {
        Errno::XDEV | Errno::LOOP => {
            invalid(key, "a symbolic link in its path leads out of its bucket")
        }
        other => failed(key, other),
    }
}

pub(super) fn failed(key: &str, errno: Errno) -> OriginError {
    match errno {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => {
            OriginError::AccessDenied(format!("{key:?}: {errno}"))
        }
        other => io::Error::from(other).into(),
    }
}

/// Opens a regular file for reading, if there is one; other types count as missing.
pub(super) fn open_file(directory: &OwnedFd, path: &str) -> Result<Option<File>, Errno> {
    let file = match open_beneath(directory, path, FILE) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::INVAL | Errno::NXIO) => return Ok(None),
        Err(errno) if is_taken(errno) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let stat = rustix::fs::fstat(&file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    Ok(is_file.then_some(file))
}

/// The result of a removal. A file that another process has removed is no error.
pub(super) fn forgive_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
