//! The RAM tier of one instance: values recently read from flash, and values that the admission
//! policy declined.
//!
//! It has a lock of its own, so that a hit waits for no flush. What changes it holds the engine's
//! lock, too, which is taken first: a write drops the older value here before a reader can ask
//! the engine for the new one.

use bytes::Bytes;
use floe_core::Tick;
use floe_core::hash::{ByKeyHash, KeyHash, fast_range};
use floe_core::layout::tiny::split_record;
use floe_core::policy::admission::{Admission, AdmissionStatistics};
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
    /// `None` admits every value.
    admission: Option<Admission>,
}

/// A key's change counter when a read began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u32);

impl Ram {
    /// Creates a tier of `bytes`, for objects of about `object_bytes`.
    pub(super) fn new(bytes: u64, object_bytes: u32, admission: Option<Admission>) -> Self {
        let items = (bytes / (u64::from(object_bytes) + ENTRY_BYTES)).clamp(16, 1 << 24);
        let most = (bytes / ENTRY_BYTES).clamp(16, 1 << 26);
        Ram {
            cache: (bytes > ENTRY_BYTES).then(|| {
                let lifecycle = DefaultLifecycle::default();
                let hashes = ByKeyHash::default();
                let items = items as usize;
                let mut cache = Cache::with(items, bytes, ByteWeight, hashes, lifecycle);
                // Otherwise its tables would grow, and be copied, under the lock. The system
                // provides the memory as it is used.
                cache.reserve(most as usize);
                cache
            }),
            marks: vec![0; MARKS].into(),
            hits: 0,
            admission,
        }
    }

    /// True if the admission policy admits a value. Called once per write.
    pub(super) fn admits(&mut self, object: &Object, now_seconds: u32) -> bool {
        let bytes = object.stored_bytes() as u64;
        object.tombstone
            || self.admission.as_mut().is_none_or(|policy| {
                policy.admit(object.hash, bytes, Tick::from_seconds(now_seconds))
            })
    }

    fn note_hit(&mut self, hash: KeyHash, now_seconds: u32) {
        if let Some(policy) = &mut self.admission {
            policy.note_hit(hash, Tick::from_seconds(now_seconds));
        }
    }

    pub(super) fn admission(&self) -> AdmissionStatistics {
        let policy = self.admission.as_ref();
        policy.map_or_else(AdmissionStatistics::default, Admission::statistics)
    }

    pub(super) fn get(&mut self, hash: KeyHash, key: &[u8], now_seconds: u32) -> Option<Bytes> {
        let cache = self.cache.as_mut()?;
        let entry = cache.get(&hash)?;
        if *entry.key != *key || entry.expires.is_over(now_seconds) {
            return None;
        }
        let value = entry.value.clone();
        self.hits += 1;
        self.note_hit(hash, now_seconds);
        Some(value)
    }

    pub(super) fn mark(&self, hash: KeyHash) -> Mark {
        Mark(self.marks[fast_range(hash.0, MARKS)])
    }

    /// Notes a hit on flash, and stores the value unless its key may have changed since.
    pub(super) fn keep_read(
        &mut self,
        mark: Mark,
        (hash, key): (KeyHash, &[u8]),
        (value, expires): (Bytes, Expiry),
        now_seconds: u32,
    ) {
        self.note_hit(hash, now_seconds);
        if self.mark(hash) == mark {
            self.put(hash, key, value, expires);
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
        if let Some(cache) = self.cache.as_mut().filter(|cache| !cache.is_empty()) {
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
