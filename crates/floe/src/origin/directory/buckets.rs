//! The buckets of a directory: listed, created and deleted.

use std::os::fd::OwnedFd;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::bucket::Bucket;
use super::path::{self, failed, open_beneath};
use super::{Shared, file, list};
use crate::origin::error::OriginError;
use crate::origin::types::{BucketInfo, ListRequest, require_bucket_name};

impl Shared {
    pub(super) fn list_buckets(&self) -> Result<Vec<BucketInfo>, OriginError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let root = open_beneath(&self.root, ".", flags).map_err(std::io::Error::from)?;
        let mut buckets = Vec::new();
        for entry in Dir::read_from(root).map_err(std::io::Error::from)? {
            let entry = entry.map_err(std::io::Error::from)?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            let Ok(bucket) = self.bucket(name) else {
                continue;
            };
            buckets.push(BucketInfo {
                name: name.to_owned(),
                created: made(&bucket.files),
            });
        }
        buckets.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(buckets)
    }

    pub(super) fn create_bucket(&self, name: &str) -> Result<(), OriginError> {
        require_bucket_name(name)?;
        let create = || {
            let _buckets = self.buckets.write();
            match rustix::fs::statat(&self.root, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                Ok(_) => return Err(Errno::EXIST),
                Err(errno) => return Err(errno),
            }
            self.area.put_away(name)?;
            rustix::fs::mkdirat(&self.root, name, Mode::from_raw_mode(0o777))
        };
        match create() {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(OriginError::BucketExists(name.to_owned())),
            Err(errno) => Err(failed(name, errno)),
        }
    }

    /// Deletes a bucket without objects: its empty directories and its uploads under way go with
    /// it. A file that is no object keeps it.
    pub(super) fn delete_bucket(&self, name: &str) -> Result<(), OriginError> {
        let not_empty = || OriginError::BucketNotEmpty(name.to_owned());
        let bucket = self.bucket(name)?;
        self.require_empty(&bucket)?;
        remove_directories(&bucket.files)?;
        if let Some(escaped) = bucket.escaped().map_err(|errno| failed(name, errno))? {
            remove_directories(&escaped)?;
        }
        let remove = || {
            // Objects that were written in the meantime keep their directories.
            let _buckets = self.buckets.write();
            self.area.remove_bucket(name)?;
            rustix::fs::unlinkat(&self.root, name, AtFlags::REMOVEDIR)
        };
        match remove() {
            Ok(()) | Err(Errno::NOENT) => self.staging.forget_uploads(name),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(not_empty()),
            Err(errno) => Err(failed(name, errno)),
        }
    }

    fn require_empty(&self, bucket: &Bucket<'_>) -> Result<(), OriginError> {
        let request = ListRequest {
            max_keys: 1,
            ..ListRequest::default()
        };
        match list::list(bucket, &request)?.objects.is_empty() {
            true => Ok(()),
            false => Err(OriginError::BucketNotEmpty(bucket.name.to_owned())),
        }
    }
}

/// Removes all directories below one that hold nothing else. Links are not followed.
fn remove_directories(root: &OwnedFd) -> Result<(), OriginError> {
    let mut found = vec![".".to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        let Ok(directory) = open_beneath(root, &path, OFlags::RDONLY | OFlags::DIRECTORY) else {
            continue;
        };
        for entry in Dir::read_from(&directory).map_err(std::io::Error::from)? {
            let entry = entry.map_err(std::io::Error::from)?;
            let name = entry.file_name().to_str();
            let name = name.ok().filter(|name| *name != "." && *name != "..");
            if let (FileType::Directory, Some(name)) = (entry.file_type(), name) {
                found.push(format!("{path}/{name}"));
            }
        }
    }
    // A directory comes after those above it.
    for path in found[1..].iter().rev() {
        let (above, name) = path::parent_and_name(path);
        if let Ok(above) = path::open_parent(root, above) {
            let _ = rustix::fs::unlinkat(&above, name, AtFlags::REMOVEDIR);
        }
    }
    Ok(())
}

/// The modification time, because not every file system records a creation time.
fn made(bucket: &OwnedFd) -> Option<SystemTime> {
    file::raw_stat_meta(&rustix::fs::fstat(bucket).ok()?).last_modified
}
