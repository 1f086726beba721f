//! Writes: into a file without a key, which is then renamed.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::RenameFlags;
use serde::{Deserialize, Serialize};

use super::bucket::Bucket;
use super::file::{meta, stamp, stat_meta, write_attributes};
use crate::origin::error::OriginError;
use crate::origin::types::{
    Attributes, ObjectKey, PartInfo, PutCondition, PutResponse, UploadInfo, UploadedPart,
};

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
    pub(super) fn open(directory: PathBuf) -> std::io::Result<Self> {
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

    /// Forgets the uploads of a bucket.
    pub(super) fn forget_uploads(&self, bucket: &str) -> Result<(), OriginError> {
        for upload in self.uploads(bucket)? {
            let directory = self.directory.join("uploads").join(upload.upload);
            match std::fs::remove_dir_all(directory) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        Ok(())
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

    /// Makes headers and bytes durable, before the file gets its key.
    pub(super) fn finish(&self, key: &str, attributes: &Attributes) -> Result<(), OriginError> {
        write_attributes(&self.file, key, attributes)?;
        stamp(&self.file)?;
        Ok(self.file.sync_all()?)
    }

    /// Gives the file its key, if the condition holds. No other write of this process to the key
    /// may be under way.
    pub(super) fn commit(
        self,
        bucket: &Bucket<'_>,
        key: &str,
        condition: Option<&PutCondition>,
    ) -> Result<PutResponse, OriginError> {
        let flags = match condition {
            // `NOREPLACE` finds the file of another process.
            Some(PutCondition::Absent) => match bucket.open(key) {
                Err(OriginError::NotFound(_)) => RenameFlags::NOREPLACE,
                Err(error) => return Err(error),
                Ok(_) => return Err(OriginError::PreconditionFailed),
            },
            Some(PutCondition::Matches(etag)) => {
                check_etag(bucket, key, etag)?;
                RenameFlags::empty()
            }
            None => RenameFlags::empty(),
        };
        bucket.put(key, &self.path, flags)?;
        let etag = meta(&self.file, key)?.etag;
        Ok(PutResponse { etag })
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After a rename this path no longer exists.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn check_etag(bucket: &Bucket<'_>, key: &str, etag: &str) -> Result<(), OriginError> {
    let current = bucket.open(key).map_err(|error| match error {
        OriginError::NotFound(_) => OriginError::PreconditionFailed,
        other => other,
    })?;
    match stat_meta(&current.metadata()?).etag.as_deref() == Some(etag) {
        true => Ok(()),
        false => Err(OriginError::PreconditionFailed),
    }
}
