//! Counters of the chunk engine: relaxed atomics. The doc comment of a counter
//! is also the help text of its metric.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use floe_core::chunk::ZonePhase;
use floe_core::policy::admission::AdmissionStatistics;

macro_rules! stats {
    ($(#[doc = $help:literal] $name:ident),* $(,)?) => {
        /// Live counts of the chunk engine.
        #[derive(Debug, Default)]
        pub(crate) struct ChunkCounters { $(#[doc = $help] pub(crate) $name: AtomicU64,)* }

        /// Counts of the chunk engine since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        pub struct ChunkCounts { $(#[doc = $help] pub $name: u64,)* }

        impl ChunkCounts {
            /// Each count with its name and meaning, for metrics.
            pub fn named(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), $help, self.$name),)*]
            }
        }

        impl ChunkCounters {
            pub(crate) fn snapshot(&self) -> ChunkCounts {
                ChunkCounts { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

stats! {
    /// Lookups served from the RAM tier.
    ram_hits,
    /// Lookups served from write buffers.
    buffer_hits,
    /// Lookups served from flash.
    flash_hits,
    /// Lookups that found nothing.
    misses,
    /// Bytes of values returned from the RAM tier and write buffers.
    ram_hit_bytes,
    /// Bytes of values returned from flash.
    flash_hit_bytes,
    /// Values accepted for writing.
    puts,
    /// Bytes of keys and values accepted for writing; the divisor of write amplification.
    put_bytes,
    /// Values dropped because no working zone was left for them.
    puts_dropped,
    /// Bytes of values dropped because no working zone was left for them.
    put_bytes_dropped,
    /// Deletes that found a value.
    deletes,
    /// Values superseded before they were written to flash.
    puts_superseded,
    /// Reads of flash that failed.
    read_errors,
    /// Reads of flash whose checksum did not match.
    checksum_errors,
    /// Appends to flash that failed.
    write_errors,
    /// Zones taken out of use.
    zones_retired,
    /// Zones evicted.
    zones_evicted,
    /// Live records dropped by evictions.
    records_evicted,
    /// Chunks evicted one by one, by CLRU.
    chunks_evicted,
    /// Records moved by host garbage collection.
    gc_records,
    /// Bytes moved by host garbage collection.
    gc_bytes,
    /// Waits of writers for a free zone.
    foreground_waits,
    /// Waits of large values for permission to stream in.
    stream_waits,
    /// Lookups that found an expired value.
    expired_lookups,
    /// Records written to the journal.
    journal_records,
    /// Moves of the journal to the other metadata zone.
    journal_moves,
    /// Batches appended.
    batches,
    /// Blocks of slot tables written.
    slot_table_writes,
    /// Large values whose writer failed or was dropped.
    streams_aborted,
}

/// Gauges and counts of a chunk engine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct EngineStats {
    /// Counts since it was opened.
    pub counts: ChunkCounts,
    /// Decisions of the admission policy; all zero without a policy.
    pub admission: AdmissionStatistics,
    /// Values that flash serves.
    pub live_records: u64,
    /// Records with an index entry: live ones, and ghosts whose zone is not reset yet.
    pub index_entries: u64,
    /// Bytes of the index, counted from its live structures.
    pub index_bytes: u64,
    /// Bytes of the RAM tier: keys, values and overhead.
    pub ram_bytes: u64,
    /// Values in the RAM tier.
    pub ram_values: u64,
    /// Values in write buffers.
    pub pending_records: u64,
    /// Bytes reserved for streaming values.
    pub promised_bytes: u64,
    /// Zones that are empty.
    pub zones_free: u64,
    /// Zones that are full; in slots, those without a free slot.
    pub zones_full: u64,
    /// Zones out of use after a failure.
    pub zones_retired: u64,
    /// All zones, two of them for metadata.
    pub zones_total: u64,
    /// Slots of all zones; 0 for a log, as are the next two.
    pub slots_total: u64,
    /// Slots that are free.
    pub slots_free: u64,
    /// Slots out of use after a failure.
    pub slots_withdrawn: u64,
}

/// The state of one data zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ZoneStats {
    /// Its number.
    pub zone: u32,
    /// Its phase.
    pub phase: ZonePhase,
    /// The generation of its life.
    pub generation: u32,
    /// Bytes written or reserved; in slots, those of taken slots.
    pub used_bytes: u64,
    /// Records written; in slots, taken slots.
    pub records: u32,
    /// Live records.
    pub live_records: u32,
    /// Bytes of live values.
    pub live_bytes: u64,
    /// Tombstones in the journal for this life.
    pub tombstones: u32,
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
