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
mod keeper;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use floe_core::ByteSize;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, MutexGuard};

pub use access::Access;
pub use envelope::ItemBuffer;
pub use expiry::Expiry;

use crate::cache::Cache;
use crate::error::CacheError;
use crate::store::{Admission, InRam, PutOptions};
use access::Accesses;
use era::{Era, Versions};
use keeper::Keeper;

/// The longest key; memcached's.
pub const ITEM_KEY_BYTES_MAX: usize = 250;

/// Updates of keys that share a turn wait for each other.
const TURNS: usize = 4096;

/// The kind of the store's key, then the era.
const KEY_HEAD_BYTES: usize = 5;
const KEY_KIND: u8 = b'i';

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

/// An item that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The client's flags, not interpreted.
    pub flags: u32,
    /// Unique among all versions of all items, and larger than that of
    /// whatever was stored before; memcached calls it CAS.
    pub version: u64,
    /// When it ends, in seconds since 1970; 0 is never.
    pub expiry_unix_s: u32,
    /// Marks of the protocol against stampedes.
    pub state: ItemState,
    /// The bytes.
    pub value: Bytes,
}

/// Marks against stampedes: who may refill an item that is stale or about to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ItemState {
    /// It was marked as stale, and is served until somebody replaces it.
    pub is_stale: bool,
    /// Somebody was told to replace it.
    pub is_claimed: bool,
}

/// An item to store.
#[derive(Debug)]
pub struct NewItem {
    /// The client's flags.
    pub flags: u32,
    /// When it ends.
    pub expiry: Expiry,
    /// Marks against stampedes.
    pub state: ItemState,
    /// The bytes.
    pub value: ItemBuffer,
}

impl NewItem {
    /// An item without flags that never ends.
    pub fn new(value: ItemBuffer) -> Self {
        NewItem {
            flags: 0,
            expiry: Expiry::Never,
            state: ItemState::default(),
            value,
        }
    }

    /// A copy of `item`, to change and store again.
    pub fn copy_of(item: &Item) -> Self {
        NewItem {
            flags: item.flags,
            expiry: Expiry::from_unix(item.expiry_unix_s),
            state: item.state,
            value: ItemBuffer::from(&item.value[..]),
        }
    }
}

/// What [`ItemCache::get_now`] finds.
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

/// Why an item could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ItemError {
    /// The key is empty or longer than [`ITEM_KEY_BYTES_MAX`].
    #[error("the key has {len} bytes; 1 to 250 are allowed")]
    Key {
        /// Bytes of the key.
        len: usize,
    },
    /// The value is longer than the configuration allows.
    #[error("the value has {len} bytes; at most {limit} are allowed")]
    TooLarge {
        /// Bytes of the value.
        len: usize,
        /// Most bytes allowed.
        limit: u64,
    },
    /// The store did not take the item, and holds none of its key any more.
    #[error("no room could be made for the item")]
    Refused,
    /// The store could not carry it out.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// Items over a [`Cache`]. Cheap to clone.
///
/// Must be used inside a tokio runtime; opening starts a task that ends with
/// the last clone. Several may not be opened on one cache.
#[derive(Clone)]
pub struct ItemCache {
    inner: Arc<Inner>,
}

struct Inner {
    cache: Cache,
    max_value: u64,
    era: Era,
    version_first: u64,
    versions: Versions,
    turns: Box<[Mutex<()>]>,
    accesses: Accesses,
    keeper: Keeper,
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
    /// store may be, [`ItemError::Cache`] if its records cannot be written.
    pub async fn open(cache: Cache, config: &ItemConfig) -> Result<Self, ItemError> {
        let max_value = config.max_value.bytes();
        let limit = cache
            .store()
            .value_bytes_max()
            .saturating_sub(envelope::HEAD_BYTES_MAX as u64);
        if max_value > limit {
            return Err(ItemError::TooLarge {
                len: usize::try_from(max_value).unwrap_or(usize::MAX),
                limit,
            });
        }
        keeper::open(cache, max_value).await
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
    pub fn get_now(&self, key: &[u8]) -> Result<Found, ItemError> {
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
        Ok(inner.cache.delete(key.as_slice()).await? && !has_ended)
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

/// A key of the store, on the stack.
struct StoreKey {
    bytes: [u8; KEY_HEAD_BYTES + ITEM_KEY_BYTES_MAX],
    len: usize,
}

impl StoreKey {
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Inner {
    fn now_unix_s(&self) -> u64 {
        self.cache.store().clock().unix_seconds()
    }

    /// The key of the store in the era of now.
    fn key(&self, key: &[u8]) -> Result<StoreKey, ItemError> {
        if key.is_empty() || key.len() > ITEM_KEY_BYTES_MAX {
            return Err(ItemError::Key { len: key.len() });
        }
        let era = self.era.current(|| self.now_unix_s());
        let mut bytes = [0; KEY_HEAD_BYTES + ITEM_KEY_BYTES_MAX];
        let len = KEY_HEAD_BYTES + key.len();
        bytes[0] = KEY_KIND;
        bytes[1..KEY_HEAD_BYTES].copy_from_slice(&era.to_le_bytes());
        bytes[KEY_HEAD_BYTES..len].copy_from_slice(key);
        Ok(StoreKey { bytes, len })
    }

    /// The item in `value`, unless it has ended.
    fn live(&self, value: Bytes) -> Option<Item> {
        let item = envelope::decode(value)?;
        let has_ended =
            item.expiry_unix_s != 0 && u64::from(item.expiry_unix_s) <= self.now_unix_s();
        (!has_ended && item.version >= self.version_first).then_some(item)
    }

    async fn turn(&self, key: &StoreKey) -> MutexGuard<'_, ()> {
        let hash = xxhash_rust::xxh3::xxh3_64(key.as_slice());
        // The remainder is below TURNS.
        self.turns[(hash % TURNS as u64) as usize].lock().await
    }

    /// Stores an item; the turn of its key is held. `version` is the present
    /// one where it stays.
    async fn put(
        &self,
        key: &StoreKey,
        item: NewItem,
        version: Option<u64>,
    ) -> Result<u64, ItemError> {
        let len = item.value.bytes().len();
        if len as u64 > self.max_value {
            return Err(ItemError::TooLarge {
                len,
                limit: self.max_value,
            });
        }
        let version = match version {
            Some(version) => version,
            None => self.version().await?,
        };
        let now = self.now_unix_s();
        let expiry_unix_s = match item.expiry {
            Expiry::Never => 0,
            Expiry::At(at) if u64::from(at) > now => at,
            Expiry::At(_) | Expiry::Past => {
                self.cache.delete(key.as_slice()).await?;
                return Ok(version);
            }
        };
        let ttl = (expiry_unix_s != 0)
            .then(|| Duration::from_secs(u64::from(expiry_unix_s).saturating_sub(now)));
        let options = PutOptions {
            ttl,
            ..PutOptions::default()
        };
        let value = envelope::encode(item, version, expiry_unix_s);
        match self.cache.put_with(key.as_slice(), value, options).await? {
            Admission::Admitted | Admission::Declined => Ok(version),
            Admission::Refused => Err(ItemError::Refused),
        }
    }
}
