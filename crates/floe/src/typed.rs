//! Typed keys and values over a [`Cache`], encoded with serde.
//!
//! **Panics.** A panic in a type's `Serialize` or `Deserialize`, or in a fetch
//! function, reaches the caller and poisons nothing.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cache::{Cache, FetchError};
use crate::error::CacheError;
use crate::value::{PutOptions, PutOutcome};

/// A cache of values of one type under keys of one type, in postcard's
/// encoding. Cheap to clone.
///
/// The name of the space is part of every key, so that several typed caches
/// share one [`Cache`]. **Change the name whenever a type changes:** bytes of
/// the old type may decode as the new one. Values that do not decode are
/// misses. A key type must encode equal keys alike; a `HashMap` does not.
///
/// ```
/// use floe::{Cache, CacheConfig, ByteSize, TypedCache};
///
/// #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
/// struct User {
///     name: String,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("cache.floe");
/// let cache = Cache::open(&CacheConfig::file(path, ByteSize::gib(1))).await?;
/// let users = TypedCache::<u64, User>::new(cache, "users-1")?;
/// let ada = User { name: "Ada".into() };
/// users.put(&7, &ada).await?;
/// assert_eq!(users.get(&7).await?, Some(ada));
/// # Ok(())
/// # }
/// ```
pub struct TypedCache<K: ?Sized, V> {
    cache: Cache,
    /// The length of the space's name, then the name.
    prefix: Arc<[u8]>,
    types: PhantomData<fn(&K) -> V>,
}

/// Errors of a [`TypedCache`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TypedError {
    /// The name of the space is too long.
    #[error("the name of a space has {len} bytes; at most 255 are allowed")]
    Name {
        /// Bytes of the name.
        len: usize,
    },
    /// The key or the value cannot be encoded.
    #[error("the {what} cannot be encoded: {source}")]
    Encode {
        /// `key` or `value`.
        what: &'static str,
        /// The encoder's reason.
        source: postcard::Error,
    },
    /// The cache failed.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The fetch failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl<K: ?Sized, V> Clone for TypedCache<K, V> {
    fn clone(&self) -> Self {
        TypedCache {
            cache: self.cache.clone(),
            prefix: Arc::clone(&self.prefix),
            types: PhantomData,
        }
    }
}

impl<K: ?Sized, V> fmt::Debug for TypedCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedCache")
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl<K: Serialize + ?Sized, V: Serialize + DeserializeOwned> TypedCache<K, V> {
    /// Creates the space `name` in `cache`.
    ///
    /// # Errors
    /// [`TypedError::Name`] for a name longer than 255 bytes.
    pub fn new(cache: Cache, name: &str) -> Result<Self, TypedError> {
        let length = u8::try_from(name.len()).map_err(|_| TypedError::Name { len: name.len() })?;
        Ok(TypedCache {
            cache,
            prefix: [&[length][..], name.as_bytes()].concat().into(),
            types: PhantomData,
        })
    }

    /// Reads the value of `key`.
    ///
    /// # Errors
    /// [`TypedError::Encode`] for the key; otherwise as [`Cache::get`].
    pub async fn get(&self, key: &K) -> Result<Option<V>, TypedError> {
        let key = self.key(key)?;
        Ok(self.cache.get(&key).await?.and_then(|bytes| decode(&bytes)))
    }

    /// Stores `value`.
    ///
    /// # Errors
    /// [`TypedError::Encode`]; otherwise as [`Cache::put`].
    pub async fn put(&self, key: &K, value: &V) -> Result<PutOutcome, TypedError> {
        self.put_with(key, value, PutOptions::default()).await
    }

    /// As [`put`](TypedCache::put), with `options`.
    ///
    /// # Errors
    /// As [`put`](TypedCache::put).
    pub async fn put_with(
        &self,
        key: &K,
        value: &V,
        options: PutOptions,
    ) -> Result<PutOutcome, TypedError> {
        let key = self.key(key)?;
        Ok(self.cache.put_with(&key, encode(value)?, options).await?)
    }

    /// Removes `key`; see [`Cache::delete`].
    ///
    /// # Errors
    /// [`TypedError::Encode`] for the key; otherwise as [`Cache::delete`].
    pub async fn delete(&self, key: &K) -> Result<(), TypedError> {
        Ok(self.cache.delete(&self.key(key)?).await?)
    }

    /// Reads the value of `key`, or runs `fetch` if it is missing; see [`Cache::get_or_fetch`].
    ///
    /// # Errors
    /// [`TypedError::Encode`]; otherwise as [`Cache::get_or_fetch`].
    pub async fn get_or_fetch<Fetch, Fetched, E>(
        &self,
        key: &K,
        fetch: Fetch,
    ) -> Result<V, TypedError>
    where
        Fetch: FnOnce() -> Fetched,
        Fetched: Future<Output = Result<V, E>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let key = self.key(key)?;
        let mut fetch = Some(fetch);
        loop {
            let made = || {
                let fetch = fetch.take();
                async move {
                    // Unreachable after the fetch: its value decodes, which ends the loop.
                    let fetch = fetch.ok_or("the fetched value does not decode")?;
                    let value = fetch().await.map_err(Into::into)?;
                    let bytes = postcard::to_stdvec(&value)?;
                    Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Bytes::from(bytes))
                }
            };
            let bytes = self.cache.get_or_fetch(&key, made).await?;
            match decode(&bytes) {
                Some(value) => return Ok(value),
                // Bytes of another type count as a miss.
                None => self.cache.delete(&key).await?,
            }
        }
    }

    fn key(&self, key: &K) -> Result<Vec<u8>, TypedError> {
        postcard::to_extend(key, self.prefix.to_vec()).map_err(|source| TypedError::Encode {
            what: "key",
            source,
        })
    }
}

fn encode(value: &impl Serialize) -> Result<Bytes, TypedError> {
    match postcard::to_stdvec(value) {
        Ok(bytes) => Ok(bytes.into()),
        Err(source) => Err(TypedError::Encode {
            what: "value",
            source,
        }),
    }
}

/// Decodes `bytes` as one value without trailing bytes.
fn decode<V: DeserializeOwned>(bytes: &[u8]) -> Option<V> {
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(value)
}
