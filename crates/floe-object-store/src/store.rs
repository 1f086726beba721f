//! The public store.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use floe::object::{ObjectConfigError, ObjectKey};
use floe::origin::{OriginConfigError, RequestConfig};
use floe::store::Claim;
use floe::{
    Cache, CacheConfig, CacheError, ObjectCache, ObjectConfig, OpenCacheError, Origin, Store,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result,
};

use crate::convert::{byte_range, error_from_floe, generic, meta_from_floe};
use crate::origin::StoreOrigin;
use crate::upload::CachedUpload;

/// Most objects of one invalidation; S3 deletes as many in one request.
const DELETE_BATCH: usize = 1000;

/// An [`ObjectStore`] read through a cache on flash. Cheap to clone. Requires a tokio runtime.
///
/// * Reads are served from the cache as its
///   [consistency](floe::object::Consistency) allows. A read of an older
///   version by [`GetOptions::version`] goes to the store; extensions of cached
///   reads are ignored.
/// * Writes go to the store with all their options. When one returns, no read
///   through this cache gives an older version, not even after a crash. A write
///   completes even if its caller leaves.
/// * Listings go to the store.
#[derive(Clone)]
pub struct CachedStore {
    name: Arc<str>,
    _claim: Arc<Claim>,
    store: Arc<dyn ObjectStore>,
    objects: ObjectCache,
}

/// Errors of opening a [`CachedStore`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The name cannot be part of a key.
    #[error(
        "{0:?} cannot name a store: write a text of 1 to 255 bytes without NUL, such as its URL"
    )]
    Name(String),
    /// The cache is in front of a store of this name already.
    #[error(
        "the cache is in front of a store named {0:?} already: clone that one, or choose another name"
    )]
    NameTaken(String),
    /// The cache cannot be opened.
    #[error(transparent)]
    Cache(#[from] OpenCacheError),
    /// A setting for objects is invalid.
    #[error(transparent)]
    Objects(#[from] ObjectConfigError),
    /// A setting for requests is invalid.
    #[error(transparent)]
    Requests(#[from] OriginConfigError),
}

impl CachedStore {
    /// Opens a cache in front of `store`.
    ///
    /// The cache is warm after a restart, for objects of the same `name`, such
    /// as the store's URL: equal names must mean equal stores.
    ///
    /// # Errors
    /// [`OpenError`] names the setting or the device's state, and the remedy.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        name: &str,
        cache: &CacheConfig,
        objects: ObjectConfig,
    ) -> Result<Self, OpenError> {
        let cache = Cache::open(cache).await?;
        CachedStore::over(store, name, cache.store().clone(), objects)
    }

    /// Puts an open cache in front of `store`. Several stores may share one cache,
    /// each under a name of its own.
    ///
    /// # Errors
    /// As [`open`](CachedStore::open).
    pub fn over(
        store: Arc<dyn ObjectStore>,
        name: &str,
        cache: Store,
        objects: ObjectConfig,
    ) -> Result<Self, OpenError> {
        if name.is_empty() || name.len() > 255 || name.contains('\0') {
            return Err(OpenError::Name(name.to_owned()));
        }
        let Some(claim) = cache.claim(name) else {
            return Err(OpenError::NameTaken(name.to_owned()));
        };
        let requests = RequestConfig {
            // The store's client retries itself.
            max_attempts: 1,
            ..RequestConfig::default()
        };
        let backend = Arc::new(StoreOrigin(Arc::clone(&store)));
        let clock = cache.clock().clone();
        let origin = Origin::from_backend(backend, requests, clock.clone())?;
        Ok(CachedStore {
            name: name.into(),
            _claim: Arc::new(claim),
            store,
            objects: ObjectCache::new(cache, origin, clock, objects)?,
        })
    }

    /// The object cache: statistics, settings, invalidation.
    pub fn objects(&self) -> &ObjectCache {
        &self.objects
    }

    /// Invalidates an object that was changed past this cache.
    ///
    /// # Errors
    /// The invalidation could not be made durable.
    pub async fn invalidate(&self, location: &Path) -> Result<()> {
        let forgotten = self.objects.invalidate(&self.key(location)).await;
        forgotten.map_err(|error| error_from_floe(error, location))
    }

    /// Stores fetched chunks and closes the cache, for a fast restart.
    ///
    /// # Errors
    /// [`CacheError`] if the cache could not be closed cleanly. It can be
    /// reopened nevertheless, with a recovery.
    pub async fn close(&self) -> Result<(), CacheError> {
        self.objects.stop().await;
        self.objects.store().close().await
    }

    fn key(&self, location: &Path) -> ObjectKey {
        ObjectKey::new(Arc::clone(&self.name), location.as_ref())
    }

    /// Runs a write to the store that changes the objects at `locations`.
    async fn change<T: Send + 'static>(
        &self,
        locations: &[&Path],
        write: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let keys = locations.iter().map(|location| self.key(location));
        match self.objects.change(keys.collect(), write).await {
            Ok(result) => result,
            Err(error) => Err(error_from_floe(error, locations[0])),
        }
    }

    async fn delete_batch(&self, batch: Vec<Result<Path>>) -> Vec<Result<Path>> {
        let keys = batch.iter().flatten().map(|path| self.key(path)).collect();
        let store = Arc::clone(&self.store);
        let deleted = self.objects.change(keys, async move {
            let locations = futures::stream::iter(batch).boxed();
            store.delete_stream(locations).collect().await
        });
        deleted
            .await
            .unwrap_or_else(|error| vec![Err(generic(error))])
    }

    /// The current metadata, if the conditions of `options` hold.
    async fn head_if(&self, location: &Path, options: &GetOptions) -> Result<GetResult> {
        let head = self.objects.head(&self.key(location)).await;
        let head = head.map_err(|error| error_from_floe(error, location))?;
        let (meta, attributes) = meta_from_floe(head.meta, location);
        options.check_preconditions(&meta)?;
        Ok(GetResult {
            payload: GetResultPayload::Stream(futures::stream::empty().boxed()),
            range: 0..meta.size,
            meta,
            attributes,
        })
    }
}

#[async_trait]
impl ObjectStore for CachedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let (store, path) = (Arc::clone(&self.store), location.clone());
        self.change(&[location], async move {
            store.put_opts(&path, payload, options).await
        })
        .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(CachedUpload {
            objects: self.objects.clone(),
            key: self.key(location),
            location: location.clone(),
            upload: Some(self.store.put_multipart_opts(location, options).await?),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.version.is_some() {
            return self.store.get_opts(location, options).await;
        }
        let is_conditional = options.if_match.is_some()
            || options.if_none_match.is_some()
            || options.if_modified_since.is_some()
            || options.if_unmodified_since.is_some();
        if options.head {
            return self.head_if(location, &options).await;
        }
        if is_conditional {
            // A failed condition takes precedence over an invalid range.
            self.head_if(location, &options).await?;
        }
        let range = options.range.as_ref().map(byte_range).transpose()?;
        let read = self.objects.get(&self.key(location), range).await;
        let read = read.map_err(|error| error_from_floe(error, location))?;
        let (meta, attributes) = meta_from_floe(read.meta, location);
        // The object may have changed since its metadata was read.
        options.check_preconditions(&meta)?;
        let location = location.clone();
        let body = read
            .body
            .map_err(move |error| error_from_floe(error, &location));
        Ok(GetResult {
            // `GetResult::bytes` polls an empty body again after its end.
            payload: GetResultPayload::Stream(body.fuse().boxed()),
            meta,
            range: read.range,
            attributes,
        })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        for range in ranges {
            GetRange::Bounded(range.clone())
                .is_valid()
                .map_err(generic)?;
        }
        let read = self.objects.get_ranges(&self.key(location), ranges).await;
        read.map_err(|error| error_from_floe(error, location))
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .ready_chunks(DELETE_BATCH)
            .then(move |batch| {
                let store = store.clone();
                async move { futures::stream::iter(store.delete_batch(batch).await) }
            })
            .flatten()
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let store = Arc::clone(&self.store);
        let (source, target) = (from.clone(), to.clone());
        self.change(&[to], async move {
            store.copy_opts(&source, &target, options).await
        })
        .await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let store = Arc::clone(&self.store);
        let (source, target) = (from.clone(), to.clone());
        self.change(&[from, to], async move {
            store.rename_opts(&source, &target, options).await
        })
        .await
    }
}

impl fmt::Debug for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedStore")
            .field("name", &self.name)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Floe({})", self.store)
    }
}
