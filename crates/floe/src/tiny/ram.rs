//! The RAM tier of one instance: values recently read from flash, and declined
//! values. The engine's lock guards it, so the two always agree.

use bytes::Bytes;
use floe_core::hash::{ByKeyHash, KeyHash, fast_range};
use floe_core::layout::tiny::split_record;
use floe_core::tiny::{Expiry, Object};
use quick_cache::Weighter;
use quick_cache::unsync::{Cache, DefaultLifecycle};

/// Overhead of an entry in bytes: quick_cache's slot and table, two
/// allocations, and the `Bytes` handle.
const ENTRY_BYTES: u64 = 160;

/// Counters of changes by key hash. If its counter moved during a read from
/// flash, the value may be stale.
const MARKS: usize = 4096;

#[derive(Clone, Debug)]
struct Entry {
    key: Box<[u8]>,
    value: Bytes,
    expires: Expiry,
}

#[derive(Clone, Copy, Debug)]
struct ByteWeight;

impl Weighter<KeyHash, Entry> for ByteWeight {
    fn weight(&self, _: &KeyHash, entry: &Entry) -> u64 {
        (entry.key.len() + entry.value.len()) as u64 + ENTRY_BYTES
    }
}

/// The RAM tier.
#[derive(Debug)]
pub(super) struct Ram {
    cache: Option<Cache<KeyHash, Entry, ByteWeight, ByKeyHash>>,
    marks: Box<[u32]>,
    hits: u64,
}

/// A key's change counter when a read began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u32);

impl Ram {
    /// Creates a tier of `bytes`, for objects of about `object_bytes`.
    pub(super) fn new(bytes: u64, object_bytes: u32) -> Self {
        let items = (bytes / (u64::from(object_bytes) + ENTRY_BYTES)).clamp(16, 1 << 24);
        Ram {
            cache: (bytes > ENTRY_BYTES).then(|| {
                let lifecycle = DefaultLifecycle::default();
                let hashes = ByKeyHash::default();
                Cache::with(items as usize, bytes, ByteWeight, hashes, lifecycle)
            }),
            marks: vec![0; MARKS].into(),
            hits: 0,
        }
    }

    pub(super) fn get(&mut self, hash: KeyHash, key: &[u8], now_seconds: u32) -> Option<Bytes> {
        let cache = self.cache.as_mut()?;
        let entry = cache.get(&hash)?;
        if *entry.key != *key || entry.expires.is_over(now_seconds) {
            return None;
        }
        self.hits += 1;
        Some(entry.value.clone())
    }

    pub(super) fn mark(&self, hash: KeyHash) -> Mark {
        Mark(self.marks[fast_range(hash.0, MARKS)])
    }

    /// Stores a value read from flash, unless its key may have changed since.
    pub(super) fn keep_read(
        &mut self,
        mark: Mark,
        hash: KeyHash,
        key: &[u8],
        value: &Bytes,
        expires: Expiry,
    ) {
        if self.mark(hash) == mark {
            self.put(hash, key, value.clone(), expires);
        }
    }

    /// Stores a value; the caller must have called [`changed`](Ram::changed).
    pub(super) fn put(&mut self, hash: KeyHash, key: &[u8], value: Bytes, expires: Expiry) {
        if let Some(cache) = &mut self.cache {
            cache.insert(
                hash,
                Entry {
                    key: key.into(),
                    value,
                    expires,
                },
            );
        }
    }

    /// Stores an object that the admission policy declined.
    pub(super) fn put_object(&mut self, object: &Object) {
        if let Some((key, value)) = split_record(&object.record) {
            let value = Bytes::copy_from_slice(value);
            self.put(object.hash, key, value, object.expires);
        }
    }

    /// Records a write or delete of the key.
    pub(super) fn changed(&mut self, hash: KeyHash) {
        let mark = &mut self.marks[fast_range(hash.0, MARKS)];
        *mark = mark.wrapping_add(1);
        if let Some(cache) = &mut self.cache {
            cache.remove(&hash);
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }

    /// Memory besides the entries.
    pub(super) fn table_bytes(&self) -> u64 {
        size_of_val(&*self.marks) as u64
    }

    pub(super) fn hits(&self) -> u64 {
        self.hits
    }
}
