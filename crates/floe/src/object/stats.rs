//! Counters of the object cache: atomics, read when somebody asks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::value::Tier;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What the requests so far came to.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ObjectStats {
            $($(#[$doc])* pub $name: u64,)*
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
            /// Every counter with its name, for metrics.
            pub fn counters(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Reads whose bytes all came from the cache.
    reads_hit,
    /// Reads of which some bytes came from the cache and some from the origin.
    reads_partial,
    /// Reads whose bytes all came from the origin.
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
    /// Bytes served from fetches.
    bytes_fetched,
    /// Bytes served from the origin past the cache, to readers that a fetch left behind or whose flash failed.
    bytes_direct,
    /// Requests to the origin for chunks.
    fetches,
    /// Chunks that came along in a request for another one.
    chunks_coalesced,
    /// Fetches that were continued after their body broke off.
    fetches_resumed,
    /// Fetches that failed.
    fetches_failed,
    /// Fetches stopped because nobody waited.
    fetches_cancelled,
    /// Chunks stored.
    chunks_stored,
    /// Chunks that admission kept off flash.
    chunks_declined,
    /// Chunks the store refused; they were served all the same.
    chunks_refused,
    /// Readers a fetch went on without, because they were slow.
    readers_left_behind,
    /// Reads that began anew because the object changed under them.
    restarts,
    /// Reads broken off because the object changed under them.
    changed,
    /// Metadata found and used without asking the origin.
    metadata_hits,
    /// Metadata asked of the origin because there was none.
    metadata_misses,
    /// Metadata asked of the origin because it was too old.
    revalidations,
    /// Of these, the object had not changed.
    revalidations_unchanged,
    /// Metadata requests that another request was making already.
    metadata_joined,
    /// Metadata that was not stored because the object was being written.
    publications_refused,
    /// Answers that an object does not exist, from the cache.
    negative_hits,
    /// Reads served from metadata that an ill origin could not confirm.
    stale_served,
    /// Invalidations after writes, deletes and on request.
    invalidations,
    /// Reads from flash that failed and were healed from the origin.
    faults_healed,
    /// Metadata records that could not be decoded and were dropped.
    records_corrupt,
    /// Operations of the store that failed; the origin served instead.
    store_errors,
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
    counter.fetch_add(1, Relaxed);
}
