//! Files as an origin: `<root>/<bucket>/<key>`, and in `escape` those of other keys.
//!
//! Writes of one key through one process take turns. Between processes the last rename wins.
//!
//! The `object_store` crate's local file system is unsuitable: it follows
//! symbolic links out of its root, stores no headers, percent-encodes keys into
//! file names, and cannot page a listing.

mod bucket;
mod buckets;
mod change;
mod completed;
mod escape;
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

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use parking_lot::{Mutex, MutexGuard, RwLock};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::backend::Backend;
use super::config_error::{OriginConfigError, invalid};
use super::error::OriginError;
use super::types::{
    Attributes, BucketInfo, CompleteRequest, DeleteCondition, GetRequest, ListPage, ListRequest,
    ObjectKey, ObjectMeta, OriginBody, OriginRead, PartRequest, PendingParts, PutCondition,
    PutRequest, PutResponse, UploadBody, UploadInfo,
};
use super::{check_conditions, clip};
use bucket::Bucket;
use change::{Asked, Change};
use escape::Area;
use upload::{Staged, Staging};

/// Most bytes of one read from a file.
const PIECE_BYTES: u64 = 256 * 1024;

/// Bytes of an upload that are collected before a write.
const WRITE_BYTES: usize = 1024 * 1024;

/// Locks of keys.
const TURNS: usize = 256;

/// A directory of buckets.
pub struct DirectoryOrigin {
    shared: Arc<Shared>,
}

struct Shared {
    root: OwnedFd,
    /// The root's file system opens files without asking another machine or process.
    is_local: bool,
    staging: Staging,
    area: Area,
    /// Held by the hash of a key while its object is checked and replaced or deleted.
    turns: Box<[Mutex<()>]>,
    /// Shared by writes of objects; exclusive while a bucket is created or deleted.
    buckets: RwLock<()>,
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
        let unwritable = |error| cannot(error, "cannot be written, which uploads need");
        let floe = root.join(".floe");
        let staging = Staging::open(floe.clone()).map_err(unwritable)?;
        Ok(DirectoryOrigin {
            shared: Arc::new(Shared {
                is_local: path::is_local(&opened),
                root: opened,
                staging,
                area: Area::open(&floe).map_err(unwritable)?,
                turns: (0..TURNS).map(|_| Mutex::new(())).collect(),
                buckets: RwLock::new(()),
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

    /// As [`blocking`](Self::blocking), for work that asks whether its request still waits.
    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared, &Change) -> Result<T, OriginError> + Send + 'static,
    ) -> Result<T, OriginError> {
        let change = Arc::new(Change::default());
        let _asked = Asked(Arc::clone(&change));
        self.blocking(move |shared| work(shared, &change)).await
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
    fn bucket<'a>(&'a self, name: &'a str) -> Result<Bucket<'a>, OriginError> {
        let unknown = || OriginError::NoSuchBucket(name.to_owned());
        if !path::is_bucket(name) {
            return Err(unknown());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        Ok(Bucket {
            name,
            files: path::open_beneath(&self.root, name, flags).map_err(|_| unknown())?,
            area: &self.area,
        })
    }

    /// Waits for the turn of a key.
    fn turn(&self, key: &ObjectKey) -> MutexGuard<'_, ()> {
        let hash = xxhash_rust::xxh3::xxh3_64_with_seed(
            key.key().as_bytes(),
            xxhash_rust::xxh3::xxh3_64(key.bucket().as_bytes()),
        );
        self.turns[floe_core::hash::fast_range(hash, TURNS)].lock()
    }

    /// Checks that the object's name allows a write, before the body is read.
    fn check_writable(&self, key: &ObjectKey) -> Result<(), OriginError> {
        self.bucket(key.bucket())?;
        escape::require_possible(key.key())
    }

    /// Gives a written file its key.
    fn commit(
        &self,
        key: &ObjectKey,
        staged: Staged,
        attributes: &Attributes,
        condition: Option<&PutCondition>,
        change: &Change,
    ) -> Result<PutResponse, OriginError> {
        staged.finish(key.key(), attributes)?;
        let _turn = self.turn(key);
        change.begin()?;
        let _buckets = self.buckets.read();
        staged.commit(&self.bucket(key.bucket())?, key.key(), condition)
    }

    /// Concatenates the parts of an upload and gives them its key.
    fn complete_upload(
        &self,
        key: &ObjectKey,
        request: &CompleteRequest,
        change: &Change,
    ) -> Result<PutResponse, OriginError> {
        self.bucket(key.bucket())?;
        if let Some(response) = self.staging.completions.find(key, request) {
            return Ok(response);
        }
        match self.join_parts(key, request, change) {
            Ok(whole) => self.commit_upload(key, request, whole, change),
            Err(error) => {
                // Its parts may be gone because it was completed or aborted in the meantime.
                if let Some(response) = self.staging.completions.find(key, request) {
                    return Ok(response);
                }
                self.staging.require_upload(key, &request.upload)?;
                Err(error)
            }
        }
    }

    fn join_parts(
        &self,
        key: &ObjectKey,
        request: &CompleteRequest,
        change: &Change,
    ) -> Result<Staged, OriginError> {
        let (whole, attributes) = self.staging.complete(key, request, change)?;
        whole.finish(key.key(), &attributes)?;
        Ok(whole)
    }

    /// Gives the joined parts of an upload their key, and ends the upload in the same turn: a
    /// repeat after the turn finds the answer, and no later write is replaced by old parts.
    fn commit_upload(
        &self,
        key: &ObjectKey,
        request: &CompleteRequest,
        whole: Staged,
        change: &Change,
    ) -> Result<PutResponse, OriginError> {
        let turn = self.turn(key);
        // Another process may have completed the upload while its parts were joined.
        if let Some(response) = self.staging.completions.find(key, request) {
            return Ok(response);
        }
        self.staging.require_upload(key, &request.upload)?;
        change.begin()?;
        let response = {
            let _buckets = self.buckets.read();
            let bucket = self.bucket(key.bucket())?;
            whole.commit(&bucket, key.key(), request.condition.as_ref())?
        };
        // The object is written, so no error of what follows is the client's.
        if let Err(error) = self.staging.completions.keep(key, request, &response) {
            tracing::warn!(%error, "the answer of a completed upload could not be kept");
        }
        let ended = self.staging.end_upload(key, &request.upload);
        drop(turn);
        if let Err(error) = ended.and_then(|parts| Ok(std::fs::remove_dir_all(parts)?)) {
            tracing::warn!(%error, "the parts of a completed upload could not be removed");
        }
        Ok(response)
    }

    /// Ends an upload without an object. A completion that is joining its parts fails.
    fn abort_upload(&self, key: &ObjectKey, upload: &str) -> Result<(), OriginError> {
        let parts = {
            let _turn = self.turn(key);
            self.staging.end_upload(key, upload)?
        };
        Ok(std::fs::remove_dir_all(parts)?)
    }

    fn delete(
        &self,
        key: &ObjectKey,
        condition: &DeleteCondition,
        change: &Change,
    ) -> Result<(), OriginError> {
        let _turn = self.turn(key);
        change.begin()?;
        let bucket = self.bucket(key.bucket())?;
        if !condition.is_empty()
            && let Some(current) = upload::current(&bucket, key.key())?
        {
            condition.check(&current)?;
        }
        bucket.delete(key.key())
    }

    fn open(
        &self,
        key: &ObjectKey,
        request: &GetRequest,
    ) -> Result<(File, ObjectMeta), OriginError> {
        let file = self.bucket(key.bucket())?.open(key.key())?;
        let meta = file::meta(&file, key.key())?;
        check_conditions(&meta, request)?;
        Ok((file, meta))
    }

    /// True if the file is on the root's file system, in the kernel's caches, and still that of
    /// `meta`.
    fn confirms(&self, key: &ObjectKey, meta: &ObjectMeta) -> bool {
        if !self.is_local || !path::is_bucket(key.bucket()) {
            return false;
        }
        let directory = OFlags::PATH | OFlags::DIRECTORY;
        let Ok(bucket) = path::open_cached(&self.root, key.bucket(), directory) else {
            return false;
        };
        match path::objection(key.key()) {
            Some(_) => {}
            None => match path::open_cached(&bucket, key.key(), path::FILE).map(metadata) {
                Ok(Some(found)) if found.is_file() => return is_of(&found, meta),
                Ok(Some(found)) if found.is_dir() => {}
                Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => {}
                _ => return false,
            },
        }
        let escaped = path::open_cached(self.area.keys(), key.bucket(), directory).ok();
        let file = escaped
            .zip(escape::path(key.key()))
            .and_then(|(escaped, path)| path::open_cached(&escaped, &path, path::FILE).ok());
        let found = file.and_then(metadata);
        found.is_some_and(|found| found.is_file() && is_of(&found, meta))
    }
}

fn metadata(file: OwnedFd) -> Option<std::fs::Metadata> {
    File::from(file).metadata().ok()
}

fn is_of(found: &std::fs::Metadata, meta: &ObjectMeta) -> bool {
    file::stat_meta(found).etag == meta.etag
}

#[async_trait]
impl Backend for DirectoryOrigin {
    fn outlives_runtimes(&self) -> bool {
        true
    }

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
        request.attributes.require_standard()?;
        let name = key.clone();
        let staged = self
            .blocking(move |shared| {
                shared.check_writable(&name)?;
                shared.staging.begin()
            })
            .await?;
        let staged = self.stage(staged, request.length, request.body).await?;
        let name = key.clone();
        self.change(move |shared, change| {
            let condition = request.condition.as_ref();
            let mut attributes = request.attributes;
            let late = request.late_headers.get().into_iter().flatten();
            attributes.headers.extend(late.cloned());
            shared.commit(&name, staged, &attributes, condition, change)
        })
        .await
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), OriginError> {
        let name = key.clone();
        self.change(move |shared, change| shared.delete(&name, &DeleteCondition::default(), change))
            .await
    }

    async fn delete_if(
        &self,
        key: &ObjectKey,
        condition: &DeleteCondition,
    ) -> Result<(), OriginError> {
        let (name, condition) = (key.clone(), condition.clone());
        self.change(move |shared, change| shared.delete(&name, &condition, change))
            .await
    }

    async fn list(&self, bucket: &str, request: ListRequest) -> Result<ListPage, OriginError> {
        let bucket = bucket.to_owned();
        self.blocking(move |shared| list::list(&shared.bucket(&bucket)?, &request))
            .await
    }

    async fn list_buckets(&self) -> Result<Vec<BucketInfo>, OriginError> {
        self.blocking(Shared::list_buckets).await
    }

    async fn head_bucket(&self, bucket: &str) -> Result<(), OriginError> {
        let bucket = bucket.to_owned();
        self.blocking(move |shared| shared.bucket(&bucket).map(drop))
            .await
    }

    async fn create_bucket(&self, bucket: &str) -> Result<(), OriginError> {
        let bucket = bucket.to_owned();
        self.blocking(move |shared| shared.create_bucket(&bucket))
            .await
    }

    async fn delete_bucket(&self, bucket: &str) -> Result<(), OriginError> {
        let bucket = bucket.to_owned();
        self.blocking(move |shared| shared.delete_bucket(&bucket))
            .await
    }

    fn lists_parts(&self) -> bool {
        true
    }

    async fn list_parts(&self, key: &ObjectKey, upload: &str) -> Result<PendingParts, OriginError> {
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
        attributes.require_standard()?;
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
        let headers = part.late_headers.get().cloned().unwrap_or_default();
        let name = key.clone();
        self.blocking(move |shared| {
            let staging = &shared.staging;
            staging.keep_part(&name, &upload, number, headers, staged)
        })
        .await
    }

    async fn complete_upload(
        &self,
        key: &ObjectKey,
        request: CompleteRequest,
    ) -> Result<PutResponse, OriginError> {
        let name = key.clone();
        let lock = self.shared.staging.completions.lock(&request.upload);
        let held = lock.lock_owned().await;
        self.change(move |shared, change| {
            // It outlives a request that is dropped.
            let _held = held;
            shared.complete_upload(&name, &request, change)
        })
        .await
    }

    async fn abort_upload(&self, key: &ObjectKey, upload: &str) -> Result<(), OriginError> {
        let (name, id) = (key.clone(), upload.to_owned());
        self.blocking(move |shared| shared.abort_upload(&name, &id))
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
