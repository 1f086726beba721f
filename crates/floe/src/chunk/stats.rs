//! What the chunk engine counts: relaxed atomics, read when somebody asks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Live counts of the chunk engine.
        #[derive(Debug, Default)]
        pub(crate) struct ChunkCounters { $($(#[$doc])* pub(crate) $name: AtomicU64,)* }

        /// Counts of the chunk engine since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        pub struct ChunkCounts { $($(#[$doc])* pub $name: u64,)* }

        impl ChunkCounters {
            pub(crate) fn snapshot(&self) -> ChunkCounts {
                ChunkCounts { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

stats! {
    /// Lookups answered from the RAM tier.
    ram_hits,
    /// Lookups answered from write buffers.
    buffer_hits,
    /// Lookups answered from flash.
    flash_hits,
    /// Lookups answered with nothing.
    misses,
    /// Bytes of values returned from the RAM tier and write buffers.
    ram_hit_bytes,
    /// Bytes of values returned from flash.
    flash_hit_bytes,
    /// Values accepted for writing.
    puts,
    /// Bytes of keys and values accepted for writing: the divisor of ALWA.
    put_bytes,
    /// Values that were not stored for want of a working zone; never silent.
    refused,
    /// Bytes of those values.
    refused_bytes,
    /// Deletes of something that was there.
    deletes,
    /// Values whose write was no longer wanted when its turn came.
    voided,
    /// Reads that the device failed.
    read_errors,
    /// Reads whose bytes were not what was written.
    checksum_errors,
    /// Appends that the device failed.
    write_errors,
    /// Zones taken out of use.
    zones_retired,
    /// Zones evicted.
    zones_evicted,
    /// Live records dropped by evictions.
    records_evicted,
    /// Chunks evicted one by one (CLRU).
    chunks_evicted,
    /// Records moved by host GC.
    gc_records,
    /// Bytes moved by host GC.
    gc_bytes,
    /// Times a writer waited for a free zone.
    foreground_waits,
    /// Times a large value waited for its turn to stream in.
    large_waits,
    /// Lookups that found an expired value.
    expired,
    /// Notes written to the journal.
    journal_notes,
    /// Times the journal moved to the other metadata zone.
    journal_moves,
    /// Batches appended.
    batches,
    /// Slot table blocks written.
    table_writes,
    /// Large values whose writer was dropped or failed.
    large_aborted,
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
