//! Objects of an origin, read through the cache.
//!
//! [`ObjectCache`] keeps two kinds of records in a [`Store`]: one for an
//! object's metadata, and one for each of its chunks. A chunk's key contains
//! the object's version, a hash of its entity tag, size and modification time,
//! so one response never mixes chunks of different versions.
//!
//! **Panics.** A panic of the origin ends the fetch that met it. The readers of that
//! fetch start another one or fail with [`ObjectError::Stopped`]; nothing of it is
//! stored. A change that panics fails its caller with the same error, and readers
//! ask the origin again.
//!
//! Must not depend on client protocols or the layout of the store.

mod ahead;
mod background;
mod budget;
mod cache_only;
mod conditional;
mod config;
mod error;
mod events;
mod fetch;
mod flight;
mod inner;
mod loads;
mod lock;
mod metadata;
mod peer;
mod peers;
mod pins;
mod purge;
mod reader;
mod record;
mod response;
mod rules;
mod stats;
#[cfg(test)]
mod tests;
mod version;
mod wanted;
mod warm;

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use floe_device::{Clock, SendableMemory};
use futures::future::{join_all, try_join_all};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::{mpsc, oneshot};

pub use crate::origin::{Attributes, ByteRange, ObjectKey, ObjectMeta};
pub use cache_only::{CacheOnlyBucket, CacheOnlySize, Lifetime};
pub use conditional::{Conditions, EtagCondition, RangeCondition, Verdict};
pub use config::{ChunkAdmission, Consistency, ObjectConfig, ObjectConfigError, ObjectRule};
pub use error::ObjectError;
pub use peer::{HeldBytes, Peers, WantedBytes};
pub use pins::{Pin, PinError};
pub use purge::Purge;
pub use record::{MetadataRecord, NotARecord, RecordedObject};
pub use response::{ConditionalRead, ObjectBody, ObjectHead, ObjectRead, Outcome};
pub use stats::ObjectStats;
pub use warm::{Cached, Warmed};

use crate::origin::{
    BucketInfo, CompleteRequest, DeleteCondition, ForwardAnswer, ForwardRequest, ListPage,
    ListRequest, Origin, OriginError, PartRequest, PendingParts, PutRequest, PutResponse,
    UploadInfo, UploadTurn, for_caller,
};
use crate::store::Store;
use ahead::Early;
use background::Background;
use budget::Budget;
use events::{Events, Time};
use flight::Flights;
use inner::{CacheOnlyOrigin, Inner};
use loads::Loads;
use parking_lot::RwLock;
use pins::table::Pins;
use reader::Reader;
use rules::Rules;
use stats::{Counters, count};
use version::{ObjectVersion, name_hash};
use wanted::Wanted;

/// Most bytes of the answer to a change that wait for the client, who must not hold the change
/// up. Such answers are short documents.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Objects of a notification that are invalidated together: meanwhile no metadata of many
/// others is stored.
const NOTIFIED_AT_ONCE: usize = 256;

/// Restarts of a read whose object changes before its first byte.
const MAX_RESTARTS: u32 = 3;

/// Objects of an origin, read through a [`Store`]. Cheap to clone. Requires a
/// tokio runtime: fetches and writes continue as tasks when their callers
/// leave.
#[derive(Clone)]
pub struct ObjectCache {
    inner: Arc<Inner>,
}

/// A version of an object, in the cache at least in part.
#[derive(Clone)]
pub struct CachedVersion(Arc<ObjectVersion>);

impl CachedVersion {
    /// The version's metadata.
    pub fn meta(&self) -> &ObjectMeta {
        &self.0.meta
    }
}

impl fmt::Debug for CachedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CachedVersion").field(self.meta()).finish()
    }
}

impl fmt::Debug for ObjectCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectCache").finish_non_exhaustive()
    }
}

impl ObjectCache {
    /// Creates a cache in front of an origin.
    ///
    /// # Errors
    /// A setting is invalid, or the file of the pins or of the names of the objects in cache-only
    /// buckets cannot be opened.
    ///
    /// # Panics
    /// Outside a tokio runtime, with cache-only buckets or pins.
    pub fn new(
        store: Store,
        origin: Origin,
        clock: Clock,
        config: ObjectConfig,
    ) -> Result<Self, ObjectConfigError> {
        config.validate()?;
        config.check_fits(store.value_bytes_max())?;
        let cache_only = CacheOnlyOrigin::open(&store, &clock, &config)?;
        let pins = Pins::open(&config.pins, store.plan(), config.pinned_percent)
            .map_err(|error| config.wrong_pins(&error))?;
        let cache = ObjectCache {
            inner: Arc::new(Inner {
                epochs: store.epochs(),
                marks: store.marks(),
                store,
                origin,
                cache_only,
                clock,
                stats: Counters::default(),
                loads: Loads::new(),
                flights: Flights::new(),
                budget: Budget::new(config.fetch_memory.bytes(), config.fetch_window.bytes()),
                background: Background::default(),
                pins,
                peers: OnceLock::new(),
                rules: RwLock::new(Rules::new(&config)),
                events: Events::default(),
                config,
            }),
        };
        cache.inner.keep_pins();
        Ok(cache)
    }

    /// See [`Store::sendable`].
    pub fn sendable(&self) -> Option<Arc<SendableMemory>> {
        self.inner.store.sendable()
    }

    /// Stops all fetches, then waits until the store has every completely
    /// fetched chunk. Call it before closing the store. Later reads of missing
    /// chunks read the origin directly or fail with [`ObjectError::Stopped`].
    /// Writes to the origin are not waited for.
    pub async fn stop(&self) {
        self.inner.background.stop().await;
    }

    /// Reads an object's metadata.
    ///
    /// # Errors
    /// [`ObjectError::Origin`]:
    /// [`NotFound`](crate::origin::OriginError::NotFound) for a missing object,
    /// or any other error of the origin.
    pub async fn head(&self, key: &ObjectKey) -> Result<ObjectHead, ObjectError> {
        let resolved = self.inner.resolve(key, Wanted::Metadata, false).await?;
        Ok(ObjectHead {
            meta: resolved.object.meta.clone(),
            outcome: resolved.outcome,
        })
    }

    /// Reads an object, or a range of it. Returns when the first bytes are
    /// available, so that an origin's error is known before the response
    /// begins.
    ///
    /// # Errors
    /// As [`head`](ObjectCache::head); [`ObjectError::RangeNotSatisfiable`];
    /// [`ObjectError::Changed`] if the object keeps changing.
    pub async fn get(
        &self,
        key: &ObjectKey,
        range: Option<ByteRange>,
    ) -> Result<ObjectRead, ObjectError> {
        whole(self.get_if(key, range, &Conditions::default()).await?)
    }

    /// [`get`](ObjectCache::get) with conditions, evaluated on the version that is read.
    ///
    /// # Errors
    /// As [`get`](ObjectCache::get).
    pub async fn get_if(
        &self,
        key: &ObjectKey,
        range: Option<ByteRange>,
        conditions: &Conditions,
    ) -> Result<ConditionalRead, ObjectError> {
        self.restarting(|force| self.try_get(key, range, conditions, force))
            .await
    }

    /// [`get`](ObjectCache::get) without what the cache knows of the object's version: the
    /// origin is asked for it, in every mode.
    ///
    /// # Errors
    /// As [`get`](ObjectCache::get).
    pub async fn get_newest(
        &self,
        key: &ObjectKey,
        range: Option<ByteRange>,
    ) -> Result<ObjectRead, ObjectError> {
        let any = Conditions::default();
        let read = self.restarting(|_| self.try_get(key, range, &any, true));
        whole(read.await?)
    }

    /// The version in the cached metadata of an object. It may be old: neither its age nor the
    /// consistency mode is looked at.
    pub async fn cached_version(&self, key: &ObjectKey) -> Option<CachedVersion> {
        let inner = &self.inner;
        // It must be read first.
        let moment = inner.moment(key);
        if inner.cache_only(key.bucket()).is_some() || !moment.policy.cache {
            return None;
        }
        let object = inner.recorded(key, moment).await?.object?;
        let object = Arc::new(inner.version(key, moment, object));
        object.meta.has_validator().then_some(CachedVersion(object))
    }

    /// Reads a version that the caller has found to be the object's current one, for instance
    /// from an answer of the origin.
    ///
    /// # Errors
    /// [`ObjectError::Changed`] if the cache lacks bytes of it and the origin has another
    /// version now; otherwise as [`get`](ObjectCache::get).
    pub async fn get_version(
        &self,
        version: &CachedVersion,
        range: Option<ByteRange>,
    ) -> Result<ObjectRead, ObjectError> {
        count(&self.inner.stats.revalidations);
        count(&self.inner.stats.revalidations_unchanged);
        let known = Outcome::Metadata;
        self.read_version(&version.0, range, Early::default(), known)
            .await
    }

    /// False for an object that a rule keeps out of the cache.
    pub fn keeps(&self, key: &ObjectKey) -> bool {
        self.inner.policy(key).cache
    }

    /// Reads ranges of one version of an object, in the given order, each
    /// clipped to the object's end. All bytes are in memory at once.
    ///
    /// # Errors
    /// As [`get`](ObjectCache::get).
    pub async fn get_ranges(
        &self,
        key: &ObjectKey,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Bytes>, ObjectError> {
        self.restarting(|force| self.try_get_ranges(key, ranges, force))
            .await
    }

    /// Repeats a read whose object changed, up to [`MAX_RESTARTS`] times.
    async fn restarting<T, Read>(&self, read: impl Fn(bool) -> Read) -> Result<T, ObjectError>
    where
        Read: Future<Output = Result<T, ObjectError>>,
    {
        let mut restarts = 0;
        loop {
            match read(restarts > 0).await {
                Err(ObjectError::Changed) if restarts < MAX_RESTARTS => {
                    count(&self.inner.stats.read_restarts);
                    restarts += 1;
                }
                Err(error) => {
                    if !error.is_negative() {
                        count(&self.inner.stats.reads_failed);
                    }
                    return Err(error);
                }
                answer => return answer,
            }
        }
    }

    async fn try_get(
        &self,
        key: &ObjectKey,
        range: Option<ByteRange>,
        conditions: &Conditions,
        force: bool,
    ) -> Result<ConditionalRead, ObjectError> {
        // A request with conditions may need no bytes, so it asks for metadata only.
        let wanted = match *conditions == Conditions::default() {
            true => Wanted::Bytes(range),
            false => Wanted::Metadata,
        };
        let resolved = self.inner.resolve(key, wanted, force).await?;
        let object = resolved.object;
        match conditions.evaluate(&object.meta) {
            Verdict::NotModified => return Ok(ConditionalRead::NotModified(object.meta.clone())),
            Verdict::PreconditionFailed => {
                return Ok(ConditionalRead::PreconditionFailed(object.meta.clone()));
            }
            Verdict::Proceed => {}
        }
        let range = range.filter(|_| conditions.range_applies(&object.meta));
        let read = self.read_version(&object, range, resolved.early, resolved.outcome);
        Ok(ConditionalRead::Read(read.await?))
    }

    /// Reads a version, or a range of it. `known` is the outcome without any bytes.
    async fn read_version(
        &self,
        object: &Arc<ObjectVersion>,
        range: Option<ByteRange>,
        early: Early,
        known: Outcome,
    ) -> Result<ObjectRead, ObjectError> {
        let size = object.meta.size;
        let range = match range {
            Some(range) => range
                .resolve(size)
                .ok_or(ObjectError::RangeNotSatisfiable { size })?,
            None => 0..size,
        };
        let mut reader = Reader::new(&self.inner, object, range.clone(), early);
        let (first, outcome) = reader.first().await?;
        Ok(ObjectRead {
            meta: object.meta.clone(),
            range,
            outcome: match first {
                Some(_) => outcome,
                None => known,
            },
            body: reader.into_body(first),
        })
    }

    async fn try_get_ranges(
        &self,
        key: &ObjectKey,
        ranges: &[Range<u64>],
        force: bool,
    ) -> Result<Vec<Bytes>, ObjectError> {
        let resolved = self.inner.resolve(key, Wanted::Metadata, force).await?;
        let object = &resolved.object;
        let size = object.meta.size;
        let mut reads = Vec::with_capacity(ranges.len());
        for range in ranges {
            let range = range.start..range.end.min(size);
            if range.is_empty() {
                return Err(ObjectError::RangeNotSatisfiable { size });
            }
            reads.push(Reader::new(&self.inner, object, range, Early::default()).whole());
        }
        futures::stream::iter(reads)
            .buffered(object.moment.policy.fetch_parallelism)
            .try_collect()
            .await
    }

    /// Writes an object to the origin. After it returns, no read gives an older
    /// version. The write completes even if the caller leaves.
    ///
    /// # Errors
    /// The origin's; [`ObjectError::Cache`] if the older version could not be
    /// invalidated durably, in which case the origin received nothing.
    pub async fn put(
        &self,
        key: &ObjectKey,
        request: PutRequest,
    ) -> Result<PutResponse, ObjectError> {
        let (origin, name) = (self.origin_of(key.bucket()).clone(), key.clone());
        self.write(key, async move { origin.put(&name, request).await })
            .await
    }

    /// Deletes an object at the origin, with the guarantees of [`put`](ObjectCache::put).
    ///
    /// # Errors
    /// As [`put`](ObjectCache::put).
    pub async fn delete(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        let (origin, name) = (self.origin_of(key.bucket()).clone(), key.clone());
        self.write(key, async move { origin.delete(&name).await })
            .await
    }

    /// Deletes an object if it is the one of the condition, with the guarantees of
    /// [`put`](ObjectCache::put).
    ///
    /// # Errors
    /// As [`put`](ObjectCache::put).
    pub async fn delete_if(
        &self,
        key: &ObjectKey,
        condition: DeleteCondition,
    ) -> Result<(), ObjectError> {
        let (origin, name) = (self.origin_of(key.bucket()).clone(), key.clone());
        self.write(
            key,
            async move { origin.delete_if(&name, &condition).await },
        )
        .await
    }

    /// Invalidates an object's cached metadata, for instance after a change past the cache.
    ///
    /// # Errors
    /// [`ObjectError::Cache`] if the invalidation could not be made durable.
    pub async fn invalidate(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        self.write(key, async { Ok(()) }).await
    }

    /// Takes a notification of the origin that `keys` have changed, or that none has: for mode
    /// `events` it also says that notifications arrive. No read that begins later uses a
    /// version from before the changes.
    ///
    /// # Errors
    /// As [`invalidate`](ObjectCache::invalidate). As after
    /// [`miss_notification`](ObjectCache::miss_notification), objects are validated then.
    pub async fn notify(&self, keys: Vec<ObjectKey>) -> Result<(), ObjectError> {
        self.note_changes(keys).await?;
        self.hear_notifications(Duration::ZERO);
        Ok(())
    }

    /// As [`notify`](ObjectCache::notify), by a notification that does not say whether others
    /// arrive: it may be late.
    ///
    /// # Errors
    /// As [`notify`](ObjectCache::notify).
    pub async fn note_changes(&self, mut keys: Vec<ObjectKey>) -> Result<(), ObjectError> {
        keys.sort_unstable();
        keys.dedup();
        for keys in keys.chunks(NOTIFIED_AT_ONCE) {
            let changed = self.change(keys.to_vec(), async {}).await;
            changed.inspect_err(|_| self.miss_notification())?;
        }
        Ok(())
    }

    /// Says that notifications arrive: that something has which was sent so long ago. More than
    /// [`ObjectConfig::events_timeout_seconds`] ago says nothing.
    pub fn hear_notifications(&self, age: Duration) {
        let inner = &self.inner;
        let timeout = inner.config.events_timeout();
        inner.events.hear(age, Time::now(&inner.clock), timeout);
    }

    /// A notification could not be taken: until the next one, mode `events` is `etag`, and
    /// then nothing counts that was validated before.
    pub fn miss_notification(&self) {
        self.inner.events.miss();
    }

    /// True while notifications of changes arrive.
    pub fn is_notified(&self) -> bool {
        self.inner.session().is_some()
    }

    async fn write<T: Send + 'static>(
        &self,
        key: &ObjectKey,
        write: impl Future<Output = Result<T, OriginError>> + Send + 'static,
    ) -> Result<T, ObjectError> {
        Ok(self.change(vec![key.clone()], write).await??)
    }

    /// Runs `change`, which changes `keys` at the origin without this cache,
    /// with the guarantees of [`put`](ObjectCache::put).
    ///
    /// The change and its invalidations run as a task and complete even if the
    /// caller leaves. The order keeps the law: invalidate, change, invalidate
    /// again, and publish nothing in between.
    ///
    /// # Errors
    /// [`ObjectError::Cache`] if the older version could not be invalidated
    /// durably, in which case `change` did not run; [`ObjectError::Stopped`] if
    /// `change` panicked.
    pub async fn change<T: Send + 'static>(
        &self,
        keys: Vec<ObjectKey>,
        change: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ObjectError> {
        let inner = Arc::clone(&self.inner);
        let task = async move {
            let mut writing = Vec::with_capacity(keys.len());
            for key in &keys {
                writing.push(inner.epochs.write(name_hash(key)).await);
            }
            try_join_all(keys.iter().map(|key| inner.invalidate(key))).await?;
            let result = change.await;
            // Nothing was published since the first invalidation, so a failure
            // here is harmless.
            join_all(keys.iter().map(|key| inner.forget_metadata(key))).await;
            drop(writing);
            Ok(result)
        };
        let task = tokio::spawn(for_caller(task));
        task.await.unwrap_or(Err(ObjectError::Stopped))
    }

    /// Sends a client's own request to the origin. `changes` are the objects that it may
    /// change, with the guarantees of [`put`](ObjectCache::put) for each.
    ///
    /// # Errors
    /// The origin's, if there is no answer; for a change as [`change`](ObjectCache::change).
    pub async fn forward(
        &self,
        request: ForwardRequest,
        changes: Vec<ObjectKey>,
    ) -> Result<ForwardAnswer, ObjectError> {
        let origin = self.inner.origin.clone();
        if changes.is_empty() {
            return Ok(origin.forward(request).await?);
        }
        // A slow client must not keep what it changes out of the cache meanwhile.
        let ForwardRequest { head, body } = request;
        let body = match body {
            Some(body) => Some(origin.begin_body(body).await?),
            None => None,
        };
        let request = ForwardRequest { head, body };
        let (sender, answered) = oneshot::channel();
        let cache = self.clone();
        let change = async move {
            let send = async move {
                match origin.forward(request).await {
                    Ok(answer) => relay(answer, sender).await,
                    Err(error) => Kept::Whole(Err(error), sender),
                }
            };
            let kept = cache.change(changes, send).await?;
            kept.release();
            Ok(())
        };
        let change = tokio::spawn(for_caller(change));
        match answered.await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(match change.await {
                Ok(Err(error)) => error,
                Ok(Ok(())) | Err(_) => ObjectError::Stopped,
            }),
        }
    }

    /// Lists a page of a bucket at the origin.
    ///
    /// # Errors
    /// The origin's.
    pub async fn list(&self, bucket: &str, request: ListRequest) -> Result<ListPage, ObjectError> {
        Ok(self.origin_of(bucket).list(bucket, request).await?)
    }

    /// Lists the origin's buckets and the cache-only ones, by name.
    ///
    /// # Errors
    /// The origin's. With cache-only buckets an origin that cannot list its own, or denies it,
    /// has none.
    pub async fn list_buckets(&self) -> Result<Vec<BucketInfo>, ObjectError> {
        let listed = self.inner.origin.list_buckets().await;
        let Some(cache_only) = &self.inner.cache_only else {
            return Ok(listed?);
        };
        let mut buckets = match listed {
            Err(OriginError::Unsupported(_) | OriginError::AccessDenied(_)) => Vec::new(),
            listed => listed?,
        };
        buckets.retain(|bucket| !cache_only.buckets.has(&bucket.name));
        buckets.extend(cache_only.buckets.buckets());
        buckets.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(buckets)
    }

    /// Checks that a bucket exists and is accessible.
    ///
    /// # Errors
    /// The origin's.
    pub async fn head_bucket(&self, bucket: &str) -> Result<(), ObjectError> {
        Ok(self.origin_of(bucket).head_bucket(bucket).await?)
    }

    /// Creates a bucket at the origin, if the origin supports it.
    ///
    /// # Errors
    /// The origin's.
    pub async fn create_bucket(&self, bucket: &str) -> Result<(), ObjectError> {
        Ok(self.origin_of(bucket).create_bucket(bucket).await?)
    }

    /// Deletes a bucket without objects at the origin, if the origin supports it.
    ///
    /// # Errors
    /// The origin's.
    pub async fn delete_bucket(&self, bucket: &str) -> Result<(), ObjectError> {
        Ok(self.origin_of(bucket).delete_bucket(bucket).await?)
    }

    /// True if the origin of a bucket lists the parts of uploads.
    pub fn lists_parts(&self, bucket: &str) -> bool {
        self.origin_of(bucket).lists_parts()
    }

    /// Lists an upload's parts in ascending order of their numbers.
    ///
    /// # Errors
    /// The origin's.
    pub async fn list_parts(
        &self,
        key: &ObjectKey,
        upload: &str,
    ) -> Result<PendingParts, ObjectError> {
        Ok(self.origin_of(key.bucket()).list_parts(key, upload).await?)
    }

    /// Lists the pending uploads of a bucket in byte order of key and id.
    ///
    /// # Errors
    /// The origin's.
    pub async fn list_uploads(&self, bucket: &str) -> Result<Vec<UploadInfo>, ObjectError> {
        Ok(self.origin_of(bucket).list_uploads(bucket).await?)
    }

    /// Begins a multipart upload and returns its id.
    ///
    /// # Errors
    /// The origin's.
    pub async fn create_upload(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
    ) -> Result<String, ObjectError> {
        Ok(self
            .origin_of(key.bucket())
            .create_upload(key, attributes)
            .await?)
    }

    /// Waits for an upload turn of a bucket, for a body that is read through this cache.
    /// Taken before that read begins, the turn cannot block other readers.
    ///
    /// # Errors
    /// The origin's.
    pub async fn upload_turn(&self, bucket: &str) -> Result<UploadTurn, ObjectError> {
        Ok(self.origin_of(bucket).upload_turn().await?)
    }

    /// Uploads a part of an upload.
    ///
    /// # Errors
    /// The origin's.
    pub async fn upload_part(
        &self,
        key: &ObjectKey,
        part: PartRequest,
    ) -> Result<PutResponse, ObjectError> {
        Ok(self.origin_of(key.bucket()).upload_part(key, part).await?)
    }

    /// Completes an upload into an object, with the guarantees of [`put`](ObjectCache::put).
    ///
    /// # Errors
    /// As [`put`](ObjectCache::put).
    pub async fn complete_upload(
        &self,
        key: &ObjectKey,
        request: CompleteRequest,
    ) -> Result<PutResponse, ObjectError> {
        let (origin, name) = (self.origin_of(key.bucket()).clone(), key.clone());
        self.write(
            key,
            async move { origin.complete_upload(&name, request).await },
        )
        .await
    }

    /// Aborts an upload and deletes its parts.
    ///
    /// # Errors
    /// The origin's.
    pub async fn abort_upload(&self, key: &ObjectKey, upload: &str) -> Result<(), ObjectError> {
        Ok(self
            .origin_of(key.bucket())
            .abort_upload(key, upload)
            .await?)
    }

    /// Counts since the cache was created.
    pub fn stats(&self) -> ObjectStats {
        self.inner.stats.snapshot()
    }

    /// Chunks that are being fetched.
    pub fn fetches_in_flight(&self) -> usize {
        self.inner.flights.len()
    }

    /// Bytes of memory that fetches hold.
    pub fn fetch_memory_used(&self) -> u64 {
        self.inner.budget.used_bytes()
    }

    /// True if the origin answers a client's own requests to a bucket, or to the service itself
    /// (`None`). The service has buckets that the origin does not know if some are cache-only.
    pub fn forwards(&self, bucket: Option<&str>) -> bool {
        match (&self.inner.cache_only, bucket) {
            (Some(_), None) => false,
            (Some(cache_only), Some(bucket)) if cache_only.buckets.has(bucket) => false,
            _ => self.inner.origin.forwards(bucket),
        }
    }

    /// True if there are cache-only buckets.
    pub fn has_cache_only(&self) -> bool {
        self.inner.cache_only.is_some()
    }

    /// The sizes of all cache-only buckets, by name, without those whose names cannot be read.
    /// Some of their objects may have been evicted since.
    pub fn cache_only_sizes(&self) -> Vec<(String, CacheOnlySize)> {
        let cache_only = self.inner.cache_only.iter();
        let sizes = cache_only.flat_map(|cache_only| cache_only.buckets.sizes());
        sizes.collect()
    }

    fn origin_of(&self, bucket: &str) -> &Origin {
        self.inner.origin_of(bucket)
    }

    /// The origin behind the cache, which is not that of cache-only buckets.
    pub fn origin(&self) -> &Origin {
        &self.inner.origin
    }

    /// The store that holds the chunks.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Checks settings for [`reload`](ObjectCache::reload).
    ///
    /// # Errors
    /// A setting is invalid.
    pub fn check(&self, config: &ObjectConfig) -> Result<(), ObjectConfigError> {
        config.validate()?;
        config.check_fits(self.inner.store.value_bytes_max())
    }

    /// Replaces the settings that differ from object to object: the rules, and those of
    /// `config` that a rule can have. The others stay as they are.
    ///
    /// # Errors
    /// As [`check`](ObjectCache::check); nothing is replaced.
    pub fn reload(&self, config: &ObjectConfig) -> Result<(), ObjectConfigError> {
        self.check(config)?;
        *self.inner.rules.write() = Rules::new(config);
        Ok(())
    }

    /// True if the cache remembers for a while that an object is missing.
    pub fn remembers_absence(&self, key: &ObjectKey) -> bool {
        self.inner.rules.read().policy(key).negative_ttl_seconds > 0
    }

    /// The consistency mode of an object now: without notifications, `events` is `etag`.
    pub fn consistency(&self, key: &ObjectKey) -> Consistency {
        self.inner.policy(key).consistency
    }

    /// The settings with which the cache was created.
    pub fn config(&self) -> &ObjectConfig {
        &self.inner.config
    }
}

/// The object of a read without conditions.
fn whole(read: ConditionalRead) -> Result<ObjectRead, ObjectError> {
    match read {
        ConditionalRead::Read(read) => Ok(read),
        // Unreachable: there was no condition that could fail.
        ConditionalRead::NotModified(_) | ConditionalRead::PreconditionFailed(_) => {
            Err(ObjectError::Changed)
        }
    }
}

/// The end of an answer, which its caller must not have before the change has ended: who has it
/// may read the object, and must not meet a fetch from before the change.
enum Kept {
    Whole(
        Result<ForwardAnswer, OriginError>,
        oneshot::Sender<Result<ForwardAnswer, OriginError>>,
    ),
    Last(
        Result<Bytes, OriginError>,
        mpsc::UnboundedSender<Result<Bytes, OriginError>>,
    ),
}

impl Kept {
    /// Fails, without harm, if the caller has left.
    fn release(self) {
        match self {
            Kept::Whole(answer, caller) => drop(caller.send(answer)),
            Kept::Last(piece, pieces) => drop(pieces.send(piece)),
        }
    }
}

/// Passes an answer to its caller as it comes, but for its end, and returns when the origin has
/// sent all of it.
async fn relay(
    mut answer: ForwardAnswer,
    caller: oneshot::Sender<Result<ForwardAnswer, OriginError>>,
) -> Kept {
    let Some(mut last) = answer.body.next().await else {
        // It must not be asked again.
        answer.body = futures::stream::empty().boxed();
        return Kept::Whole(Ok(answer), caller);
    };
    let (sender, receiver) = mpsc::unbounded_channel();
    let pieces = futures::stream::unfold(receiver, |mut receiver| async move {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    });
    let mut body = std::mem::replace(&mut answer.body, pieces.boxed());
    // Fails if the caller has left. The answer is read all the same: an origin may be at work
    // until its end.
    let _ = caller.send(Ok(answer));
    let mut received_bytes = 0;
    while let Some(piece) = body.next().await {
        received_bytes += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        if received_bytes > ANSWER_BYTES_MAX {
            let error = format!("the answer to a change has more than {ANSWER_BYTES_MAX} bytes");
            last = Err(OriginError::Protocol(error));
            break;
        }
        let _ = sender.send(std::mem::replace(&mut last, piece));
    }
    Kept::Last(last, sender)
}
