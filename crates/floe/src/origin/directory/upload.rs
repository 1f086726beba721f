//! Writes: into a file without a key, which is then renamed.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::RenameFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::file::{meta, stamp, stat_meta, write_attributes};
use super::path::{
    cannot_be, make_parent, not_there, open_beneath, parent_and_name, remove_empty_parents,
};
use crate::origin::error::OriginError;
use crate::origin::types::{
    Attributes, ObjectKey, PartInfo, PutCondition, PutResponse, UploadInfo, UploadedPart,
};

/// Most attempts of a rename while deletes remove its directory.
const RENAMES_MAX: u32 = 16;

/// Age of an unfinished write that counts as abandoned.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The directory of unfinished writes: below the root, so that a rename moves
/// them to their key, and with a name that no bucket can have.
pub(super) struct Staging {
    directory: PathBuf,
}

/// A file that is removed on drop unless it is committed.
pub(super) struct Staged {
    pub(super) file: File,
    path: PathBuf,
}

/// The object of a multipart upload.
#[derive(Serialize, Deserialize)]
struct About {
    bucket: String,
    key: String,
    attributes: Attributes,
}

impl Staging {
    pub(super) fn open(root: &Path) -> std::io::Result<Self> {
        let directory = root.join(".floe");
        std::fs::create_dir_all(directory.join("uploads"))?;
        let unfinished = directory.join("unfinished");
        std::fs::create_dir_all(&unfinished)?;
        remove_abandoned(&unfinished)?;
        Ok(Staging { directory })
    }

    pub(super) fn begin(&self) -> Result<Staged, OriginError> {
        loop {
            let name = format!("{:032x}", rand::random::<u128>());
            match Staged::create(self.directory.join("unfinished").join(name)) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                result => return Ok(result?),
            }
        }
    }

    pub(super) fn create_upload(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
    ) -> Result<String, OriginError> {
        let upload = format!("{:032x}", rand::random::<u128>());
        let directory = self.directory.join("uploads").join(&upload);
        std::fs::create_dir(&directory)?;
        let about = About {
            bucket: key.bucket().to_owned(),
            key: key.key().to_owned(),
            attributes,
        };
        let json = serde_json::to_vec(&about)
            .map_err(|error| OriginError::BadUpload(error.to_string()))?;
        std::fs::write(directory.join("about.json"), json)?;
        Ok(upload)
    }

    /// Begins a part. [`complete`](Staging::complete) finds it once it is kept.
    pub(super) fn begin_part(&self, key: &ObjectKey, upload: &str) -> Result<Staged, OriginError> {
        self.about(key, upload)?;
        self.begin()
    }

    pub(super) fn keep_part(
        &self,
        key: &ObjectKey,
        upload: &str,
        number: u32,
        staged: Staged,
    ) -> Result<PutResponse, OriginError> {
        let (directory, _) = self.about(key, upload)?;
        stamp(&staged.file)?;
        let etag = stat_meta(&staged.file.metadata()?).etag;
        std::fs::rename(&staged.path, directory.join(part_name(number)))
            .map_err(|_| OriginError::NoSuchUpload(upload.to_owned()))?;
        Ok(PutResponse { etag })
    }

    /// Concatenates the parts.
    pub(super) fn complete(
        &self,
        key: &ObjectKey,
        upload: &str,
        parts: &[UploadedPart],
    ) -> Result<(Staged, Attributes), OriginError> {
        let (directory, about) = self.about(key, upload)?;
        let mut whole = self.begin()?;
        for part in parts {
            let wrong =
                |reason: &str| OriginError::InvalidPart(format!("part {} {reason}", part.number));
            let mut file = File::open(directory.join(part_name(part.number)))
                .map_err(|_| wrong("was not uploaded"))?;
            if stat_meta(&file.metadata()?).etag.as_deref() != Some(part.etag.as_str()) {
                return Err(wrong("has another entity tag"));
            }
            std::io::copy(&mut file, &mut whole.file)?;
        }
        Ok((whole, about.attributes))
    }

    /// Lists the kept parts in ascending order of their numbers.
    pub(super) fn parts(
        &self,
        key: &ObjectKey,
        upload: &str,
    ) -> Result<Vec<PartInfo>, OriginError> {
        let (directory, _) = self.about(key, upload)?;
        let mut parts = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let number = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            // A part that was just replaced is missing from this list.
            let (Some(number), Ok(metadata)) = (number, entry.metadata()) else {
                continue;
            };
            let meta = stat_meta(&metadata);
            parts.push(PartInfo {
                number,
                etag: meta.etag,
                size: meta.size,
                last_modified: meta.last_modified,
            });
        }
        parts.sort_unstable_by_key(|part| part.number);
        Ok(parts)
    }

    /// Lists the pending uploads of a bucket in byte order of key and id.
    pub(super) fn uploads(&self, bucket: &str) -> Result<Vec<UploadInfo>, OriginError> {
        let mut uploads = Vec::new();
        for entry in std::fs::read_dir(self.directory.join("uploads"))? {
            let entry = entry?;
            // An upload that is being created or removed is not listed.
            let Ok(json) = std::fs::read(entry.path().join("about.json")) else {
                continue;
            };
            let (Ok(upload), Ok(about)) = (
                entry.file_name().into_string(),
                serde_json::from_slice::<About>(&json),
            ) else {
                continue;
            };
            if about.bucket == bucket {
                let begun = std::fs::metadata(entry.path().join("about.json"));
                uploads.push(UploadInfo {
                    key: about.key,
                    upload,
                    initiated: begun.and_then(|about| about.modified()).ok(),
                });
            }
        }
        uploads.sort_unstable_by(|a, b| (&a.key, &a.upload).cmp(&(&b.key, &b.upload)));
        Ok(uploads)
    }

    pub(super) fn forget_upload(&self, key: &ObjectKey, upload: &str) -> Result<(), OriginError> {
        let (directory, _) = self.about(key, upload)?;
        Ok(std::fs::remove_dir_all(directory)?)
    }

    /// The upload's directory. An id is untrusted: only ids of the form that
    /// this type creates are looked up.
    fn about(&self, key: &ObjectKey, upload: &str) -> Result<(PathBuf, About), OriginError> {
        let unknown = || OriginError::NoSuchUpload(upload.to_owned());
        let hexadecimal = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if upload.len() != 32 || !upload.bytes().all(hexadecimal) {
            return Err(unknown());
        }
        let directory = self.directory.join("uploads").join(upload);
        let json = std::fs::read(directory.join("about.json")).map_err(|_| unknown())?;
        let about: About = serde_json::from_slice(&json).map_err(|_| unknown())?;
        if about.bucket != key.bucket() || about.key != key.key() {
            return Err(unknown());
        }
        Ok((directory, about))
    }
}

/// Removes the files of a killed process. Other processes may be writing here,
/// so only files without a write for a day count as abandoned.
fn remove_abandoned(unfinished: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(unfinished)? {
        let entry = entry?;
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|modified| modified.elapsed().ok());
        if age.is_some_and(|age| age > ABANDONED_AFTER) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn part_name(number: u32) -> String {
    format!("{number:05}")
}

impl Staged {
    fn create(path: PathBuf) -> std::io::Result<Self> {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .read(true)
            .create_new(true)
            .mode(0o666)
            .open(&path)?;
        Ok(Staged { file, path })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), OriginError> {
        Ok(self.file.write_all(bytes)?)
    }

    /// Renames the file to `key`, durably.
    pub(super) fn commit(
        self,
        bucket: &OwnedFd,
        key: &str,
        attributes: &Attributes,
        condition: Option<&PutCondition>,
    ) -> Result<PutResponse, OriginError> {
        write_attributes(&self.file, key, attributes)?;
        stamp(&self.file)?;
        self.file.sync_all()?;
        let flags = match condition {
            Some(PutCondition::Absent) => RenameFlags::NOREPLACE,
            Some(PutCondition::Matches(etag)) => {
                check_etag(bucket, key, etag)?;
                RenameFlags::empty()
            }
            None => RenameFlags::empty(),
        };
        self.rename(bucket, key, flags)?;
        let etag = meta(&self.file, key)?.etag;
        Ok(PutResponse { etag })
    }

    fn rename(&self, bucket: &OwnedFd, key: &str, flags: RenameFlags) -> Result<(), OriginError> {
        let (_, name) = parent_and_name(key);
        let mut renames = 0;
        loop {
            let parent = make_parent(bucket, key)?;
            match rustix::fs::renameat_with(rustix::fs::CWD, &self.path, &parent, name, flags) {
                Ok(()) => return sync_directory(&parent),
                Err(Errno::NOENT) if renames < RENAMES_MAX => renames += 1,
                // An empty directory of that name may be removed.
                Err(Errno::ISDIR | Errno::EXIST)
                    if renames < RENAMES_MAX
                        && rustix::fs::unlinkat(&parent, name, rustix::fs::AtFlags::REMOVEDIR)
                            .is_ok() =>
                {
                    renames += 1;
                }
                Err(Errno::EXIST) => return Err(OriginError::PreconditionFailed),
                Err(errno) => {
                    remove_empty_parents(bucket, key);
                    return Err(cannot_be(key, errno));
                }
            }
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After a rename this path no longer exists.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn sync_directory(directory: &OwnedFd) -> Result<(), OriginError> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let readable = open_beneath(directory, ".", flags).map_err(std::io::Error::from)?;
    Ok(rustix::fs::fsync(readable).map_err(std::io::Error::from)?)
}

fn check_etag(bucket: &OwnedFd, key: &str, etag: &str) -> Result<(), OriginError> {
    let current = super::path::open_file(bucket, key).map_err(|error| match error {
        OriginError::NotFound(_) => OriginError::PreconditionFailed,
        other => other,
    })?;
    match stat_meta(&current.metadata()?).etag.as_deref() == Some(etag) {
        true => Ok(()),
        false => Err(OriginError::PreconditionFailed),
    }
}

/// Deletes a key, and the directories that held only it.
pub(super) fn delete(bucket: &OwnedFd, key: &str) -> Result<(), OriginError> {
    let (parent, name) = parent_and_name(key);
    let parent = match super::path::open_parent(bucket, parent) {
        Ok(parent) => parent,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => return Ok(()),
        Err(errno) => return Err(not_there(key, errno)),
    };
    match rustix::fs::unlinkat(&parent, name, rustix::fs::AtFlags::empty()) {
        Ok(()) => {
            sync_directory(&parent)?;
            remove_empty_parents(bucket, key);
            Ok(())
        }
        Err(Errno::NOENT | Errno::ISDIR | Errno::NAMETOOLONG) => Ok(()),
        Err(errno) => Err(not_there(key, errno)),
    }
}
