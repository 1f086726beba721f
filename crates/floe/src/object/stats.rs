//! Counters of the object cache: relaxed atomics. The doc comment of a counter
//! is also the help text of its metric.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::value::Tier;

macro_rules! counters {
    ($(#[doc = $help:literal] $name:ident,)*) => {
        /// Counts of requests and their results.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ObjectStats {
            $(#[doc = $help] pub $name: u64,)*
        }

        #[derive(Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counters {
            pub(super) fn snapshot(&self) -> ObjectStats {
                ObjectStats { $($name: self.$name.load(Relaxed),)* }
            }
        }

        impl ObjectStats {
            /// Each count with its name and meaning, for metrics.
            pub fn named(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), $help, self.$name),)*]
            }
        }
    };
}

counters! {
    /// Reads whose bytes all came from the cache.
    reads_hit,
    /// Reads of which some bytes came from the cache and some from the origin or a peer.
    reads_partial,
    /// Reads whose bytes all came from the origin or a peer.
    reads_miss,
    /// Reads that ended with an error, before or after their first byte.
    reads_failed,
    /// Chunks found in the RAM tier.
    chunks_ram,
    /// Chunks found in a write buffer.
    chunks_buffer,
    /// Chunks found on flash.
    chunks_flash,
    /// Chunks that were not in the cache and were fetched for this read.
    chunks_missed,
    /// Chunks that another read was fetching already.
    chunks_joined,
    /// Bytes served from the RAM tier.
    bytes_ram,
    /// Bytes served from write buffers.
    bytes_buffer,
    /// Bytes served from flash.
    bytes_flash,
    /// Bytes served from fetches, of the origin or a peer.
    bytes_fetched,
    /// Bytes served from the origin past the cache, to readers that a fetch left behind or whose flash failed.
    bytes_bypass,
    /// Requests to the origin for chunks.
    fetches,
    /// Questions to peers for metadata or bytes of objects that this cache lacks.
    peer_lookups,
    /// Fetches that began with bytes of a peer.
    peer_fetches,
    /// Fetches in which a peer's bytes broke off, and the origin sent the rest.
    peer_fetches_broken,
    /// Bytes that peers sent in place of the origin.
    peer_bytes,
    /// Bytes sent to peers.
    peer_bytes_sent,
    /// Chunks that came along in a request for another one.
    chunks_coalesced,
    /// Fetches that continued after their body broke off.
    fetches_resumed,
    /// Fetches that failed.
    fetches_failed,
    /// Fetches stopped because no reader was left.
    fetches_cancelled,
    /// Chunks stored.
    chunks_stored,
    /// Chunks that admission kept off flash.
    chunks_declined,
    /// Chunks that the cache dropped; readers received them all the same.
    chunks_dropped,
    /// Bytes of pinned objects that were written again before their eviction.
    pinned_bytes_written,
    /// Bytes of pinned objects that were left to eviction: a cap was reached, or they could not be read or written again.
    pinned_bytes_left,
    /// Readers that a fetch stopped waiting for because they were slow.
    readers_detached,
    /// Reads that began anew because the object changed.
    read_restarts,
    /// Reads that ended early because the object changed.
    reads_aborted,
    /// Metadata lookups answered without the origin.
    metadata_hits,
    /// Metadata lookups that the origin answered because nothing was cached.
    metadata_misses,
    /// Metadata lookups that the origin answered because the cached entry was too old.
    revalidations,
    /// Revalidations of objects that had not changed.
    revalidations_unchanged,
    /// Metadata lookups that waited for another request to the origin.
    metadata_joined,
    /// Metadata that was not cached because the object was being written.
    metadata_writes_skipped,
    /// Lookups of missing objects answered from the cache.
    negative_hits,
    /// Reads served from metadata that a failing origin could not confirm.
    stale_served,
    /// Invalidations after writes, deletes and on request.
    invalidations,
    /// Purges of sets of objects.
    purges,
    /// Reads of flash that failed and were repaired from the origin.
    read_repairs,
    /// Metadata records that could not be decoded and were dropped.
    metadata_corrupt,
    /// Operations of the cache that failed; the origin served instead.
    cache_errors,
}

impl Counters {
    pub(super) fn chunk_found(&self, tier: Tier) {
        let counter = match tier {
            Tier::Ram => &self.chunks_ram,
            Tier::Buffer => &self.chunks_buffer,
            Tier::Flash => &self.chunks_flash,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn served(&self, tier: Tier, bytes: u64) {
        let counter = match tier {
            Tier::Ram => &self.bytes_ram,
            Tier::Buffer => &self.bytes_buffer,
            Tier::Flash => &self.bytes_flash,
        };
        counter.fetch_add(bytes, Relaxed);
    }
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

pub(super) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
