//! A bucket: its directory below the root, and its part of the escape area.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags};
use rustix::io::Errno;

use super::escape::{self, Area};
use super::path::{
    cannot_be, cannot_become, is_taken, make_parent, objection, open_beneath, open_file,
    open_parent, parent_and_name, remove_empty_parents,
};
use crate::origin::error::OriginError;

/// Most attempts of a rename while deletes remove its directory.
const RENAMES_MAX: u32 = 16;

/// An open bucket.
pub(super) struct Bucket<'a> {
    pub(super) name: &'a str,
    pub(super) files: OwnedFd,
    pub(super) area: &'a Area,
}

impl Bucket<'_> {
    /// Opens an object's file.
    pub(super) fn open(&self, key: &str) -> Result<File, OriginError> {
        let found = self.look(key).map_err(|errno| cannot_be(key, errno))?;
        found.ok_or_else(|| OriginError::NotFound(key.to_owned()))
    }

    fn look(&self, key: &str) -> Result<Option<File>, Errno> {
        if let Some(file) = self.look_below(key)? {
            return Ok(Some(file));
        }
        let Some(escaped) = self.escaped()? else {
            return Ok(None);
        };
        let file = match escape::path(key) {
            Some(path) => open_file(&escaped, &path)?,
            None => None,
        };
        match file {
            Some(file) => Ok(Some(file)),
            // A write may have moved the object between the two looks.
            None => self.look_below(key),
        }
    }

    fn look_below(&self, key: &str) -> Result<Option<File>, Errno> {
        match objection(key) {
            Some(_) => Ok(None),
            None => open_file(&self.files, key),
        }
    }

    /// Its part of the escape area, if it has one.
    pub(super) fn escaped(&self) -> Result<Option<OwnedFd>, Errno> {
        self.area.bucket(self.name)
    }

    /// Gives the file at `staged` its key, durably. `flags` may forbid to replace an object.
    pub(super) fn put(
        &self,
        key: &str,
        staged: &Path,
        flags: RenameFlags,
    ) -> Result<(), OriginError> {
        if objection(key).is_none() {
            match rename(staged, &self.files, key, flags) {
                Ok(()) => return self.remove_escaped(key),
                Err(Errno::EXIST) => return Err(OriginError::PreconditionFailed),
                Err(errno) if is_taken(errno) => {}
                Err(errno) => return Err(cannot_become(key, errno)),
            }
        }
        let path = escape::path(key).ok_or_else(|| {
            let reason = "it is longer than 1024 bytes, and another object's path is in its way";
            super::path::invalid(key, reason)
        })?;
        let escaped = self.area.make_bucket(self.name);
        let put = escaped.and_then(|escaped| rename(staged, &escaped, &path, flags));
        put.map_err(|errno| match errno {
            Errno::EXIST => OriginError::PreconditionFailed,
            errno => cannot_become(key, errno),
        })
    }

    /// Deletes an object. The file in the escape area goes first: after a crash in between, the
    /// newer one is still there.
    pub(super) fn delete(&self, key: &str) -> Result<(), OriginError> {
        self.remove_escaped(key)?;
        if objection(key).is_some() {
            return Ok(());
        }
        delete(&self.files, key).map_err(|errno| cannot_be(key, errno))
    }

    pub(super) fn remove_escaped(&self, key: &str) -> Result<(), OriginError> {
        let removed = || match (self.escaped()?, escape::path(key)) {
            (Some(escaped), Some(path)) => delete(&escaped, &path),
            _ => Ok(()),
        };
        removed().map_err(|errno| cannot_be(key, errno))
    }
}

fn rename(staged: &Path, directory: &OwnedFd, path: &str, flags: RenameFlags) -> Result<(), Errno> {
    let (_, name) = parent_and_name(path);
    let mut renames = 0;
    loop {
        let parent = make_parent(directory, path)?;
        let errno = match rustix::fs::renameat_with(CWD, staged, &parent, name, flags) {
            Ok(()) => return sync_directory(&parent),
            Err(errno) => errno,
        };
        renames += 1;
        let again = match errno {
            _ if renames == RENAMES_MAX => Err(errno),
            Errno::NOENT => Ok(()),
            // An empty directory of that name may be removed.
            Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY => {
                match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => Ok(()),
                    Err(Errno::NOTDIR) => Err(errno),
                    Err(_) => Err(Errno::ISDIR),
                }
            }
            errno => Err(errno),
        };
        if let Err(errno) = again {
            remove_empty_parents(directory, path);
            return Err(errno);
        }
    }
}

/// Deletes a file, and the directories that held only it.
fn delete(directory: &OwnedFd, path: &str) -> Result<(), Errno> {
    let (parent, name) = parent_and_name(path);
    let parent = match open_parent(directory, parent) {
        Ok(parent) => parent,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) if is_taken(errno) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) => {
            sync_directory(&parent)?;
            remove_empty_parents(directory, path);
            Ok(())
        }
        Err(Errno::NOENT | Errno::ISDIR | Errno::NAMETOOLONG) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn sync_directory(directory: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    rustix::fs::fsync(open_beneath(directory, ".", flags)?)
}
