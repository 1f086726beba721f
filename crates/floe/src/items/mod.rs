//! Items as memcached has them: bytes with flags, a version, an expiry, and
//! updates that depend on what is there.
//!
//! An item is a value of a [`Cache`], behind a short head (`docs/format.md`,
//! "Items"). Reads go straight to the cache; updates of one key take turns, so
//! that of two that compare the same version exactly one wins.
//!
//! What it refuses to know: protocols, connections.

mod access;
mod envelope;
mod era;
mod expiry;
mod inner;
mod item;
mod keeper;

use std::fmt;
use std::sync::Arc;

use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

pub use access::Access;
pub use expiry::Expiry;
pub use inner::{ITEM_KEY_BYTES_MAX, ItemError};
pub use item::{Item, ItemBuffer, ItemState, NewItem};

use crate::cache::Cache;
use crate::value::InRam;
use inner::Inner;

/// How items are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ItemConfig {
    /// Most bytes of an item's value.
    pub max_value: ByteSize,
}

impl Default for ItemConfig {
    fn default() -> Self {
        ItemConfig {
            max_value: ByteSize::mib(1),
        }
    }
}

/// What [`ItemCache::get_ram`] finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The item, from memory.
    Hit(Item),
    /// It is on flash: [`ItemCache::get`] reads it.
    OnFlash {
        /// Bytes that it takes there.
        len: u64,
    },
    /// There is none.
    Miss,
}

/// What an update does with its key.
#[derive(Debug)]
pub enum Decision<R> {
    /// Nothing.
    Keep(R),
    /// Stores an item as a new version.
    Put(NewItem, R),
    /// Stores an item with the version that the present one has; for changes
    /// of what does not belong to the value, such as its expiry.
    Amend(NewItem, R),
    /// Removes the item.
    Delete(R),
}

/// What an update did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Updated<R> {
    /// What the decision said.
    pub result: R,
    /// The version of the item that was stored, if one was.
    pub version: Option<u64>,
}

/// Items over a [`Cache`]. Cheap to clone.
///
/// Must be used inside a tokio runtime; opening starts a task that ends with
/// the last clone.
#[derive(Clone)]
pub struct ItemCache {
    inner: Arc<Inner>,
}

impl fmt::Debug for ItemCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemCache")
            .field("cache", &self.inner.cache)
            .finish_non_exhaustive()
    }
}

impl ItemCache {
    /// Opens the items of `cache`; they have a key space of their own in it.
    ///
    /// # Errors
    /// [`ItemError::TooLarge`] if the largest item is longer than a value of the
    /// store may be, [`ItemError::AlreadyOpen`] while another `ItemCache` has the
    /// items of this store, [`ItemError::Cache`] if its records cannot be read.
    pub async fn open(cache: Cache, config: &ItemConfig) -> Result<Self, ItemError> {
        let max_value = config.max_value.bytes();
        let limit = cache
            .store()
            .value_bytes_max()
            .saturating_sub(item::HEAD_BYTES_MAX as u64);
        if max_value > limit {
            return Err(ItemError::TooLarge {
                len: usize::try_from(max_value).unwrap_or(usize::MAX),
                limit,
            });
        }
        Ok(ItemCache {
            inner: keeper::open(cache, max_value).await?,
        })
    }

    /// The cache below.
    pub fn cache(&self) -> &Cache {
        &self.inner.cache
    }

    /// Most bytes of a value.
    pub fn value_bytes_max(&self) -> u64 {
        self.inner.max_value
    }

    /// The item of `key`, from memory or flash.
    ///
    /// # Errors
    /// [`ItemError::Key`], [`ItemError::Cache`] once the store is closed.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Item>, ItemError> {
        let key = self.inner.key(key)?;
        let value = self.inner.cache.get_value(key.as_slice()).await?;
        Ok(value.and_then(|value| self.inner.live(value.bytes)))
    }

    /// The item of `key` if it is in memory, without waiting for anything.
    ///
    /// # Errors
    /// As [`get`](ItemCache::get).
    pub fn get_ram(&self, key: &[u8]) -> Result<Found, ItemError> {
        let key = self.inner.key(key)?;
        Ok(match self.inner.cache.get_ram(key.as_slice())? {
            InRam::Hit(value) => match self.inner.live(value.bytes) {
                Some(item) => Found::Hit(item),
                None => Found::Miss,
            },
            InRam::OnFlash { len } => Found::OnFlash { len },
            InRam::Miss => Found::Miss,
        })
    }

    /// What is known of the reads of an item: a hint.
    pub fn access(&self, item: &Item) -> Access {
        let last = self.inner.accesses.last(item.version);
        Access {
            was_read: last.is_some(),
            last_unix_s: last.unwrap_or_else(|| era::issued_unix_s(item.version)),
        }
    }

    /// Notes that an item was read now.
    pub fn note_read(&self, item: &Item) {
        self.note_version_read(item.version);
    }

    /// Notes that the item of this version was read now.
    pub fn note_version_read(&self, version: u64) {
        let now = self.inner.now_unix_s();
        self.inner.accesses.note(version, now);
    }

    /// Stores an item whatever is there; the version it got.
    ///
    /// # Errors
    /// [`ItemError::Key`], [`ItemError::TooLarge`], [`ItemError::Refused`];
    /// [`ItemError::Cache`] if the store could not forget the old item durably.
    pub async fn put(&self, key: &[u8], item: NewItem) -> Result<u64, ItemError> {
        let key = self.inner.key(key)?;
        let _turn = self.inner.turn(&key).await;
        self.inner.put(&key, item, None).await
    }

    /// Removes an item; says whether there was one.
    ///
    /// # Errors
    /// As [`put`](ItemCache::put).
    pub async fn delete(&self, key: &[u8]) -> Result<bool, ItemError> {
        let key = self.inner.key(key)?;
        let inner = &self.inner;
        let _turn = inner.turn(&key).await;
        // The store may see the end of an item a little later than its head says.
        let has_ended = match inner.cache.get_ram(key.as_slice())? {
            InRam::Hit(value) => inner.live(value.bytes).is_none(),
            InRam::OnFlash { .. } | InRam::Miss => false,
        };
        Ok(inner.cache.remove(key.as_slice()).await? && !has_ended)
    }

    /// Looks at the item of `key` and does what `decide` says, before anybody
    /// else changes that key. Reads go on meanwhile.
    ///
    /// # Errors
    /// As [`put`](ItemCache::put).
    pub async fn update<R>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&Item>) -> Decision<R>,
    ) -> Result<Updated<R>, ItemError> {
        let inner = &self.inner;
        let key = inner.key(key)?;
        let _turn = inner.turn(&key).await;
        let value = inner.cache.get_value(key.as_slice()).await?;
        let present = value.and_then(|value| inner.live(value.bytes));
        let version = present.as_ref().map(|item| item.version);
        let (result, version) = match decide(present.as_ref()) {
            Decision::Keep(result) => (result, None),
            Decision::Put(item, result) => (result, Some(inner.put(&key, item, None).await?)),
            Decision::Amend(item, result) => (result, Some(inner.put(&key, item, version).await?)),
            Decision::Delete(result) => {
                inner.cache.delete(key.as_slice()).await?;
                (result, None)
            }
        };
        Ok(Updated { result, version })
    }

    /// Forgets every item: at once, or all that is stored until `at_unix_s`.
    /// A later call replaces one that has not been carried out. When it
    /// returns, no restart brings back what was flushed.
    ///
    /// # Errors
    /// [`ItemError::Cache`] if that could not be promised.
    pub async fn flush_all(&self, at_unix_s: Option<u32>) -> Result<(), ItemError> {
        self.inner.flush_all(at_unix_s).await
    }
}
