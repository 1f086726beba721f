//! Looks at what is cached of an object, and fetches the rest for later readers.

use std::time::Duration;

use tokio::task::coop::consume_budget;

use super::ahead::Early;
use super::reader::Reader;
use super::wanted::Wanted;
use super::{ObjectCache, ObjectError, ObjectKey, ObjectMeta};

/// How long warming waits for fetches of clients before it looks again.
const YIELD_TIME: Duration = Duration::from_millis(10);

/// The part of an object that is cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    /// The metadata of the cached version, which may no longer be the origin's.
    pub meta: ObjectMeta,
    /// When the origin confirmed it, seconds since 1970.
    pub validated_unix_s: u64,
    /// Bytes of its chunks in the cache.
    pub bytes: u64,
}

/// The result of warming an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warmed {
    /// The entity tag of the version.
    pub etag: Option<String>,
    /// Bytes of the object.
    pub size: u64,
    /// The first byte that was not looked at: `size` at the end.
    pub position: u64,
    /// Bytes that were fetched.
    pub fetched_bytes: u64,
}

impl ObjectCache {
    /// Returns the cached version of an object and how many of its bytes are cached, without a
    /// request to the origin; `None` if the cache does not know the object.
    pub async fn cached(&self, key: &ObjectKey) -> Option<Cached> {
        let inner = &self.inner;
        let moment = inner.moment(key);
        let (object, validated_unix_s) = match inner.cache_only(key.bucket()) {
            Some(cache_only) => {
                let row = cache_only.buckets.find(key).ok()?;
                let object = inner.cache_only_version(key, moment, row);
                (object, inner.clock.unix_seconds())
            }
            None => {
                let record = inner.recorded(key, moment).await?;
                let object = inner.version(key, moment, record.object?);
                (object, record.validated_unix_s)
            }
        };
        let mut bytes = 0;
        for chunk in 0..object.meta.size.div_ceil(object.chunk_size()) {
            consume_budget().await;
            if inner.has_stored(&object, chunk) {
                bytes += object.chunk_len(chunk);
            }
        }
        Some(Cached {
            meta: object.meta,
            validated_unix_s,
            bytes,
        })
    }

    /// Fetches the chunks of an object from offset `from` on that are not cached, until
    /// `may_go_on` says no to the bytes fetched so far, which it is asked before each fetch.
    /// Fetches for clients go first: while half of the memory of fetches is in use, warming
    /// waits, and goes on asking. As with a read, the admission policy may keep chunks off flash. An object whose
    /// version could not be confirmed later is not fetched.
    ///
    /// # Errors
    /// As [`head`](ObjectCache::head); [`ObjectError::Changed`] if the object changes.
    pub async fn warm(
        &self,
        key: &ObjectKey,
        from: u64,
        mut may_go_on: impl FnMut(u64) -> bool,
    ) -> Result<Warmed, ObjectError> {
        let inner = &self.inner;
        let object = inner.resolve(key, Wanted::Metadata, false).await?.object;
        let size = object.meta.size;
        let mut warmed = Warmed {
            etag: object.meta.etag.clone(),
            size,
            position: from.min(size),
            fetched_bytes: 0,
        };
        if !object.cacheable {
            warmed.position = size;
        }
        let chunks = size.div_ceil(object.chunk_size());
        let per_fetch = inner.config.chunks_per_fetch(object.chunk_size());
        while warmed.position < size {
            consume_budget().await;
            let first = object.chunk_of(warmed.position);
            let mut run = first..first;
            while run.end < chunks
                && run.end - run.start < per_fetch
                && !inner.has_stored(&object, run.end)
            {
                run.end += 1;
            }
            let next = run.end.max(first + 1);
            if !run.is_empty() {
                let fetched = warmed.fetched_bytes;
                if !may_go_on(fetched) || !self.waits(|| may_go_on(fetched)).await {
                    break;
                }
                let reader = Reader::new(inner, &object, 0..size, Early::default());
                warmed.fetched_bytes += reader.fill(run).await?;
            }
            warmed.position = match next < chunks {
                true => object.chunk_start(next),
                false => size,
            };
        }
        Ok(warmed)
    }

    /// Waits for fetches of clients; false if it must not go on.
    async fn waits(&self, mut may_go_on: impl FnMut() -> bool) -> bool {
        let inner = &self.inner;
        while inner.budget.used_bytes() > inner.config.fetch_memory.bytes() / 2 {
            inner.budget.shed();
            inner.clock.sleep(YIELD_TIME).await;
            if !may_go_on() {
                return false;
            }
        }
        true
    }
}
