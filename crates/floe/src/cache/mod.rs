//! The embedded cache: keys and values, with single-flight fetches of missing
//! ones.
//!
//! [`Cache`] is the entry point for most Rust programs. It opens its devices
//! from a configuration and routes by size: small values to the tiny engine,
//! the rest to the chunk engine.
//!
//! **A key lives in one engine only.** A write to one is acknowledged after the
//! other has durably invalidated the key; until then a read gets the older
//! value or a miss. Reads ask the chunk engine first, because its index is
//! exact.
//!
//! **Panics.** A panic in a fetch function reaches its caller and poisons nothing:
//! one of the waiting callers fetches instead. A panic in a background task poisons
//! its engine ([`CacheError::Poisoned`]).

mod builder;
mod flight;
mod tiny_tier;
mod writer;

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use floe_core::ByteSize;
use floe_core::layout::SMALL_MAX_BYTES;
use floe_device::OpenDeviceError;
use floe_device::config::DeviceConfig;
use serde::{Deserialize, Serialize};
use tokio::task::coop::consume_budget;

use crate::error::CacheError;
use crate::metadata_log::WriteBatch;
use crate::store::{OpenError, RecoveryReport, Store, StoreConfig, StoreStats, ValueReader};
use crate::tiny::{OpenTinyError, Tiny, TinyConfig, TinyRecovery, TinyStats};
use crate::value::{InRam, NewValue, PutOptions, PutOutcome, Value};
use flight::{Flights, Turn};
use tiny_tier::{StoreWrite, TinyTier, Write};

pub use builder::CacheBuilder;
pub use flight::SharedError;
pub use writer::CacheWriter;

/// The settings of a cache: a device and the store on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// The device.
    pub device: DeviceConfig,
    /// The store.
    #[serde(flatten)]
    pub store: StoreConfig,
    /// The tiny engine. Without it, the chunk engine keeps all values.
    pub tiny: Option<TinyTierConfig>,
}

/// The settings of the engine for tiny objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TinyTierConfig {
    /// Its own device or file.
    pub device: DeviceConfig,
    /// Most bytes of key and value together that go to the tiny engine.
    pub max_object_size: ByteSize,
    /// The engine.
    pub engine: TinyConfig,
}

impl Default for TinyTierConfig {
    fn default() -> Self {
        TinyTierConfig {
            device: DeviceConfig::default(),
            max_object_size: ByteSize::kib(2),
            engine: TinyConfig::default(),
        }
    }
}

impl CacheConfig {
    /// A cache of `size` bytes in the file `path`, with default settings.
    pub fn file(path: impl AsRef<Path>, size: ByteSize) -> Self {
        let mut config = CacheConfig::default();
        config.device.path = Some(path.as_ref().to_owned());
        config.device.size = Some(size);
        config
    }
}

/// Errors of opening a cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenCacheError {
    /// The device could not be opened.
    #[error(transparent)]
    Device(#[from] OpenDeviceError),
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The engine for tiny objects could not be opened.
    #[error("tiny objects: {0}")]
    Tiny(#[from] OpenTinyError),
}

/// Errors of [`Cache::get_or_fetch`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The cache rejected the key or is closed.
    #[error(transparent)]
    Cache(Arc<CacheError>),
    /// The fetch failed. All callers that waited for it get this error; it is not cached.
    #[error("the value could not be fetched: {0}")]
    Fetch(#[source] SharedError),
}

impl From<CacheError> for FetchError {
    fn from(error: CacheError) -> Self {
        FetchError::Cache(Arc::new(error))
    }
}

/// A put, as far as it needed no wait.
#[derive(Debug)]
pub(crate) enum CachePut {
    Done,
    /// Into the engine for tiny objects.
    Tiny(Write),
    Store(StoreWrite),
}

/// Counts and gauges of a [`Cache`] at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// The chunk engine, the RAM tier and their device.
    pub store: StoreStats,
    /// The engine for tiny objects, if there is one.
    pub tiny: Option<TinyStats>,
}

/// The result of recovery in each engine.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CacheRecovery {
    /// The chunk engine.
    pub store: RecoveryReport,
    /// The tiny engine, if there is one.
    pub tiny: Option<TinyRecovery>,
}

impl CacheRecovery {
    /// True if every engine's device was formatted.
    pub fn is_new(&self) -> bool {
        self.store.formatted && self.tiny.as_ref().is_none_or(|tiny| tiny.formatted)
    }
}

/// A flash cache of keys and values. Cheap to clone. Requires a tokio runtime.
///
/// A value has at most [`Store::value_bytes_max`] bytes. For objects of any
/// size in an object store, use [`ObjectCache`](crate::ObjectCache).
#[derive(Clone)]
pub struct Cache {
    store: Store,
    tiny: Option<TinyTier>,
    tiny_is_missing: bool,
    flights: Arc<Flights>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl Cache {
    /// A cache over an open store, without a tiny engine.
    pub fn over(store: Store) -> Cache {
        Cache {
            store,
            tiny: None,
            tiny_is_missing: false,
            flights: Arc::default(),
        }
    }

    /// Reads the value of `key`.
    ///
    /// # Errors
    /// As [`Store::get`]. A value that flash cannot return is a miss.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, CacheError> {
        Ok(self.get_value(key).await?.map(|value| value.bytes))
    }

    /// Reads the bytes `range` of the value of `key`, clipped to its length. Of
    /// a large value, only the necessary parts are read from flash.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn get_range(
        &self,
        key: &[u8],
        range: Range<u64>,
    ) -> Result<Option<Bytes>, CacheError> {
        let Some(mut reader) = self.read(key, range).await? else {
            return Ok(None);
        };
        let mut parts = Vec::new();
        while let Some(part) = reader.next().await {
            match part {
                Ok(part) => parts.push(part),
                // An unreadable value is a miss.
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(match parts.len() {
            1 => parts.remove(0),
            _ => parts.concat().into(),
        }))
    }

    /// Reads a value, with the tier that held it.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn get_value(&self, key: &[u8]) -> Result<Option<Value>, CacheError> {
        let Some(tiny) = self.tiny.as_ref().filter(|tiny| tiny.may_hold(key)) else {
            return self.store.get(key).await;
        };
        match self.store.find_in_ram(key)? {
            InRam::Hit(value) => {
                consume_budget().await;
                Ok(Some(value))
            }
            InRam::OnFlash { .. } => self.store.get(key).await,
            InRam::Miss => self.get_tiny(tiny, key).await,
        }
    }

    /// Reads a key that the store does not have from the tiny engine.
    async fn get_tiny(&self, tiny: &TinyTier, key: &[u8]) -> Result<Option<Value>, CacheError> {
        let value = tiny.engine.get(key).await?;
        if value.is_none() {
            self.store.count_miss();
        }
        Ok(value)
    }

    /// Reads a value if it is in memory, synchronously. A frontend can serve
    /// most requests this way, and start a task only for the rest.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get_ram(&self, key: &[u8]) -> Result<InRam, CacheError> {
        let mut found = self.store.find_in_ram(key)?;
        if let Some(tiny) = self.tiny.as_ref().filter(|tiny| tiny.may_hold(key))
            && found == InRam::Miss
        {
            found = tiny.engine.get_ram(key)?;
        }
        if found == InRam::Miss {
            self.store.count_miss();
        }
        Ok(found)
    }

    /// Streams the bytes `range` of a value.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub async fn read(
        &self,
        key: &[u8],
        range: Range<u64>,
    ) -> Result<Option<ValueReader>, CacheError> {
        let Some(tiny) = self.tiny.as_ref().filter(|tiny| tiny.may_hold(key)) else {
            return self.store.read(key, range).await;
        };
        match self.store.find_in_ram(key)? {
            InRam::Hit(value) => {
                consume_budget().await;
                Ok(Some(ValueReader::whole(value, &range)))
            }
            InRam::OnFlash { .. } => self.store.read(key, range).await,
            InRam::Miss => {
                let value = self.get_tiny(tiny, key).await?;
                Ok(value.map(|value| ValueReader::whole(value, &range)))
            }
        }
    }

    /// Reads the value of `key`, or runs `fetch` if it is missing. Of
    /// concurrent callers that miss the same key, one fetches and the others
    /// wait for its result. If that caller is dropped, a waiting one fetches
    /// instead.
    ///
    /// The fetched value is not stored if the key was put or deleted during the
    /// fetch, since it may be stale. A value longer than the store's longest is
    /// returned but not stored.
    ///
    /// # Errors
    /// [`FetchError::Fetch`] with `fetch`'s error, for all callers that waited;
    /// [`FetchError::Cache`] for a bad key or a closed cache.
    pub async fn get_or_fetch<Fetch, Fetched, E>(
        &self,
        key: &[u8],
        fetch: Fetch,
    ) -> Result<Bytes, FetchError>
    where
        Fetch: FnOnce() -> Fetched,
        Fetched: Future<Output = Result<Bytes, E>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.get_or_fetch_with(key, PutOptions::default(), fetch)
            .await
    }

    /// As [`get_or_fetch`](Cache::get_or_fetch), but stores the value with `options`.
    ///
    /// # Errors
    /// As [`get_or_fetch`](Cache::get_or_fetch).
    pub async fn get_or_fetch_with<Fetch, Fetched, E>(
        &self,
        key: &[u8],
        options: PutOptions,
        fetch: Fetch,
    ) -> Result<Bytes, FetchError>
    where
        Fetch: FnOnce() -> Fetched,
        Fetched: Future<Output = Result<Bytes, E>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut fetch = Some(fetch);
        loop {
            if let Some(value) = self.get(key).await? {
                return Ok(value);
            }
            match self.flights.join(key) {
                Turn::Wait(waiting) => match waiting.outcome().await {
                    Some(outcome) => return outcome.map_err(FetchError::Fetch),
                    // The fetching caller was dropped: look again, and fetch if necessary.
                    None => continue,
                },
                Turn::Lead(lead) => {
                    // Another fetch may have stored it since the lookup.
                    if let Some(value) = self.get(key).await? {
                        lead.succeed(value.clone());
                        return Ok(value);
                    }
                    // Always present: the iteration that takes it ends the loop.
                    let Some(fetch) = fetch.take() else { continue };
                    return match fetch().await {
                        Ok(value) => {
                            lead.publish(|| self.keep(key, value.clone(), options))
                                .await;
                            lead.succeed(value.clone());
                            Ok(value)
                        }
                        Err(error) => {
                            let error = SharedError::from(error.into());
                            lead.fail(error.clone());
                            Err(FetchError::Fetch(error))
                        }
                    };
                }
            }
        }
    }

    /// Stores a fetched value. A failure is ignored: the caller still gets the value.
    async fn keep(&self, key: &[u8], value: Bytes, options: PutOptions) {
        if value.len() as u64 > self.store.value_bytes_max() {
            return;
        }
        if let Err(error) = self.route(key, value, options).await {
            tracing::debug!(%error, "a fetched value was not stored");
        }
    }

    /// Stores `value`. Reads find it from now on, and no crash brings back an older one.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub async fn put(&self, key: &[u8], value: Bytes) -> Result<PutOutcome, CacheError> {
        self.put_with(key, value, PutOptions::default()).await
    }

    /// As [`put`](Cache::put), with a time to live or relaxed durability.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub async fn put_with(
        &self,
        key: &[u8],
        value: Bytes,
        options: PutOptions,
    ) -> Result<PutOutcome, CacheError> {
        self.flights.overtake(key).await;
        let admission = self.route(key, value, options).await;
        // A fetch that began before the value was stored may bring a stale one.
        self.flights.overtake(key).await;
        admission
    }

    /// Stores `value` in one engine, and invalidates the key in the other.
    async fn route(
        &self,
        key: &[u8],
        value: Bytes,
        options: PutOptions,
    ) -> Result<PutOutcome, CacheError> {
        let Some(tiny) = &self.tiny else {
            return self.store.put(key, value, options).await;
        };
        if !tiny.takes(key.len(), value.len()) {
            let admission = self.store.put(key, value, options).await?;
            tiny.forget(key).await?;
            return Ok(admission);
        }
        tiny.pairing.note().await?;
        tiny.engine.put(key, &value, options).await?;
        // Needed even if the index lacks the key: an evicted copy may still be
        // on flash, and only the store knows.
        self.store.remove(key).await?;
        Ok(PutOutcome::Stored)
    }

    /// False if [`begin_put`](Cache::begin_put) of a key and a value with these lengths does
    /// nothing.
    pub(crate) fn begins_put(&self, key_bytes: usize, value_bytes: usize) -> bool {
        match &self.tiny {
            Some(tiny) if tiny.takes(key_bytes, value_bytes) => tiny.pairing.is_noted(),
            _ => value_bytes <= SMALL_MAX_BYTES,
        }
    }

    /// Puts the concatenation of `value` as far as that needs no wait. Returns `None` if nothing
    /// was done.
    pub(crate) fn begin_put(
        &self,
        key: &[u8],
        value: &[&[u8]],
        options: PutOptions,
    ) -> Result<Option<CachePut>, CacheError> {
        let len = value.iter().map(|part| part.len()).sum();
        if !self.begins_put(key.len(), len) || self.flights.is_running(key) {
            return Ok(None);
        }
        let (store, tiny) = (&self.store, self.tiny.as_ref());
        let put = match tiny.filter(|tiny| tiny.takes(key.len(), len)) {
            Some(tiny) => {
                let write = Write::begin(tiny, store, key, value, options)?;
                write.map(|write| (write.is_done(), CachePut::Tiny(write)))
            }
            None => {
                let put = NewValue {
                    key,
                    parts: value,
                    options,
                };
                let write = StoreWrite::begin(tiny, store, &put)?;
                write.map(|write| (write.is_done(), CachePut::Store(write)))
            }
        };
        // A fetch that began before the value was stored may bring a stale one.
        Ok(put.map(
            |(is_done, put)| match is_done && !self.flights.is_running(key) {
                true => CachePut::Done,
                false => put,
            },
        ))
    }

    /// Waits until the put may be acknowledged.
    pub(crate) async fn finish_put(&self, put: CachePut, key: &[u8]) -> Result<(), CacheError> {
        let (store, tiny) = (&self.store, self.tiny.as_ref());
        let finished = match (put, tiny) {
            (CachePut::Store(write), _) => write.finish(tiny, store, key).await,
            (CachePut::Tiny(write), Some(tiny)) => write.finish(tiny, store, key).await,
            _ => return Ok(()),
        };
        self.flights.overtake(key).await;
        finished
    }

    /// Starts writing a value of `len` bytes piece by piece.
    ///
    /// # Errors
    /// As [`Store::writer`].
    pub async fn writer(
        &self,
        key: &[u8],
        len: u64,
        options: PutOptions,
    ) -> Result<CacheWriter, CacheError> {
        let writer = self.store.writer(key, len, options).await?;
        Ok(CacheWriter::new(self.tiny.clone(), key, writer))
    }

    /// Removes `key`. After it returns, no crash brings the value back. Reads no flash.
    ///
    /// # Errors
    /// As [`Store::remove`].
    pub async fn delete(&self, key: &[u8]) -> Result<(), CacheError> {
        self.flights.overtake(key).await;
        let forgotten = self.forget(key).await;
        self.flights.overtake(key).await;
        forgotten.map(drop)
    }

    /// As [`delete`](Cache::delete), and returns whether the value existed. May
    /// read flash to find a tiny object.
    ///
    /// # Errors
    /// As [`Store::remove`].
    pub async fn remove(&self, key: &[u8]) -> Result<bool, CacheError> {
        self.flights.overtake(key).await;
        let removed = async {
            let in_tiny = match &self.tiny {
                Some(tiny) if tiny.may_hold(key) => tiny.engine.get(key).await?.is_some(),
                _ => false,
            };
            Ok(self.forget(key).await? || in_tiny)
        };
        let removed = removed.await;
        self.flights.overtake(key).await;
        removed
    }

    /// Removes `key` from both engines, and returns whether the store had it.
    async fn forget(&self, key: &[u8]) -> Result<bool, CacheError> {
        let in_store = self.store.remove(key).await?;
        if let Some(tiny) = &self.tiny {
            tiny.forget(key).await?;
        }
        Ok(in_store)
    }

    /// Begins a [batch](WriteBatch) of writes.
    pub fn batch(&self) -> WriteBatch {
        let of_tiny = self.tiny().and_then(Tiny::begin_batch);
        WriteBatch::new(self.store.begin_batch(), of_tiny)
    }

    /// Waits until all values accepted so far are durable on flash.
    ///
    /// # Errors
    /// As [`Store::flush`].
    pub async fn flush(&self) -> Result<(), CacheError> {
        if let Some(tiny) = &self.tiny {
            tiny.engine.flush().await?;
        }
        self.store.flush().await
    }

    /// Flushes and stops, for a fast restart.
    ///
    /// # Errors
    /// As [`Store::close`].
    pub async fn close(&self) -> Result<(), CacheError> {
        let tiny = match &self.tiny {
            Some(tiny) => tiny.engine.close().await,
            None => Ok(()),
        };
        self.store.close().await?;
        tiny
    }

    /// Counts and gauges of every engine.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            store: self.store.stats(),
            tiny: self.tiny().map(Tiny::stats),
        }
    }

    /// The result of recovery in each engine.
    pub fn recovery(&self) -> CacheRecovery {
        CacheRecovery {
            store: self.store.recovery().clone(),
            tiny: self.tiny().map(|tiny| *tiny.recovery()),
        }
    }

    /// The tiny engine, if there is one.
    pub fn tiny(&self) -> Option<&Tiny> {
        self.tiny.as_ref().map(|tiny| &tiny.engine)
    }

    /// True if the tiny engine is configured but was left out.
    pub fn tiny_is_missing(&self) -> bool {
        self.tiny_is_missing
    }

    /// The underlying store, for statistics and
    /// [`ObjectCache`](crate::ObjectCache). A change there leaves the key's
    /// copy in the tiny engine.
    pub fn store(&self) -> &Store {
        &self.store
    }
}
