//! Files as an origin: `<root>/<bucket>/<key>`.
//!
//! The `object_store` crate's local file system is unsuitable: it follows
//! symbolic links out of its root, stores no headers, percent-encodes keys into
//! file names, and cannot page a listing.

mod file;
mod list;
mod path;
#[cfg(test)]
mod tests;
mod upload;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::backend::Backend;
use super::config_error::{OriginConfigError, invalid};
use super::emulated::{check_conditions, clip};
use super::error::OriginError;
use super::types::{
    Attributes, BucketInfo, GetRequest, ListPage, ListRequest, ObjectKey, ObjectMeta, OriginBody,
    OriginRead, PartInfo, PartRequest, PutRequest, PutResponse, UploadBody, UploadInfo,
    UploadedPart,
};
use upload::{Staged, Staging};

/// Most bytes of one read from a file.
const PIECE_BYTES: u64 = 256 * 1024;

/// Bytes of an upload that are collected before a write.
const WRITE_BYTES: usize = 1024 * 1024;

/// A directory of buckets.
pub struct DirectoryOrigin {
    shared: Arc<Shared>,
}

struct Shared {
    root: OwnedFd,
    /// The root's file system opens files without asking another machine or process.
    is_local: bool,
    staging: Staging,
    /// Held during the check and the write of a conditional write.
    conditional: Mutex<()>,
}

impl DirectoryOrigin {
    /// Opens `root`, and creates `.floe` in it for unfinished writes.
    ///
    /// # Errors
    /// The directory is missing or not writable.
    pub fn open(root: &Path) -> Result<Self, OriginConfigError> {
        let cannot = |error: std::io::Error, cure: &str| {
            invalid("root", root.display(), &format!("{cure}: {error}"))
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(root, flags, rustix::fs::Mode::empty())
            .map_err(|errno| cannot(errno.into(), "is no directory that can be opened"))?;
        let root = std::path::absolute(root).map_err(|error| cannot(error, "has no full path"))?;
        let staging = Staging::open(&root)
            .map_err(|error| cannot(error, "cannot be written, which uploads need"))?;
        Ok(DirectoryOrigin {
            shared: Arc::new(Shared {
                is_local: path::is_local(&opened),
                root: opened,
                staging,
                conditional: Mutex::new(()),
            }),
        })
    }

    /// Runs blocking file operations outside the async threads.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> Result<T, OriginError> + Send + 'static,
    ) -> Result<T, OriginError> {
        let shared = Arc::clone(&self.shared);
        blocking(move || work(&shared)).await
    }

    /// Writes a body to a file that has no key yet.
    async fn stage(
        &self,
        mut staged: Staged,
        length: Option<u64>,
        mut body: UploadBody,
    ) -> Result<Staged, OriginError> {
        let mut received = 0u64;
        let mut gathered = BytesMut::new();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| OriginError::BadUpload(error.to_string()))?;
            received += piece.len() as u64;
            if length.is_some_and(|length| received > length) {
                break;
            }
            gathered.extend_from_slice(&piece);
            if gathered.len() >= WRITE_BYTES {
                let bytes = gathered.split().freeze();
                staged = blocking(move || staged.write(&bytes).map(|()| staged)).await?;
            }
        }
        if let Some(length) = length.filter(|&length| length != received) {
            return Err(OriginError::BadUpload(format!(
                "{length} bytes were announced and {received} came"
            )));
        }
        blocking(move || staged.write(&gathered).map(|()| staged)).await
    }
}

impl Shared {
    fn bucket(&self, bucket: &str) -> Result<OwnedFd, OriginError> {
        let unknown = || OriginError::NoSuchBucket(bucket.to_owned());
        if !path::is_bucket(bucket) {
            return Err(unknown());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        path::open_beneath(&self.root, bucket, flags).map_err(|_| unknown())
    }

    /// Checks that the object's name allows a write, before the body is read.
    fn check_writable(&self, key: &ObjectKey) -> Result<(), OriginError> {
        self.bucket(key.bucket())?;
        match path::objection(key.key()) {
            Some(reason) => Err(path::invalid(key.key(), reason)),
            None => Ok(()),
        }
    }

    fn open(
        &self,
        key: &ObjectKey,
        request: &GetRequest,
    ) -> Result<(File, ObjectMeta), OriginError> {
        let bucket = self.bucket(key.bucket())?;
        let file = path::open_file(&bucket, key.key())?;
        let meta = file::meta(&file, key.key())?;
        check_conditions(&meta, request)?;
        Ok((file, meta))
    }

    /// True if the file is on the root's file system, in the kernel's caches, and still that of
    /// `meta`.
    fn confirms(&self, key: &ObjectKey, meta: &ObjectMeta) -> bool {
        if !self.is_local || !path::is_bucket(key.bucket()) || path::objection(key.key()).is_some()
        {
            return false;
        }
        let directory = OFlags::PATH | OFlags::DIRECTORY;
        let bucket = path::open_cached(&self.root, key.bucket(), directory);
        let file = bucket.and_then(|bucket| path::open_cached(&bucket, key.key(), path::FILE));
        let metadata = file.and_then(|file| File::from(file).metadata().ok());
        metadata.is_some_and(|found| found.is_file() && file::stat_meta(&found).etag == meta.etag)
    }

    fn buckets(&self) -> Result<Vec<BucketInfo>, OriginError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let root = path::open_beneath(&self.root, ".", flags).map_err(std::io::Error::from)?;
        let mut buckets = Vec::new();
        for entry in rustix::fs::Dir::read_from(root).map_err(std::io::Error::from)? {
            let entry = entry.map_err(std::io::Error::from)?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            let Ok(bucket) = self.bucket(name) else {
                continue;
            };
            buckets.push(BucketInfo {
                name: name.to_owned(),
                created: made(&bucket),
            });
        }
        buckets.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(buckets)
    }
}

/// The modification time, because not every file system records a creation time.
fn made(bucket: &OwnedFd) -> Option<SystemTime> {
    let stat = rustix::fs::fstat(bucket).ok()?;
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).ok()?;
    file::etag_meta(0, stat.st_mtime, nanoseconds, 0).last_modified
}

#[async_trait]
impl Backend for DirectoryOrigin {
    async fn get(&self, key: &ObjectKey, request: GetRequest) -> Result<OriginRead, OriginError> {
        let name = key.clone();
        self.blocking(move |shared| {
            let (file, meta) = shared.open(&name, &request)?;
            let range = clip(request.range, meta.size)?;
            Ok(OriginRead {
                body: body(file, &meta, range.clone()),
                meta,
                range,
                from_cache: None,
            })
        })
        .await
    }

    async fn head(&self, key: &ObjectKey, request: GetRequest) -> Result<ObjectMeta, OriginError> {
        let name = key.clone();
        self.blocking(move |shared| Ok(shared.open(&name, &request)?.1))
            .await
    }

    fn confirms(&self, key: &ObjectKey, meta: &ObjectMeta) -> bool {
        self.shared.confirms(key, meta)
    }

    async fn put(&self, key: &ObjectKey, request: PutRequest) -> Result<PutResponse, OriginError> {
        file::require_standard(&request.attributes)?;
        let name = key.clone();
        let staged = self
            .blocking(move |shared| {
                shared.check_writable(&name)?;
                shared.staging.begin()
            })
            .await?;
        let staged = self.stage(staged, request.length, request.body).await?;
        let name = key.clone();
        self.blocking(move |shared| {
            let _conditional = request
                .condition
                .as_ref()
                .map(|_| shared.conditional.lock());
            let bucket = shared.bucket(name.bucket())?;
            staged.commit(
                &bucket,
                name.key(),
                &request.attributes,
                request.condition.as_ref(),
            )
        })
        .await
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), OriginError> {
        let name = key.clone();
        self.blocking(move |shared| {
            let bucket = shared.bucket(name.bucket())?;
            match path::objection(name.key()) {
                // Such an object cannot exist.
                Some(_) => Ok(()),
                None => upload::delete(&bucket, name.key()),
            }
        })
        .await
    }

    async fn list(&self, bucket: &str, request: ListRequest) -> Result<ListPage, OriginError> {
        let bucket = bucket.to_owned();
        self.blocking(move |shared| list::list(&shared.bucket(&bucket)?, &request))
            .await
    }

    async fn list_buckets(&self) -> Result<Vec<BucketInfo>, OriginError> {
        self.blocking(Shared::buckets).await
    }

    async fn head_bucket(&self, bucket: &str) -> Result<(), OriginError> {
        let bucket = bucket.to_owned();
        self.blocking(move |shared| shared.bucket(&bucket).map(drop))
            .await
    }

    async fn create_bucket(&self, bucket: &str) -> Result<(), OriginError> {
        let bucket = bucket.to_owned();
        self.blocking(move |shared| path::create_bucket(&shared.root, &bucket))
            .await
    }

    async fn list_parts(
        &self,
        key: &ObjectKey,
        upload: &str,
    ) -> Result<Vec<PartInfo>, OriginError> {
        let (name, id) = (key.clone(), upload.to_owned());
        self.blocking(move |shared| {
            shared.bucket(name.bucket())?;
            shared.staging.parts(&name, &id)
        })
        .await
    }

    async fn list_uploads(&self, bucket: &str) -> Result<Vec<UploadInfo>, OriginError> {
        let bucket = bucket.to_owned();
        self.blocking(move |shared| {
            shared.bucket(&bucket)?;
            shared.staging.uploads(&bucket)
        })
        .await
    }

    async fn create_upload(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
    ) -> Result<String, OriginError> {
        file::require_standard(&attributes)?;
        let name = key.clone();
        self.blocking(move |shared| {
            shared.check_writable(&name)?;
            shared.staging.create_upload(&name, attributes)
        })
        .await
    }

    async fn upload_part(
        &self,
        key: &ObjectKey,
        part: PartRequest,
    ) -> Result<PutResponse, OriginError> {
        let PartRequest { upload, number, .. } = part;
        let (name, id) = (key.clone(), upload.clone());
        let staged = self
            .blocking(move |shared| shared.staging.begin_part(&name, &id))
            .await?;
        let staged = self.stage(staged, part.length, part.body).await?;
        let name = key.clone();
        self.blocking(move |shared| shared.staging.keep_part(&name, &upload, number, staged))
            .await
    }

    async fn complete_upload(
        &self,
        key: &ObjectKey,
        upload: &str,
        parts: Vec<UploadedPart>,
    ) -> Result<PutResponse, OriginError> {
        let (name, id) = (key.clone(), upload.to_owned());
        self.blocking(move |shared| {
            let bucket = shared.bucket(name.bucket())?;
            let (whole, attributes) = shared.staging.complete(&name, &id, &parts)?;
            let response = whole.commit(&bucket, name.key(), &attributes, None)?;
            shared.staging.forget_upload(&name, &id)?;
            Ok(response)
        })
        .await
    }

    async fn abort_upload(&self, key: &ObjectKey, upload: &str) -> Result<(), OriginError> {
        let (name, id) = (key.clone(), upload.to_owned());
        self.blocking(move |shared| shared.staging.forget_upload(&name, &id))
            .await
    }
}

/// The bytes of an open file. The file's metadata is checked after every piece,
/// so a file that changes in place is an error.
fn body(file: File, meta: &ObjectMeta, range: std::ops::Range<u64>) -> OriginBody {
    let state = (Arc::new(file), meta.etag.clone(), range);
    Box::pin(futures::stream::unfold(Some(state), |state| async move {
        let (file, etag, mut range) = state?;
        if range.is_empty() {
            return None;
        }
        let len = PIECE_BYTES.min(range.end - range.start);
        let at = range.start;
        let (own, expected) = (Arc::clone(&file), etag.clone());
        match blocking(move || read_piece(&own, expected.as_deref(), at, len)).await {
            // The file was truncated; the guard reports a short body.
            Ok(piece) if piece.is_empty() => None,
            Ok(piece) => {
                range.start += piece.len() as u64;
                Some((Ok(piece), Some((file, etag, range))))
            }
            Err(error) => Some((Err(error), None)),
        }
    }))
}

fn read_piece(file: &File, etag: Option<&str>, at: u64, len: u64) -> Result<Bytes, OriginError> {
    // At most `PIECE_BYTES`.
    let mut bytes = BytesMut::zeroed(len as usize);
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at + read as u64) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    if file::stat_meta(&file.metadata()?).etag.as_deref() != etag {
        return Err(OriginError::PreconditionFailed);
    }
    bytes.truncate(read);
    Ok(bytes.freeze())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OriginError> + Send + 'static,
) -> Result<T, OriginError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(std::io::Error::other(error).into()),
    }
}
