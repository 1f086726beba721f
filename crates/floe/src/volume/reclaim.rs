//! Room for new blocks, ahead of the requests that need it.
//!
//! Blocks that leave are clean. Their places are used again once the table of blocks
//! has durably forgotten them, and no request reads them any more.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use floe_core::volume::{Piece, WhenDirty};

use super::error::VolumeError;
use super::shard::Retired;
use super::state::Shared;

/// Blocks that leave a shard at once.
const BLOCKS_AT_ONCE: usize = 64;

impl Shared {
    /// Makes room whenever a shard is short of it, until the cache is closed.
    pub(super) async fn reclaim_ahead(self: Arc<Self>) {
        while !self.is_closing.load(SeqCst) {
            self.short.notified().await;
            if let Err(error) = self.reclaim().await {
                tracing::warn!(%error, "there is no room for new blocks");
                self.clock
                    .sleep(std::time::Duration::from_millis(100))
                    .await;
            }
        }
    }

    async fn reclaim(self: &Arc<Self>) -> Result<(), VolumeError> {
        let cleans = self.plan.config().when_dirty == WhenDirty::Evict;
        loop {
            let mut progress = false;
            for shard in 0..self.shards.len() {
                let dirty = self.evict(shard, &mut progress);
                if cleans && !dirty.is_empty() {
                    self.keep_back(shard, &dirty, |piece| {
                        self.volume(piece.extent.volume).is_none()
                    });
                    match self.clean_pieces(shard, &dirty).await {
                        // Those that cannot be read must not keep others from leaving.
                        Err(VolumeError::Cache(_)) => self.keep_back(shard, &dirty, |_| true),
                        cleaned => cleaned.map(|_| ())?,
                    }
                    self.evict(shard, &mut progress);
                }
            }
            self.release().await?;
            let mut shards = self.shards.iter();
            let is_short = shards.any(|shard| shard.lock().cache.is_short());
            if !is_short {
                return Ok(());
            }
            if !progress {
                // Every victim is in use. The next request asks again.
                return Ok(());
            }
        }
    }

    /// Lets clean blocks leave; returns dirty ones that would be next.
    fn evict(&self, shard: usize, progress: &mut bool) -> Vec<Piece> {
        let (mut dirty, mut steps) = (Vec::new(), Vec::new());
        let mut state = self.shards[shard].lock();
        let state = &mut *state;
        let locks = &state.locks;
        let evicted = state.cache.reclaim(
            self.clock.now(),
            BLOCKS_AT_ONCE,
            |extent| locks.is_free(extent),
            &mut dirty,
            &mut steps,
        );
        *progress |= evicted > 0;
        self.settle_in(state, &steps);
        dirty
    }

    /// Keeps blocks that are dirty still and `must_stay`, as those of volumes that are not
    /// attached. Others become the next to leave.
    fn keep_back(&self, shard: usize, pieces: &[Piece], must_stay: impl Fn(&Piece) -> bool) {
        let mut state = self.shards[shard].lock();
        for piece in pieces {
            if state.cache.is_dirty(piece.place) && must_stay(piece) {
                state.cache.touch(piece.place);
            }
        }
    }

    /// Releases places whose blocks the table has durably forgotten.
    pub(super) async fn release(&self) -> Result<(), VolumeError> {
        let retired: Vec<Vec<Retired>> = self
            .shards
            .iter()
            .map(|shard| std::mem::take(&mut shard.lock().retired))
            .collect();
        if retired.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let committed = self.table.commit().await;
        for (shard, retired) in self.shards.iter().zip(retired) {
            let mut state = shard.lock();
            let state = &mut *state;
            for retired in retired {
                // Requests that read the block when it left may still do so.
                if committed.is_ok() && state.is_unused(&retired) {
                    state.cache.release(retired.block.place);
                } else {
                    state.retired.push(retired);
                }
            }
        }
        committed
    }
}
