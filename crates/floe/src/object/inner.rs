//! The state of an object cache, and its access to the store.

use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use floe_device::Clock;
use parking_lot::RwLock;

use super::background::Background;
use super::budget::Budget;
use super::cache_only::{CacheOnly, NamesError};
use super::config::{Consistency, ObjectConfig, ObjectConfigError};
use super::error::ObjectError;
use super::events::{Events, Time};
use super::flight::Flights;
use super::loads::Loads;
use super::peer::Peers;
use super::pins::table::Pins;
use super::rules::{Policy, Rules};
use super::stats::{Counters, count};
use super::version::{Moment, ObjectVersion, metadata_key, name_hash};
use crate::error::CacheError;
use crate::origin::{ObjectKey, Origin, RequestConfig};
use crate::store::epoch::WriteEpochs;
use crate::store::marks::Marks;
use crate::store::{Store, ValueReader};

/// The cache-only buckets.
pub(super) struct CacheOnlyOrigin {
    pub(super) buckets: CacheOnly,
    /// They, behind the limits of an origin.
    pub(super) origin: Origin,
}

impl CacheOnlyOrigin {
    /// Opens the cache-only buckets, if the settings name some.
    ///
    /// # Errors
    /// The names of their objects cannot be opened.
    pub(super) fn open(
        store: &Store,
        clock: &Clock,
        config: &ObjectConfig,
    ) -> Result<Option<Self>, ObjectConfigError> {
        if config.cache_only.is_empty() {
            return Ok(None);
        }
        let path = Some(config.names.as_path()).filter(|path| !path.as_os_str().is_empty());
        let chunk_size = config.chunk_size.bytes();
        let buckets = CacheOnly::open(store, clock, &config.cache_only, path, chunk_size)
            .map_err(|error| config.wrong_names(&error))?;
        let backend = Arc::new(buckets.clone());
        // Unreachable error: these limits are valid.
        let origin = Origin::from_backend(backend, RequestConfig::default(), clock.clone())
            .map_err(|error| config.wrong_names(&NamesError::Damaged(error.to_string())))?;
        Ok(Some(CacheOnlyOrigin { buckets, origin }))
    }
}

/// The state of an [`ObjectCache`](super::ObjectCache).
pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) origin: Origin,
    pub(super) cache_only: Option<CacheOnlyOrigin>,
    pub(super) clock: Clock,
    pub(super) config: ObjectConfig,
    pub(super) rules: RwLock<Rules>,
    pub(super) events: Events,
    pub(super) stats: Counters,
    pub(super) epochs: WriteEpochs,
    pub(super) marks: Arc<Marks>,
    pub(super) loads: Loads,
    pub(super) flights: Flights,
    pub(super) budget: Budget,
    pub(super) background: Background,
    pub(super) pins: Pins,
    pub(super) peers: OnceLock<Arc<dyn Peers>>,
}

impl Inner {
    /// The cache-only buckets, if `bucket` is one of them.
    pub(super) fn cache_only(&self, bucket: &str) -> Option<&CacheOnlyOrigin> {
        let cache_only = self.cache_only.as_ref();
        cache_only.filter(|cache_only| cache_only.buckets.has(bucket))
    }

    /// The origin of a bucket.
    pub(super) fn origin_of(&self, bucket: &str) -> &Origin {
        let cache_only = self.cache_only(bucket);
        cache_only.map_or(&self.origin, |cache_only| &cache_only.origin)
    }

    /// The state of an object before the origin is asked: see `epoch` and `marks`.
    pub(super) fn moment(&self, key: &ObjectKey) -> Moment {
        Moment {
            epoch: self.epochs.current(name_hash(key)),
            purge: self.marks.number_of(key.bucket(), key.key()),
            policy: self.policy(key),
        }
    }

    /// How an object is cached now: without notifications, mode `events` is mode `etag`, and so
    /// is mode `ttl` in a node that is not confirmed.
    pub(super) fn policy(&self, key: &ObjectKey) -> Policy {
        let mut policy = self.rules.read().policy(key);
        policy.session = self.marks.era();
        if policy.consistency == Consistency::Events {
            match self.session() {
                Some(session) => policy.session = session,
                None => policy.consistency = Consistency::Etag,
            }
        }
        if !self.store.membership().is_confirmed() {
            policy.negative_ttl_seconds = 0;
            if policy.consistency == Consistency::Ttl {
                policy.consistency = Consistency::Etag;
            }
        }
        policy
    }

    /// The session of notifications, if they arrive.
    pub(super) fn session(&self) -> Option<u64> {
        self.events
            .session(Time::now(&self.clock), self.config.events_timeout())
    }

    /// Deletes an object's metadata record durably.
    pub(super) async fn invalidate(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        count(&self.stats.invalidations);
        match self.store.delete(&metadata_key(key)).await {
            // A record with too long a key was never stored.
            Ok(_) | Err(CacheError::KeyTooLong { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A chunk's record in the store, if it has the chunk's length.
    pub(super) async fn stored(
        &self,
        object: &ObjectVersion,
        chunk: u64,
        range: Range<u64>,
    ) -> Option<ValueReader> {
        if !object.cacheable {
            return None;
        }
        let key = object.chunk_key(chunk);
        let reader = self.note(self.store.read(&key, range).await)??;
        (reader.value_len() == object.chunk_len(chunk)).then_some(reader)
    }

    /// True if the store has the chunk, without reading it.
    pub(super) fn has_stored(&self, object: &ObjectVersion, chunk: u64) -> bool {
        object.cacheable && self.note(self.store.contains(&object.chunk_key(chunk))) == Some(true)
    }

    /// Waits for the store, at most the reader timeout: stalled flash must not
    /// stall readers of the origin. A cache that stops has no readers: it waits on.
    pub(super) async fn in_time<T>(
        &self,
        step: impl Future<Output = Result<T, CacheError>>,
    ) -> Option<T> {
        let mut step = pin!(step);
        if let Poll::Ready(result) = futures::poll!(step.as_mut()) {
            return self.note(result);
        }
        let patience = self.clock.sleep(self.config.reader_timeout());
        tokio::select! {
            biased;
            result = step.as_mut() => self.note(result),
            () = patience => {
                if self.background.is_stopping() {
                    return self.note(step.await);
                }
                count(&self.stats.cache_errors);
                None
            }
        }
    }

    /// Counts and hides an error of the store: the request goes on without the cache.
    pub(super) fn note<T>(&self, result: Result<T, CacheError>) -> Option<T> {
        result
            .inspect_err(|error| {
                tracing::debug!(%error, "the store failed");
                count(&self.stats.cache_errors);
            })
            .ok()
    }
}
