//! Items as in memcached: bytes with flags, a version and an expiry, and
//! conditional updates.
//!
//! An item is a value of a [`Cache`] with a short head (`docs/format.md`,
//! "Items"). Reads go straight to the cache. Updates of one key are serialised:
//! of two that compare the same version, exactly one succeeds.
//!
//! **Panics.** A panic in the function of an update reaches its caller: the item
//! stays as it is, and the next update of the key runs.
//!
//! Must not depend on protocols or connections.

mod access;
mod envelope;
mod era;
mod expiry;
mod inner;
mod item;
mod keeper;
mod put;

use std::fmt;
use std::sync::Arc;

use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

pub use access::Access;
pub use expiry::Expiry;
pub use inner::{ITEM_KEY_BYTES_MAX, ItemError};
pub use item::{Item, ItemBuffer, ItemState, NewItem};
pub use put::{PutEnd, PutNow};

use crate::cache::Cache;
use crate::value::InRam;
use inner::Inner;

/// The settings of an item cache.
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

/// The result of [`ItemCache::get_ram`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The item, from memory.
    Hit(Item),
    /// The item is on flash: [`ItemCache::get`] reads it.
    OnFlash {
        /// Bytes of its value there, with the head.
        len: u64,
    },
    /// No item.
    Miss,
}

/// An update's action on its key.
#[derive(Debug)]
pub enum Decision<R> {
    /// None.
    Keep(R),
    /// Stores an item as a new version.
    Put(NewItem, R),
    /// Stores an item and keeps the present version, to change metadata such as the expiry.
    Amend(NewItem, R),
    /// Removes the item.
    Delete(R),
}

/// The result of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Updated<R> {
    /// The decision's result.
    pub result: R,
    /// The version of the stored item, if the update stored one.
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
    /// Opens the items of `cache`, which have a key space of their own.
    ///
    /// # Errors
    /// [`ItemError::TooLarge`] if the largest item is longer than the store's
    /// longest value, [`ItemError::AlreadyOpen`] while another `ItemCache` has
    /// this store's items open, [`ItemError::Cache`] if the records cannot be
    /// read.
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

    /// The underlying cache.
    pub fn cache(&self) -> &Cache {
        &self.inner.cache
    }

    /// Most bytes of a value.
    pub fn value_bytes_max(&self) -> u64 {
        self.inner.max_value
    }

    /// Reads the item of `key` from memory or flash.
    ///
    /// # Errors
    /// [`ItemError::Key`], [`ItemError::Cache`] once the store is closed.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Item>, ItemError> {
        let inner = &self.inner;
        // Admitted first, so that what an era has ended is not looked for.
        let admitted = inner.membership().admit_read(key);
        let stored = inner.key(key)?;
        let Some(first) = admitted else {
            return Ok(None);
        };
        let value = inner.cache.get_value(stored.as_slice()).await?;
        Ok(value.and_then(|value| inner.live(value.bytes, first)))
    }

    /// Reads the item of `key` if it is in memory, without waiting.
    ///
    /// # Errors
    /// As [`get`](ItemCache::get).
    pub fn get_ram(&self, key: &[u8]) -> Result<Found, ItemError> {
        let inner = &self.inner;
        let admitted = inner.membership().admit_read(key);
        let stored = inner.key(key)?;
        let Some(first) = admitted else {
            return Ok(Found::Miss);
        };
        Ok(match inner.cache.get_ram(stored.as_slice())? {
            InRam::Hit(value) => match inner.live(value.bytes, first) {
                Some(item) => Found::Hit(item),
                None => Found::Miss,
            },
            InRam::OnFlash { len } => Found::OnFlash { len },
            InRam::Miss => Found::Miss,
        })
    }

    /// The item's last access; a hint.
    pub fn access(&self, item: &Item) -> Access {
        let last = self.inner.accesses.last(item.version);
        Access {
            was_read: last.is_some(),
            last_unix_s: last.unwrap_or_else(|| era::issued_unix_s(item.version)),
        }
    }

    /// Records a read of `item`.
    pub fn note_read(&self, item: &Item) {
        self.note_version_read(item.version);
    }

    /// Records a read of the item with this version.
    pub fn note_version_read(&self, version: u64) {
        let now = self.inner.now_unix_s();
        self.inner.accesses.note(version, now);
    }

    /// Stores an item unconditionally, and returns its version.
    ///
    /// # Errors
    /// [`ItemError::Key`], [`ItemError::TooLarge`], [`ItemError::NoRoom`];
    /// [`ItemError::Cache`] if the store could not invalidate the old item durably;
    /// [`ItemError::Refused`], after which the item is removed; if the process ends before that, it
    /// may be stored all the same.
    pub async fn put(&self, key: &[u8], item: NewItem) -> Result<u64, ItemError> {
        let inner = &self.inner;
        let (write, _turn) = inner.begin_write(key).await?;
        let version = inner.put(&write, item, None).await?;
        inner.acknowledge(&write).await?;
        Ok(version)
    }

    /// Stores an item as [`put`](ItemCache::put) does, as far as that needs no wait. Most puts of
    /// items for the tiny engine need none; others have to wait for an update of their key, for
    /// room, or until older copies of the key are durably invalid.
    ///
    /// # Errors
    /// As [`put`](ItemCache::put).
    pub fn put_now(&self, key: &[u8], item: &NewItem<&[u8]>) -> Result<PutNow, ItemError> {
        put::put_now(&self.inner, key, item)
    }

    /// Removes an item, and returns whether there was one.
    ///
    /// # Errors
    /// As [`put`](ItemCache::put).
    pub async fn delete(&self, key: &[u8]) -> Result<bool, ItemError> {
        let inner = &self.inner;
        let (write, _turn) = inner.begin_write(key).await?;
        // The store may expire an item slightly later than its head says.
        let has_ended = match inner.cache.get_ram(write.stored.as_slice())? {
            InRam::Hit(value) => inner.live(value.bytes, write.first).is_none(),
            InRam::OnFlash { .. } | InRam::Miss => false,
        };
        let was_there = inner.cache.remove(write.stored.as_slice()).await? && !has_ended;
        inner.check(&write)?;
        Ok(was_there)
    }

    /// Passes the item of `key` to `decide` and carries the decision out, while
    /// other updates of the key wait. Reads do not wait.
    ///
    /// # Errors
    /// As [`put`](ItemCache::put).
    pub async fn update<R>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&Item>) -> Decision<R>,
    ) -> Result<Updated<R>, ItemError> {
        let inner = &self.inner;
        let (write, _turn) = inner.begin_write(key).await?;
        let value = inner.cache.get_value(write.stored.as_slice()).await?;
        let present = value.and_then(|value| inner.live(value.bytes, write.first));
        let version = present.as_ref().map(|item| item.version);
        let (result, version) = match decide(present.as_ref()) {
            Decision::Keep(result) => (result, None),
            Decision::Put(item, result) => (result, Some(inner.put(&write, item, None).await?)),
            Decision::Amend(item, result) => {
                (result, Some(inner.put(&write, item, version).await?))
            }
            Decision::Delete(result) => {
                inner.cache.delete(write.stored.as_slice()).await?;
                (result, None)
            }
        };
        match version {
            Some(_) => inner.acknowledge(&write).await?,
            None => inner.check(&write)?,
        }
        Ok(Updated { result, version })
    }

    /// Owns what the last announced ring gives this node; see
    /// [`Membership::settle`](crate::membership::Membership::settle).
    ///
    /// # Errors
    /// [`ItemError::Cache`] if no version could be issued.
    pub async fn settle_ring(&self) -> Result<(), ItemError> {
        let version = self.inner.version().await?;
        self.inner.membership().settle(version);
        Ok(())
    }

    /// Invalidates all items stored so far, like [`flush_all`](ItemCache::flush_all), but leaves
    /// a pending flush in place.
    ///
    /// # Errors
    /// As [`flush_all`](ItemCache::flush_all).
    pub async fn begin_era(&self) -> Result<(), ItemError> {
        self.inner.begin_era().await
    }

    /// Invalidates all items: those stored so far, or at `at_unix_s` those
    /// stored by then. A later call replaces a pending one. After it returns,
    /// no restart brings back a flushed item.
    ///
    /// # Errors
    /// [`ItemError::Cache`] if the flush could not be made durable.
    pub async fn flush_all(&self, at_unix_s: Option<u32>) -> Result<(), ItemError> {
        self.inner.flush_all(at_unix_s).await
    }
}
