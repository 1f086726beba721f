//! Writing dirty blocks back.
//!
//! A block that is being cleaned may be read and not written. Once the backing device
//! has its data durably, the table of blocks hears that it is clean, unless a write has
//! made it dirty again meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use floe_core::Tick;
use floe_core::policy::cleaning::Load;
use floe_core::volume::mode::Sector;
use floe_core::volume::{Cache, CleanCursor, Extent, Piece, Step, VolumeId};
use tokio::sync::OwnedRwLockReadGuard;

use super::decide::RangeLock;
use super::error::VolumeError;
use super::locks::{Hold, RangeLocks};
use super::state::Shared;

/// The time after which blocks that could not be written back are tried again.
const RETRY_TIME: Duration = Duration::from_secs(1);

/// Locks the bytes of a block that is to be cleaned, if it may be.
type MayClean<'a> = &'a mut dyn FnMut(Extent) -> bool;

/// Blocks of a shard that are being cleaned.
struct Batch {
    blocks: Vec<Block>,
    /// Held until the blocks are durable or dirty again.
    _runs: OwnedRwLockReadGuard<()>,
}

/// A block that is being cleaned, and its dirty pieces.
struct Block {
    lock: RangeLock,
    pieces: Vec<Piece>,
}

impl Batch {
    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.blocks.iter().flat_map(|block| &block.pieces)
    }
}

impl Shared {
    /// Runs the cleaning policy of every shard until the cache is closed.
    pub(super) async fn clean_ahead(self: Arc<Self>) {
        let mut named = Vec::new();
        // When the rate allows the next batch.
        let mut may_begin = Tick::ZERO;
        // The shutdown aborts this task.
        loop {
            let mut wake_at = Tick::MAX;
            for shard in 0..self.shards.len() {
                let load = Load {
                    in_flight: self.in_flight.load(Relaxed).min(u64::from(u32::MAX)) as u32,
                    last_request: Tick(self.last_request.load(Relaxed)),
                };
                let now = self.clock.now();
                {
                    let mut state = self.shards[shard].lock();
                    if !state.is_loaded {
                        wake_at = wake_at.min(now + RETRY_TIME);
                        continue;
                    }
                    state.cache.due(now, load, &mut named);
                }
                for some in named.chunks(self.cleaning.blocks_max) {
                    self.clock.sleep_until(may_begin).await;
                    match self.clean_named(shard, some).await {
                        Ok(bytes) => {
                            let began = may_begin.max(self.clock.now());
                            may_begin = began + self.cleaning.time_of(bytes);
                        }
                        Err(_) => self.clock.sleep(RETRY_TIME).await,
                    }
                }
                named.clear();
                wake_at = wake_at.min(self.shards[shard].lock().cache.clean_at());
            }
            let longest = self.clock.now() + Duration::from_secs(3600);
            self.clock.sleep_until(wake_at.min(longest)).await;
        }
    }

    /// Writes blocks back that the policy has named; returns their bytes.
    async fn clean_named(
        self: &Arc<Self>,
        shard: usize,
        places: &[u64],
    ) -> Result<u64, VolumeError> {
        let clean = |state: &mut Cache, may_clean: MayClean<'_>, steps: &mut Vec<Step>| {
            let cleaned = state.clean_at_places(places.iter().copied(), may_clean, steps);
            state.note_cleaned(cleaned);
        };
        let batch = self.begin(shard, clean).await;
        let bytes = batch.pieces().map(|piece| piece.extent.range.len()).sum();
        self.finish(batch).await.map(|()| bytes)
    }

    /// Writes the blocks of `volume` back that are dirty at the call, durably.
    pub(super) async fn clean_all(self: &Arc<Self>, volume: VolumeId) -> Result<(), VolumeError> {
        self.loaded().await?;
        loop {
            let failed = self.cleaning.failed.load(SeqCst);
            self.clean_once(volume).await?;
            // Blocks that another batch has begun to clean are not dirty meanwhile.
            drop(self.cleaning.batches.write().await);
            if self.cleaning.failed.load(SeqCst) == failed {
                return Ok(());
            }
        }
    }

    async fn clean_once(self: &Arc<Self>, volume: VolumeId) -> Result<(), VolumeError> {
        let blocks_max = self.cleaning.blocks_max as u64;
        let mut unread = Ok(());
        for shard in 0..self.shards.len() {
            let mut cursor = CleanCursor::default();
            loop {
                if let Some(volume) = self.volume(volume) {
                    volume.check_reserved()?;
                }
                let mut next = None;
                let mut skipped = false;
                let clean = |state: &mut Cache, may_clean: MayClean<'_>, steps: &mut Vec<Step>| {
                    let may_clean = |extent| {
                        let may = may_clean(extent);
                        skipped |= !may;
                        may
                    };
                    let some = Some(volume);
                    (_, next) = state.clean_all(some, cursor, blocks_max, may_clean, steps);
                };
                let batch = self.begin(shard, clean).await;
                match self.finish(batch).await {
                    // Others can be.
                    Err(error @ VolumeError::Cache(_)) => unread = Err(error),
                    finished => finished?,
                }
                if skipped {
                    // A request has the block: it will be free soon.
                    self.clock.sleep(Duration::from_millis(1)).await;
                    continue;
                }
                match next {
                    Some(next) => cursor = next,
                    None => break,
                }
            }
        }
        unread
    }

    /// Writes the blocks at these places back, as far as no request has them. Returns
    /// their number.
    pub(super) async fn clean_pieces(
        self: &Arc<Self>,
        shard: usize,
        pieces: &[Piece],
    ) -> Result<u64, VolumeError> {
        let mut cleaned = 0;
        for some in pieces.chunks(self.cleaning.blocks_max) {
            let clean = |state: &mut Cache, may_clean: MayClean<'_>, steps: &mut Vec<Step>| {
                let places = some.iter().map(|piece| piece.place);
                cleaned += state.clean_at_places(places, may_clean, steps);
            };
            let batch = self.begin(shard, clean).await;
            self.finish(batch).await?;
        }
        Ok(cleaned)
    }

    /// Lets `clean` choose blocks of a shard, and locks them.
    async fn begin(
        self: &Arc<Self>,
        shard: usize,
        clean: impl FnOnce(&mut Cache, MayClean<'_>, &mut Vec<Step>),
    ) -> Batch {
        let runs = Arc::clone(&self.cleaning.batches).read_owned().await;
        let mut steps = Vec::new();
        let mut locked = Vec::new();
        {
            let mut state = self.shards[shard].lock();
            let state = &mut *state;
            let locks: &mut RangeLocks = &mut state.locks;
            let mut may_clean = |extent: Extent| {
                // A volume that is not attached, or whose device was taken away, keeps its dirty
                // blocks. A block that is pinned is being cleaned: that must not see the results
                // of another one.
                let volume = self.volume(extent.volume);
                let is_attached = volume.is_some_and(|volume| !volume.backing.is_taken_away());
                let id = match is_attached && !locks.is_pinned(extent) {
                    true => locks.try_lock(extent, Hold::Shared),
                    false => None,
                };
                locked.extend(id.map(|id| (extent, id)));
                id.is_some()
            };
            clean(&mut state.cache, &mut may_clean, &mut steps);
        }
        let pieces_of = |extent: Extent| {
            let pieces = steps.iter().filter_map(|step| match *step {
                Step::WriteBack(piece) => Some(piece),
                _ => None,
            });
            let is_in = |piece: &Piece| {
                piece.extent.volume == extent.volume && extent.range.contains(piece.extent.range)
            };
            pieces.filter(is_in).collect()
        };
        let blocks = locked.into_iter().map(|(extent, id)| Block {
            lock: RangeLock::new(self, shard, id),
            pieces: pieces_of(extent),
        });
        Batch {
            blocks: blocks.collect(),
            _runs: runs,
        }
    }

    /// Copies the blocks of a batch to their backing devices, and makes them durable
    /// there. If that fails, they are dirty again; so are those that cannot be read.
    async fn finish(self: &Arc<Self>, batch: Batch) -> Result<(), VolumeError> {
        let shared = Arc::clone(self);
        super::finish::Finish::new(async move { shared.finish_batch(batch).await }).await
    }

    async fn finish_batch(self: &Arc<Self>, batch: Batch) -> Result<(), VolumeError> {
        let copies = batch.blocks.iter().map(|block| self.copy(block));
        let copies = futures::future::join_all(copies).await;
        let (mut backing, mut unread) = (Ok(()), Ok(()));
        for copy in &copies {
            match copy {
                Err(VolumeError::Cache(_)) => unread = copy.clone(),
                copy => backing = backing.and(copy.clone()),
            }
        }
        if backing.is_ok() {
            backing = self.flush_backings(&batch).await;
        }
        for (block, copy) in batch.blocks.iter().zip(&copies) {
            let is_clean = backing.is_ok() && copy.is_ok();
            block
                .pieces
                .iter()
                .for_each(|piece| self.settle_cleaned(*piece, is_clean));
        }
        let result = backing.and(unread);
        if result.is_err() {
            self.cleaning.failed.fetch_add(1, SeqCst);
        }
        result
    }

    /// Tells the table what is clean of a piece that was dirty, or makes it dirty again.
    fn settle_cleaned(&self, piece: Piece, is_clean: bool) {
        let mut state = self.shards[self.plan.shard_of_place(piece.place)].lock();
        // Writes may have made sectors dirty again, and others forgotten some.
        let mut clean = Vec::new();
        state.cache.clean_runs(piece, |piece| clean.push(piece));
        if !is_clean {
            return clean
                .into_iter()
                .for_each(|piece| state.cache.mark_dirty(piece));
        }
        let mut records = Vec::new();
        for piece in clean {
            self.mark(piece, Sector::Clean, &mut records);
        }
        if !records.is_empty() {
            // Changes that go past the cache rely on them.
            self.table.need(self.table.enqueue(records));
        }
    }

    /// Copies a block to its backing device. Writes to it may go on then, and it stays
    /// until the table has heard.
    async fn copy(&self, block: &Block) -> Result<(), VolumeError> {
        let Some(first) = block.pieces.first() else {
            return Ok(());
        };
        let volume = self.volume(first.extent.volume);
        let volume = volume.ok_or(VolumeError::Closed)?;
        let reads: Vec<_> = block.pieces.iter().map(|p| self.read_piece(*p)).collect();
        let (mut writes, mut unread) = (Vec::new(), Ok(()));
        for (piece, read) in block.pieces.iter().zip(reads) {
            match read.await {
                Ok(buf) => {
                    volume.needs_flush.store(true, SeqCst);
                    let start = piece.extent.range.start;
                    writes.push(volume.backing.write(start, buf.freeze()));
                }
                Err(error) => unread = Err(VolumeError::cache(error)),
            }
        }
        super::write::all(writes, VolumeError::backing).await?;
        volume.needs_flush.store(true, SeqCst);
        if unread.is_ok() {
            block.lock.downgrade(Hold::Pin);
        }
        unread
    }

    /// Makes the backing devices of a batch durable.
    async fn flush_backings(&self, batch: &Batch) -> Result<(), VolumeError> {
        let mut ids: Vec<_> = batch.pieces().map(|piece| piece.extent.volume).collect();
        ids.dedup();
        for id in ids {
            let volume = self.volume(id).ok_or(VolumeError::Closed)?;
            volume.flush_backing().await?;
        }
        Ok(())
    }
}
