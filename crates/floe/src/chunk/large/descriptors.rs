//! Decoded descriptors of recently read or written values.

use std::sync::Arc;

use floe_core::chunk::Entry;
use floe_core::hash::KeyHash;
use floe_core::layout::LargeDescriptor;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Bytes of the cache.
const CACHE_BYTES: u64 = 8 << 20;
/// Approximate number of descriptors that fit.
const CACHE_ITEMS: usize = 4096;

/// A bounded cache. A descriptor's checksum is salted with its zone's life, so
/// hash and checksum identify one value.
#[derive(Debug)]
pub(super) struct DescriptorCache(Cache<(KeyHash, u32), Arc<LargeDescriptor>, Weight>);

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<(KeyHash, u32), Arc<LargeDescriptor>> for Weight {
    fn weight(&self, _: &(KeyHash, u32), d: &Arc<LargeDescriptor>) -> u64 {
        (4 * (d.piece_blocks.len() + d.unit_checksums.len()) + d.key.len() + 128) as u64
    }
}

impl DescriptorCache {
    pub(super) fn new() -> Self {
        DescriptorCache(Cache::with_weighter(CACHE_ITEMS, CACHE_BYTES, Weight))
    }

    pub(super) fn get(
        &self,
        key: &[u8],
        hash: KeyHash,
        entry: Entry,
    ) -> Option<Arc<LargeDescriptor>> {
        let known = self.0.get(&(hash, entry.checksum))?;
        (*known.key == *key).then_some(known)
    }

    pub(super) fn insert(&self, checksum: u32, descriptor: Arc<LargeDescriptor>) {
        self.0.insert((descriptor.hash, checksum), descriptor);
    }
}
