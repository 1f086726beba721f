//! The embedded cache: keys and values, with fetching of what is missing.
//!
//! [`Cache`] is what most Rust programs want. It opens its own device from a
//! configuration and adds single-flight fetching to a [`Store`].

mod flight;

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use floe_core::ByteSize;
use floe_device::config::DeviceConfig;
use floe_device::{Clock, OpenDeviceError, SharedDevice};
use serde::{Deserialize, Serialize};

use crate::error::CacheError;
use crate::store::{
    Admission, OpenError, PutOptions, RecoveryReport, Store, StoreConfig, StoreStats, Value,
    ValueReader, ValueWriter,
};
use flight::{Flights, Turn};

pub use flight::SharedError;

/// What a cache needs: a device and a store on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Where the flash is.
    pub device: DeviceConfig,
    /// How it is used.
    #[serde(flatten)]
    pub store: StoreConfig,
}

impl CacheConfig {
    /// A cache in the file `path` of `size` bytes, everything else by default.
    pub fn file(path: impl AsRef<Path>, size: ByteSize) -> Self {
        let mut config = CacheConfig::default();
        config.device.path = Some(path.as_ref().to_owned());
        config.device.size = Some(size);
        config
    }
}

/// Why a cache could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenCacheError {
    /// The device could not be opened.
    #[error(transparent)]
    Device(#[from] OpenDeviceError),
    /// The store on it could not be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
}

/// Why [`Cache::get_or_fetch`] returned no value.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The cache refused the key or is closed.
    #[error(transparent)]
    Cache(Arc<CacheError>),
    /// The fetch failed. Everyone who waited for it gets the same error; it is
    /// not remembered.
    #[error("the value could not be fetched: {0}")]
    Fetch(#[source] SharedError),
}

impl From<CacheError> for FetchError {
    fn from(error: CacheError) -> Self {
        FetchError::Cache(Arc::new(error))
    }
}

/// A flash cache of keys and values. Cheap to clone; use it inside a tokio runtime.
///
/// Values may be as long as the configured chunk size. For objects of any
/// length from an object store use [`ObjectCache`](crate::ObjectCache).
#[derive(Clone)]
pub struct Cache {
    store: Store,
    flights: Arc<Flights>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl Cache {
    /// Opens the device and the cache on it. What a previous process left
    /// there is warm, whether it was closed or killed.
    ///
    /// # Errors
    /// [`OpenCacheError`] names the setting or the state of the device, and the cure.
    pub async fn open(config: &CacheConfig) -> Result<Cache, OpenCacheError> {
        let clock = Clock::real();
        let device = floe_device::open(&config.device, &clock)?;
        Ok(Cache::open_on(device, clock, &config.store).await?)
    }

    /// Opens the cache on a device of the caller's.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn open_on(
        device: SharedDevice,
        clock: Clock,
        config: &StoreConfig,
    ) -> Result<Cache, OpenError> {
        Ok(Cache {
            store: Store::open(device, clock, config).await?,
            flights: Arc::default(),
        })
    }

    /// The value of `key`, or `None`.
    ///
    /// # Errors
    /// As [`Store::get`]. A value that flash does not give back is `None`.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, CacheError> {
        Ok(self.store.get(key).await?.map(|value| value.bytes))
    }

    /// The bytes `range` of the value of `key`, clipped to its length; only
    /// the parts of a large value that are needed are read.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn get_range(
        &self,
        key: &[u8],
        range: Range<u64>,
    ) -> Result<Option<Bytes>, CacheError> {
        let Some(mut reader) = self.store.read(key, range).await? else {
            return Ok(None);
        };
        let mut parts = Vec::new();
        while let Some(part) = reader.next().await {
            match part {
                Ok(part) => parts.push(part),
                // A value that cannot be read back is a miss.
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(match parts.len() {
            1 => parts.remove(0),
            _ => parts.concat().into(),
        }))
    }

    /// The value with the tier it was found in.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn get_value(&self, key: &[u8]) -> Result<Option<Value>, CacheError> {
        self.store.get(key).await
    }

    /// The bytes `range` of a value as a stream of pieces.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub async fn read(
        &self,
        key: &[u8],
        range: Range<u64>,
    ) -> Result<Option<ValueReader>, CacheError> {
        self.store.read(key, range).await
    }

    /// The value of `key`, fetched by `fetch` if it is not cached. However
    /// many callers miss the same key at once, one fetch runs; the others wait
    /// for its outcome. If its caller is dropped, one of those waiting fetches instead.
    ///
    /// A fetched value is not stored if the key was put or deleted while the
    /// fetch ran: it may be older. A value longer than a chunk is returned and
    /// not stored.
    ///
    /// # Errors
    /// [`FetchError::Fetch`] with `fetch`'s error, for everyone who waited;
    /// [`FetchError::Cache`] for a bad key or a closed cache.
    pub async fn get_or_fetch<Fetch, Fetched, E>(
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
                    // Whoever fetched is gone; look again, and perhaps fetch.
                    None => continue,
                },
                Turn::Lead(lead) => {
                    // It may have been stored between the look and the turn.
                    if let Some(value) = self.get(key).await? {
                        lead.succeed(value.clone());
                        return Ok(value);
                    }
                    // The loop ends in the round in which it is taken.
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

    /// Stores a fetched value; that it could not be stored is no reason not to return it.
    async fn keep(&self, key: &[u8], value: Bytes, options: PutOptions) {
        if value.len() as u64 > self.store.value_bytes_max() {
            return;
        }
        if let Err(error) = self.store.put(key, value, options).await {
            tracing::debug!(%error, "a fetched value was not stored");
        }
    }

    /// Stores `value`. It is served from now on; a value it replaces never
    /// comes back, not even after a crash.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub async fn put(&self, key: &[u8], value: Bytes) -> Result<Admission, CacheError> {
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
    ) -> Result<Admission, CacheError> {
        self.flights.overtake(key).await;
        let admission = self.store.put(key, value, options).await;
        // A fetch that began before the value was stored may still carry an older one.
        self.flights.overtake(key).await;
        admission
    }

    /// Starts to store a value of `len` bytes that arrives piece by piece.
    ///
    /// # Errors
    /// As [`Store::writer`].
    pub async fn writer(
        &self,
        key: &[u8],
        len: u64,
        options: PutOptions,
    ) -> Result<ValueWriter, CacheError> {
        self.store.writer(key, len, options).await
    }

    /// Forgets `key`; says whether it was there.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub async fn delete(&self, key: &[u8]) -> Result<bool, CacheError> {
        self.flights.overtake(key).await;
        let was_there = self.store.delete(key).await;
        self.flights.overtake(key).await;
        was_there
    }

    /// Waits until everything accepted so far is on stable flash.
    ///
    /// # Errors
    /// As [`Store::flush`].
    pub async fn flush(&self) -> Result<(), CacheError> {
        self.store.flush().await
    }

    /// Flushes and stops, leaving a cache that opens quickly.
    ///
    /// # Errors
    /// As [`Store::close`].
    pub async fn close(&self) -> Result<(), CacheError> {
        self.store.close().await
    }

    /// Counts and gauges.
    pub fn stats(&self) -> StoreStats {
        self.store.stats()
    }

    /// What opening found.
    pub fn recovery(&self) -> &RecoveryReport {
        self.store.recovery()
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.store
    }
}
