//! Reading the blocks that an earlier run left, while requests are served.
//!
//! A request waits until the blocks of its shard are read. Shards that requests wait for
//! come first.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use floe_core::layout::volume::BlockBatch;
use floe_core::volume::{ByteRange, Cache, Extent, Piece, Restored};
use futures::stream::{self, StreamExt as _};

use super::error::{OpenVolumesError, VolumeError};
use super::state::Shared;
use super::table::{Found, FoundBlock, Unread};

/// Parts of the table that are read at once.
const READS_AT_ONCE: usize = 16;

/// Pages of the table that are read as one part, if most have blocks of several shards.
const PAGES_OF_PART: u32 = 4;

/// Passes over such a table: each reads the blocks of some shards.
const PASSES_MAX: usize = 4;

/// Pages of a table that may be read once for each shard.
const PAGES_OF_SMALL_TABLE: u32 = 256;

/// Times that a part is read again before it counts as damaged, and the time between.
const TRIES: u32 = 3;
const RETRY_TIME: Duration = Duration::from_millis(500);

impl Shared {
    /// Waits until the blocks of a shard are read.
    pub(super) async fn shard_loaded(&self, shard: usize) -> Result<(), VolumeError> {
        while !self.is_loaded() {
            let changed = self.loading.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.shards[shard].lock().is_loaded {
                return Ok(());
            }
            self.loading.check()?;
            self.loading.want(shard);
            changed.await;
        }
        Ok(())
    }

    /// Waits until all blocks of an earlier run are read.
    pub(super) async fn loaded(&self) -> Result<(), VolumeError> {
        for shard in 0..self.shards.len() {
            self.shard_loaded(shard).await?;
        }
        Ok(())
    }

    /// True if all blocks of an earlier run are read.
    pub(super) fn is_loaded(&self) -> bool {
        self.loading.unread_bytes() == 0
    }

    /// Reads the blocks of an earlier run, until the cache is closed.
    pub(super) async fn load_behind(self: Arc<Self>, unread: Unread) {
        let Err(error) = self.load(&unread).await else {
            return;
        };
        tracing::error!(%error, "blocks of the cache cannot be read");
        let error = self.table.fail(&error);
        self.loading.fail(error.clone());
        for volume in self.volumes.read().iter() {
            volume.poison(&error);
        }
    }

    /// Reads the blocks of an earlier run.
    pub(super) async fn load(&self, unread: &Unread) -> Result<(), OpenVolumesError> {
        let began = self.clock.now();
        while let Some(shard) = self.next_to_load() {
            let (all, at_once) = (self.shards.len(), self.shards_of_pass());
            let first = shard / at_once * at_once;
            let shards = first..all.min(first + at_once);
            self.load_shards(unread, shards).await?;
        }
        let took = self.clock.now().since(began);
        let bytes = self.shards.iter();
        let bytes: u64 = bytes
            .map(|shard| shard.lock().cache.occupancy().bytes)
            .sum();
        tracing::info!(bytes, ?took, "the blocks of the cache are read");
        Ok(())
    }

    /// Shards whose blocks one pass over the table reads: one, unless each page of a large
    /// table would be read too often.
    fn shards_of_pass(&self) -> usize {
        let (group, of_page) = (granules_of_group(self), self.table.granules_of_page());
        let pages = self.table.plan().granules() / of_page;
        match group * 2 >= of_page || pages <= PAGES_OF_SMALL_TABLE {
            true => 1,
            false => self.shards.len().div_ceil(PASSES_MAX),
        }
    }

    /// The shard to read next.
    fn next_to_load(&self) -> Option<usize> {
        let shards = 0..self.shards.len();
        let unread = shards.filter(|shard| !self.shards[*shard].lock().is_loaded);
        // The first of those that are wanted, or the first of all.
        unread.min_by_key(|shard| !self.loading.is_wanted(*shard))
    }

    async fn load_shards(
        &self,
        unread: &Unread,
        shards: Range<usize>,
    ) -> Result<(), OpenVolumesError> {
        let parts = self.parts(shards.clone());
        let read = async |part: Vec<_>| (self.table.read_blocks(unread, &part).await, part);
        let mut parts = stream::iter(parts.map(read)).buffered(READS_AT_ONCE);
        let mut unwritten = 0;
        while let Some((found, part)) = parts.next().await {
            // Reads ahead wait for nothing but the device.
            let found = match found {
                Ok(found) => found,
                Err(_) => self.read_again(unread, &part).await?,
            };
            unwritten += found.left_out.len();
            let ticket = self.table.enqueue(found.left_out);
            for group in self.by_group(&found.blocks) {
                self.restore(group)?;
            }
            // Requests run between.
            tokio::task::yield_now().await;
            if unwritten >= BlockBatch::RECORDS_MAX {
                unwritten = 0;
                // If that fails, the write-intent bits tell another start.
                let _ = self.table.written(ticket).await;
            }
        }
        for shard in shards {
            self.shards[shard].lock().is_loaded = true;
        }
        let unread = self.shards.iter().filter(|shard| !shard.lock().is_loaded);
        let share = self.table.plan().places_bytes / self.shards.len() as u64;
        self.loading.progress(share * unread.count() as u64);
        Ok(())
    }

    /// Reads a part that could not be read: a checkpoint may have been writing one of its
    /// pages, and errors of the device may pass.
    async fn read_again(
        &self,
        unread: &Unread,
        part: &[Range<u32>],
    ) -> Result<Found, OpenVolumesError> {
        for _ in 1..TRIES {
            if let Ok(found) = self.table.read_blocks_alone(unread, part).await {
                return Ok(found);
            }
            self.clock.sleep(RETRY_TIME).await;
        }
        self.table.read_blocks_alone(unread, part).await
    }

    /// The granules of `shards`, in parts that are read at once.
    fn parts(&self, shards: Range<usize>) -> impl Iterator<Item = Vec<Range<u32>>> + use<> {
        let granules = self.table.plan().granules();
        let group = granules_of_group(self);
        // From a group of the first of all shards to the next one.
        let round = group * self.shards.len() as u32;
        let rounds = (self.table.granules_of_page() * PAGES_OF_PART / round).max(1);
        let [from, to] = [shards.start, shards.end].map(|shard| group * shard as u32);
        let runs = (0..granules).step_by(round as usize).map(move |start| {
            let end = granules.min(start + to);
            granules.min(start + from)..end
        });
        let mut runs = runs.filter(|run| !run.is_empty());
        std::iter::from_fn(move || {
            let part: Vec<_> = runs.by_ref().take(rounds as usize).collect();
            (!part.is_empty()).then_some(part)
        })
    }

    /// Blocks, group by group.
    fn by_group<'a>(&self, blocks: &'a [FoundBlock]) -> impl Iterator<Item = &'a [FoundBlock]> {
        let group = granules_of_group(self);
        blocks.chunk_by(move |a, b| a.granule / group == b.granule / group)
    }

    /// Puts the blocks of a group into their shard.
    fn restore(&self, group: &[FoundBlock]) -> Result<(), OpenVolumesError> {
        let bytes = self.plan.granule_bytes();
        let restored: Vec<_> = group
            .iter()
            .map(|found| Restored {
                block: Piece {
                    extent: Extent {
                        volume: found.block.volume,
                        range: ByteRange::at(
                            found.block.address * bytes,
                            bytes << found.block.class,
                        ),
                    },
                    place: u64::from(found.granule) * bytes,
                },
                valid: &found.valid,
            })
            .collect();
        let Some(first) = restored.first() else {
            return Ok(());
        };
        let shard = self.plan.shard_of_place(first.block.place);
        let cache: &mut Cache = &mut self.shards[shard].lock().cache;
        Ok(cache.restore(&restored)?)
    }
}

fn granules_of_group(shared: &Shared) -> u32 {
    (shared.plan.group_bytes() / shared.plan.granule_bytes()) as u32
}
