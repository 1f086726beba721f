//! The result of replaying a block trace.

use floe_core::ByteSize;
use floe_core::volume::{Accesses, Memory, Occupancy, Statistics, Traffic};
use serde::Serialize;

use crate::ratio::ratio;
use crate::stat::Sizes;

/// Requests that missed, in part or whole, and the blocks that entered for them:
/// whether block sizes follow request sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MissedRequests {
    /// Reads and writes that missed.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks that entered the cache for them.
    pub blocks: u64,
    /// Bytes of those blocks.
    pub block_bytes: u64,
}

impl MissedRequests {
    /// Bytes of a request that missed, on average.
    pub fn request_bytes_mean(&self) -> f64 {
        self.bytes as f64 / self.requests.max(1) as f64
    }

    /// Bytes of a block that entered, on average.
    pub fn block_bytes_mean(&self) -> f64 {
        self.block_bytes as f64 / self.blocks.max(1) as f64
    }
}

/// The state of a cache after some of the requests. Counts are since the start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct VolumeSample {
    /// Seconds of the trace's time since its first request.
    pub time_s: f64,
    /// Requests served.
    pub requests: u64,
    /// Reads.
    pub reads: Accesses,
    /// Writes.
    pub writes: Accesses,
    /// Traffic between cache, backing device and requests.
    pub traffic: Traffic,
    /// Bytes of the blocks in the cache.
    pub used_bytes: u64,
    /// Dirty bytes.
    pub dirty_bytes: u64,
    /// Live bytes of index, orders, states and maps of sectors.
    pub metadata_bytes: u64,
    /// Live bytes of the history of promotion, cleaning and streams.
    pub history_bytes: u64,
}

/// The result of one cache.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeResult {
    /// Its settings, as they were given.
    pub settings: String,
    /// Bytes of blocks that fit.
    pub capacity_bytes: u64,
    /// The smallest block size; histograms begin with it and double.
    pub smallest_block_bytes: u64,
    /// Requests served.
    pub requests: u64,
    /// Everything that the cache counted.
    pub statistics: Statistics,
    /// The blocks at the end.
    pub occupancy: Occupancy,
    /// Live bytes of RAM at the end.
    pub memory: Memory,
    /// Live bytes of metadata, without history, as the mean over the samples.
    pub metadata_bytes_mean: f64,
    /// Requests that missed.
    pub missed: MissedRequests,
    /// States over time, oldest first.
    pub samples: Vec<VolumeSample>,
}

impl VolumeResult {
    /// Reads and writes together.
    pub fn accesses(&self) -> Accesses {
        let mut both = self.statistics.reads;
        both += self.statistics.writes;
        both
    }

    /// The four I/O volumes in bytes: reads of the cache, writes to it, reads of the
    /// backing device, writes to it.
    pub fn io_bytes(&self) -> [(&'static str, u64); 4] {
        let traffic = &self.statistics.traffic;
        [
            ("cache_read", traffic.read_from_cache().bytes),
            ("cache_written", traffic.written_to_cache().bytes),
            ("backing_read", traffic.read_from_backing().bytes),
            ("backing_written", traffic.written_to_backing().bytes),
        ]
    }

    /// Block sizes with the blocks in the cache and those that ever entered, as
    /// far as there are any.
    pub fn block_sizes(&self) -> Vec<(ByteSize, u64, u64)> {
        let now = self.occupancy.blocks;
        let entered = self.statistics.turnover.promoted;
        let counts = now.into_iter().zip(entered).enumerate();
        counts
            .map(|(class, (now, entered))| {
                (ByteSize(self.smallest_block_bytes << class), now, entered)
            })
            .filter(|(_, now, entered)| now + entered > 0)
            .collect()
    }

    /// Live bytes of metadata of each block in the cache; zero without any.
    pub fn metadata_bytes_per_block(&self) -> f64 {
        ratio(
            self.memory.metadata(),
            self.occupancy.blocks.iter().sum::<u64>(),
        )
    }

    /// Live bytes of metadata that a cache of `capacity_bytes` would have, whose
    /// blocks are like those of this one.
    pub fn metadata_bytes_at(&self, capacity_bytes: u64) -> f64 {
        self.memory.metadata() as f64 * (capacity_bytes as f64 / self.capacity_bytes as f64)
    }

    /// Bytes of the blocks in the cache as a share of the capacity.
    pub fn occupancy_share(&self) -> f64 {
        self.occupancy.bytes as f64 / self.capacity_bytes as f64
    }

    /// Dirty bytes as a share of the capacity.
    pub fn dirty_share(&self) -> f64 {
        self.occupancy.dirty_bytes as f64 / self.capacity_bytes as f64
    }
}

/// The result of replaying a block trace against several caches.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeReplayResult {
    /// The trace's file name.
    pub trace: String,
    /// Its format.
    pub format: String,
    /// Requests replayed.
    pub requests: u64,
    /// Lines or records skipped as bad.
    pub skipped: u64,
    /// Volumes.
    pub volumes: usize,
    /// Distinct bytes, in blocks of 4 KiB, if a capacity is a share of them.
    pub working_set_bytes: Option<u64>,
    /// Sizes of the reads and writes.
    pub sizes: Sizes,
    /// Seconds of the trace's time between its first and last requests.
    pub span_s: f64,
    /// The caches, in the order of the command line.
    pub caches: Vec<VolumeResult>,
}
