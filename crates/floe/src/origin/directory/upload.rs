//! Writes: into a file without a key, which is then renamed.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use md5::{Digest, Md5};
use rustix::fs::RenameFlags;

use super::bucket::Bucket;
use super::change::Change;
use super::completed::Completions;
use super::file::{content_meta, meta, stamp, write_attributes};
use super::path::forgive_missing;
use crate::origin::digest;
use crate::origin::error::OriginError;
use crate::origin::types::{
    Attributes, CompleteRequest, Headers, ObjectKey, ObjectMeta, PartInfo, PendingParts,
    PutCondition, PutResponse, UploadInfo,
};
use crate::origin::uploads::{PendingUpload, is_upload_id};

/// Age of an unfinished write that counts as abandoned.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The directory of unfinished writes: below the root, so that a rename moves
/// them to their key, and with a name that no bucket can have.
pub(super) struct Staging {
    directory: PathBuf,
    pub(super) completions: Completions,
}

/// A file that is removed on drop unless it is committed.
pub(super) struct Staged {
    pub(super) file: File,
    path: PathBuf,
    digest: Md5,
    /// The entity tag, if it is not that of [`digest`](Self::digest).
    of_parts: Option<Option<String>>,
}

impl Staging {
    pub(super) fn open(directory: PathBuf) -> std::io::Result<Self> {
        std::fs::create_dir_all(directory.join("uploads"))?;
        let unfinished = directory.join("unfinished");
        std::fs::create_dir_all(&unfinished)?;
        remove_abandoned(&unfinished)?;
        Ok(Staging {
            completions: Completions::open(directory.join("completed"))?,
            directory,
        })
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
        let about = PendingUpload::new(key, attributes);
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
        headers: Headers,
        staged: Staged,
    ) -> Result<PutResponse, OriginError> {
        let (directory, _) = self.about(key, upload)?;
        let attributes = Attributes {
            headers,
            ..Attributes::default()
        };
        staged.describe(key.key(), &attributes)?;
        let etag = tag(&staged.file)?;
        std::fs::rename(&staged.path, directory.join(part_name(number)))
            .map_err(|_| OriginError::NoSuchUpload(upload.to_owned()))?;
        Ok(PutResponse { etag })
    }

    /// Concatenates the parts.
    pub(super) fn complete(
        &self,
        key: &ObjectKey,
        request: &CompleteRequest,
        change: &Change,
    ) -> Result<(Staged, Attributes), OriginError> {
        let (directory, about) = self.about(key, &request.upload)?;
        let mut whole = self.begin()?;
        let mut is_in_md5 = true;
        let mut sizes = Vec::with_capacity(request.parts.len());
        for part in &request.parts {
            change.check()?;
            let wrong =
                |reason: &str| OriginError::InvalidPart(format!("part {} {reason}", part.number));
            let mut file = File::open(directory.join(part_name(part.number)))
                .map_err(|_| wrong("was not uploaded"))?;
            let meta = content_meta(&file)?;
            if meta.client_etag() != Some(part.etag.as_str()) {
                return Err(wrong("has another entity tag"));
            }
            is_in_md5 &= meta.content_etag.is_some();
            sizes.push(std::io::copy(&mut file, &mut whole.file)?);
        }
        let tags = request.parts.iter().map(|part| part.etag.as_str());
        whole.of_parts = Some(digest::of_parts(tags).filter(|_| is_in_md5));
        Ok((whole, about.completed(request, &sizes)))
    }

    /// Lists the kept parts.
    pub(super) fn parts(&self, key: &ObjectKey, upload: &str) -> Result<PendingParts, OriginError> {
        let (directory, about) = self.about(key, upload)?;
        let mut parts = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let number = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            // A part that was just replaced is missing from this list.
            let (Some(number), Ok(file)) = (number, File::open(entry.path())) else {
                continue;
            };
            let meta = content_meta(&file)?;
            parts.push(PartInfo {
                number,
                etag: meta.client_etag().map(str::to_owned),
                size: meta.size,
                last_modified: meta.last_modified,
                headers: meta.attributes.headers,
            });
        }
        parts.sort_unstable_by_key(|part| part.number);
        Ok(PendingParts {
            headers: about.attributes.headers,
            parts,
        })
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
                serde_json::from_slice::<PendingUpload>(&json),
            ) else {
                continue;
            };
            if about.is_in(bucket) {
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
            forgive_missing(std::fs::remove_dir_all(directory))?;
        }
        Ok(())
    }

    /// Checks that the upload is under way.
    pub(super) fn require_upload(&self, key: &ObjectKey, upload: &str) -> Result<(), OriginError> {
        self.about(key, upload).map(drop)
    }

    /// Ends an upload at once. Its parts are then at the path of the result, without an upload.
    pub(super) fn end_upload(&self, key: &ObjectKey, upload: &str) -> Result<PathBuf, OriginError> {
        let (directory, _) = self.about(key, upload)?;
        let name = format!("{:032x}", rand::random::<u128>());
        let away = self.directory.join("unfinished").join(name);
        match std::fs::rename(directory, &away) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(OriginError::NoSuchUpload(upload.to_owned()))
            }
            moved => Ok(moved.map(|()| away)?),
        }
    }

    /// The upload's directory. An id is untrusted: only ids of the form that
    /// this type creates are looked up.
    fn about(&self, key: &ObjectKey, id: &str) -> Result<(PathBuf, PendingUpload), OriginError> {
        let unknown = || OriginError::NoSuchUpload(id.to_owned());
        if !is_upload_id(id) {
            return Err(unknown());
        }
        let directory = self.directory.join("uploads").join(id);
        let json = std::fs::read(directory.join("about.json")).map_err(|_| unknown())?;
        let about: PendingUpload = serde_json::from_slice(&json).map_err(|_| unknown())?;
        match about.name() == *key {
            true => Ok((directory, about)),
            false => Err(unknown()),
        }
    }
}

/// Removes the files and ended uploads of a killed process. Other processes may be writing here,
/// so only files without a write for a day count as abandoned.
fn remove_abandoned(unfinished: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(unfinished)? {
        let entry = entry?;
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|modified| modified.elapsed().ok());
        if age.is_some_and(|age| age > ABANDONED_AFTER) {
            forgive_missing(match entry.file_type()?.is_dir() {
                true => std::fs::remove_dir_all(entry.path()),
                false => std::fs::remove_file(entry.path()),
            })?;
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
        Ok(Staged {
            file,
            path,
            digest: Md5::new(),
            of_parts: None,
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), OriginError> {
        self.digest.update(bytes);
        Ok(self.file.write_all(bytes)?)
    }

    /// Stores headers, after the last bytes.
    fn describe(&self, key: &str, attributes: &Attributes) -> Result<(), OriginError> {
        let etag = match &self.of_parts {
            Some(etag) => etag.clone(),
            None => Some(digest::of_bytes(self.digest.clone())),
        };
        let stamped = stamp(&self.file)?;
        write_attributes(&self.file, key, attributes, etag, stamped)
    }

    /// Makes headers and bytes durable, before the file gets its key.
    pub(super) fn finish(&self, key: &str, attributes: &Attributes) -> Result<(), OriginError> {
        self.describe(key, attributes)?;
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
        if let Some(condition) = condition {
            condition.check(key, current(bucket, key)?.as_ref())?;
        }
        let flags = match condition {
            // Finds the file of another process, too.
            Some(PutCondition::Absent) => RenameFlags::NOREPLACE,
            _ => RenameFlags::empty(),
        };
        bucket.put(key, &self.path, flags)?;
        let etag = tag(&self.file)?;
        Ok(PutResponse { etag })
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After a rename this path no longer exists.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The object in place.
pub(super) fn current(bucket: &Bucket<'_>, key: &str) -> Result<Option<ObjectMeta>, OriginError> {
    match bucket.open(key) {
        Ok(file) => meta(&file, key).map(Some),
        Err(OriginError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The entity tag that clients see.
fn tag(file: &File) -> Result<Option<String>, OriginError> {
    Ok(content_meta(file)?.client_etag().map(str::to_owned))
}
