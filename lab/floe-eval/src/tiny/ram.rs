//! The RAM tier in front of a tiny engine. Written and read objects enter it
//! first. Objects that it evicts are written to flash unless flash has them.
//!
//! The papers' engines run behind CacheLib's memory cache. Without one, the few
//! most popular keys, which are a large part of all writes, would reach flash
//! again and again.

use floe_core::hash::{ByKeyHash, KeyHash};
use floe_core::tiny::Expiry;
use quick_cache::unsync::Cache;
use quick_cache::{Lifecycle, Weighter};

/// An object in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) bytes: u32,
    pub(super) expires: Expiry,
    /// Flash has the object, too.
    pub(super) is_clean: bool,
}

/// Overhead of an entry besides key and value, as in Floe's own RAM tier.
const ENTRY_BYTES: u64 = 160;

#[derive(Clone, Copy, Debug)]
struct Weight;

impl Weighter<u64, Held> for Weight {
    fn weight(&self, _: &u64, held: &Held) -> u64 {
        u64::from(held.bytes) + ENTRY_BYTES
    }
}

#[derive(Clone, Copy, Debug)]
struct Collect;

impl Lifecycle<u64, Held> for Collect {
    type RequestState = Vec<(KeyHash, Held)>;

    fn on_evict(&self, evicted: &mut Self::RequestState, key: u64, held: Held) {
        evicted.push((KeyHash(key), held));
    }
}

pub(super) struct RamTier {
    cache: Cache<u64, Held, Weight, ByKeyHash, Collect>,
    evicted: Vec<(KeyHash, Held)>,
}

impl RamTier {
    /// A tier of `bytes` bytes; `None` if that is zero.
    pub(super) fn new(bytes: u64, object_bytes: u64) -> Option<Self> {
        let items = bytes / (object_bytes + ENTRY_BYTES);
        (items > 0).then(|| RamTier {
            cache: Cache::with(
                usize::try_from(items).unwrap_or(usize::MAX),
                bytes,
                Weight,
                ByKeyHash::default(),
                Collect,
            ),
            evicted: Vec::new(),
        })
    }

    pub(super) fn get(&mut self, hash: KeyHash, now_seconds: u32) -> Option<Held> {
        let held = *self.cache.get(&hash.0)?;
        if held.expires.is_over(now_seconds) {
            self.cache.remove(&hash.0);
            return None;
        }
        Some(held)
    }

    pub(super) fn remove(&mut self, hash: KeyHash) {
        self.cache.remove(&hash.0);
    }

    /// Inserts an object; returns all evicted ones. Those that are not clean
    /// must be written to flash.
    pub(super) fn insert(
        &mut self,
        hash: KeyHash,
        held: Held,
    ) -> impl Iterator<Item = (KeyHash, Held)> + use<'_> {
        self.evicted.clear();
        let is_replaced = self.cache.contains_key(&hash.0);
        self.cache
            .insert_with_lifecycle(hash.0, held, &mut self.evicted);
        // The cache reports replaced objects as evicted, too.
        let replaced = self.evicted.iter().position(|(left, _)| *left == hash);
        if let Some(at) = replaced.filter(|_| is_replaced) {
            self.evicted.swap_remove(at);
        }
        self.evicted.drain(..)
    }

    #[cfg(test)]
    fn bytes(&self) -> u64 {
        self.cache.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(bytes: u32) -> Held {
        Held {
            bytes,
            expires: Expiry::NEVER,
            is_clean: false,
        }
    }

    #[test]
    fn every_object_is_in_memory_or_was_evicted() {
        let mut tier = RamTier::new(100_000, 240).expect("room for some");
        let mut left = std::collections::BTreeSet::new();
        for key in 0..10_000u64 {
            let hash = KeyHash(super::super::workload::mix(key));
            left.extend(tier.insert(hash, held(240)).map(|(hash, _)| hash));
            assert!(tier.bytes() <= 100_000);
        }
        for key in 0..10_000u64 {
            let hash = KeyHash(super::super::workload::mix(key));
            assert_ne!(tier.get(hash, 0).is_some(), left.contains(&hash), "{key}");
        }
    }

    #[test]
    fn replaced_objects_are_not_evicted() {
        let mut tier = RamTier::new(100_000, 240).expect("room for some");
        assert_eq!(tier.insert(KeyHash(7), held(240)).count(), 0);
        assert_eq!(tier.insert(KeyHash(7), held(100)).count(), 0);
        assert_eq!(tier.get(KeyHash(7), 0), Some(held(100)));
    }

    #[test]
    fn expired_objects_are_gone() {
        let mut tier = RamTier::new(10_000, 240).expect("room for some");
        let expires = Expiry(10);
        let _ = tier
            .insert(
                KeyHash(1),
                Held {
                    expires,
                    ..held(10)
                },
            )
            .count();
        assert!(tier.get(KeyHash(1), 9).is_some());
        assert!(tier.get(KeyHash(1), 10).is_none());
        tier.remove(KeyHash(1));
        assert!(RamTier::new(0, 240).is_none());
    }
}
