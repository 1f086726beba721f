//! The state of an item cache: store keys, update locks, and versions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

use super::access::Accesses;
use super::envelope;
use super::era::{Era, EraRecord, Versions};
use super::item::{Item, NewItem};
use crate::cache::Cache;
use crate::error::CacheError;
use crate::membership::{Membership, Refusal};
use crate::store::Claim;
use crate::value::{PutOptions, PutOutcome};

/// The longest key, as in memcached.
pub const ITEM_KEY_BYTES_MAX: usize = 250;

/// Locks that serialise the updates of one key; keys may share a lock.
pub(super) const TURNS: usize = 4096;

/// The kind of the store's key, then the era.
pub(super) const KEY_HEAD_BYTES: usize = 5;
const KEY_KIND: u8 = b'i';

/// The state of an [`ItemCache`](super::ItemCache).
pub(super) struct Inner {
    pub(super) cache: Cache,
    pub(super) max_value: u64,
    pub(super) era: Era,
    pub(super) version_first: u64,
    pub(super) versions: Versions,
    pub(super) turns: Box<[Semaphore]>,
    pub(super) accesses: Accesses,
    pub(super) records: Records,
    pub(super) _claim: Claim,
}

/// The era records as last written.
pub(super) struct Records {
    /// The last record; locked while records are written.
    pub(super) written: Mutex<EraRecord>,
    /// Bytes that the device had written by then.
    pub(super) written_at_bytes: AtomicU64,
    /// Records were written since the items were opened.
    pub(super) in_use: AtomicBool,
    /// The records on flash are of another identity, and must not count when that is back.
    pub(super) are_others: AtomicBool,
}

/// Errors of reading or changing an item.
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
    /// The store dropped the item, and has no older one of its key.
    #[error("the cache has no room for the item")]
    NoRoom,
    /// Another cache has this store's items open.
    #[error("the items of this store are already open; clone the cache that opened them")]
    AlreadyOpen,
    /// This node may not answer for the key.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store failed.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// A write that was admitted.
pub(super) struct Write {
    pub(super) stored: StoreKey,
    /// The first version that counts.
    pub(super) first: u64,
}

/// The turn of a key, until it is dropped.
pub(super) struct Turn<'a> {
    permit: SemaphorePermit<'a>,
    at: usize,
}

impl Turn<'_> {
    /// The same turn, without a borrow.
    pub(super) fn kept(self, inner: Arc<Inner>) -> KeptTurn {
        self.permit.forget();
        KeptTurn { inner, at: self.at }
    }
}

/// As [`Turn`], of a future that outlives its caller.
pub(super) struct KeptTurn {
    inner: Arc<Inner>,
    at: usize,
}

impl Drop for KeptTurn {
    fn drop(&mut self) {
        self.inner.turns[self.at].add_permits(1);
    }
}

/// A key of the store, built on the stack.
pub(super) struct StoreKey {
    bytes: [u8; KEY_HEAD_BYTES + ITEM_KEY_BYTES_MAX],
    len: usize,
}

impl StoreKey {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The item's key.
    fn key(&self) -> &[u8] {
        &self.bytes[KEY_HEAD_BYTES..self.len]
    }
}

impl Inner {
    pub(super) fn now_unix_s(&self) -> u64 {
        self.cache.store().clock().unix_seconds()
    }

    /// The store's key in the current era.
    pub(super) fn key(&self, key: &[u8]) -> Result<StoreKey, ItemError> {
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

    /// The place of this node among those that share its keys.
    pub(super) fn membership(&self) -> &Membership {
        self.cache.store().membership()
    }

    /// Decodes an item that has not expired, and predates neither the first record nor the
    /// version `first`, which the membership has admitted.
    pub(super) fn live(&self, value: Bytes, first: u64) -> Option<Item> {
        let item = envelope::decode(value)?;
        let has_ended =
            item.expiry_unix_s != 0 && u64::from(item.expiry_unix_s) <= self.now_unix_s();
        (!has_ended && item.version >= self.version_first.max(first)).then_some(item)
    }

    /// Begins a write: takes the key's turn.
    pub(super) async fn begin_write(&self, key: &[u8]) -> Result<(Write, Turn<'_>), ItemError> {
        let stored = self.key_to_write(key)?;
        if self.records.are_others.load(Ordering::Relaxed) {
            self.write_records().await?;
        }
        let at = turn_of(&stored);
        let Ok(permit) = self.turns[at].acquire().await else {
            // They are never closed.
            return Err(CacheError::Closed.into());
        };
        Ok((self.admit(stored)?, Turn { permit, at }))
    }

    /// Begins a write if that needs no wait.
    pub(super) fn try_begin_write(
        &self,
        key: &[u8],
    ) -> Result<Option<(Write, Turn<'_>)>, ItemError> {
        let stored = self.key_to_write(key)?;
        if self.records.are_others.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let at = turn_of(&stored);
        match self.turns[at].try_acquire() {
            Ok(permit) => Ok(Some((self.admit(stored)?, Turn { permit, at }))),
            Err(_) => Ok(None),
        }
    }

    fn key_to_write(&self, key: &[u8]) -> Result<StoreKey, ItemError> {
        // Before the key, so that what an era has ended is not looked for.
        let admitted = self.membership().admit_write(key);
        let stored = self.key(key)?;
        admitted?;
        Ok(stored)
    }

    /// Admits a write that has its turn: what counted before may not count any more.
    fn admit(&self, stored: StoreKey) -> Result<Write, ItemError> {
        let first = self.membership().admit_write(stored.key())?;
        Ok(Write { stored, first })
    }

    /// Checks that no other node has owned the key since the write began: before it takes
    /// effect, and before it is acknowledged.
    pub(super) fn check(&self, write: &Write) -> Result<(), ItemError> {
        match self.membership().admit_write(write.stored.key())? == write.first {
            true => Ok(()),
            false => Err(Refusal::Foreign.into()),
        }
    }

    /// True if [`check`](Inner::check) finds no fault; counts none.
    pub(super) fn is_admitted(&self, write: &Write) -> bool {
        let admitted = self.membership().admit(write.stored.key());
        admitted.is_ok_and(|first| first == write.first)
    }

    /// [`check`](Inner::check), after an item was stored. A refused one is removed, since it
    /// could be read once the node is confirmed again.
    pub(super) async fn acknowledge(&self, write: &Write) -> Result<(), ItemError> {
        let checked = self.check(write);
        if checked.is_err() {
            // If that fails, it may be read, as after a crash.
            let _ = self.cache.delete(write.stored.as_slice()).await;
        }
        checked
    }

    /// Stores an item. Some `version` keeps the present one.
    pub(super) async fn put(
        &self,
        write: &Write,
        item: NewItem,
        version: Option<u64>,
    ) -> Result<u64, ItemError> {
        self.check_len(item.value.bytes().len())?;
        let version = match version {
            Some(version) => version,
            None => self.version().await?,
        };
        // A key that is gained later counts from a higher version than this one.
        self.check(write)?;
        let key = &write.stored;
        let now = self.now_unix_s();
        let Some(expiry_unix_s) = item.expiry.ahead_of(now) else {
            self.cache.delete(key.as_slice()).await?;
            return Ok(version);
        };
        let options = options(expiry_unix_s, now);
        let value = envelope::encode(item, version, expiry_unix_s);
        match self.cache.put_with(key.as_slice(), value, options).await? {
            PutOutcome::Stored | PutOutcome::RamOnly => Ok(version),
            PutOutcome::Dropped => Err(ItemError::NoRoom),
        }
    }

    pub(super) fn check_len(&self, len: usize) -> Result<(), ItemError> {
        match len as u64 > self.max_value {
            true => Err(ItemError::TooLarge {
                len,
                limit: self.max_value,
            }),
            false => Ok(()),
        }
    }
}

/// The turn of a key.
fn turn_of(key: &StoreKey) -> usize {
    let hash = xxhash_rust::xxh3::xxh3_64(key.as_slice());
    (hash % TURNS as u64) as usize
}

/// How an item is put that expires at `expiry_unix_s`, or never if that is 0.
pub(super) fn options(expiry_unix_s: u32, now_unix_s: u64) -> PutOptions {
    let ttl = || Duration::from_secs(u64::from(expiry_unix_s).saturating_sub(now_unix_s));
    PutOptions {
        ttl: (expiry_unix_s != 0).then(ttl),
        ..PutOptions::default()
    }
}
