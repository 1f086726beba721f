//! Aggressive cleaning: writes back all the time, first where most blocks are
//! dirty. OCF's ACP, with its rules and its parameters.
//!
//! The backing device is divided into chunks of 100 MiB. Eleven buckets rank them
//! by their share of dirty bytes, in steps of 10 %; bucket 0 has the clean ones.
//! The policy sweeps one chunk of the highest bucket in the order of addresses, up
//! to 128 blocks each 10 ms, then takes the next chunk. A backing disk therefore
//! sees long ascending runs. Without dirty blocks the policy sleeps for 1 s.
//!
//! After a failed write-back the chunk is left alone for 5 s. OCF means to do so
//! too, but its comparison is inverted, so that it retries at once and then never
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::view::Place;
use crate::Tick;
use crate::policy::error::{PolicyConfigError, check_range};

const CHUNK_BYTES: u64 = 100 << 20;
const BUCKET_MAX: usize = 10;
const BACK_OFF: Duration = Duration::from_secs(5);
const NOTHING_TO_CLEAN: Duration = Duration::from_secs(1);

/// `{ kind = "acp", wake_up_ms = 10, blocks_max = 128 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AcpConfig {
    /// Milliseconds between two batches: 1 to 10,000. Default 10.
    pub wake_up_ms: u32,
    /// Blocks to clean at once: 1 to 10,000. Default 128.
    pub blocks_max: u32,
}

impl AcpConfig {
    pub(super) fn check(&self) -> Result<(), PolicyConfigError> {
        check_range("wake_up_ms", self.wake_up_ms, 1, 10_000)?;
        check_range("blocks_max", self.blocks_max, 1, 10_000)
    }
}

impl Default for AcpConfig {
    fn default() -> Self {
        AcpConfig {
            wake_up_ms: 10,
            blocks_max: 128,
        }
    }
}

/// Cleans the dirtiest chunks. About 48 bytes for each dirty block.
#[derive(Clone, Debug)]
pub struct Acp {
    config: AcpConfig,
    /// The dirty blocks in the order of addresses.
    dirty: BTreeMap<Place, Dirty>,
    chunks: BTreeMap<ChunkId, Chunk>,
    /// Chunks with dirty blocks, by rank and then by [`Chunk::order`].
    ranking: BTreeSet<(std::cmp::Reverse<usize>, i64, ChunkId)>,
    /// The position of the sweep of the current chunk.
    sweep: Option<Place>,
    joined_last: i64,
    joined_first: i64,
}

#[derive(Clone, Copy, Debug)]
struct Dirty {
    block: u32,
    bytes: u32,
}

/// A volume and the number of a chunk of its backing device.
type ChunkId = (u16, u64);

#[derive(Clone, Copy, Debug)]
struct Chunk {
    dirty_bytes: u64,
    bucket: usize,
    /// The order in the bucket: a chunk that got dirtier joins at the end, one
    /// that got cleaner at the front.
    order: i64,
    retry_at: Tick,
}

impl Acp {
    pub(super) fn new(config: AcpConfig) -> Self {
        Acp {
            config,
            dirty: BTreeMap::new(),
            chunks: BTreeMap::new(),
            ranking: BTreeSet::new(),
            sweep: None,
            joined_last: 0,
            joined_first: 0,
        }
    }

    pub(super) fn note_dirty(&mut self, block: u32, place: Place, bytes: u64) {
        let bytes = u32::try_from(bytes).expect("a block is at most 1 MiB");
        let dirty = Dirty { block, bytes };
        let before = self.dirty.insert(place, dirty);
        let before = before.map_or(0, |dirty| dirty.bytes);
        if before != bytes {
            self.change(chunk_of(place), u64::from(bytes), u64::from(before));
        }
    }

    pub(super) fn note_clean(&mut self, place: Place) {
        if let Some(dirty) = self.dirty.remove(&place) {
            self.change(chunk_of(place), 0, u64::from(dirty.bytes));
        }
    }

    pub(super) fn note_failed(&mut self, place: Place, now: Tick) {
        if let Some(chunk) = self.chunks.get_mut(&chunk_of(place)) {
            chunk.retry_at = now + BACK_OFF;
            self.sweep = self.sweep.filter(|at| chunk_of(*at) != chunk_of(place));
        }
    }

    /// Adds and subtracts dirty bytes of a chunk, and ranks it anew.
    fn change(&mut self, id: ChunkId, added: u64, subtracted: u64) {
        let chunk = self.chunks.entry(id).or_insert(Chunk {
            dirty_bytes: 0,
            bucket: 0,
            order: 0,
            retry_at: Tick::ZERO,
        });
        chunk.dirty_bytes = chunk.dirty_bytes + added - subtracted;
        let was = (std::cmp::Reverse(chunk.bucket), chunk.order, id);
        let bucket = bucket(chunk.dirty_bytes);
        if bucket == chunk.bucket {
            return;
        }
        self.ranking.remove(&was);
        if bucket == 0 {
            self.chunks.remove(&id);
            return;
        }
        if bucket > chunk.bucket {
            self.joined_last += 1;
            chunk.order = self.joined_last;
        } else {
            self.joined_first -= 1;
            chunk.order = self.joined_first;
        }
        chunk.bucket = bucket;
        self.ranking
            .insert((std::cmp::Reverse(bucket), chunk.order, id));
    }

    /// Names blocks; returns when to wake up again.
    pub(super) fn poll(&mut self, now: Tick, named: &mut Vec<u32>) -> Tick {
        let Some(from) = self.sweep.or_else(|| self.next_chunk(now)) else {
            return now + NOTHING_TO_CLEAN;
        };
        let (volume, chunk) = chunk_of(from);
        let until = Place {
            volume,
            offset_bytes: (chunk + 1) * CHUNK_BYTES,
        };
        let mut left = self.dirty.range(from..until);
        let blocks_max = self.config.blocks_max as usize;
        named.extend(left.by_ref().take(blocks_max).map(|(_, dirty)| dirty.block));
        self.sweep = left.next().map(|(place, _)| *place);
        now + Duration::from_millis(u64::from(self.config.wake_up_ms))
    }

    /// The start of the dirtiest chunk that did not fail lately.
    fn next_chunk(&self, now: Tick) -> Option<Place> {
        let mut ids = self.ranking.iter().map(|(_, _, id)| *id);
        let (volume, chunk) = ids.find(|id| self.chunks[id].retry_at <= now)?;
        Some(Place {
            volume,
            offset_bytes: chunk * CHUNK_BYTES,
        })
    }

    /// A B-tree's nodes are filled to two thirds on average.
    pub(super) fn memory_bytes(&self) -> u64 {
        let blocks = self.dirty.len() * size_of::<(Place, Dirty)>();
        let chunks = self.chunks.len() * size_of::<(ChunkId, Chunk)>();
        let ranks = self.ranking.len() * size_of::<(usize, i64, ChunkId)>();
        (blocks + chunks + ranks) as u64 * 3 / 2
    }
}

fn chunk_of(place: Place) -> ChunkId {
    (place.volume, place.offset_bytes / CHUNK_BYTES)
}

/// The rank of a chunk: 0 if it is clean, otherwise its tenth of dirty bytes,
/// rounded up.
fn bucket(dirty_bytes: u64) -> usize {
    let tenths = (dirty_bytes * BUCKET_MAX as u64).div_ceil(CHUNK_BYTES);
    (tenths as usize).min(BUCKET_MAX)
}
