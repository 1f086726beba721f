//! The way of a write, of zeros, and of a discard.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Poll;
use std::time::Duration;

use floe_core::volume::mode::Sector;
use floe_core::volume::{ByteRange, Cache, Extent, Operation, Request, Step};
use floe_device::{Content, DeviceError, IoBuf, IoData, OpFuture};

use super::decide::{Decision, RangeLock, dirty_of};
use super::error::VolumeError;
use super::finish::Finish;
use super::locks::Hold;
use super::state::{Shared, VolumeState};
use super::table::Writer;

/// A change of a volume.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write(IoData),
    Zeroes,
    Discard,
}

impl Change {
    fn operation(&self) -> Operation {
        match self {
            Change::Write(_) => Operation::Write,
            Change::Zeroes => Operation::WriteZeroes,
            Change::Discard => Operation::Trim,
        }
    }
}

impl Shared {
    /// Changes `range` of a volume, which is whole blocks of it. Parts that have begun go
    /// on if the future is dropped.
    pub(super) async fn change(
        self: &Arc<Self>,
        volume: &Arc<VolumeState>,
        range: ByteRange,
        change: Change,
    ) -> Result<(), VolumeError> {
        if let Change::Write(data) = &change
            && let Some(mut write) = self.begin_overwrite(volume, range, data)
        {
            let ended = match futures::poll!(&mut write.operation) {
                Poll::Ready(result) => write.end(result),
                Poll::Pending => Finish::new(write.wait()).await,
            };
            ended.map_err(VolumeError::cache)?;
            // The data is the newest only once an earlier request's records say so.
            let written = self.table.written(self.table.needed());
            return self.or_without_cache(volume, written).await;
        }
        let mut parts = Vec::new();
        for part in self.regions(range) {
            let change = match &change {
                Change::Write(data) => {
                    let from = (part.start - range.start) as usize;
                    Change::Write(data.slice(from..from + part.len() as usize))
                }
                other => other.clone(),
            };
            parts.push(self.change_region(volume, part, change));
        }
        let mut result = Ok(());
        for part in futures::future::join_all(parts).await {
            result = result.and(part);
        }
        result
    }

    /// Starts a write in place, if one block has all of `range` and stays dirty: nothing
    /// else changes.
    fn begin_overwrite(
        self: &Arc<Self>,
        volume: &VolumeState,
        range: ByteRange,
        data: &IoData,
    ) -> Option<Overwrite> {
        let extent = Extent {
            volume: volume.id,
            range,
        };
        // The table has the checksum of what is there, unless a bit says that it may differ.
        let writer = self.sums.is_some().then(|| self.table.begin_write(extent));
        if writer.is_some() && !self.table.has_intents(extent) {
            return None;
        }
        let (piece, lock) = self.in_place(extent, Hold::Exclusive, Cache::overwrite)?;
        let at = self.offset(piece.place);
        let operation = self.device.write_of(Content::Dirty, at, data.clone());
        Some(Overwrite {
            operation,
            lock,
            _writer: writer,
        })
    }

    /// Makes the part of a change in one region. If the future is dropped, the change goes
    /// on or has not begun: it never overtakes one that is issued later.
    async fn change_region(
        self: &Arc<Self>,
        volume: &Arc<VolumeState>,
        range: ByteRange,
        change: Change,
    ) -> Result<(), VolumeError> {
        volume.check_writable()?;
        let extent = Extent {
            volume: volume.id,
            range,
        };
        self.shard_loaded(self.shard_of(extent)).await?;
        let writer = self.table.begin_write(extent);
        let intended = self.table.intend(extent);
        self.or_without_cache(volume, intended).await?;
        self.clean_before(&change, extent).await?;
        let request = Request {
            volume: volume.id,
            operation: change.operation(),
            range,
        };
        let (shared, volume) = (Arc::clone(self), Arc::clone(volume));
        if matches!(change, Change::Discard) {
            let lock = self.locked(request, |_, lock| lock).await;
            let discard = async move {
                let _writer = writer;
                shared.discard_region(&volume, request, lock).await
            };
            return Finish::new(discard).await;
        }
        let decision = self.decide(request).await;
        let changed = async move {
            let _writer = writer;
            shared
                .change_decided(&volume, range, change, decision)
                .await
        };
        Finish::new(changed).await
    }

    /// Discards bytes on the backing device before the cache forgets them: if that fails,
    /// nothing has changed.
    async fn discard_region(
        self: &Arc<Self>,
        volume: &VolumeState,
        request: Request,
        lock: RangeLock,
    ) -> Result<(), VolumeError> {
        let ByteRange { start, end } = request.range;
        let discarded = volume.backing.discard(start..end).await;
        volume.needs_flush.store(true, SeqCst);
        discarded.map_err(VolumeError::backing)?;
        let extent = Extent {
            volume: volume.id,
            range: request.range,
        };
        let is_only_copy = {
            let state = self.shards[self.shard_of(extent)].lock();
            state.locks.is_pinned(extent) || !dirty_of(&state.cache, extent).is_empty()
        };
        if is_only_copy {
            // The table must not forget them before the backing device has.
            volume.flush_backing().await?;
        }
        let Decision { steps, lock, .. } = self.decide_with(request, lock);
        self.settle_change(volume, &steps, lock).await
    }

    /// Carries out the part of a change in one region that has been decided.
    async fn change_decided(
        self: &Arc<Self>,
        volume: &VolumeState,
        range: ByteRange,
        change: Change,
        decision: Decision,
    ) -> Result<(), VolumeError> {
        let Decision {
            steps,
            outcome,
            lock,
            dirty,
            forgets_pinned,
        } = decision;
        let Carried { mut backing, cache } = self.carry_out(volume, range, &change, &steps).await;
        if (outcome.has_cleared_dirty || forgets_pinned) && backing.is_ok() {
            // The cache may have the only durable copy of what these bytes were.
            backing = volume.flush_backing().await;
        }
        if backing.is_err() || cache.is_err() {
            if outcome.has_cleared_dirty
                && let Err(error) = &backing
            {
                volume.poison(&format!("a write over unwritten data failed: {error}"));
            }
            self.undo(&steps, &dirty, &lock);
            let is_through = dirty.is_empty() && bytes_to_backing(&steps) == range.len();
            backing?;
            if !is_through {
                return cache;
            }
            // The backing device has it all: the cache can do without, once the table no
            // longer says that older data here is dirty.
            return self.settle_change(volume, &[], lock).await;
        }
        self.settle_change(volume, &steps, lock).await
    }

    /// Enqueues the records of a change that has been carried out, and waits until it
    /// survives the death of the process.
    async fn settle_change(
        &self,
        volume: &VolumeState,
        steps: &[Step],
        lock: RangeLock,
    ) -> Result<(), VolumeError> {
        let makes_dirty = steps.iter().any(|step| matches!(step, Step::WriteCache(_)));
        self.settle(steps, &lock);
        // Without records of its own it relies on those of earlier requests: that its
        // sectors are dirty in the cache, or no longer.
        let ticket = self.table.needed();
        drop(lock);
        if makes_dirty {
            self.dirty_writes.fetch_add(1, SeqCst);
        }
        let written = self.table.written(ticket);
        self.or_without_cache(volume, written).await
    }

    /// Writes the dirty blocks of `extent`, which lies in one region, back before a change
    /// that goes past the cache: if it fails, the cache still has the newest data.
    async fn clean_before(
        self: &Arc<Self>,
        change: &Change,
        extent: Extent,
    ) -> Result<(), VolumeError> {
        let shard = self.shard_of(extent);
        loop {
            let dirty = {
                let cache = &self.shards[shard].lock().cache;
                let stays_in_cache = match change {
                    Change::Write(_) => cache.mode_of(extent.volume).makes_dirty(),
                    Change::Zeroes => false,
                    // Its bytes are of no use.
                    Change::Discard => true,
                };
                match stays_in_cache {
                    true => Vec::new(),
                    false => dirty_of(cache, extent),
                }
            };
            if dirty.is_empty() {
                return Ok(());
            }
            if self.clean_pieces(shard, &dirty).await? == 0 {
                // A request has the blocks: they will be free soon.
                self.clock.sleep(Duration::from_millis(1)).await;
            }
        }
    }

    async fn carry_out(
        &self,
        volume: &VolumeState,
        range: ByteRange,
        change: &Change,
        steps: &[Step],
    ) -> Carried {
        let mut to_cache: Vec<OpFuture<()>> = Vec::new();
        let mut to_backing: Vec<OpFuture<()>> = Vec::new();
        let mut reads: Vec<(ByteRange, OpFuture<IoBuf>)> = Vec::new();
        let is_behind = |step: &Step| matches!(step, Step::WriteBacking(_));
        let content = match steps.iter().any(is_behind) {
            true => Content::Clean,
            false => Content::Dirty,
        };
        let data = |of: ByteRange| {
            let from = (of.start - range.start) as usize;
            match change {
                Change::Write(data) => Some(data.slice(from..from + of.len() as usize)),
                Change::Zeroes | Change::Discard => None,
            }
        };
        for step in steps {
            match *step {
                Step::ReadBacking(extent) => {
                    reads.push((extent.range, volume.read(extent.range)));
                }
                Step::WriteCache(piece) => {
                    if let Some(data) = data(piece.extent.range) {
                        let at = self.offset(piece.place);
                        to_cache.push(self.device.write_of(content, at, data));
                    }
                }
                Step::ZeroCache(piece) => {
                    let at = self.offset(piece.place);
                    let range = at..at + piece.extent.range.len();
                    to_cache.push(self.device.write_zeroes(range));
                }
                Step::WriteBacking(extent) => {
                    if let Some(data) = data(extent.range) {
                        to_backing.push(volume.backing.write(extent.range.start, data));
                    }
                }
                Step::ZeroBacking(extent) => {
                    let range = extent.range.start..extent.range.end;
                    to_backing.push(volume.backing.write_zeroes(range));
                }
                Step::ReadCache(_)
                | Step::Fill(_)
                | Step::Flush(_)
                | Step::TrimBacking(_)
                | Step::WriteBack(_)
                | Step::Unmap(_)
                | Step::Map(_)
                | Step::Mark(_, Sector::Missing | Sector::Clean | Sector::Dirty) => {}
            }
        }
        let mut backing = Ok(());
        let mut parts = Vec::with_capacity(reads.len());
        for (range, read) in reads {
            match read.await {
                Ok(buf) => parts.push((range, buf.freeze())),
                Err(error) => backing = Err(VolumeError::backing(error)),
            }
        }
        let changed_backing = !to_backing.is_empty();
        // All of them end before the locks do.
        backing = backing.and(all(to_backing, VolumeError::backing).await);
        let mut cache = all(to_cache, VolumeError::cache).await;
        if changed_backing {
            volume.needs_flush.store(true, SeqCst);
        }
        if backing.is_ok() && cache.is_ok() {
            cache = self.write_fills(steps, &parts).await;
        }
        Carried { backing, cache }
    }
}

/// What has become of the steps of a change on each device.
struct Carried {
    backing: Result<(), VolumeError>,
    cache: Result<(), VolumeError>,
}

fn bytes_to_backing(steps: &[Step]) -> u64 {
    let bytes = steps.iter().map(|step| match step {
        Step::WriteBacking(extent) | Step::ZeroBacking(extent) => extent.range.len(),
        _ => 0,
    });
    bytes.sum()
}

/// A write in place that runs.
struct Overwrite {
    operation: OpFuture<()>,
    /// Held until the write has ended.
    lock: RangeLock,
    _writer: Option<Writer>,
}

impl Overwrite {
    fn end(self, result: Result<(), DeviceError>) -> Result<(), DeviceError> {
        self.lock.shared().dirty_writes.fetch_add(1, SeqCst);
        result
    }

    async fn wait(mut self) -> Result<(), DeviceError> {
        let result = (&mut self.operation).await;
        self.end(result)
    }
}

/// Waits for all operations; returns the last error.
pub(super) async fn all(
    operations: Vec<OpFuture<()>>,
    error: fn(DeviceError) -> VolumeError,
) -> Result<(), VolumeError> {
    let mut result = Ok(());
    for operation in operations {
        if let Err(failed) = operation.await {
            result = Err(error(failed));
        }
    }
    result
}
