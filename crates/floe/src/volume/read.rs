//! The way of a read.

use std::sync::Arc;

use floe_core::volume::{ByteRange, Cache, Extent, Operation, Piece, Request, Step};
use floe_device::{Content, IoBuf, IoData, OpFuture};

use super::decide::{Decision, RangeLock, dirty_of};
use super::error::VolumeError;
use super::finish::Finish;
use super::locks::Hold;
use super::state::{Shared, VolumeState};

/// Bytes of a volume, and their content.
type Part = (ByteRange, IoData);

impl Shared {
    /// Reads `range` of a volume, which is whole blocks of it.
    pub(super) async fn read(
        self: &Arc<Self>,
        volume: &Arc<VolumeState>,
        range: ByteRange,
    ) -> Result<IoBuf, VolumeError> {
        if let Some(hit) = self.begin_hit(volume, range) {
            let Hit { read, piece, lock } = hit;
            match read.await {
                Ok(buf) => return Ok(buf),
                Err(error) => self.reread(volume, piece, error, &lock).await?,
            }
        }
        let mut buf = self.device.allocate(range.len() as usize);
        let mut parts = Vec::new();
        for range in self.regions(range) {
            parts.push(self.read_region(volume, range));
        }
        for part in futures::future::join_all(parts).await {
            for (of_part, data) in part? {
                let from = (of_part.start - range.start) as usize;
                buf[from..from + data.len()].copy_from_slice(&data);
            }
        }
        Ok(buf)
    }

    /// Starts a read that one block answers whole, without an allocation.
    fn begin_hit(self: &Arc<Self>, volume: &VolumeState, range: ByteRange) -> Option<Hit> {
        let extent = Extent {
            volume: volume.id,
            range,
        };
        let (piece, lock) = self.in_place(extent, Hold::Shared, Cache::hit)?;
        let read = self.read_piece(piece);
        Some(Hit { read, piece, lock })
    }

    /// The cache device cannot read `piece`: its block leaves if it is clean, so that
    /// the backing device answers.
    async fn reread(
        self: &Arc<Self>,
        volume: &VolumeState,
        piece: Piece,
        error: floe_device::DeviceError,
        lock: &RangeLock,
    ) -> Result<(), VolumeError> {
        let error = VolumeError::cache(error);
        if self.is_dirty(piece) {
            return Err(error);
        }
        tracing::warn!(volume = %volume.name, %error, "a block is read from the backing device instead");
        self.undo(&[Step::Fill(piece)], &[], lock);
        Ok(())
    }

    fn is_dirty(&self, piece: Piece) -> bool {
        let shard = self.plan.shard_of_place(piece.place);
        let state = self.shards[shard].lock();
        !dirty_of(&state.cache, piece.extent).is_empty()
    }

    /// Reads the part of a request in one region. Fills that have begun go on if the
    /// future is dropped.
    async fn read_region(
        self: &Arc<Self>,
        volume: &Arc<VolumeState>,
        range: ByteRange,
    ) -> Result<Vec<Part>, VolumeError> {
        let request = Request {
            volume: volume.id,
            operation: Operation::Read,
            range,
        };
        let extent = Extent {
            volume: volume.id,
            range,
        };
        self.shard_loaded(self.shard_of(extent)).await?;
        let decision = self.decide(request).await;
        let (shared, volume) = (Arc::clone(self), Arc::clone(volume));
        let read = async move { shared.read_decided(&volume, range, decision).await };
        Finish::new(read).await
    }

    async fn read_decided(
        self: &Arc<Self>,
        volume: &VolumeState,
        range: ByteRange,
        decision: Decision,
    ) -> Result<Vec<Part>, VolumeError> {
        let Decision { steps, lock, .. } = decision;
        let mut hits: Vec<(Piece, OpFuture<IoBuf>)> = Vec::new();
        let mut misses: Vec<(ByteRange, OpFuture<IoBuf>)> = Vec::new();
        for step in &steps {
            match *step {
                Step::ReadCache(piece) => hits.push((piece, self.read_piece(piece))),
                Step::ReadBacking(extent) => {
                    misses.push((extent.range, volume.read(extent.range)));
                }
                _ => {}
            }
        }
        let mut parts = Vec::with_capacity(hits.len() + misses.len());
        let mut failed = None;
        for (range, read) in misses {
            match read.await {
                Ok(buf) => parts.push((range, buf.freeze())),
                Err(error) => failed = Some(VolumeError::backing(error)),
            }
        }
        let fetched = parts.len();
        for (piece, read) in hits {
            let part = match read.await {
                Ok(buf) => Ok(buf),
                Err(error) => self.read_around(volume, piece, error, &lock).await,
            };
            match part {
                Ok(buf) => parts.push((piece.extent.range, buf.freeze())),
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            self.undo(&steps, &[], &lock);
            return Err(error);
        }
        let answer = parts.iter().map(|part| within(part, range)).collect();
        parts.truncate(fetched);
        self.fill(steps, parts, lock).await;
        Ok(answer)
    }

    /// Reads a clean piece from the backing device, because the cache device failed.
    async fn read_around(
        self: &Arc<Self>,
        volume: &VolumeState,
        piece: Piece,
        error: floe_device::DeviceError,
        lock: &RangeLock,
    ) -> Result<IoBuf, VolumeError> {
        self.reread(volume, piece, error, lock).await?;
        let read = volume.read(piece.extent.range);
        read.await.map_err(VolumeError::backing)
    }

    /// Writes what was fetched to the blocks that are new. The answer does not wait for
    /// it, unless many fills run.
    async fn fill(self: &Arc<Self>, steps: Vec<Step>, parts: Vec<Part>, lock: RangeLock) {
        if parts.is_empty() || !steps.iter().any(|step| matches!(step, Step::Fill(_))) {
            self.settle(&steps, &lock);
            return;
        }
        let shared = Arc::clone(self);
        let filling = async move {
            match shared.write_fills(&steps, &parts).await {
                Ok(()) => {
                    shared.settle(&steps, &lock);
                }
                Err(error) => {
                    tracing::warn!(%error, "blocks are not filled");
                    shared.undo(&steps, &[], &lock);
                }
            }
        };
        match Arc::clone(&self.fills).try_acquire_owned() {
            Ok(permit) => {
                tokio::spawn(async move {
                    filling.await;
                    drop(permit);
                });
            }
            Err(_) => filling.await,
        }
    }

    /// Carries out the fills among `steps` from what was read.
    pub(super) async fn write_fills(
        &self,
        steps: &[Step],
        parts: &[Part],
    ) -> Result<(), VolumeError> {
        let mut writes = Vec::new();
        for step in steps {
            if let Step::Fill(piece) = *step {
                let range = piece.extent.range;
                let part = parts.iter().find(|(of_part, _)| of_part.contains(range));
                debug_assert!(part.is_some(), "a fill follows the read that it needs");
                if let Some(part) = part {
                    let data = within(part, range).1;
                    let at = self.offset(piece.place);
                    writes.push(self.device.write_of(Content::Clean, at, data));
                }
            }
        }
        let mut result = Ok(());
        for write in writes {
            if let Err(error) = write.await {
                result = Err(VolumeError::cache(error));
            }
        }
        result
    }

    /// Cuts a range at the ends of regions.
    pub(super) fn regions(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + use<> {
        let bytes = self.plan.region_bytes();
        let mut start = range.start;
        std::iter::from_fn(move || {
            let end = range.end.min((start / bytes + 1) * bytes);
            let part = ByteRange { start, end };
            start = end;
            (!part.is_empty()).then_some(part)
        })
    }
}

/// A read that one block answers.
struct Hit {
    read: OpFuture<IoBuf>,
    piece: Piece,
    /// Held until the read has ended.
    lock: RangeLock,
}

/// The part of `part` that lies in `range`.
fn within((of_part, data): &Part, range: ByteRange) -> Part {
    let common = of_part.intersection(range);
    let from = (common.start - of_part.start) as usize;
    (common, data.slice(from..from + common.len() as usize))
}
