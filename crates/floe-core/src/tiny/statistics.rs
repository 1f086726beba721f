//! Counts and gauges of an engine.

use super::object::{Object, PAGE_BYTES};

/// The causes of application-level write amplification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Cause {
    /// Objects are written to a set-group for the first time.
    FirstWrite,
    /// Hot objects are written back when their set-group is evicted.
    WriteBack,
    /// Objects are written to the log.
    Log,
    /// Sets are rewritten with new objects.
    Set,
    /// Sets are moved so that their zone can be reset.
    Gc,
    /// Filters are written.
    Index,
}

crate::names! {
    Cause {
        FirstWrite => "first_write",
        WriteBack => "write_back",
        Log => "log",
        Set => "set",
        Gc => "gc",
        Index => "index",
    }
}

/// Counts since an engine was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Objects accepted.
    pub objects_in: u64,
    /// Bytes of key and value of the objects accepted, the base of write
    /// amplification.
    pub bytes_in: u64,
    /// Deletes accepted.
    pub deletes_in: u64,
    /// Bytes written to flash, by [`Cause`].
    pub written: [u64; Cause::ALL.len()],
    /// Object pages read by searches.
    pub pages_searched: u64,
    /// Index pages read by searches.
    pub index_pages_searched: u64,
    /// Pages read for write-back, for loading an index after a restart, merging and GC.
    pub pages_maintained: u64,
    /// Searches that read object pages.
    pub searches: u64,
    /// Searches that read index pages.
    pub index_searches: u64,
    /// Candidate pages that did not hold the object, although a filter matched.
    pub false_positives: u64,
    /// Searches that found nothing in the newest candidate pages and left older
    /// ones unread.
    pub searches_cut: u64,
    /// Objects evicted before they reached flash.
    pub dropped_early: u64,
    /// Bytes of those.
    pub bytes_dropped_early: u64,
    /// Objects evicted from flash.
    pub evicted: u64,
    /// Hot objects written back.
    pub written_back: u64,
    /// Bytes of those.
    pub bytes_written_back: u64,
    /// Object pages written.
    pub object_pages_written: u64,
    /// Stored bytes of objects in those pages.
    pub bytes_filled: u64,
    /// Zones reset.
    pub resets: u64,
    /// Sets rewritten because the log needed room (passive migration).
    pub rewrites_passive: u64,
    /// Sets rewritten because their zone was collected (active migration).
    pub rewrites_active: u64,
    /// Bytes of objects that came from the log into sets by passive migration.
    pub bytes_migrated_passive: u64,
    /// Bytes of objects that came from the log into sets by active migration.
    pub bytes_migrated_active: u64,
}

impl Statistics {
    /// Adds another engine's counts.
    pub fn add(&mut self, other: &Statistics) {
        *self = self.plus(other);
    }

    /// The sum of these counts and others.
    pub fn plus(&self, other: &Statistics) -> Statistics {
        self.combined(other, |mine, others| mine + others)
    }

    /// Counts an accepted object or tombstone.
    pub fn count_insert(&mut self, bytes: u32, tombstone: bool) {
        if tombstone {
            self.deletes_in += 1;
        } else {
            self.objects_in += 1;
            self.bytes_in += u64::from(bytes);
        }
    }

    /// Counts bytes written.
    pub fn count_written(&mut self, cause: Cause, bytes: u64) {
        self.written[cause as usize] += bytes;
    }

    /// Bytes written for `cause`.
    pub fn written_for(&self, cause: Cause) -> u64 {
        self.written[cause as usize]
    }

    /// Bytes written for all causes.
    pub fn bytes_written(&self) -> u64 {
        self.written.iter().sum()
    }

    /// Bytes written per byte accepted (ALWA); zero while nothing was accepted.
    pub fn write_amplification(&self) -> f64 {
        ratio(self.bytes_written(), self.bytes_in)
    }

    /// Share of the written object pages that objects took, headers included.
    pub fn fill_rate(&self) -> f64 {
        ratio(
            self.bytes_filled,
            self.object_pages_written * PAGE_BYTES as u64,
        )
    }

    /// The counts since `earlier`.
    pub fn since(&self, earlier: &Statistics) -> Statistics {
        self.combined(earlier, |now, then| now - then)
    }

    /// Combines each count with the same one of `other`.
    fn combined(&self, other: &Statistics, of: impl Fn(u64, u64) -> u64) -> Statistics {
        Statistics {
            written: std::array::from_fn(|cause| of(self.written[cause], other.written[cause])),
            objects_in: of(self.objects_in, other.objects_in),
            bytes_in: of(self.bytes_in, other.bytes_in),
            deletes_in: of(self.deletes_in, other.deletes_in),
            pages_searched: of(self.pages_searched, other.pages_searched),
            index_pages_searched: of(self.index_pages_searched, other.index_pages_searched),
            pages_maintained: of(self.pages_maintained, other.pages_maintained),
            searches: of(self.searches, other.searches),
            searches_cut: of(self.searches_cut, other.searches_cut),
            index_searches: of(self.index_searches, other.index_searches),
            false_positives: of(self.false_positives, other.false_positives),
            dropped_early: of(self.dropped_early, other.dropped_early),
            bytes_dropped_early: of(self.bytes_dropped_early, other.bytes_dropped_early),
            evicted: of(self.evicted, other.evicted),
            written_back: of(self.written_back, other.written_back),
            bytes_written_back: of(self.bytes_written_back, other.bytes_written_back),
            object_pages_written: of(self.object_pages_written, other.object_pages_written),
            bytes_filled: of(self.bytes_filled, other.bytes_filled),
            resets: of(self.resets, other.resets),
            rewrites_passive: of(self.rewrites_passive, other.rewrites_passive),
            rewrites_active: of(self.rewrites_active, other.rewrites_active),
            bytes_migrated_passive: of(self.bytes_migrated_passive, other.bytes_migrated_passive),
            bytes_migrated_active: of(self.bytes_migrated_active, other.bytes_migrated_active),
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Bytes of memory that an engine holds, by purpose, counted from its live
/// structures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Copies of objects on flash, including superseded ones.
    pub objects_on_flash: u64,
    /// Exact indexes, filters, page filters, caches of filters, maps.
    pub index_bytes: u64,
    /// Heat of objects.
    pub hotness_bytes: u64,
    /// Buffers of objects on their way to flash, without keys and values.
    pub buffer_bytes: u64,
    /// Keys and values of objects on their way to flash, and of those that were written and are
    /// not freed yet, as allocated. A model, which keeps none, counts what they would take.
    pub payload_bytes: u64,
    /// Filters on their way to flash.
    pub index_buffer_bytes: u64,
    /// Everything else.
    pub other_bytes: u64,
}

impl Memory {
    /// Adds what another engine holds.
    pub fn add(&mut self, other: &Memory) {
        self.objects_on_flash += other.objects_on_flash;
        self.index_bytes += other.index_bytes;
        self.hotness_bytes += other.hotness_bytes;
        self.buffer_bytes += other.buffer_bytes;
        self.payload_bytes += other.payload_bytes;
        self.index_buffer_bytes += other.index_buffer_bytes;
        self.other_bytes += other.other_bytes;
    }

    /// Total bytes.
    pub fn total_bytes(&self) -> u64 {
        self.index_bytes
            + self.hotness_bytes
            + self.buffer_bytes
            + self.payload_bytes
            + self.index_buffer_bytes
            + self.other_bytes
    }

    /// Bits of memory per copy on flash if `bytes` are held; zero without
    /// copies.
    pub fn bits_per_object(&self, bytes: u64) -> f64 {
        ratio(bytes * 8, self.objects_on_flash)
    }
}

/// Objects that a lookup finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveObjects {
    /// Number of objects.
    pub objects: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl LiveObjects {
    /// Adds another engine's.
    pub fn add(&mut self, other: LiveObjects) {
        self.objects += other.objects;
        self.bytes += other.bytes;
    }
}

/// Heap bytes of an allocation of `bytes`, with the overhead of a typical
/// allocator: eight bytes each, rounded up to sixteen.
pub(super) fn heap_bytes(bytes: usize) -> u64 {
    match bytes {
        0 => 0,
        _ => (bytes as u64 + 8).next_multiple_of(16).max(32),
    }
}

/// Heap bytes of an allocation for `count` values of `T`.
pub(super) fn room_bytes<T>(count: usize) -> u64 {
    heap_bytes(count * size_of::<T>())
}

/// Heap bytes of the keys and values of objects.
pub(super) fn payload_bytes<'a>(objects: impl IntoIterator<Item = &'a Object>) -> u64 {
    let of = |object: &Object| heap_bytes(object.record.len().max(object.bytes as usize));
    objects.into_iter().map(of).sum()
}
