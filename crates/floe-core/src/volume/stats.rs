//! Counts of a cache of volumes.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::shape::CLASSES;

/// Operations and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Io {
    /// Operations. Adjacent ranges of one request are one operation on the
    /// backing device, and one per block on the cache device.
    pub operations: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Requests of one kind, and those that hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accesses {
    /// Requests.
    pub requests: u64,
    /// Requests whose every byte hit.
    pub hits: u64,
    /// Bytes of the requests.
    pub bytes: u64,
    /// Bytes that hit: read from the cache, or written to a block that was there.
    pub hit_bytes: u64,
}

/// Traffic between the parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Reads answered from the cache device.
    pub cache_hits: Io,
    /// Writes of requests to the cache device, zeros included.
    pub cache_writes: Io,
    /// Fills of the cache device with bytes of the backing device.
    pub fills: Io,
    /// Dirty bytes, read from the cache device and written to the backing one.
    pub write_backs: Io,
    /// Reads of the backing device.
    pub backing_reads: Io,
    /// Writes of requests to the backing device, zeros included.
    pub backing_writes: Io,
}

/// Blocks that came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Turnover {
    /// Blocks that entered, by size from the smallest on in powers of two.
    pub promoted: [u64; CLASSES],
    /// Blocks replaced by one of the same size.
    pub replaced: u64,
    /// Blocks evicted with their group.
    pub evicted: u64,
    /// Groups evicted.
    pub groups_evicted: u64,
    /// Blocks invalidated by writes, trims and zeros.
    pub invalidated: u64,
    /// Dirty blocks cleaned by the cleaning policy; they stay.
    pub cleaned: u64,
    /// Missing bytes that policies, or a lack of room, kept from entering.
    pub bypassed_bytes: u64,
}

/// Everything counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Reads.
    pub reads: Accesses,
    /// Writes; zeros are apart.
    pub writes: Accesses,
    /// Flushes.
    pub flushes: u64,
    /// Trims.
    pub trims: u64,
    /// Writes of zeros.
    pub write_zeroes: u64,
    /// Traffic between the parts.
    pub traffic: Traffic,
    /// Blocks that came and went.
    pub turnover: Turnover,
}

/// Live bytes of RAM: the array of the index, and records that blocks and groups have
/// or had. Arrays of these grow by pages of 1,024 elements; the unused rest of each
/// last page is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The index: regions and the blocks in them.
    pub index: u64,
    /// The orders of replacement.
    pub order: u64,
    /// The state of blocks and groups.
    pub state: u64,
    /// Maps of sectors of partial blocks.
    pub sectors: u64,
    /// The history of promotion and of sequential streams.
    pub history: u64,
}

/// The state of the blocks now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Occupancy {
    /// Blocks in the cache, by size from the smallest on in powers of two.
    pub blocks: [u64; CLASSES],
    /// Bytes of the blocks in the cache.
    pub bytes: u64,
    /// Blocks with dirty bytes.
    pub dirty_blocks: u64,
    /// Dirty bytes.
    pub dirty_bytes: u64,
    /// Blocks with a map of their sectors.
    pub partial_blocks: u64,
    /// Regions in the index.
    pub regions: u64,
    /// Bytes of blocks that fit.
    pub capacity_bytes: u64,
}

/// The requests of one volume, and its blocks now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Reads.
    pub reads: Accesses,
    /// Writes; zeros are apart.
    pub writes: Accesses,
    /// Blocks in the cache.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// Dirty bytes.
    pub dirty_bytes: u64,
}

impl Io {
    pub(super) fn add(&mut self, bytes: u64) {
        self.operations += 1;
        self.bytes += bytes;
    }
}

impl Accesses {
    pub(super) fn add(&mut self, bytes: u64, hit_bytes: u64) {
        self.requests += 1;
        self.hits += u64::from(hit_bytes == bytes);
        self.bytes += bytes;
        self.hit_bytes += hit_bytes;
    }

    /// Share of the requests whose every byte hit.
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.requests.max(1) as f64
    }

    /// Share of the bytes that hit.
    pub fn byte_hit_ratio(&self) -> f64 {
        self.hit_bytes as f64 / self.bytes.max(1) as f64
    }
}

impl Traffic {
    /// All reads of the cache device.
    pub fn read_from_cache(&self) -> Io {
        self.cache_hits + self.write_backs
    }

    /// All writes to the cache device.
    pub fn written_to_cache(&self) -> Io {
        self.cache_writes + self.fills
    }

    /// All reads of the backing device.
    pub fn read_from_backing(&self) -> Io {
        self.backing_reads
    }

    /// All writes to the backing device.
    pub fn written_to_backing(&self) -> Io {
        self.backing_writes + self.write_backs
    }
}

impl Turnover {
    /// Blocks that entered.
    pub fn promotions(&self) -> u64 {
        self.promoted.iter().sum()
    }

    /// Blocks that left, for whatever reason.
    pub fn demotions(&self) -> u64 {
        self.replaced + self.evicted + self.invalidated
    }
}

impl Memory {
    /// All of it but the history, which is of a policy's choice.
    pub fn metadata(&self) -> u64 {
        self.index + self.order + self.state + self.sectors
    }
}

impl std::ops::Add for Io {
    type Output = Io;

    fn add(self, other: Io) -> Io {
        Io {
            operations: self.operations + other.operations,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Implements `+=` field by field; fields by size come last.
macro_rules! sums {
    ($($type:ty { $($field:ident),+ $(; $by_size:ident)? })+) => {$(
        impl AddAssign for $type {
            fn add_assign(&mut self, other: $type) {
                $(self.$field += other.$field;)+
                $(add_each(&mut self.$by_size, other.$by_size);)?
            }
        }
    )+};
}

sums! {
    Io { operations, bytes }
    Accesses { requests, hits, bytes, hit_bytes }
    Traffic { cache_hits, cache_writes, fills, write_backs, backing_reads, backing_writes }
    Memory { index, order, state, sectors, history }
    Statistics { reads, writes, flushes, trims, write_zeroes, traffic, turnover }
    Turnover { replaced, evicted, groups_evicted, invalidated, cleaned, bypassed_bytes; promoted }
    Usage { reads, writes, blocks, bytes, dirty_bytes }
    Occupancy {
        bytes, dirty_blocks, dirty_bytes, partial_blocks, regions, capacity_bytes; blocks
    }
}

fn add_each(counts: &mut [u64; CLASSES], others: [u64; CLASSES]) {
    for (count, other) in counts.iter_mut().zip(others) {
        *count += other;
    }
}
